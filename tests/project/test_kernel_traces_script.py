"""benchmarks/kernel_traces.py: no stage and no write of the page ends a run on a lent GPU."""

import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import kernel_traces

from edgescope.analysis.kernels.gpu_time import GpuTime


def page(tmp_path, monkeypatch):
    written = tmp_path / "written.json"

    def write(name, figures, *, met):
        written.write_text(json.dumps({"figures": figures, "met": met}))
        return written

    monkeypatch.setattr(kernel_traces, "write", write)
    return kernel_traces.Page(tmp_path / "page.json", time.monotonic() + 60)


def test_a_cell_with_records_is_written_as_plain_json(tmp_path, monkeypatch):
    found = page(tmp_path, monkeypatch)
    found.stage("a", lambda: {"closure": 0.99, "gpus": [GpuTime(0, 100, 40, 30, 10, 50, 10, 0)]})
    kept = json.loads((tmp_path / "page.json").read_text())
    assert kept["met"] and kept["figures"]["cells"]["a"]["gpus"][0]["busy_ns"] == 40


def test_what_cannot_be_written_fails_its_own_stage_only(tmp_path, monkeypatch, capsys):
    found = page(tmp_path, monkeypatch)
    found.stage("a", lambda: {"closure": np.zeros(3)})
    found.stage("b", lambda: 1 / 0)
    found.stage("c", lambda: {"closure": 0.99})
    kept = json.loads((tmp_path / "page.json").read_text())
    assert set(kept["figures"]["cells"]) == {"c"} and set(kept["figures"]["failed"]) == {"a", "b"}
    assert not kept["met"] and "ZeroDivisionError" in capsys.readouterr().out


def test_a_page_that_cannot_be_written_ends_nothing(tmp_path, monkeypatch, capsys):
    found = page(tmp_path, monkeypatch)
    monkeypatch.setattr(kernel_traces, "write", lambda *_, **__: 1 / 0)
    found.stage("a", lambda: {"closure": 0.99})
    assert found.found["cells"] and "ZeroDivisionError" in capsys.readouterr().err
