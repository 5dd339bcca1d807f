"""Whole trials through crews: what a result holds, kept processes, faults within a sweep, and a daemon that dies."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import nullcontext
from dataclasses import replace

import psutil
import pytest

import edgescope
import making
from edgescope import bench
from edgescope.bench import workers as joint
from edgescope.isolate import persistent
from edgescope.isolate.fresh import Limits, until_readable
from edgescope.modes import enter, gpu
from edgescope.records import Absent, Measured, Status, Trial
from edgescope.runner.builds import Builds, Pace
from edgescope.runner.isolated import Isolated, ReusingRunner

pytestmark = pytest.mark.slow

QUICK = Trial(
    model="null", backend="null", processes=2, warmup=0, min_s=0.1, max_s=0.1, options={"delay_us": 1000}
)
LIMITS = Limits(timeout_s=30)


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGESCOPE_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(enter, "_JOURNALS", {})


@pytest.fixture(scope="module")
def reusing():
    """One runner for all: a cell that goes wrong must not harm the next."""
    with ReusingRunner(Isolated()) as runner:
        yield runner


@pytest.fixture
def own():
    with ReusingRunner(Isolated()) as runner:
        yield runner


def workers():
    """The worker processes below this one, by the order they were started."""
    below = psutil.Process().children(recursive=True)
    mine = [p for p in below if "edgescope.bench.worker" in " ".join(p.cmdline())]
    return sorted(mine, key=lambda p: p.pid)


def value(result, name):
    return result.metrics[name].value


def test_a_multi_process_result_is_whole(trials_here):
    result = edgescope.run(replace(QUICK, colocated="null"))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert [w.number for w in result.workers] == [0, 1, 2] and len({w.pid for w in result.workers}) == 3
    assert value(result, "counter_gap_queries") <= 1
    window = result.window
    assert (window.stop_ns - window.start_ns) / 1e9 == pytest.approx(0.1, abs=0.09)
    assert value(result, "throughput_sps") == pytest.approx(2 * value(result, "throughput_per_process_sps"))
    assert 0.5 < value(result, "fairness") <= 1 and value(result, "colocated_throughput_sps") > 0
    assert value(result, "processes_rss_bytes") >= value(result, "processes_pss_bytes") > 1e6
    assert isinstance(result.metrics["gpu_processes_memory_bytes"], Absent)
    assert isinstance(result.metrics["start_skew_s"], Measured)
    assert result.effective.device == "cpu" and result.verification.passed
    assert set(result.queries.columns["worker"]) == {0, 1, 2}


def test_queries_of_many_calls_are_counted_as_queries(trials_here):
    result = edgescope.run(replace(QUICK, scenario="multi_stream", in_flight=3, batch=2))
    assert value(result, "counter_gap_queries") <= 1
    for worker in result.workers:
        mine = result.queries.columns["worker"] == worker.number
        assert abs(worker.counted - mine.sum()) <= 5


def test_a_trace_that_ends_early_ends_the_window(tmp_path, trials_here):
    (tmp_path / "t").write_text("".join(f"{k / 100}\n" for k in range(30)))
    trace = replace(QUICK, scenario="trace", scenario_options={"trace": str(tmp_path / "t")}, max_s=1.5)
    window = edgescope.run(trace).window
    assert 0.2 < (window.stop_ns - window.start_ns) / 1e9 < 1.0


def test_an_open_loop_lasts_as_long_as_it_may():
    long = replace(QUICK, min_s=1.0, max_s=10.0)
    assert joint.seconds(long) == 2.0
    assert joint.seconds(replace(long, scenario="fixed_rate", rate=5.0)) == 10.0


def test_a_pool_is_as_large_as_what_is_to_come_and_started_at_once(reusing):
    other = replace(QUICK, options={"delay_us": 900})
    reusing.expect([other, replace(other, processes=4), replace(other, processes=8, replicate=1)])
    small = reusing.run(other, LIMITS)
    assert len(small.workers) == 2 and len(workers()) == 4
    shared = [small.metrics["processes_pss_bytes"], *(w.pss_bytes for w in small.workers)]
    assert all(isinstance(f, Absent) and "2 kept workers that do nothing" in str(f.reason) for f in shared)


class Leader:
    """Answers as a kept leader does, each time with the next of these statuses."""

    def __init__(self, *statuses):
        self.statuses, self.asked, self.stops = list(statuses), [], 0

    def answer(self, verb, trial, limits, env, prestart):
        self.asked.append(prestart)
        return making.result(trial, status=self.statuses.pop(0), reason="E-X-1: it said so.")

    def stop(self):
        self.stops += 1

    close = stop


def test_memory_that_idle_workers_hold_decides_over_no_cell(own):
    own._leader = leader = Leader(Status.OOM, Status.OK, Status.OOM)
    own.expect([QUICK, replace(QUICK, processes=4)])
    assert own.run(QUICK, LIMITS).status is Status.OK
    assert leader.asked == [4, 0] and leader.stops == 1
    assert own.run(QUICK, LIMITS).status is Status.OOM  # this time nobody else held any
    assert leader.asked == [4, 0, 0]


def test_a_leader_that_died_between_two_cells_harms_neither(own, monkeypatch):
    own.run(QUICK, LIMITS)
    leader = own._leader._child
    leader.kill()
    psutil.wait_procs([psutil.Process(leader.pid)], timeout=5)
    asked = []

    def wait(handle, limits):
        if not asked:
            own._leader._child.kill()  # the new one, too, before it has looked at the trial
        asked.append(handle)
        return until_readable(handle, limits)

    monkeypatch.setattr(persistent, "until_readable", wait)
    assert own.run(QUICK, LIMITS).status in (Status.OK, Status.UNSTABLE) and len(asked) == 2


STOPPED = """
import signal
import making
from edgescope.isolate.fresh import Limits
from edgescope.records import Status, Trial
from edgescope.runner.isolated import Isolated
from edgescope.runner.isolated import ReusingRunner
from test_reuse import Leader
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
signal.signal(signal.SIGTERM, signal.SIG_DFL)
leader = Leader(Status.OK)
try:
    with ReusingRunner(Isolated()) as runner:
        runner._leader = leader
        runner.run(Trial(model="null", backend="null"), Limits(timeout_s=30))
        signal.raise_signal(signal.SIGTERM)
