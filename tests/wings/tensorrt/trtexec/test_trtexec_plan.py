"""A plan's script as a board runs it: sh, a stand-in for trtexec, a recorded board's files; then the ranking."""

import os
import subprocess
import tarfile

import pytest

from edgescope.devices import recording, replay
from edgescope.records import Measured, Status
from edgescope.wings.optimize import plan, returned

pytestmark = [pytest.mark.process, pytest.mark.slow]


@pytest.mark.parametrize(("jetpack", "version"), [("5.1.2", "8502"), ("6.2.1", "100300")])
def test_a_folder_goes_to_a_board_and_comes_back(network, trtexec, tmp_path, monkeypatch, jetpack, version):
    monkeypatch.setattr(plan, "ROUNDS", 3)
    monkeypatch.setitem(plan.WINDOW, "min_s", 0.1)
    for name in ("cache", "store"):
        monkeypatch.setenv(f"EDGESCOPE_{name.upper()}", str(tmp_path / name))
    found = plan.plan(
        network, "orin_nano", tmp_path / "net", jetpack=jetpack, precision=["fp16"], warmup=0.02
    )
    root = tmp_path / "root"
    root.mkdir()
    replay.materialise(recording.read(recording.find("orin_nano")), root)
    there = {"TRTEXEC": str(trtexec(version)), "EDGESCOPE_ROOT": str(root)}
    script = ["sh", str(found.folder / plan.SCRIPT)]
    done = subprocess.run(script, env={**os.environ, **there}, capture_output=True, text=True, check=True)
    assert "bring back" in done.stderr
    packed = found.folder / "results.tgz"
    with tarfile.open(packed) as archive:
        assert not [m.name for m in archive if m.name.endswith(".engine")]
    back = returned.returned(packed, network, board="orin_nano")
    assert {r.status for r in back.results} <= {Status.OK, Status.UNSTABLE}
    rows = {r.trial.precision: r for r in back.variants.rows}
    assert rows.keys() == {"fp32", "fp16"}
    assert all(r.gate and isinstance(r["p50_s"], Measured) for r in rows.values())
    assert not [r.rejected for r in rows.values() if r.rejected]
