"""Who else runs: another measurement is waited for, a reader of sensors is ended by whom it belongs to."""

import os
from pathlib import Path

from edgescope.wings.doctor import onlookers


def running(root: Path, pid: int, parent: int, *argv: str) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (x) S {parent} {pid} {pid} 0 -1 0")
    (folder / "cmdline").write_text("\0".join(argv) + "\0")


def test_another_run_is_told_once_and_is_to_be_waited_for(tmp_path):
    running(tmp_path, 700, 1, "/v/bin/python", "/v/bin/edgescope", "sweep", "study.toml", "--api-key=hunter2")
    running(
        tmp_path,
        701,
        700,
        "/v/bin/python",
        "-I",
        "-S",
        "/v/lib/edgescope/warden.py",
        "700",
        "/tmp/x",
        "python",
    )
    running(tmp_path, 702, 701, "/v/bin/python", "-m", "edgescope.bench.child", "run", "/tmp/x", "700")
    running(tmp_path, 703, 702, "/v/bin/python", "-m", "edgescope.telemetry.watcher")
    running(tmp_path, 800, 1, "python3.12", "-m", "edgescope.cli.main", "--board", "optimize", "resnet50")
    first, second = onlookers.findings(tmp_path)
    assert first.code == second.code == "W-PROC-2"
    assert "process 700, edgescope sweep" in first.text
    assert "disturb each other" in first.text
    assert first.fix == "wait for it to end: tail --pid=700 -f /dev/null"
    assert "process 800" in second.text
    assert not any("kill" in f.fix or "hunter2" in f.text for f in (first, second))


def test_who_only_reads_about_edgescope_is_no_run(tmp_path):
    running(tmp_path, 700, 1, "vim", "edgescope-results/notes.txt")
    running(tmp_path, 701, 1, "less", "edgescope.md")
    running(tmp_path, 702, 1, "grep", "nsys", "x")
    running(tmp_path, 703, 1, "")
    assert onlookers.findings(tmp_path) == []


def test_what_belongs_to_another_user_is_not_to_be_killed(tmp_path, monkeypatch):
    running(tmp_path, 700, 1, "tegrastats")
    assert [f.fix for f in onlookers.findings(tmp_path)] == ["kill 700"]
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    (found,) = onlookers.findings(tmp_path)
    assert "kill" not in found.fix and "to whom it belongs" in found.fix
