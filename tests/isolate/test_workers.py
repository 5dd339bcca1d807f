"""Real worker processes that do nothing: they agree on a window, and what happens to one of them ends the trial."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from edgescope.analysis.run import workers as joint
from edgescope.isolate import placement
from edgescope.isolate.pool import Prestart, WorkerPool, WorkerPools
from edgescope.isolate.worker import Placement, WorkerError, oom_kills
from edgescope.process import Launch
from edgescope.records import Status, Trial
from edgescope.scenarios.open_loop import patience_s

QUICK = Trial(
    model="null",
    backend="null",
    processes=2,
    warmup=0,
    min_s=0.1,
    max_s=0.1,
    options={"delay_us": 1000},
)


@pytest.fixture(scope="module")
def pool():
    """One for all: whatever befell a worker, the next trial finds another."""
    with WorkerPool(grace_s=0.5) as pool:
        yield pool


def driven(pool, trial=QUICK, seconds=0.1):
    with pool.run(placement.trials(trial), placement.placements(trial), 20) as run:
        return run.drive(seconds, lambda pids: [psutil.pid_exists(pid) for pid in pids])


def rows(done):
    from edgescope.bench.workers import _rows

    return _rows(done)


@pytest.mark.process
def test_workers_start_and_stop_together_and_the_counter_agrees(pool):
    with pool.run(placement.trials(QUICK), placement.placements(QUICK), 20) as run:
        pids = [w.pid for w in run.workers]
        done = run.drive(0.1, lambda pids: pids)
        table = [rows(word) for word in done.done]
    assert done.seen == pids and len(set(pids)) == 2
    for mine, before, after in zip(table, done.looks[0].counts, done.looks[1].counts, strict=True):
        start, stop = mine.ends()
        assert start >= done.span.start_ns  # nobody began early
        assert stop >= done.span.stop_ns  # and all were at work to the end
        looks = tuple((look.before_ns, look.after_ns) for look in done.looks)
        assert joint.counter_gap(mine, (before, after), looks) <= 1
        assert after - before > 10


@pytest.mark.process
def test_workers_at_a_fixed_rate_are_cameras_with_phases_of_their_own(pool):
    cameras = replace(QUICK, scenario="fixed_rate", rate=50.0, seed=3)
    with pool.run(placement.trials(cameras), placement.placements(cameras), 20) as run:
        done = run.drive(0.1, lambda pids: None)
        due = [rows(word).columns["scheduled_ns"] for word in done.done]
    for number, times in enumerate(due):
        begun = (times[0] - done.span.start_ns) / 20e6
        drawn = np.random.default_rng(3 + number).random()
        assert drawn <= begun < drawn + 2  # a worker that wakes late counts from then
        assert set((times[1:] - times[:-1]).tolist()) <= {20_000_000, 20_000_001, 19_999_999}


@pytest.mark.process
def test_a_smaller_trial_uses_the_first_workers_and_the_rest_hold_nothing(pool):
    driven(pool)
    pids = [w.pid for w in pool.workers]
    driven(pool, replace(QUICK, processes=1, batch=4))
    driven(pool, replace(QUICK, processes=3))
    assert [w.pid for w in pool.workers][: len(pids)] == pids and len(pool.workers) >= 3


def started(floor_bytes):
    with (
        WorkerPool() as pool,
        pool.run(placement.trials(QUICK), placement.placements(QUICK), 20, prestart=Prestart(4, floor_bytes)),
    ):
        return len(pool.workers)


@pytest.mark.slow
def test_workers_for_later_are_started_only_where_memory_has_room():
    assert started(floor_bytes=1) == 4 and started(floor_bytes=1 << 60) == 2


@pytest.mark.slow
def test_workers_for_later_that_cannot_start_are_no_business_of_this_trial(monkeypatch):
    load = WorkerPool._load

    def fails(run, new, trial):
        if new[0].number:
            raise WorkerError(Status.OOM, "no memory for more")
        return load(run, new, trial)

    monkeypatch.setattr(WorkerPool, "_load", staticmethod(fails))
    one = replace(QUICK, processes=1)
    with (
        WorkerPool() as pool,
        pool.run(placement.trials(one), placement.placements(one), 20, prestart=Prestart(3, 1)) as run,
    ):
        assert run.drive(0.05, len).seen == 1 and len(pool.workers) == 1


@pytest.mark.slow
def test_a_queue_that_is_still_served_is_no_hang():
    late = replace(QUICK, scenario="fixed_rate", rate=100.0, options={"delay_us": 300_000})
    with (
        WorkerPool(grace_s=0.2) as pool,
        pool.run(placement.trials(late), placement.placements(late), 20) as run,
    ):
        run.opened = [{"facts": {}}] * 2
        done = run.drive(0.1, len, patience_s=patience_s(late))
    assert all(word["stop"] > 3 for word in done.done)


def test_seeds_differ_and_each_worker_answers_a_trial_of_one_process():
    trials = placement.trials(replace(QUICK, seed=7, colocated="null", sharing="pinned"))
    assert [t.seed for t in trials] == [7, 8, 9]
    assert not any(t.multi_process for t in trials)


def kill(pool, number, how=signal.SIGKILL):
    os.kill(pool.workers[number].pid, how)


@pytest.mark.slow
def test_a_worker_killed_before_it_is_ready_ends_the_trial_and_is_replaced(pool):
    pool.dismiss()
    pool._placed(placement.placements(QUICK))
    threading.Timer(0.1, kill, (pool, 1)).start()  # it is still importing
    with pytest.raises(WorkerError, match=r"E-WORKER-2: worker 1 died of SIGKILL") as caught:
        driven(pool)
    assert caught.value.status is Status.CRASHED and pool.workers == []
    assert driven(pool).seen == [True, True]


@pytest.mark.slow
def test_a_worker_that_died_between_two_trials_harms_neither(pool):
    driven(pool)
    pool.workers[1].kill()
    pool.workers[1].wait()
    assert driven(pool).seen == [True, True]


@pytest.mark.process
def test_a_worker_killed_within_the_window_ends_it_at_once(pool):
    pool._placed(placement.placements(QUICK))
    threading.Timer(1.5, kill, (pool, 0)).start()
    started = time.monotonic()
    with pytest.raises(WorkerError, match="worker 0 died of SIGKILL"):
        driven(pool, seconds=60)
    assert time.monotonic() - started < 30


@pytest.mark.slow
def test_a_worker_that_hangs_is_named_with_its_state(pool):
    pool._placed(placement.placements(QUICK))

    def stop_it(pids):
        kill(pool, 1, signal.SIGSTOP)  # at the stop, before it can tell what it did

    said = r"E-WORKER-3: worker 1 hangs: it was not done.*is T \(stopped\)"
    with (
        pytest.raises(WorkerError, match=said) as caught,
        pool.run(placement.trials(LONG), placement.placements(LONG), 20) as run,
    ):
        run.drive(0.1, stop_it)
    assert caught.value.status is Status.TIMEOUT


LONG = replace(QUICK, options={"delay_us": 300_000})


@pytest.mark.slow
def test_a_worker_that_never_gets_ready_is_named_too(pool):
    pool._placed(placement.placements(QUICK))
    kill(pool, 0, signal.SIGSTOP)
    said = r"worker 0 hangs: it was not open after (1|0\.9\d*) s"
    with (
        pytest.raises(WorkerError, match=said),
        pool.run(placement.trials(QUICK), placement.placements(QUICK), 1.0),
    ):
        pytest.fail("it opened")


@pytest.mark.process
def test_what_an_engine_refuses_is_unsupported_and_costs_no_process(pool):
    refused = replace(QUICK, model="squeezenet1_1", backend="onnxruntime", precision="bf16", options={})
    driven(pool)
    pids = [w.pid for w in pool.workers]
    with pytest.raises(WorkerError) as caught:
        driven(pool, refused)
    assert caught.value.status is Status.UNSUPPORTED and re.match(
        r"E-PREC-\d: worker \d: ", str(caught.value.reason)
    )
    assert driven(pool).seen == [True, True] and [w.pid for w in pool.workers] == pids


LEADER = """
import sys
from edgescope.isolate import placement
from edgescope.isolate.pool import WorkerPool
from edgescope.records import Trial
trial = Trial(model="null", backend="null", processes=2, warmup=0)
pool = WorkerPool()
with pool.run(placement.trials(trial), placement.placements(trial), 20) as run:
    print(*[w.pid for w in pool.workers], flush=True)
    run.drive(60, print)
