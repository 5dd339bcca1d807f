"""The script that measures the ground truth of predictors: a window of steps, read from a loop of today."""

import sys
from pathlib import Path

import pytest
import torch

from edgescope.analysis.run.epochs import STAGES
from edgescope.models.image import photo_set

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import training_modes

window = training_modes._window


def after_slow_loads(loop, seconds):
    """Measure a window of a loop whose loads before it took 1000 s each."""
    loop._loads.extend((0, -1, 0, 10**12, 0, *[0] * len(STAGES)))
    return window(loop, seconds)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_window_has_every_part_and_what_loading_cost(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(training_modes, "_confine", lambda cpus: None)  # the cores of the tests stay theirs
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(training_modes, "_window", after_slow_loads)
    monkeypatch.setattr(training_modes, "LEAD", 150)  # as long as the window: what came before must not count
    place = tmp_path / "digits"
    photo_set.write(place, photo_set.Recipe(count=256, width=28, height=28, packed=True, grey=True))
    job = {"workload": "lenet5", "images": str(place), "device": "cpu"}
    row = training_modes._row(
        job, {"cpus": 1, "workers": workers, "batch": 4, "sm_share": None}, [0], seconds=0.05
    )
    assert "failed" not in row
    assert row["steps"] >= training_modes.FEWEST and 0 < row["load_s"] < 1
    assert set(row["parts_s"]) == set(training_modes.PARTS)
    assert all(row["parts_s"][part] > 0 for part in ("fetch", "forward", "backward", "optimizer"))
    assert 0.5 < sum(row["parts_s"].values()) / row["step_s"] < 1.0001  # the rest is between two steps
