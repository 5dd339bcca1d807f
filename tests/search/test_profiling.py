"""Choosing modes to profile, and confirming a pick, in a world whose truth is planted; the simulated board."""

import sys
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.analysis.cells.objective import wanted
from edgescope.analysis.predict import modes
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.search.loop import Loop
from edgescope.search.profiling import START, Profiling, keeps, profiled
from making import result

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "benchmarks"))
import predict_modes
import simulated_board

TRIALS = [
    Trial(model="null", backend="null", batch=b, processes=p, mode=f"cpus=0-{c - 1}" if c > 1 else "cpus=0")
    for b in (1, 2, 4, 8)
    for p in (1, 2)
    for c in (1, 2, 4)
]
FEATURES = {t.mode: {"cpu_cores": float(int(t.mode[-1]) + 1)} for t in TRIALS}
GRID = modes.grid(modes.of_trials(TRIALS, FEATURES, 8), [t.label for t in TRIALS])


def speed(trial):
    """Samples/s: bound by the cores, or by a fixed wait for each query."""
    cores = FEATURES[trial.mode]["cpu_cores"]
    return 1 / max(0.02 / cores, 0.015 / (trial.batch * trial.processes))


def power(trial):
    return 3 + 0.05 * speed(trial)


class World:
    """The methods of Cells that a loop uses; `broken` trials fail."""

    builds = type("B", (), {"build": lambda self, trials: None})()

    def __init__(self, meter=True, broken=lambda trial: False):
        self.ran, self.meter, self.broken = [], meter, broken

    def stored(self, trial):
        return None

    def expect(self, trials):
        pass

    def left(self, trials):
        return None

    def run(self, trial, limit_s=None):
        self.ran.append(trial)
        if self.broken(trial):
            return result(trial, status=Status.FAILED, metrics={}, reason="E-TEST-1: it fell over")
        jitter = 1 + 0.01 * np.random.default_rng(len(self.ran)).normal()
        watts = Measured(power(trial), "W") if self.meter else Absent("no sensor")
        return result(
            trial, metrics={"throughput_sps": Measured(speed(trial) * jitter, "samples/s"), "power_w": watts}
        )


def searched(world, goals, cells=8, confirm=2, seed=0):
    state = Profiling(GRID, goals, seed=seed)
    list(Loop(world).run(profiled(state, TRIALS, cells, confirm)))
    return state


def test_it_starts_with_modes_far_apart_and_never_profiles_one_twice():
    world = World()
    searched(world, wanted("throughput"), confirm=1)
    first = world.ran[:START]
    assert len({t.cell for t in world.ran}) == len(world.ran) >= 8
    assert {t.batch for t in first} >= {1, 8} and {t.processes for t in first} == {1, 2}
    assert first[0] == replace(TRIALS[-1], replicate=0)  # the one with the most of everything


def test_the_pick_is_the_fastest_and_was_measured_as_often_as_asked():
    world = World()
    state = searched(world, wanted("throughput"), confirm=3)
    found = state.confirmed(3)
    assert not isinstance(found, Absent)
    best = max(speed(t) for t in TRIALS)
    assert speed(TRIALS[found.mode]) >= 0.97 * best
    runs = [t for t in world.ran if replace(t, replicate=0) == TRIALS[found.mode]]
    assert [t.replicate for t in runs] == [0, 1, 2] and found.figures["throughput_sps"].n == 3


def test_the_pick_under_a_cap_keeps_it():
    world = World()
    state = searched(world, wanted("throughput", ["power<=8W"]), cells=10)
    found = state.confirmed(2)
    assert not isinstance(found, Absent)
    best = max(speed(t) for t in TRIALS if power(t) <= 8)
    assert power(TRIALS[found.mode]) <= 8 and speed(TRIALS[found.mode]) >= 0.95 * best


def test_a_cap_that_nothing_keeps_has_no_pick():
    found = searched(World(), wanted("throughput", ["power<=1W"])).confirmed(2)
    assert isinstance(found, Absent) and "no mode kept every constraint" in found.reason


def test_modes_that_fail_are_not_tried_again_and_not_picked():
    world = World(broken=lambda t: t.mode == "cpus=0-3")
    state = searched(world, wanted("throughput"))
    found = state.confirmed(2)
    assert not isinstance(found, Absent) and TRIALS[found.mode].mode != "cpus=0-3"
    failed = [t.cell for t in world.ran if t.mode == "cpus=0-3"]
    assert len(failed) == len(set(failed)) and state.failed


def test_it_ends_where_everything_fails():
    world = World(broken=lambda t: True)
    state = searched(world, wanted("throughput"), cells=4)
    assert not state.seconds and len(world.ran) == 4


def test_without_a_meter_a_question_about_power_has_no_pick_and_ends():
    state = searched(World(meter=False), wanted("throughput", ["power<=8W"]), cells=6)
    found = state.prediction()
    assert found.pick is None and isinstance(found.power, Absent)
    assert not keeps(found, found.wanted.constraints).any()


