"""What need not be tried: larger than a cell that ran out of memory, or than the memory there is."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.isolate.fresh import Limits
from edgescope.records import Machine, Measured, Status, Trial
from edgescope.runner import run as sweep
from edgescope.runner.cooldown import Cooling
from edgescope.runner.eta import Pace
from edgescope.runner.memory import GPU, HOST, AsDescribed, Exhausted, Forecast, size
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.verbs import sweep as verb
from making import MACHINE, result

SIZES = st.integers(1, 8)


def trial(batch=1, processes=1, **keys) -> Trial:
    return Trial(model="null", backend="null", batch=batch, processes=processes, **keys)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=5), st.tuples(SIZES, SIZES, SIZES))
def test_a_cell_is_pruned_exactly_when_it_dominates_one_that_ran_out(failed, mine):
    made = [trial(b, p, in_flight=t) for b, p, t in failed]
    sieve = Exhausted(result(t, status=Status.OOM, reason="E-MEM-1: x.") for t in made)
    asked = trial(mine[0], mine[1], in_flight=mine[2])
    expected = any(t.id != asked.id and all(a <= b for a, b in zip(size(t), mine, strict=True)) for t in made)
    assert bool(sieve.reason(asked)) is expected
    if expected:
        assert sieve.smaller(asked).id in str(sieve.reason(asked))


@pytest.mark.parametrize(
    "keys",
    [
        {"precision": "int8"},
        {"sharing": "mps"},
        {"mode": "15W"},
        {"options": {"a": 1}},
        {"colocated": "null"},
    ],
)
def test_only_the_same_kind_of_cell_is_pruned(keys):
    sieve = Exhausted([result(trial(4), status=Status.OOM)])
    assert sieve.reason(trial(8)) and not sieve.reason(trial(8, **keys))


def test_durations_and_seeds_do_not_make_another_kind():
    sieve = Exhausted([result(trial(4), status=Status.OOM)])
    assert sieve.reason(trial(4, min_s=2.0, seed=3)) and sieve.reason(trial(4, replicate=2))


class Exhausting:
    """A runner whose cells run out of memory from a size on."""

    def __init__(self, most: int) -> None:
        self.most, self.ran = most, []

    def prepare(self, trial, limits):
        return None

    def run(self, trial, limits):
        self.ran.append((trial.batch, trial.processes))
        fits = trial.batch * trial.processes <= self.most
        return result(trial, status=Status.OK if fits else Status.OOM, reason="" if fits else "E-MEM-1: x.")


GRID = grid.grid({"model": "null", "backend": "null", "batch": [1, 2, 4, 8], "processes": [1, 2, 4]})


def cells(tmp_path, runner, retry=()):
    return sweep.Cells(Store(tmp_path), Limits(), runner, MACHINE, retry)


@pytest.mark.parametrize("seed", range(4))
def test_a_sweep_stores_what_it_skips_and_tries_it_only_when_told(tmp_path, seed):
    first = Exhausting(8)
    results = list(sweep.run(GRID, cells(tmp_path, first), seed=seed, sieves=[Exhausted()]))
    assert (
        {r.trial.id for r in results}
        == {t.id for t in GRID}
        == {r.trial.id for r in Store(tmp_path).results()}
    )
    fits = {(t.batch, t.processes) for t in GRID if t.batch * t.processes <= 8}
    assert {r.trial.batch * r.trial.processes <= 8 for r in results if r.status is Status.OK} == {True}
    skipped = [r for r in results if r.status is Status.SKIPPED]
    assert len(skipped) + len(first.ran) == len(GRID) and fits <= set(first.ran)
    assert all("I-PRUNE-1: not tried: b" in str(r.reason) and "--no-prune" in str(r.reason) for r in skipped)

    again = Exhausting(8)
    assert list(sweep.run(GRID, cells(tmp_path, again), sieves=[Exhausted()])) == []
    still = list(sweep.run(GRID, cells(tmp_path, again, {Status.SKIPPED}), sieves=[Exhausted()]))
    assert {r.status for r in still} <= {Status.SKIPPED} and again.ran == []  # the stored ones speak
    tried = list(sweep.run(GRID, cells(tmp_path, again, {Status.SKIPPED})))  # --no-prune
    assert len(again.ran) == len(tried) == len(skipped)


class Room:
    """Memory as a test wants it."""

    unified = False

    def __init__(self, free: float, floor: float = 0.0, gpu: float | None = None) -> None:
        self.free, self.floor, self.on_gpu = free, floor, gpu

    def host(self):
        return self.free, self.floor

    def gpu(self):
        return self.on_gpu


def held(batch, processes, bytes_, name="processes_pss_bytes"):
    made = result(trial(batch, processes))
    return replace(made, metrics={name: Measured(bytes_, "bytes")})


@given(st.floats(1e6, 1e9), st.floats(0, 1e8), st.integers(3, 8), st.integers(4, 16))
def test_the_forecast_is_exact_where_memory_is_linear(model, sample, processes, batch):
    def rule(b, p):
        return p * (model + sample * b)

    seen = [held(b, p, rule(b, p)) for b, p in ((1, 1), (2, 1), (1, 2), (2, 2))]
    need = Forecast(Room(0.0), seen).need(trial(batch, processes), ["processes_pss_bytes"])
    assert need.bytes == pytest.approx(rule(batch, processes))


def test_shared_pages_make_a_line_with_an_intercept():
    seen = [held(1, 1, 500.0), held(1, 2, 700.0)]
    assert Forecast(Room(0.0), seen).need(trial(1, 8), ["processes_pss_bytes"]).bytes == 700 + 6 * 200


def test_metrics_that_count_shared_pages_differently_are_never_put_into_one_line():
    alone = held(1, 1, 540.0, "peak_rss_bytes")
    two = held(1, 2, 500.0)
    assert Forecast(Room(0.0), [alone, two]).need(trial(1, 16), HOST).bytes == 16 * 250
    larger = held(4, 1, 900.0, "peak_rss_bytes")
    assert Forecast(Room(0.0), [alone, two, larger]).need(trial(4, 8), HOST).bytes == 8 * 900


def test_memory_counts_whatever_is_thought_of_the_numbers():
    for status, known in ((Status.UNSTABLE, True), (Status.WRONG_OUTPUT, True), (Status.CRASHED, False)):
        seen = replace(held(1, 1, 500.0), status=status)
        assert bool(Forecast(Room(0.0), [seen]).need(trial(1, 4), HOST)) is known


def test_a_larger_cell_never_speaks_for_a_smaller_one():
    forecast = Forecast(Room(10.0), [held(8, 4, 1e9)])
    assert (
        forecast.need(trial(4, 4), ["processes_pss_bytes"]) is None and forecast.reason(trial(4, 4)) is None
    )


def test_what_will_not_fit_is_not_started_and_the_figures_are_told():
    forecast = Forecast(Room(3.0e9, floor=0.4e9), [held(4, 2, 1.2e9)])
    said = str(forecast.reason(trial(4, 8)))
    assert said.startswith("I-PRUNE-2") and "4.80 GB" in said and "3.00 GB" in said and "0.40 GB" in said
    assert "b4 P2" in said and forecast.reason(trial(4, 4)) is None


def test_a_gpu_of_its_own_and_one_in_the_same_memory():
    both = replace(
        result(trial(1, 2)),
        metrics={
            "processes_pss_bytes": Measured(1e9, "bytes"),
            "gpu_processes_memory_bytes": Measured(2e9, "bytes"),
        },
    )
    apart = Room(64e9, gpu=7e9)
    assert "7.00 GB of the GPU's memory" in str(Forecast(apart, [both]).reason(trial(1, 8)))
    assert Forecast(apart, [both]).reason(trial(1, 4)) is None
    together = Room(7.5e9)
    together.unified = True
    assert "12.00 GB" in str(Forecast(together, [both]).reason(trial(1, 8)))
    assert Forecast(together, [both]).reason(trial(1, 4)) is None


def test_a_gpu_in_the_same_memory_takes_what_the_machine_lost():
    fell = replace(
        held(1, 1, 1e9),
        metrics={"peak_rss_bytes": Measured(1e9, "bytes"), "unified_memory_bytes": Measured(3e9, "bytes")},
    )
    together = Room(7.5e9)
    together.unified = True
    assert "12.00 GB" in str(Forecast(together, [fell]).reason(trial(1, 4)))
    assert Forecast(together, [fell]).reason(trial(1, 2)) is None
    assert Forecast(Room(7.5e9), [fell]).reason(trial(1, 4)) is None


def test_what_other_programs_held_on_the_board_is_none_of_the_need():
    gpus = [{"memory_used_bytes": 9e9}, {"memory_used_bytes": 4e9}]
    here = Machine({}, {"nvidia": {"gpus": gpus}, "environment": {"CUDA_VISIBLE_DEVICES": "1"}})
    board = replace(held(1, 1, 5e9, "gpu_board_memory_bytes"), machine=here)
    assert Forecast(Room(0.0), [board]).need(trial(1, 4), GPU).bytes == 4e9


def test_memory_as_a_result_s_machine_had_it():
    cpu = {
        "memory_available_bytes": 6e9,
        "memory_total_bytes": 8e9,
        "cgroup_memory_limit_bytes": {"absent": "none"},
    }
    state = {"cpu": cpu, "nvidia": {"gpus": [{"memory_used_bytes": 1e9}]}}
    room = AsDescribed(Machine({"nvidia": {"gpus": [{"memory_total_bytes": 80e9}]}}, state))
    assert room.host() == (6e9, 0.64e9) and room.gpu() == 79e9 and not room.unified
    nothing = AsDescribed(Machine({"jetson": {}}, {}))
    assert nothing.host()[0] == float("inf") and nothing.gpu() is None and nothing.unified


def test_the_gpu_is_the_one_that_cuda_calls_the_first(monkeypatch):
    where = Machine({"nvidia": {"gpus": [{"memory_total_bytes": 80e9}, {"memory_total_bytes": 24e9}]}}, {})
    used = {"gpu0_memory_used_bytes": 70e9, "gpu1_memory_used_bytes": 1e9}
    monkeypatch.setattr(verb, "_sensors", lambda: lambda unit: used)
    for visible, free in (("", 10e9), ("1", 23e9), ("GPU-3af1", None), ("7", None)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert verb._free_gpu(where) == free


def test_one_process_alone_speaks_for_any_sharing():
    forecast = Forecast(Room(1e9), [held(1, 1, 4e8, "peak_rss_bytes")])
    assert "I-PRUNE-2" in str(forecast.reason(trial(1, 4, sharing="pinned")))


def test_what_is_left_goes_by_the_kind_of_cell():
    pace = Pace()
    assert pace.left(GRID) is None
    pace.add(trial(1, 1), 2.0)
    assert pace.left([trial(1, 8)]) == 2.0  # nothing closer is known
    pace.add(trial(1, 8), 30.0)
    pace.add(trial(2, 8), 34.0)
    assert pace.left([trial(4, 8), trial(4, 1)], between_s=1.0) == 32.0 + 2.0 + 2.0
    assert pace.of(replace(trial(4, 8), model="resnet50")) == 30.0  # the median of all


def test_cooling_waits_until_every_sensor_is_near_its_start_and_no_longer_than_allowed():
    heat = [{"cpu": 40.0, "gpu": 50.0}, {"cpu": 60.0, "gpu": 52.0}, {"cpu": 46.0}, {"cpu": 44.0, "gpu": 54.9}]
    slept: list[float] = []
    readings = iter(heat)
    cooling = Cooling(lambda: next(readings), 5.0, sleep=slept.append)
    assert cooling.wait() == pytest.approx(1.0) == sum(slept)
    stuck = Cooling(
        iter([{"cpu": 40.0}] + [{"cpu": 90.0}] * 99).__next__, 5.0, limit_s=3.0, sleep=slept.append
    )
    assert stuck.wait() == pytest.approx(3.0)
    blind = Cooling(dict, 5.0, least_s=0.5, sleep=slept.append)
    assert blind.wait() == 0.5
