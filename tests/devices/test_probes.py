"""The child that probes: it answers whenever asked, and says nothing once it is gone; the walk through memory."""

import io
import itertools
import subprocess
import sys

import psutil
import pytest

from edgescope.bench.watch import peak_rss
from edgescope.devices import probes
from edgescope.devices.probes import Prober


@pytest.mark.process
def test_a_child_that_is_gone_has_no_answer(monkeypatch):
    with Prober("memory") as child:
        child._child.kill()
        child._child.wait()
        assert child.seconds() is None
    monkeypatch.setattr(probes.sys, "executable", "/nowhere/python")
    with Prober("memory") as none:
        assert none.seconds() is None


@pytest.mark.process
def test_a_probe_that_nobody_knows_has_no_answer():
    with Prober("distance to the moon") as child:
        assert child.seconds() is None


@pytest.mark.process
def test_the_child_ends_with_the_block():
    with Prober("memory") as child:
        pid = child._child.pid
        assert psutil.pid_exists(pid)
    assert not psutil.pid_exists(pid)


def test_each_probe_is_prepared_once_and_asked_by_its_number(monkeypatch, capsys):
    counts = itertools.count(3)
    made = {"blind": lambda: lambda: None, "counts": lambda: counts.__next__}
    monkeypatch.setattr(probes, "PROBES", made)
    monkeypatch.setattr(probes.sys, "stdin", io.StringIO("1\n0\n1\n"))
    probes.main(["blind", "counts"])
    assert capsys.readouterr().out == "3\nNone\n4\n"


@pytest.mark.process
def test_the_child_imports_neither_this_package_nor_an_installation():
    """It waits while a trial is measured, on boards that have little memory."""
    words = [sys.executable, "-I", "-S", "-X", "importtime", probes.__file__, *probes.PROBES]
    ran = subprocess.run(words, input="0\n1\n", capture_output=True, text=True, timeout=60)
    imported = {line.split("|")[-1].strip().partition(".")[0] for line in ran.stderr.splitlines()}
    assert ran.returncode == 0 and len(ran.stdout.split()) == 2 and "mmap" in imported
    assert not imported & {"edgescope", "site", "typing", "hashlib"}


def test_a_walk_leaves_no_page_behind(monkeypatch):
    monkeypatch.setattr(probes, "size", lambda: probes.LEAST)
    before, probe = resident(), probes.walking()
    assert probe() > 0.0 and probe() > 0.0
    assert resident() - before < probes.LEAST / 2


def resident():
    """The bytes of this process that are in memory."""
    return psutil.Process().memory_info().rss


def test_the_fastest_walk_counts():
    moments = itertools.accumulate(itertools.chain.from_iterable((0.0, s) for s in (0.03, 0.01, 0.02)))
    assert probes.walk(bytearray(probes.LINE), 3, clock=lambda: next(moments)) == pytest.approx(0.01)


@pytest.mark.slow
def test_one_child_walks_before_and_after_and_its_memory_is_its_own():
    peak_before = peak_rss().value
    with Prober("memory") as walker:
        found = [walker.seconds(), walker.seconds()]
    assert all(s is not None and s > 0 for s in found)
    assert peak_rss().value - peak_before < probes.LEAST / 2


@pytest.mark.parametrize(
    ("caches", "bytes_"),
    [
        (("32K", "1024K"), probes.LEAST),
        (("32K", "16384K"), 32 << 20),
        (("48K", "260M"), probes.MOST),
        (("many", "16777216", ""), 32 << 20),
        (("20M", "K"), 40 << 20),
        ((), probes.MOST),
    ],
)
def test_the_buffer_is_twice_the_largest_cache_within_bounds(tmp_path, caches, bytes_):
    for i, text in enumerate(caches):
        folder = tmp_path / f"index{i}"
        folder.mkdir()
        (folder / "size").write_text(text + "\n")
    assert probes.size(str(tmp_path)) == bytes_
