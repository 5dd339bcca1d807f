"""What a process got of the CPU between two looks, and how late Python lets a thread go on."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.bench import own_use
from edgescope.bench.own_use import NAMES, Counters, OwnUse, interpreter_wait
from edgescope.clock import MonotonicClock
from edgescope.records import Absent, Measured, Trial
from edgescope.workloads.blocking import Failures, Pool

S = 1_000_000_000
BEFORE = Counters(0, 1.0, 0.5, 10, 100, {1: 0, 2: 5 * S}, 1000, (100, 10))
AFTER = Counters(2 * S, 2.5, 1.0, 30, 300, {1: S, 2: 5 * S, 3: S}, 5000, (120, 20))


def between(a=BEFORE, b=AFTER):
    looks = iter((a, b))
    use = OwnUse(lambda: next(looks))
    use.mark()
    use.mark()
    return {
        name: field.value if isinstance(field, Measured) else field.reason
        for name, field in use.metrics().items()
    }


def test_what_lies_between_two_looks():
    found = between()
    assert found == {
        "cores_used": 1.0,
        "kernel_time_share": 0.25,
        "run_wait_share": 0.5,
        "preemptions_per_s": 10.0,
        "page_faults_per_s": 100.0,
        "disk_read_bps": 2000.0,
        "quota_stopped_share": 0.5,
    }


def test_what_the_kernel_does_not_tell_is_absent_with_its_reason():
    found = between(b=replace(AFTER, waited=None, read_bytes=None, periods=None))
    assert (
        found["run_wait_share"] == "this kernel has no schedstat" and "quota" in found["quota_stopped_share"]
    )
    assert "read" in found["disk_read_bps"] and found["cores_used"] == 1.0
    assert all(isinstance(field, Absent) for field in OwnUse().metrics().values())
    assert between(b=replace(AFTER, at_ns=0))["cores_used"] == own_use.UNSEEN.reason


@pytest.mark.parametrize("line", ["0::/trial", "4:cpu,cpuacct:/trial"])
def test_the_quota_of_either_version_of_control_groups(tmp_path, line):
    top = "sys/fs/cgroup" if line.startswith("0") else "sys/fs/cgroup/cpu"
    folder = tmp_path / top / "trial"
    folder.mkdir(parents=True)
    (folder / "cpu.stat").write_text("usage_usec 5\nnr_periods 40\nnr_throttled 7\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(line + "\n")
    assert own_use.now(tmp_path).periods == (40, 7)


def test_a_real_process_knows_itself():
    first = own_use.now()
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    second = own_use.now()
    assert second.user_s + second.system_s > first.user_s + first.system_s and second.at_ns > first.at_ns
    assert set(NAMES) == set(OwnUse().metrics())


def late(call) -> float:
    work = Pool(call, Failures(), 2)
    found = interpreter_wait(work, Trial(model="null", backend="null", in_flight=2), MonotonicClock())
    work.close()
    assert isinstance(found, Measured)
    return found.value


def test_threads_that_compute_in_python_make_others_wait_and_those_that_sleep_do_not():
    stop = threading.Event()

    def python(query_id):
        end = time.monotonic() + 0.03
        while time.monotonic() < end and not stop.is_set():
            sum(range(100))

    def sleeping(query_id):
        time.sleep(0.01)

    assert late(python) > late(sleeping) + 0.001


def test_work_that_fails_ends_the_thread_that_looks():
    def issue(*_):
        raise RuntimeError("broken")

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="broken"):
        interpreter_wait(SimpleNamespace(issue=issue), Trial(model="null", backend="null"), MonotonicClock())
    assert threading.active_count() == before