finally:
    print(leader.stops, signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)
"""


def test_a_kept_runner_can_be_stopped_between_two_cells():
    """In a process of its own: what a signal does to this one depends on the tests before it, and may end it."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", STOPPED], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (128 + signal.SIGTERM, "1 True\n"), done.stderr


def test_a_kept_runner_leaves_nothing_behind(tmp_path, monkeypatch):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))  # of the processes that it starts
    monkeypatch.setattr(tempfile, "tempdir", None)
    others = workers()
    with ReusingRunner(Isolated()) as runner:
        runner.run(QUICK, LIMITS)
        assert list(scratch.rglob("edgescope-workers-*"))
        late = runner.run(replace(QUICK, min_s=9, max_s=9), Limits(timeout_s=1))
        assert late.status is Status.TIMEOUT  # those who were stopped had no time to clear up
    assert list(scratch.iterdir()) == [] and workers() == others


def test_the_one_process_builds_one_artifact_after_the_other_and_the_text_says_so(own):
    """Two orders in one pipe were each other's answers: artifacts that were built came out as a crash."""
    told = []
    made = Builds(
        own, LIMITS, Pace(), waiting=lambda what: told.append(what) or nullcontext(), at_once=lambda: 4
    )
    trials = [replace(QUICK, options={"delay_us": d}) for d in range(1, 10)]
    before = psutil.Process().children()
    for i in range(len(trials)):
        made.build(trials[i:])
    assert [made.failure(t) for t in trials] == [None] * len(trials)
    assert len(told) == len(trials) and all(what.startswith("building the artifact of") for what in told)
    assert len(set(psutil.Process().children()) - set(before)) == 1


def test_kept_workers_answer_cell_after_cell_and_say_so(reusing):
    assert reusing.prepare(QUICK, LIMITS) is None
    first, second = reusing.run(QUICK, LIMITS), reusing.run(replace(QUICK, batch=4), LIMITS)
    alone = reusing.run(replace(QUICK, processes=1), LIMITS)
    pids = [w.pid for w in first.workers]
    assert [w.pid for w in second.workers] == pids and [w.pid for w in alone.workers] == pids[:1]
    assert (first.process, alone.process) == ("reused", "reused")
    replicate = reusing.run(replace(QUICK, replicate=1), LIMITS)
    assert first.machine.id == replicate.machine.id
    assert replicate.process == "fresh" and not {w.pid for w in replicate.workers} & set(pids)
    assert workers() == []  # none was kept beside it


def test_a_worker_killed_within_a_cell_fails_that_cell_alone(reusing):
    pid = reusing.run(QUICK, LIMITS).workers[1].pid
    threading.Timer(1.0, os.kill, (pid, signal.SIGKILL)).start()
    broken = reusing.run(replace(QUICK, min_s=5, max_s=5), LIMITS)
    assert broken.status is Status.CRASHED and "worker 1 died of SIGKILL" in str(broken.reason)
    assert reusing.run(QUICK, LIMITS).status in (Status.OK, Status.UNSTABLE)


def test_the_limits_hold_for_every_cell(reusing):
    low = reusing.run(QUICK, Limits(floor_bytes=1 << 60))
    assert low.status is Status.OOM and str(low.reason).startswith("E-MEM-1")
    late = reusing.run(replace(QUICK, min_s=9, max_s=9), Limits(timeout_s=1))
    assert late.status is Status.TIMEOUT
    assert workers() == []  # neither left anything behind


def test_a_leader_that_dies_is_a_crash_and_takes_its_workers_along(reusing):
    reusing.run(QUICK, LIMITS)
    leader, old = workers()[0].parent(), workers()
    threading.Timer(0.5, leader.kill).start()
    broken = reusing.run(replace(QUICK, min_s=5, max_s=5), LIMITS)
    assert broken.status is Status.CRASHED and "SIGKILL" in str(broken.reason)
    assert not psutil.wait_procs(old, timeout=5)[1]


