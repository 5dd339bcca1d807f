"""The script that measures the ground truth of predictors: a window of steps, read from a loop of today."""

import sys
from pathlib import Path

import pytest
import torch

from edgescope.models.image import photo_set

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))
import training_modes


@pytest.mark.parametrize("workers", [0, 1])
def test_a_window_has_every_part_and_what_loading_cost(tmp_path, monkeypatch, workers):
    monkeypatch.setattr(training_modes, "_confine", lambda cpus: None)  # the cores of the tests stay theirs
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    place = tmp_path / "digits"
    photo_set.write(place, photo_set.Recipe(count=256, width=28, height=28, packed=True, grey=True))
    job = {"workload": "lenet5", "images": str(place), "device": "cpu"}
    row = training_modes._row(
        job, {"cpus": 1, "workers": workers, "batch": 4, "sm_share": None}, [0], seconds=0.05
    )
    assert "failed" not in row
    assert row["steps"] >= training_modes.FEWEST and row["load_s"] > 0
    assert set(row["parts_s"]) == set(training_modes.PARTS)
    assert all(row["parts_s"][part] > 0 for part in ("fetch", "forward", "backward", "optimizer"))
    assert sum(row["parts_s"].values()) == pytest.approx(row["step_s"], rel=0.3)
