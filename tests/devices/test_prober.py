"""The child that probes: it answers whenever asked, and says nothing once it is gone or where it cannot start."""

from types import SimpleNamespace

import psutil
import pytest

from edgescope.devices import core_to_core, memory_probe, prober
from edgescope.devices.prober import Prober


@pytest.mark.process
def test_a_child_that_is_gone_has_no_answer(monkeypatch):
    with Prober(memory_probe) as child:
        child._child.kill()
        child._child.wait()
        assert child.seconds() is None
    monkeypatch.setattr(prober.sys, "executable", "/nowhere/python")
    with Prober(memory_probe) as none:
        assert none.seconds() is None


def made(folder, name, text):
    """A probe's module as a Prober is told of it: by its file."""
    (folder / f"{name}.py").write_text(text)
    return SimpleNamespace(__file__=str(folder / f"{name}.py"))


@pytest.mark.process
def test_a_module_that_is_no_probe_has_no_answer(tmp_path):
    for none in (SimpleNamespace(__file__="/nowhere/probe.py"), made(tmp_path, "none", "prepared = 3\n")):
        with Prober(none) as child:
            assert child.seconds() is None


@pytest.mark.process
def test_the_child_ends_with_the_block():
    with Prober(memory_probe) as child:
        pid = child._child.pid
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


@pytest.mark.process
def test_each_probe_is_prepared_once_and_asked_by_its_number(tmp_path):
    blind = made(tmp_path, "blind", "prepared = lambda: lambda: None\n")
    counts = made(tmp_path, "counts", "import itertools\nprepared = lambda: itertools.count(3).__next__\n")
    with Prober(blind, counts) as child:
        assert [child.seconds(1), child.seconds(0), child.seconds(1)] == [3.0, None, 4.0]
        assert psutil.pid_exists(child._child.pid)


@pytest.mark.process
def test_the_child_imports_neither_this_package_nor_an_installation(tmp_path):
    """It waits while a trial is measured, on boards that have little memory."""
    told = "import sys\nprepared = lambda: lambda: sum(n.split('.')[0] in {!r} for n in sys.modules)\n"
    with Prober(
        memory_probe, core_to_core, made(tmp_path, "told", told.format(("edgescope", "site")))
    ) as child:
        assert child.seconds(2) == 0.0


def test_a_walk_leaves_no_page_behind(monkeypatch):
    monkeypatch.setattr(memory_probe, "size", lambda: memory_probe.LEAST)
    before, probe = resident(), memory_probe.prepared()
    assert probe() > 0.0 and probe() > 0.0
    assert resident() - before < memory_probe.LEAST / 2


def resident():
    """The bytes of this process that are in memory."""
    return psutil.Process().memory_info().rss