CONTROL = """#!/bin/sh
# answers as nvidia-cuda-mps-control does; one daemon a pipe directory
echo "$1$CUDA_MPS_PIPE_DIRECTORY" >> "$FAKE/asked"
[ -e "$FAKE/broken" ] && { cat "$FAKE/broken"; exit 1; }
if [ "$1" = -d ]; then : > "$CUDA_MPS_PIPE_DIRECTORY/control"; exit 0; fi
read word
[ -e "$CUDA_MPS_PIPE_DIRECTORY/control" ] || { echo "Cannot find MPS control daemon process"; exit 1; }
[ "$word" = get_server_list ] && [ ! -e "$FAKE/idle" ] && echo 4711
[ "$word" = quit ] && [ -e "$FAKE/stubborn" ] && { echo "it will not"; exit 1; }
[ "$word" = quit ] && rm "$CUDA_MPS_PIPE_DIRECTORY/control"
exit 0
"""
ON_GPU = replace(QUICK, device="cuda", sharing="mps")


@pytest.fixture
def fake(tmp_path, monkeypatch):
    where = tmp_path / "bin"
    where.mkdir()
    (where / gpu.CONTROL).write_text(CONTROL)
    (where / gpu.CONTROL).chmod(0o755)
    monkeypatch.setenv("PATH", f"{where}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(where))
    return where


def starts(fake):
    return [line for line in (fake / "asked").read_text().splitlines() if line.startswith("-d")]


def environment(process):
    return process.environ().get(gpu.PIPE), process.environ().get(gpu.PERCENT)


def test_one_daemon_serves_the_whole_sweep_and_ends_with_it(fake, own):
    seen = []
    for sharing in ("mps", "mps=50"):
        assert own.run(replace(ON_GPU, sharing=sharing), LIMITS).status in (Status.OK, Status.UNSTABLE)
        seen.append({environment(p) for p in workers()} - {(None, None)})  # those are the other runner's
    pipe = starts(fake)[0].removeprefix("-d")
    assert len(starts(fake)) == 1
    assert seen[0] == {(pipe, None)} and seen[-1] == {(pipe, None), (pipe, "50")}
    own.close()
    assert not os.path.exists(pipe)


def test_a_daemon_that_refuses_is_unsupported_with_its_words(fake, reusing):
    (fake / "broken").write_text("An instance of this daemon is already running")
    result = reusing.run(ON_GPU, LIMITS)
    assert result.status is Status.UNSUPPORTED
    assert str(result.reason).startswith("E-MPS-1") and "already running" in str(result.reason)
    cold = Isolated().run(ON_GPU, LIMITS)
    assert cold.status is Status.UNSUPPORTED and "already running" in str(cold.reason)


def test_a_daemon_that_dies_within_a_cell_fails_it_and_the_next_has_another(fake, own):

    def die():
        os.unlink(os.path.join(starts(fake)[0].removeprefix("-d"), "control"))

    assert own.run(ON_GPU, LIMITS).status in (Status.OK, Status.UNSTABLE)  # starts daemon and workers
    threading.Timer(1.0, die).start()
    result = own.run(replace(ON_GPU, min_s=4, max_s=4), LIMITS)
    assert result.status is Status.FAILED and str(result.reason).startswith("E-MPS-2"), result.reason
    assert "Cannot find MPS control daemon" in str(result.reason)
    assert own.run(ON_GPU, LIMITS).status in (Status.OK, Status.UNSTABLE)
    assert len(starts(fake)) == 2


def test_a_daemon_that_will_not_stop_takes_no_result_along(fake, own):
    own._leader = Leader(Status.CRASHED)
    (fake / "stubborn").touch()
    result = own.run(ON_GPU, LIMITS)
    assert result.status is Status.CRASHED and result.reason.what == "it said so"
    assert result.warnings[-1].code == "E-MODE-5" and "it will not" in str(result.warnings[-1])
    (fake / "stubborn").unlink()


def test_a_servers_log_of_an_earlier_cell_speaks_for_no_later_one(fake):
    daemon = gpu.Mps()
    with enter.entered(daemon):
        log = daemon._folder / "log"
        log.mkdir()
        (fake / "idle").touch()
        assert "no server" in daemon.dead()
        (log / "server.log").write_text("a client\n")
        assert daemon.dead() == ""
        daemon.begin()
        assert "no server" in daemon.dead()
        (log / "server.log").write_text("a client\nanother\n")
        assert daemon.dead() == ""


def test_workers_that_no_daemon_serves_are_not_measured_as_clients():
    result = bench.run(ON_GPU)
    assert result.status is Status.FAILED and str(result.reason).startswith("E-MPS-4")


def test_mps_on_a_cpu_would_be_a_wrong_label(reusing):
    result = reusing.run(replace(QUICK, sharing="mps"), LIMITS)
    assert result.status is Status.UNSUPPORTED and str(result.reason).startswith("E-MPS-3")
