"""Sweeps: shuffled, resumable, and nothing finished is lost or run twice, even under kill -9."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from edgescope.errors import Message
from edgescope.isolate.fresh import Limits
from edgescope.records import Status, Trial
from edgescope.runner import run as sweep
from edgescope.store.results import Store
from edgescope.study import grid
from making import MACHINE, result


class Counting:
    """A runner that answers at once and counts."""

    def __init__(self, fail_prepare: bool = False) -> None:
        self.ran: list[str] = []
        self.prepared: list[str] = []
        self.fail_prepare = fail_prepare

    def prepare(self, trial, limits):
        self.prepared.append(trial.id)
        return result(trial, status=Status.UNSUPPORTED, reason="E-X-1: no.") if self.fail_prepare else None

    def run(self, trial, limits):
        self.ran.append(trial.id)
        return result(trial)


GRID = grid.grid(
    {"model": "null", "backend": "null", "batch": [1, 2, 3], "precision": ["fp32", "int8"], "replicates": 2}
)


def cells(tmp_path, runner):
    return sweep.ExperimentRunner(Store(tmp_path), Limits(), runner, MACHINE)


def test_the_set_of_trial_ids_equals_the_grid_and_a_second_run_does_nothing(tmp_path):
    runner = Counting()
    assert len(list(sweep.run(GRID, cells(tmp_path, runner)))) == len(GRID) == 12
    assert {r.trial.id for r in Store(tmp_path).results()} == {t.id for t in GRID}
    assert len(runner.prepared) == 6  # once a cell, not once a replicate
    assert list(sweep.run(GRID, cells(tmp_path, Counting()))) == []


def test_what_is_built_from_other_fields_is_prepared_by_itself(tmp_path):
    other = {"workload": "null", "io": "pinned", "batch": 2, "shapes": {"x": (1, 2)}, "options": {"a": 1}}
    other |= {"colocated": "resnet50", "precision": "int8", "device": "cuda", "backend": "onnxruntime"}
    base = {"model": "null", "backend": "null"}
    same = {
        "scenario": "offline",
        "seed": 1,
        "max_s": 20.0,
        "processes": 2,
        "min_agreement": 0.99,
        "replicate": 1,
    }
    runner = Counting()
    some = cells(tmp_path, runner)
    for key, value in {**other, **same}.items():
        some.run(Trial(**(base | {key: value})))
    assert len(runner.prepared) == len(other) + 1  # one for all of `same`


def test_the_order_is_shuffled_within_replicates_and_the_same_for_a_seed():
    orders = [[t.id for t in sweep.order(GRID, seed)] for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2]
    assert [t.replicate for t in sweep.order(GRID, 0)] == [0] * 6 + [1] * 6
    assert orders[0] != [t.id for t in GRID]


def test_a_warm_sweep_keeps_a_crews_cells_together_and_shuffles_crews_and_cells():
    for seed in range(3):
        first = [t for t in sweep.order(GRID, seed, reuse=True) if t.replicate == 0]
        assert [t.precision for t in first] in (["fp32"] * 3 + ["int8"] * 3, ["int8"] * 3 + ["fp32"] * 3)
    orders = {tuple(t.id for t in sweep.order(GRID, seed, reuse=True)[:6]) for seed in range(8)}
    assert len(orders) > 4
    assert {t.replicate for t in sweep.order(GRID, 0, reuse=True)[6:]} == {1}


def test_the_pause_lies_between_measured_cells_only(tmp_path):
    class Odd:
        def add(self, result):
            pass

        def reason(self, trial):
            return Message("I-X-1", "odd") if trial.batch % 2 else None

    paused, told = [], []
    made = cells(tmp_path, Counting())
    results = list(sweep.run(GRID, made, sieves=[Odd()], rest=lambda: paused.append(1), tell=told.append))
    assert len(results) == 12 and len(paused) == len(made.runner.ran) - 1 == 3
    assert [p.done for p in told] == list(range(12)) and told[0].eta_s is None


def test_an_artifact_that_cannot_be_built_is_the_result_of_each_cell_that_needs_it(tmp_path):
    runner = Counting(fail_prepare=True)
    results = list(sweep.run(GRID, cells(tmp_path, runner)))
    assert {r.status for r in results} == {Status.UNSUPPORTED}
    assert {r.trial.id for r in results} == {t.id for t in GRID}
    assert runner.ran == []


def test_a_cancelled_cell_runs_again(tmp_path):
    Store(tmp_path).save(result(GRID[0], status=Status.CANCELLED))
    assert len(sweep.pending(GRID, Store(tmp_path), MACHINE)) == 12


STUDY = """
[store]
path = "{store}"
[trial]
model = "null"
backend = "null"
batch = [1, 2, 3, 4]
processes = [1, 2]
warmup = 0.0
min_s = 0.05
max_s = 0.05
[[exclude]]                 # one of five cells is crowded
processes = 2
batch = [1, 2, 3]
"""
CELLS = 5


def stored(root) -> dict[str, int]:
    """Trial id -> how often the store holds it."""
    counts: dict[str, int] = {}
    for path in root.glob("*/*/result.json"):
        if path.parts[-3] != ".incoming":
            trial = json.loads(path.read_text())["trial_id"]
            counts[trial] = counts.get(trial, 0) + 1
    return counts


def kill_after(run: subprocess.Popen, root, cells: int, delay_s: float) -> bool:
    """Kill -9 once the store holds that many cells and a moment has passed; False if the sweep ended first."""
    deadline = time.monotonic() + 120
    while len(stored(root)) < cells and run.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    try:
        run.wait(timeout=delay_s)
    except subprocess.TimeoutExpired:
        os.kill(run.pid, signal.SIGKILL)
    return run.wait() == -signal.SIGKILL


@pytest.mark.slow
def test_kill_9_at_random_moments_loses_nothing_and_reruns_nothing(tmp_path):
    root = tmp_path / "store"
    (tmp_path / "study.toml").write_text(STUDY.format(store=root))
    command = [sys.executable, "-m", "edgescope.cli.main", "sweep", str(tmp_path / "study.toml")]
    rng, kills = random.Random(7), 0
    before: dict[str, int] = {}
    while len(before) < CELLS:
        run = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        if kills < 3:  # the first ones are killed, the last one finishes
            kills += kill_after(run, root, len(before) + rng.randint(0, 1), rng.uniform(0.0, 1.0))
        else:
            assert run.wait(timeout=120) in (0, 1)  # 1: a busy machine made a cell unstable
        after = stored(root)
        assert set(before) <= set(after), "a finished cell was lost"
        before = after
    assert kills >= 2
    assert {r.trial.processes for r in Store(root).results()} == {1, 2}
    assert set(before) == {t.id for t in grid.read(tmp_path / "study.toml").trials}
    assert set(before.values()) == {1}, "a finished cell ran again"
    assert Store(root).problems == []


@pytest.mark.process
def test_ctrl_c_keeps_what_is_finished_and_exits_130(tmp_path):
    root = tmp_path / "store"
    (tmp_path / "study.toml").write_text(STUDY.format(store=root))
    command = [sys.executable, "-m", "edgescope.cli.main", "sweep", str(tmp_path / "study.toml")]
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not stored(root) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, stderr = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "the same command goes on with the others" in " ".join(stderr.split())
    assert "Traceback" not in stderr
    kept = stored(root)
    assert kept
    assert len(kept) < CELLS
    assert list((root / ".incoming").iterdir()) == []


def test_trials_of_different_questions_never_share_an_id():
    base = Trial(model="null").to_json()
    other = {
        "model": "m",
        "batch": 2,
        "rate": 3.0,
        "io": "pinned",
        "options": {"a": 1},
        "shapes": {"x": [1]},
        "min_agreement": 0.5,
    }
    ids = {Trial(model="null").id} | {Trial.from_json(base | {k: v}).id for k, v in other.items()}
    assert len(ids) == len(other) + 1
