"""What runs beside a trial's process until that measures: whoever waits, and who dies meanwhile."""

import subprocess
import sys
import threading
import time

import pytest

from edgescope import bench
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.records import Result, Trial


def test_who_waits_goes_on_once_what_runs_beside_it_is_done(tmp_path):
    may_end, seen = threading.Event(), []
    with fresh.held(tmp_path, lambda: may_end.wait(10) and seen.append("done")):
        waiting = threading.Thread(target=lambda: fresh.wait_for_parent(tmp_path) or seen.append("measured"))
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive() and not seen
        may_end.set()
        waiting.join(10)
    assert seen == ["done", "measured"]


def test_an_error_beside_it_is_nobodys_and_holds_nobody_up(tmp_path):
    with fresh.held(tmp_path, lambda: 1 / 0):
        fresh.wait_for_parent(tmp_path)


def test_what_runs_beside_it_has_ended_when_the_trial_has(tmp_path):
    seen = []
    with pytest.raises(KeyboardInterrupt), fresh.held(tmp_path, lambda: time.sleep(0.1) or seen.append(1)):
        raise KeyboardInterrupt
    assert seen


def test_where_there_are_no_locks_it_is_done_first(tmp_path, monkeypatch):
    def refused(file, how):
        raise OSError("no locks available")

    seen = []
    monkeypatch.setattr(fresh.fcntl, "flock", refused)
    with fresh.held(tmp_path, lambda: seen.append("done")):
        assert seen == ["done"]
        fresh.wait_for_parent(tmp_path)


def test_nobody_waits_where_nothing_is_held(tmp_path):
    fresh.wait_for_parent(tmp_path)


@pytest.mark.process
def test_a_parent_that_is_killed_holds_nobody_up(tmp_path):
    program = (
        "import pathlib, sys, time\n"
        "from edgescope.isolate import fresh\n"
        "with fresh.held(pathlib.Path(sys.argv[1]), lambda: time.sleep(60)):\n"
        "    print('held', flush=True)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout.readline() == "held\n"
        waiting = threading.Thread(target=fresh.wait_for_parent, args=(tmp_path,))
        waiting.start()
        waiting.join(0.1)
        assert waiting.is_alive()
        parent.kill()
        waiting.join(10)
    assert not waiting.is_alive()


@pytest.mark.slow
def test_a_look_measures_once_what_runs_meanwhile_is_done():
    """It is a process of its own: what it measured began after the other had ended."""
    trial = Trial(model="null", backend="null", warmup=0.01, min_s=0.05, max_s=0.05)
    ended = []
    found = fresh.look(
        trial,
        Limits(timeout_s=60),
        meanwhile=lambda: time.sleep(2.0) or ended.append(time.monotonic_ns()),
    )
    assert found.window.start_ns > ended[0] and found.verification is None


@pytest.mark.slow
def test_a_loaded_trial_is_what_waits():
    seen = []
    trial = Trial(model="null", backend="null", warmup=0.01, min_s=0.05, max_s=0.05)
    devices = bench.present()
    started = Result.begun(trial, bench.here())
    found = bench.look(started, devices=devices, wait=lambda: seen.append(time.monotonic_ns()))
    assert len(seen) == 1 and found.window.start_ns > seen[0]