def test_a_mode_that_sets_nothing_is_the_whole_machine():
    trials = [replace(TRIALS[0], mode=m) for m in ("as_is", "cpus=0", "quota=0.5")]
    rows = modes.of_trials(trials, {"cpus=0": {"cpu_cores": 1.0}, "quota=0.5": {"cpu_quota": 0.5}}, 8)
    assert [(r["cpu_cores"], r["cpu_quota"]) for r in rows] == [(8.0, 8.0), (1.0, 8.0), (8.0, 0.5)]
    words = modes.of_trials([replace(TRIALS[0], mode="15W"), replace(TRIALS[0], mode="as_is")], {}, 8)
    assert [r["mode"] for r in words] == ["15W", "as_is"]


def test_a_share_of_a_gpu_is_a_number():
    trials = [
        replace(TRIALS[0], device="cuda", processes=2, sharing=s) for s in ("mps=25", "mps", "time_slicing")
    ]
    rows = modes.of_trials(trials, {}, 8)
    assert [r["gpu_sm_share"] for r in rows] == [0.25, 1.0, 1.0]
    assert [r["sharing"] for r in rows] == ["mps", "mps", "time_slicing"]


# -- the simulated board ------------------------------------------------------------------------------------


def test_the_simulated_board_has_the_grid_of_an_orin():
    every = simulated_board.modes()
    assert len(every) == 4368 and "SIMULATED" in (simulated_board.__doc__ or "")
    for load in simulated_board.LOADS.values():
        slow, fast = (simulated_board.truth(load, every[i]) for i in (0, -1))
        assert slow[0] > 2 * fast[0] and slow[1] < fast[1]


@pytest.mark.parametrize("name", ["lenet_like"])
def test_fifteen_modes_predict_a_simulated_board_and_pick_under_a_cap(name):
    """The full figures are those of benchmarks/predict_modes.py --simulated."""
    every = [m for i, m in enumerate(simulated_board.modes()) if i % 7 == 0]
    grid = modes.grid(every)
    truth = np.array([simulated_board.truth(simulated_board.LOADS[name], m) for m in every])
    errors = predict_modes._chosen_modes(grid, name, every, truth, 0)
    assert errors["time"] < predict_modes.SIMULATED_TIME
    pick = predict_modes._pick(grid, name, every, truth, 12, 0)
    assert pick["slower"] <= predict_modes.WITHIN and pick["over_cap"] <= predict_modes.OVER


def test_the_benchmark_reads_grids_of_both_kinds(tmp_path):
    rows = [
        {
            "workload": "lenet5",
            "cpus": c,
            "workers": w,
            "batch": b,
            "sm_share": s,
            "step_s": 0.01 * b / c,
            "power_w": 80.0,
        }
        for c in (1, 2, 4)
        for w in (0, 1)
        for b in (16, 64)
        for s in (50, 100)
    ]
    rows.append(
        {"workload": "lenet5", "cpus": 8, "workers": 0, "batch": 16, "sm_share": 50, "failed": "no memory"}
    )
    (world,) = predict_modes._of_rows({"rows": rows})
    assert len(world.rows) == 24 and world.rows[0]["gpu_sm_share"] == 0.5
    assert world.watts is not None and world.seconds[0] == pytest.approx(0.01)
    found = predict_modes.validated(world, None, 1)
    assert set(found["mape"]) == {"predict", "linear", "powertrain_network"} and found["profiled"] == 15
    assert found["mape"]["predict"]["time"] < found["mape"]["linear"]["time"]


def test_under_16_watts_one_mode_alone_is_near_the_best_and_a_run_may_put_it_above():
    """What docs/predict.md says of the pick that is missed: of 2,097 modes one, at 15.95 W, with noise of 0.24 W."""
    load = simulated_board.LOADS["resnet18_like"]
    truth = np.array([simulated_board.truth(load, mode) for mode in simulated_board.modes()])
    under = truth[truth[:, 1] <= 16]
    near = under[under[:, 0] <= 1.03 * under[:, 0].min()]
    assert len(under) == 2097 and len(near) == 1 and near[0, 1] == pytest.approx(15.95, abs=0.005)
    sd = simulated_board.POWER_NOISE * near[0, 1]
    assert sd == pytest.approx(0.24, abs=0.005)
    kept = NormalDist(near[0, 1], sd / predict_modes.CONFIRMED**0.5).cdf(16)
    assert kept == pytest.approx(0.63, abs=0.005)


@pytest.mark.parametrize(("gain", "tried"), [(0.002, 1), (0.0005, None)])
def test_a_fifth_of_a_per_cent_that_is_expected_is_worth_a_run(gain, tried):
    state = Profiling(GRID, wanted("throughput"))
    state.tell(0, 1.0, None)
    ahead = np.full(len(GRID), -1.0)
    ahead[1] = gain
    sure = SimpleNamespace(mean=ahead, sd=np.full(len(GRID), 1e-9))
    assert state.candidate(SimpleNamespace(grid=GRID, guesses={"throughput_sps": sure})) == tried
