"""The child that probes: it answers whenever asked, and says nothing once it is gone or where it cannot start."""

import os

import psutil

from edgescope.devices import memory_probe, prober
from edgescope.devices.prober import Prober


def test_a_child_that_is_gone_has_no_answer(monkeypatch):
    with Prober(memory_probe.__name__) as child:
        child._child.kill()
        child._child.wait()
        assert child.seconds() is None
    monkeypatch.setattr(prober.sys, "executable", "/nowhere/python")
    with Prober(memory_probe.__name__) as none:
        assert none.seconds() is None


def test_a_module_that_is_no_probe_has_no_answer():
    with Prober("edgescope.devices.no_such_probe") as child:
        assert child.seconds() is None


def test_the_child_ends_with_the_block():
    with Prober(memory_probe.__name__) as child:
        pid = child._child.pid
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


def test_a_child_that_found_nothing_has_no_seconds(monkeypatch, tmp_path):
    (tmp_path / "blind.py").write_text("from edgescope.devices.prober import answer\nanswer(lambda: None)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    with Prober("blind") as child:
        assert child.seconds() is None and psutil.pid_exists(child._child.pid)


def test_a_probe_without_seconds_has_none(monkeypatch, capsys):
    monkeypatch.setattr(prober.sys, "stdin", ["\n", "\n"])
    found = iter([None, 2.5e-8])
    prober.answer(lambda: next(found))
    assert capsys.readouterr().out.split() == ["None", "2.5e-08"]
