"""The script that measures the ground truth of predictors: a window of steps, read from a loop of today."""

import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from edgescope.models.image import photos
from edgescope.wings.training.epochs import STAGES

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import training_modes

window = training_modes._window


def after_slow_loads(loop, seconds):
    """Measure a window of a loop whose loads before it took 1000 s each."""
    loop._loads.extend((0, -1, 0, 10**12, 0, *[0] * len(STAGES)))
    return window(loop, seconds)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_window_has_every_part_and_what_loading_cost(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(training_modes, "_confine", lambda cpus: None)  # the cores of the tests stay theirs
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(training_modes, "_window", after_slow_loads)
    monkeypatch.setattr(training_modes, "LEAD", 150)  # as long as the window: what came before must not count
    monkeypatch.setattr(
        training_modes, "LONGEST", 1000
    )  # a busy machine gets its fewest steps, however long they take
    place = tmp_path / "digits"
    photos.write_set(place, photos.Recipe(count=256, width=28, height=28, packed=True, grey=True))
    job = {"workload": "lenet5", "images": str(place), "device": "cpu"}
    row = training_modes._row(
        job, {"cpus": 1, "workers": workers, "batch": 4, "sm_share": None}, [0], seconds=0.05
    )
    assert "failed" not in row
    assert row["steps"] >= training_modes.FEWEST and 0 < row["load_s"] < 1
    assert set(row["parts_s"]) == set(training_modes.PARTS)
    assert all(row["parts_s"][part] > 0 for part in ("fetch", "forward", "backward", "optimizer"))
    assert 0.5 < sum(row["parts_s"].values()) / row["step_s"] < 1.0001  # the rest is between two steps


class Answers:
    """A process that measures every mode at once."""

    refused = ""

    def __init__(self):
        self.ready = threading.Event()
        self.ready.set()
        self.asked = []

    def row(self, mode):
        self.asked.append(mode["batch"])
        return dict(mode)


def test_a_round_that_was_cut_short_goes_on(monkeypatch, tmp_path):
    monkeypatch.setattr(
        training_modes.os, "sched_setaffinity", lambda pid, cpus: None
    )  # for this process alone
    cells = [{"cpus": 1, "workers": 0, "batch": batch, "sm_share": None} for batch in (1, 2, 3)]
    child, kept = Answers(), tmp_path / "windows"
    for batch in (2, 3):
        training_modes.keep(kept, {"workload": "lenet5"} | cells[batch - 1])
    args = SimpleNamespace(workloads=["lenet5"], chosen=cells, seconds=1e9, seed=0)
    rows = training_modes.measured(
        args, {("lenet5", None): child}, time.monotonic(), training_modes.kept(kept)
    )
    for _ in range(4):
        next(rows)
    assert child.asked[0] == 1 and sorted(child.asked[1:]) == [1, 2, 3]


def test_without_a_file_nothing_is_kept(tmp_path):
    training_modes.keep(None, {})
    assert training_modes.kept(None) == training_modes.kept(tmp_path / "none") == []
