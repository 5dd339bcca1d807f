"""What a process got of the CPU between two looks, and how late Python lets a thread go on."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.bench import process_usage
from edgescope.bench.cache_misses import EVENTS, CacheMisses
from edgescope.bench.process_usage import NAMES, Counters, ProcessUsage, interpreter_wait
from edgescope.clock import MonotonicClock
from edgescope.records import QUERY_END, Absent, Measured, Trial
from edgescope.workloads.base import EndOfInput
from edgescope.workloads.blocking import Failures, Pool
from fake_time import FakeClock

S = 1_000_000_000
BEFORE = Counters(0, 1.0, 0.5, 10, 100, {1: 0, 2: 5 * S}, 1000, (100, 10))
AFTER = Counters(2 * S, 2.5, 1.0, 30, 300, {1: S, 2: 5 * S, 3: S}, 5000, (120, 20))


def between(a=BEFORE, b=AFTER):
    looks = iter((a, b))
    use = ProcessUsage(lambda: next(looks), caches=CacheMisses({}))
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
    assert all(isinstance(field, Absent) for field in ProcessUsage().metrics().values())
    assert between(b=replace(AFTER, at_ns=0))["cores_used"] == process_usage.UNSEEN.reason


@pytest.mark.parametrize("line", ["0::/trial", "4:cpu,cpuacct:/trial"])
def test_the_quota_of_either_version_of_control_groups(tmp_path, line):
    top = "sys/fs/cgroup" if line.startswith("0") else "sys/fs/cgroup/cpu"
    folder = tmp_path / top / "trial"
    folder.mkdir(parents=True)
    (folder / "cpu.stat").write_text("usage_usec 5\nnr_periods 40\nnr_throttled 7\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(line + "\n")
    assert process_usage.now(tmp_path).periods == (40, 7)


def test_a_real_process_knows_itself():
    first = process_usage.now()
    end = time.monotonic() + 0.05
    while time.monotonic() < end:
        pass
    second = process_usage.now()
    assert second.user_s + second.system_s > first.user_s + first.system_s and second.at_ns > first.at_ns
    assert {*NAMES, *EVENTS} == set(ProcessUsage().metrics())


def late(call) -> float:
    work = Pool(call, Failures(), 2)
    found = interpreter_wait(work, Trial(model="null", backend="null", in_flight=2), MonotonicClock())
    work.close()
    assert isinstance(found, Measured)
    return found.value


@pytest.mark.slow
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


class Looks:
    """Work beside which the thread that looks wakes once a unit: all time passes in its sleep, `late_s` too much."""

    def __init__(self, monkeypatch, late_s, ends=None):
        self.clock, self.late_ns, self.ends = FakeClock(), round(late_s * S), ends
        self.asleep, self.go, self.units, self.sleeps = threading.Semaphore(0), threading.Semaphore(0), 0, []
        go = self.go

        class Event(threading.Event):
            def set(self):
                super().set()
                go.release()

        fakes = {"Event": Event, "Thread": threading.Thread, "Semaphore": threading.Semaphore}
        monkeypatch.setattr(process_usage, "threading", SimpleNamespace(**fakes))
        monkeypatch.setattr(process_usage, "time", SimpleNamespace(sleep=self.sleep))

    def sleep(self, seconds):
        self.asleep.release()
        assert self.go.acquire(timeout=10)
        self.clock.t += round(seconds * S) + self.late_ns

    def issue(self, number, samples, done):
        assert (number, samples) == (self.units, 3)
        if self.ends is not None and number == self.ends[0]:
            self.ends[1](number, done)
        self.units += 1
        assert self.asleep.acquire(timeout=10)
        self.go.release()
        assert self.asleep.acquire(timeout=10)  # it has noted the look and sleeps again
        self.asleep.release()
        done(number, 0)

    def wait(self, in_flight=1):
        trial = Trial(model="null", backend="null", in_flight=in_flight, batch=3)
        return interpreter_wait(self, trial, self.clock)


@pytest.mark.parametrize(
    ("late_s", "units"),
    [
        (0.009, 40),  # for 0.4 s
        (0.199, 5),  # and until five looks have been
        (0.499, 4),  # but for 2 s at most; the look that is under way at the end counts, too
    ],
)
@pytest.mark.parametrize("in_flight", [1, 2])
def test_python_is_looked_at_for_some_time_and_some_looks_but_not_for_long(
    monkeypatch, late_s, units, in_flight
):
    looks = Looks(monkeypatch, late_s)
    assert looks.wait(in_flight) == Measured(pytest.approx(late_s), "s", n=units + 1)
    assert looks.units == units


def test_too_few_looks_say_nothing(monkeypatch):
    looks = Looks(monkeypatch, 0.699)
    assert looks.wait() == Absent("only 4 looks in 2 s") and looks.units == 3


def end_of_input(number, done):
    done(number, QUERY_END)
    raise EndOfInput


@pytest.mark.parametrize("in_flight", [1, 3])
@pytest.mark.parametrize(
    ("ends", "units"), [(end_of_input, 6), (lambda number, done: done(number, QUERY_END), 7)]
)
def test_the_looks_end_with_the_input(monkeypatch, ends, units, in_flight):
    """Whether it is raised or reported; six units are fewer than usual, and each had its look."""
    looks = Looks(monkeypatch, 0.009, ends=(6, ends))
    found = looks.wait(in_flight)
    assert looks.units == units and found.value == pytest.approx(0.009) and found.n >= units


def test_what_is_under_way_when_the_input_ends_is_waited_for(monkeypatch):
    through = []

    def issue(number, samples, done):
        if number:
            done(number, QUERY_END)
            raise EndOfInput
        threading.Timer(0.02, lambda: (through.append(number), done(number, 0))).start()

    monkeypatch.setattr(process_usage, "LOOKS", 1)
    trial = Trial(model="null", backend="null", in_flight=2)
    interpreter_wait(SimpleNamespace(issue=issue), trial, MonotonicClock())
    assert through == [0]


@pytest.mark.parametrize(
    ("late_ms", "median_ms"),
    [
        ([4], 4),
        ([0, 0, 0, 0], 0),
        ([0] * 10 + [9], 0),  # ten looks of 1 ms and one of 10 ms: half of the 20 ms is theirs
        ([0] * 9 + [9], 9),
        ([9, 0, 2, 0, 0], 9),
        ([3, 3, 1], 3),
        ([2, 1, 1], 1),
    ],
)
def test_a_look_counts_for_as_long_as_it_lasts(late_ms, median_ms):
    assert process_usage.over_time([1_000_000 * ms for ms in late_ms]) == 1_000_000 * median_ms


@pytest.fixture
def root(tmp_path):
    """A /proc of a process with two threads."""
    for tid, said in ((11, "900 70 5\n"), (12, "800 30 4\n")):
        (tmp_path / f"proc/self/task/{tid}").mkdir(parents=True)
        (tmp_path / f"proc/self/task/{tid}/schedstat").write_text(said)
    (tmp_path / "proc/self/io").write_text("rchar: 9\nread_bytes: 4096\nwrite_bytes: 7\n")
    return tmp_path


def test_counters_are_read_from_proc(root):
    seen = process_usage.now(root)
    assert (seen.waited, seen.read_bytes, seen.periods) == ({11: 70, 12: 30}, 4096, None)
    for ended, left in (
        ("11", {12: 30}),
        ("12", {11: 70}),
    ):  # one thread ended meanwhile, whichever is looked at first
        (root / f"proc/self/task/{ended}").rename(root / ended)
        (root / f"proc/self/task/{ended}").mkdir()
        assert process_usage.now(root).waited == left
        (root / f"proc/self/task/{ended}").rmdir()
        (root / ended).rename(root / f"proc/self/task/{ended}")
    (root / "proc/self/task/11/schedstat").unlink()
    (root / "proc/self/task/12/schedstat").write_text("800\n")
    (root / "proc/self/io").write_text("read_bytes:\n")
    seen = process_usage.now(root)
    assert seen.waited is None and seen.read_bytes is None
    (root / "proc/self/task/12/schedstat").unlink()
    (root / "proc/self/io").unlink()
    seen = process_usage.now(root)
    assert seen.waited is None and seen.read_bytes is None


def test_faults_are_those_of_both_kinds(monkeypatch):
    used = SimpleNamespace(ru_utime=1.5, ru_stime=0.5, ru_nivcsw=7, ru_minflt=20, ru_majflt=3)
    monkeypatch.setattr(process_usage.resource, "getrusage", lambda who: used)
    seen = process_usage.now()
    assert (seen.user_s, seen.system_s, seen.forced, seen.faults) == (1.5, 0.5, 7, 23)


@pytest.mark.parametrize(
    ("groups", "file", "said", "periods"),
    [
        ("0::/a/b:c\n", "sys/fs/cgroup/a/b:c", "nr_periods 4\nnr_throttled 1\n", (4, 1)),
        ("0::/a\n", "sys/fs/cgroup/unified/a", "nr_periods 4\nnr_throttled 0\n", (4, 0)),
        ("5:memory:/a\n3:cpuacct,cpu:/b\n", "sys/fs/cgroup/cpu/b", "nr_periods 9\nnr_throttled 2\n", (9, 2)),
        ("5:memory:/a\n", "sys/fs/cgroup/cpu/a", "nr_periods 9\nnr_throttled 2\n", None),
        ("5:cpuset:/a\n", "sys/fs/cgroup/cpu/a", "nr_periods 9\nnr_throttled 2\n", None),
        ("0::/\n", "sys/fs/cgroup", "nr_periods 9\n", None),
        ("0::/\n", "sys/fs/cgroup", "nr_throttled 9\n", None),
        ("0::/\n", "sys/fs/cgroup/cpu", "nr_periods 9\nnr_throttled 2\n", None),
        ("1:cpu:/\n0::/\n", "sys/fs/cgroup", "nr_periods 0\nnr_throttled 0\n", (0, 0)),
    ],
)
def test_the_quota_is_that_of_the_group_that_limits_the_cpu(tmp_path, groups, file, said, periods):
    (tmp_path / file).mkdir(parents=True)
    (tmp_path / file / "cpu.stat").write_text(said)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(groups)
    assert process_usage._periods(tmp_path) == periods


def test_the_first_look_and_the_last_count_whatever_lies_between():
    looks = iter((BEFORE, replace(AFTER, at_ns=0, user_s=99.0), AFTER))
    use = ProcessUsage(lambda: next(looks))
    use.mark()
    assert set(use.metrics().values()) == {process_usage.UNSEEN}
    use.mark()
    use.mark()
    assert use.metrics()["cores_used"] == Measured(1.0, "1")


def test_a_process_that_did_nothing_has_no_shares():
    idle = replace(BEFORE, at_ns=S, waited={1: 0, 2: 5 * S, 3: 0})
    found = between(b=idle)
    assert found["cores_used"] == 0.0 and found["kernel_time_share"] == "the process used no CPU time"
    assert found["run_wait_share"] == process_usage.UNSEEN.reason  # it neither ran nor waited
    assert found["quota_stopped_share"] == "no CPU quota was in force"  # no period ended
    assert between(b=replace(AFTER, user_s=1.25, system_s=0.75))["kernel_time_share"] == 0.5
    waited = between(b=replace(idle, waited={1: S}))
    assert waited["run_wait_share"] == 1.0
    assert between(a=replace(BEFORE, at_ns=2 * S - 1))["cores_used"] == pytest.approx(2e9)


@pytest.mark.parametrize("lacking", ["waited", "read_bytes", "periods"])
def test_a_counter_that_one_look_lacks_is_absent(lacking):
    names = {"waited": "run_wait_share", "read_bytes": "disk_read_bps", "periods": "quota_stopped_share"}
    for found in (
        between(a=replace(BEFORE, **{lacking: None})),
        between(b=replace(AFTER, **{lacking: None})),
    ):
        assert isinstance(found.pop(names[lacking]), str)
        assert all(isinstance(value, float) for value in found.values())