"""


@pytest.mark.slow
def test_workers_die_with_their_leader():
    leader = subprocess.Popen([sys.executable, "-c", LEADER], stdout=subprocess.PIPE, text=True)
    workers = [psutil.Process(int(pid)) for pid in leader.stdout.readline().split()]
    leader.kill()
    leader.wait()
    gone, alive = psutil.wait_procs(workers, timeout=5)
    assert len(gone) == 2 and not alive


@pytest.mark.slow
def test_pinned_workers_have_cpus_of_their_own():
    cpus = sorted(os.sched_getaffinity(0))
    trial = replace(QUICK, sharing="pinned", processes=min(2, len(cpus)))
    with WorkerPools() as pools, pools.of(trial).run(placement.trials(trial), pools.placements(trial), 20):
        mine = [os.sched_getaffinity(w.pid) for w in pools.of(trial).workers]
    assert all(not a & b for i, a in enumerate(mine) for b in mine[i + 1 :])
    assert sorted(cpu for some in mine for cpu in some) == cpus


@pytest.mark.parametrize(
    ("cpus", "workers", "shares"),
    [
        ([0, 1, 2, 3], 2, [(0, 1), (2, 3)]),
        ([0, 1, 2], 2, [(0, 1), (2,)]),
        ([4, 6], 3, [(4,), (6,), (4,)]),
    ],
)
def test_cpus_are_split_evenly_and_dealt_out_in_turn_where_they_are_too_few(cpus, workers, shares):
    assert placement.split(cpus, workers) == shares


@pytest.mark.slow
def test_pinned_workers_that_share_cpus_are_warned_of():
    assert placement.oversubscribed(replace(QUICK, sharing="pinned"), 2) is None
    crammed = placement.oversubscribed(replace(QUICK, sharing="pinned", colocated="null"), 2)
    assert crammed.code == "W-WORKER-2"
    assert placement.oversubscribed(QUICK, 1) is None


@pytest.mark.slow
def test_a_crew_is_kept_for_its_sharing_and_its_workers_for_what_they_loaded():
    with WorkerPools() as pools:
        first = pools.of(QUICK)
        driven(first)
        assert pools.of(replace(QUICK, batch=8, processes=4)) is first and first.workers
        assert pools.of(replace(QUICK, sharing="pinned")) is not first
        assert pools.of(replace(QUICK, precision="int8")) is first and not first.workers


@pytest.fixture
def tight():
    """A control group with less memory than a worker needs to start (version 1 or 2)."""
    base = next(
        (p for p in (Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")) if os.access(p, os.W_OK)), None
    )
    if base is None or not (base / "cgroup.procs").exists():
        pytest.skip("this process may make no control group")
    group = base / f"edgescope-test-{os.getpid()}"
    group.mkdir()
    limit = next((group / n for n in ("memory.limit_in_bytes", "memory.max") if (group / n).exists()), None)
    if limit is None:
        group.rmdir()
        pytest.skip("this control group limits no memory")
    limit.write_text(str(6 << 20))
    for name in ("memory.memsw.limit_in_bytes", "memory.swap.max"):
        if (group / name).exists():
            (group / name).write_text(str(6 << 20))
    yield group
    for _ in range(50):
        try:
            group.rmdir()
            return
        except OSError:  # the process that was killed is still leaving
            time.sleep(0.1)


@pytest.mark.slow
def test_what_the_kernel_kills_for_want_of_memory_is_oom(tight):
    if oom_kills() == 0 and "oom_kill " not in Path("/proc/vmstat").read_text():
        pytest.skip("this kernel does not count its kills")
    join = ("sh", "-c", f'echo $$ > {tight}/cgroup.procs; exec "$@"', "sh")
    places = [Placement(), Placement(Launch(join))]
    with (
        WorkerPool(grace_s=0.5) as pool,
        pytest.raises(WorkerError) as caught,
        pool.run(placement.trials(QUICK), places, 20),
    ):
        pytest.fail("it opened")
    assert caught.value.status is Status.OOM and "OOM killer" in str(caught.value.reason)


@pytest.mark.slow
def test_kills_are_read_from_the_group_or_else_from_the_machine(tmp_path):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/vmstat").write_text("pgfault 5\noom_kill 7\n")
    assert oom_kills(tmp_path) == 7 and oom_kills(tmp_path / "nowhere") == 0
    (tmp_path / "proc/self/cgroup").write_text("0::/mine\n")
    (tmp_path / "sys/fs/cgroup/mine").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/mine/memory.events").write_text("oom 3\noom_kill 2\n")
    assert oom_kills(tmp_path) == 2
