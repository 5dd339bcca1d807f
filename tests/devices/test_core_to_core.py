"""How long a cache line takes from CPU to CPU: two real processes, and what is taken off and left out."""

import contextlib
import os
import subprocess
import sys
import time

import psutil
import pytest

from edgescope.devices import core_to_core
from edgescope.devices.prober import Prober

NS = 1e-9


@pytest.fixture
def pretended(monkeypatch):
    """Have the two CPUs answer each other within these seconds, and this process itself within `own`."""

    def pretend(trips, own=80 * NS):
        monkeypatch.setattr(core_to_core.os, "sched_getaffinity", lambda pid: {3, 5})
        monkeypatch.setattr(core_to_core, "_on", lambda cpu: contextlib.nullcontext())
        monkeypatch.setattr(core_to_core, "_answering", lambda page, cpu: contextlib.nullcontext())
        monkeypatch.setattr(core_to_core, "_trip", lambda page, n, reply: own)
        monkeypatch.setattr(core_to_core, "_trips", lambda page: iter(trips))
        return core_to_core.one_way()

    return pretend


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has no other one")
def test_two_cpus_answer_each_other_and_nothing_is_left_behind():
    with Prober(core_to_core.__name__) as child:
        found = [child.seconds() for _ in range(20)]
        assert psutil.Process(child._child.pid).children() == []
        assert len(psutil.Process(child._child.pid).cpu_affinity()) == len(os.sched_getaffinity(0))
    assert any(s is not None and s < 5e-6 for s in found), found  # other tests may have one for themselves


def test_what_the_interpreter_takes_is_no_distance(pretended):
    assert pretended([220 * NS] * 200) == pytest.approx(30 * NS)
    assert pretended([575 * NS] * 200) == pytest.approx(207.5 * NS)
    assert pretended([150 * NS] * 200) == 0.0


def test_a_trip_that_something_disturbed_does_not_count(pretended):
    assert pretended([220 * NS] * 30 + [9e-3] * 170) == pytest.approx(30 * NS)
    assert pretended([1 * NS] + [220 * NS] * 199) == pytest.approx(30 * NS)


def test_few_trips_tell_nothing(pretended):
    assert pretended([220 * NS] * core_to_core.LEAST) is not None
    assert pretended([220 * NS] * (core_to_core.LEAST - 1)) is None


def test_one_cpu_has_no_distance(monkeypatch):
    monkeypatch.setattr(core_to_core.os, "sched_getaffinity", lambda pid: {0})
    assert core_to_core.one_way() is None


def test_where_no_process_can_be_started_there_is_no_distance(pretended, monkeypatch):
    def refused(page, cpu):
        raise BlockingIOError("fork: Resource temporarily unavailable")

    assert pretended([220 * NS] * 200) is not None
    monkeypatch.setattr(core_to_core, "_answering", refused)
    assert core_to_core.one_way() is None


def test_nobody_answers_and_the_time_is_up():
    code = (
        "import mmap\n"
        "from edgescope.devices import core_to_core as c\n"
        "print(list(c._trips(mmap.mmap(-1, mmap.PAGESIZE))))"
    )
    began = time.monotonic()
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert ran.stdout.strip() == "[]", ran.stderr
    assert time.monotonic() - began < 10


def test_who_answers_ends_by_itself_where_its_parent_was_killed():
    """Also where an earlier probe left its own handler of the alarm."""
    code = (
        "import mmap, os, time\n"
        "from edgescope.devices import core_to_core as c\n"
        "page = mmap.mmap(-1, mmap.PAGESIZE)\n"
        "list(c._trips(page))\n"
        "with c._answering(page, min(os.sched_getaffinity(0))):\n"
        "    print('up', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "up\n"
        (child,) = psutil.Process(parent.pid).children()
        parent.kill()
    assert not psutil.wait_procs([child], timeout=10)[1]
