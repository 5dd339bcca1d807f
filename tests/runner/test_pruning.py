"""What need not be tried: larger than a cell that ran out of memory, or than the memory there is."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.isolate.fresh import FLOOR_BYTES, Limits
from edgescope.records import Machine, Measured, Status, Trial
from edgescope.runner import memory
from edgescope.runner import run as sweep
from edgescope.runner.builds import Ahead, Pace
from edgescope.runner.memory import GPU, HOST, AsDescribed, Exhausted, Forecast, fitting, size
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.verbs import sweep as verb
from edgescope.verbs.sweep import Cooling
from making import MACHINE, result

SIZES = st.integers(1, 8)


def trial(batch=1, processes=1, **keys) -> Trial:
    return Trial(model="null", backend="null", batch=batch, processes=processes, **keys)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=5), st.tuples(SIZES, SIZES, SIZES))
@pytest.mark.slow
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
    return sweep.ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE, retry)


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
@pytest.mark.slow
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
    assert "7.00 GB of the GPU's " in str(Forecast(apart, [both]).reason(trial(1, 8)))
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


def test_what_has_run_is_ahead_no_longer():
    ahead = Ahead(GRID)
    for done, each in enumerate(GRID, start=1):
        ahead.drop(each)
        rest = Ahead(GRID[done:])
        assert (ahead.runs, ahead.artifacts) == (rest.runs, rest.artifacts)
        assert ahead.artifacts.keys() == rest.artifacts.keys()
    assert not ahead.runs and not ahead.artifacts


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


# -- by numbers ------------------------------------------------------------------------------------------------


def test_a_sensor_at_its_margin_is_cool_and_the_least_pause_counts_as_waited():
    for reading, waited in ((45.0, 2.0), (45.1, 3.5)):
        slept = []
        cooling = Cooling(
            iter([{"cpu": 40.0}, {"cpu": reading}, *[{"cpu": 45.1}] * 2, *[{"cpu": 45.0}] * 9]).__next__,
            5.0,
            least_s=2.0,
            sleep=slept.append,
        )
        assert cooling.wait() == waited and slept == [2.0, *[0.5] * round((waited - 2) / 0.5)]
    assert (cooling.limit_s, Cooling(dict, 1.0, least_s=200.0).limit_s) == (120.0, 200.0)


def test_a_kind_that_was_not_timed_takes_its_window_and_what_the_others_took_beyond_theirs():
    pace = Pace()
    assert pace.of(trial()) is None
    pace.add(trial(max_s=10.0, idle_s=2.0, warmup=1.0), 18.0)  # 3 s beyond 10 + 2 x 2 + 1
    pace.add(trial(max_s=20.0, idle_s=0.0, warmup=None), 19.0)  # within its window
    pace.add(trial(max_s=30.0, idle_s=0.0, warmup=0.0), 31.0)
    assert list(pace.overheads) == [3.0, 0.0, 1.0]
    assert pace.of(trial(max_s=5.0, idle_s=1.0, warmup=2.0)) == 1.0 + 5.0 + 2 * 1.0 + 2.0
    cold = trial(max_s=10.0, replicate=1, idle_s=2.0, warmup=1.0)
    pace.add(cold, 40.0)
    pace.add(replace(cold, replicate=2), 42.0)
    assert pace.of(replace(cold, replicate=3)) == 41.0 and pace.of(trial(max_s=10.0)) == 18.0
    assert pace.of(trial(max_s=10.0, batch=2, processes=2)) == 40.0, "the model and its window, of all three"


def test_a_run_of_no_time_takes_none():
    pace = Pace()
    pace.add(trial(max_s=1.0), 0.0)
    assert pace.left([trial(max_s=1.0)] * 3) == 0.0 and pace.left([trial(max_s=1.0)] * 3, 2.0) == 6.0


def test_builds_that_are_missing_take_what_those_after_the_first_took():
    pace, kinds = Pace(), [trial(precision=p) for p in ("fp32", "int8", "fp16", "bf16", "tf32")]
    for each in kinds:
        pace.add(each, 1.0)
    assert pace.left(kinds) == 5.0, "nothing was built yet"
    pace.built(kinds[0], 2.0)
    pace.built(kinds[0], 99.0)  # it is built once
    assert pace.left(kinds[:3]) is None, "two more as slow as the first would take longer than all runs"
    assert pace.left(kinds[:2]) == 2.0 + 2.0, "one more takes as long as the runs: that may be said"
    assert pace.left(kinds[:1]) == 1.0
    for each, seconds in zip(kinds[1:4], (7.0, 3.0, 5.0), strict=True):
        pace.built(each, seconds)
    assert pace.left(kinds) == 5.0 + 5.0
    both = Pace()
    both.add(kinds[0], 1.0)
    both.built(kinds[0], 10.0)
    both.built(kinds[1], 4.0)
    assert both.left(kinds[:4]) == 4.0 + 2 * 4.0


@pytest.mark.parametrize(("free", "fits"), [(4e9, True), (3.999e9, False)])
def test_what_fits_to_the_last_byte_is_tried(free, fits):
    host = Forecast(Room(free, floor=1e9), [held(1, 1, 1e9)])
    assert (host.reason(trial(1, 3)) is None) is fits
    seen = replace(held(1, 1, 1.0), metrics={"gpu_processes_memory_bytes": Measured(1e9, "bytes")})
    assert (Forecast(Room(64e9, gpu=free), [seen]).reason(trial(1, 4)) is None) is fits
    assert Forecast(Room(64e9, gpu=None), [seen]).reason(trial(1, 4)) is None


def test_one_more_sample_takes_the_smallest_slope_at_equal_processes():
    seen = [
        held(b, p, bytes_) for b, p, bytes_ in ((1, 1, 100.0), (3, 1, 160.0), (1, 2, 200.0), (3, 2, 280.0))
    ]
    names = ["processes_pss_bytes"]
    need = Forecast(Room(0.0), seen).need(trial(5, 3), names)
    assert need.bytes == (280 + 120) + 3 * 20 * 2 and memory.size(need.by) == (3, 2, 1)
    seen.append(held(4, 1, 164.0))  # the two largest batches count: 4 bytes a sample
    assert Forecast(Room(0.0), seen).need(trial(6, 1), names).bytes == 164 + 4 * 2
    falls = [held(1, 1, 100.0), held(1, 2, 90.0), held(2, 1, 80.0)]
    assert Forecast(Room(0.0), falls).need(trial(3, 4), names).bytes == 4 * 80.0
    assert Forecast(Room(0.0), falls[:2]).need(trial(3, 4), names).bytes == 90.0


def test_of_equal_cells_the_one_that_held_most_counts():
    seen = [held(1, 1, bytes_) for bytes_ in (5e8, 9e8, 7e8)]
    assert Forecast(Room(0.0), seen).need(trial(1, 2), HOST).bytes == 1.8e9


@pytest.mark.parametrize(
    ("free", "most", "fits"), [(4.64e9, 9, 4), (4.639e9, 9, 3), (4.64e9, 2, 2), (1e8, 5, 1)]
)
def test_as_many_processes_as_fit(free, most, fits):
    cpu = {"memory_available_bytes": free, "memory_total_bytes": 8e9}
    seen = replace(held(1, 1, 1e9), machine=Machine({}, {"cpu": cpu}))
    assert fitting(seen, trial(1, 1), most) == fits


def test_a_machine_says_the_least_of_what_is_free_and_of_its_gpu_what_it_has():
    cpu = {"memory_available_bytes": 6e9, "cgroup_memory_limit_bytes": 5e9}
    gpus = {"nvidia": {"gpus": [{"memory_used_bytes": 1e9, "memory_total_bytes": 8e9}]}}
    assert AsDescribed(Machine({}, {"cpu": cpu})).host() == (5e9, FLOOR_BYTES)
    assert AsDescribed(Machine(gpus, {})).gpu() is None and AsDescribed(Machine({}, gpus)).gpu() is None
    for visible, free in (("0", 7e9), ("1", None)):
        assert (
            AsDescribed(Machine(gpus, {**gpus, "environment": {"CUDA_VISIBLE_DEVICES": visible}})).gpu()
            == free
        )


def test_this_machines_memory_is_what_is_free_and_what_its_own_workers_hold(monkeypatch):
    class Gone:
        def memory_full_info(self):
            raise memory.psutil.NoSuchProcess(1)

    class Child:
        def memory_full_info(self):
            return SimpleNamespace(uss=7)

    class Machines:
        total = 100

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def available(self):
            return 50

    def process():
        return SimpleNamespace(children=lambda recursive: [Child(), Gone(), Child()] if recursive else [])

    monkeypatch.setattr(memory.psutil, "Process", process)
    monkeypatch.setattr(memory, "Memory", Machines)
    monkeypatch.setattr(memory, "floor_of", lambda bytes_, found: (bytes_, found.total))
    room = memory.ThisMachine(Limits(floor_bytes=3), 9.0)
    assert room.host() == (64, (3, 100)) and room.gpu() == 9.0 and not room.unified
    assert memory.ThisMachine(Limits(), unified=True).unified and memory.ThisMachine(Limits()).gpu() is None


def test_what_ran_out_is_told_at_its_smallest_and_by_its_size():
    made = [
        result(trial(b, p, in_flight=t), status=Status.OOM) for b, p, t in ((4, 2, 1), (2, 4, 3), (8, 1, 1))
    ]
    sieve = Exhausted(made)
    assert (
        memory.size(sieve.smaller(trial(8, 8, in_flight=8))) == (2, 4, 3)
        and sieve.smaller(trial(4, 2, in_flight=1)) is None
    )
    assert memory.sized(made[0].trial) == "b4 P2" and memory.sized(made[1].trial) == "b2 P4 T3"
    assert memory.sized(trial(1, 1)) == "b1"
