"""Workers that are forked with their imports done: what may be forked, whose children they are, what they cost."""

import contextlib
import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgescope import bench
from edgescope.analysis.cells import alternation
from edgescope.bench import alternation as turns
from edgescope.devices import manifest
from edgescope.isolate import fork_server, forks, fresh, notes, warden
from edgescope.isolate.forks import Forks, ForkServer
from edgescope.isolate.fresh import Limits
from edgescope.isolate.notes import Imports
from edgescope.isolate.persistent import PersistentChild
from edgescope.isolate.worker import WorkerProcess
from edgescope.process import Launch
from edgescope.records import Absent, Measured, Result, Status, Trial
from edgescope.registry import WORKER_PROGRAM
from edgescope.runner import isolated
from edgescope.runner.isolated import Isolated

LIMITS = Limits(timeout_s=120)
SLOW = Trial(
    model="null", backend="null", options={"delay_us": 4000}, warmup=0.05, min_s=0.1, max_s=0.1, turn_s=0.05
)
FAST = replace(SLOW, options={"delay_us": 1000})
LIGHT = ("json", "edgescope.bench.worker")


@pytest.fixture(scope="module", autouse=True)
def adopting():
    """Let this process lead: the kernel makes forked workers its children, and no orphans of other tests later."""
    warden.adopt()
    yield
    ctypes.CDLL(None).prctl(warden.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


@pytest.fixture
def source():
    """A leader's forks that know what a worker of SLOW imports, and have room for it."""
    with Forks() as found:
        found.learn(SLOW, Imports(LIGHT, 1.0))
        yield found


def ended(worker):
    worker.end(5.0)
    return worker.code


@pytest.mark.slow
def test_the_second_pair_is_forked_where_it_may_be_and_says_so():
    with PersistentChild() as leader:
        pairs = [leader.pair((replace(SLOW, replicate=n), FAST), "confirming", LIMITS) for n in range(3)]
    assert [[r.process for r in pair] for pair in pairs] == [["fresh"] * 2, ["forked"] * 2, ["forked"] * 2]
    assert {r.status for pair in pairs for r in pair} <= {Status.OK, Status.UNSTABLE}
    for one, other in pairs:
        assert 1.5 < alternation.typical_s(one) / alternation.typical_s(other) < 8  # 4 by construction
    assert isinstance(pairs[0][0].metrics["peak_rss_bytes"], Measured)
    for name in ("load_s", "peak_rss_bytes"):
        assert isinstance(pairs[1][0].metrics[name], Absent) and "forked" in str(pairs[1][0].metrics[name])


@pytest.mark.slow
def test_a_leader_whose_pair_nobody_waits_for_any_more_is_ended():
    with PersistentChild() as leader:
        with pytest.raises(KeyboardInterrupt):
            leader.pair((SLOW, FAST), "confirming", Limits(timeout_s=60, cancelled=lambda: True))
        assert not leader.alive
        assert leader.pair((SLOW, FAST), "confirming", LIMITS)[0].status in (Status.OK, Status.UNSTABLE)


def test_a_leader_that_cannot_be_started_is_a_result_of_both_sides():
    with PersistentChild(Launch(("no-such-program-here",))) as leader:
        ends = leader.pair((SLOW, FAST), "confirming", LIMITS)
    assert [end.status for end in ends] == [Status.FAILED] * 2 and "E-RUN-5" in str(ends[0].reason)


class Led:
    """A leader that runs and ends its pairs as it is told."""

    launch = Launch()

    def __init__(self, *statuses, alive=True):
        self.statuses, self.closed, self.alive = list(statuses), 0, alive

    def settle(self, limits):
        pass

    def pair(self, trials, purpose, limits, imported):
        status = self.statuses.pop(0)
        return tuple(SimpleNamespace(status=status, warnings=()) for _ in trials)

    def close(self):
        self.closed += 1


@pytest.mark.parametrize(
    ("prefix", "statuses", "closed"),
    [((), [Status.OK], 0), (("taskset", "1"), [Status.OK], 2), ((), [Status.OOM, Status.OK], 1)],
)
def test_a_leader_gives_way_to_memory_and_leaves_with_its_mode(monkeypatch, prefix, statuses, closed):
    runner = Isolated()
    runner._leader = led = Led(*statuses)
    mode = SimpleNamespace(launch=lambda: Launch(prefix))
    monkeypatch.setattr(isolated, "in_mode", lambda trial, measured: measured(mode))
    ends = runner.pair((SLOW, FAST), "confirming", LIMITS)
    assert [end.status for end in ends] == [Status.OK] * 2 and led.closed == closed and not led.statuses


@pytest.mark.parametrize(("alive", "asked"), [(True, 2), (False, 1)])
def test_what_runs_out_of_memory_runs_again_only_if_a_leader_held_some(monkeypatch, alive, asked):
    runner, calls = Isolated(), []
    runner._leader = led = Led(alive=alive)
    full = SimpleNamespace(status=Status.OOM)
    monkeypatch.setattr(isolated, "in_mode", lambda trial, measured: measured(SimpleNamespace(launch=Launch)))
    for name in ("prepare", "run", "look"):
        monkeypatch.setattr(isolated.fresh, name, lambda *how, **more: calls.append(how) or full)
        assert getattr(runner, name)(SLOW, LIMITS) is full
    assert len(calls) == 3 * asked and led.closed == 3 * (asked - 1)


@pytest.mark.slow
def test_a_forked_side_that_hangs_is_measured_again_in_started_processes(monkeypatch):
    """A stopped process stands for one that waits for a lock that nobody will release."""

    class Hanging(Forks):
        def worker(self, number, trial):
            found = super().worker(number, trial)
            if isinstance(found, forks.ForkedWorker):
                found.pipe.receive(10)
                os.kill(found.pid, signal.SIGSTOP)
            return found

    monkeypatch.setattr(turns, "FORKED_LIMIT_S", 0.5)
    devices = bench.present()
    begun = tuple(Result.begun(trial, manifest.machine(devices)) for trial in (SLOW, FAST))
    with Hanging() as source:
        source.learn(SLOW, Imports(LIGHT, 1.0))
        ends = turns.measure(begun, devices, 20.0, forks=source)
    assert {end.status for end in ends} <= {Status.OK, Status.UNSTABLE}
    assert [end.process for end in ends] == ["fresh"] * 2


@pytest.mark.slow
def test_a_forked_worker_is_the_leaders_child_and_ends_with_its_pipe(source):
    source.expect([SLOW])
    worker = source.worker(0, SLOW)
    assert isinstance(worker, forks.ForkedWorker)
    assert worker.pipe.receive(10) == {"event": "here", "pid": worker.pid}
    assert worker.pid in warden._children(os.getpid()) and worker.code is None
    assert ended(worker) == 0


@pytest.mark.slow
def test_a_forked_worker_that_is_killed_is_told_from_one_that_ends(source):
    source.expect([SLOW])
    worker = source.worker(3, SLOW)
    worker.pipe.receive(10)
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.wait(5) == -signal.SIGKILL
    assert "worker 3 died of SIGKILL" in str(worker.lost())
    worker.kill()  # harmless
    assert ended(worker) == -signal.SIGKILL


@pytest.mark.slow
def test_what_a_forked_worker_writes_to_stderr_is_its_own(source):
    source.expect([SLOW])
    first, second = source.worker(0, SLOW), source.worker(1, SLOW)
    second.pipe.receive(10)
    first.pipe.write(b'{"do": "load"}\n')  # names no trial: the worker fails
    assert first.wait(10) == 1
    assert "KeyError" in first.stderr_tail() and not second.stderr_tail()
    assert ended(second) == 0


@pytest.mark.slow
def test_workers_end_when_their_leader_is_killed():
    """A leader of its own, killed with -9, takes its fork server and its forked worker with it."""
    program = (
        "import sys, time\n"
        "from edgescope.isolate import warden\n"
        "from edgescope.isolate.forks import ForkServer, ForkedWorker\n"
        "warden.adopt()\n"
        f"server = ForkServer({LIGHT!r}); assert not server.refusal()\n"
        "worker = ForkedWorker(0, server); worker.pipe.receive(10)\n"
        "print(server.pid, worker.pid, flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as leader:
        pids = list(map(int, leader.stdout.readline().split()))
        assert len(pids) == 2
        leader.kill()
    until = time.monotonic() + 10
    while time.monotonic() < until and any(map(alive, pids)):
        time.sleep(0.01)
    assert not any(map(alive, pids))
    for pid in pids:  # they have become this process's
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def alive(pid):
    """Return whether the process runs; a zombie, which waits for its new parent, does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (
            "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            "1 threads run",
        ),
        ("held = open('/dev/full', 'w')", "/dev/full is open"),
        ("raise RuntimeError('half of it is there')", "half of it is there"),
    ],
)
@pytest.mark.slow
def test_what_must_not_be_forked_is_refused(tmp_path, monkeypatch, source, body, why):
    (tmp_path / "odd_module.py").write_text(body)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = ForkServer(["odd_module"])
    assert why in server.refusal()
    server.end()
    odd = replace(SLOW, model="odd")
    source.learn(odd, Imports(("odd_module",), 1.0))
    source.expect([odd])
    worker = source.worker(0, odd)
    assert not source.pids and type(worker) is WorkerProcess
    worker.end()


@pytest.mark.parametrize(
    ("took", "free", "starts"), [(100, 400, 2), (100, 399, 1), (100, 299, 0), (0, 1e9, 0)]
)
def test_servers_are_started_as_far_as_memory_holds_them_beside_the_workers(monkeypatch, took, free, starts):
    """Two workers of 100 bytes are to come: the first server needs 100 more, and so does the second."""
    monkeypatch.setattr(forks.Prestart, "fits", lambda self, more, each: more * each <= free)
    monkeypatch.setattr(forks, "ForkServer", lambda names: SimpleNamespace(pid=names, refusal=str, end=str))
    source, trials = Forks(), [replace(SLOW, model=name) for name in "ab"]
    for trial in trials:
        source.learn(trial, Imports((trial.model,), took))
    source.expect(trials)
    assert len(source.pids) == starts


@pytest.mark.process
def test_the_first_worker_of_each_cell_is_started_so_that_its_memory_is_known(source):
    source.expect([SLOW])
    source.expect([SLOW, FAST])
    worker = source.worker(0, FAST)
    assert source.unknown(FAST) and type(worker) is WorkerProcess
    worker.end()


@pytest.mark.process
def test_a_server_that_dies_is_replaced_by_started_workers(source):
    source.expect([SLOW])
    os.kill(*source.pids, signal.SIGKILL)
    worker = source.worker(0, SLOW)
    assert type(worker) is WorkerProcess and not source.pids
    worker.end()


@pytest.mark.slow
def test_one_server_serves_all_that_import_the_same(source):
    source.learn(FAST, Imports(LIGHT, 1.0))
    source.expect([SLOW, FAST])
    assert len(source.pids) == 1
    assert source.distrust([FAST]) and not source.pids and not source.distrust([FAST])


@pytest.mark.process
def test_a_server_that_hangs_while_importing_is_given_up(tmp_path, monkeypatch):
    (tmp_path / "slow_module.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(forks, "IMPORT_S", 0.2)
    server = ForkServer(["slow_module"])
    assert "timed out" in server.refusal()
    server.end()


@pytest.mark.slow
def test_two_forks_of_one_server_have_their_later_memory_elsewhere(source):
    source.expect([SLOW])
    lies = []
    for number in range(2):
        worker = source.worker(number, SLOW)
        worker.pipe.receive(10)
        lies.append([line.split()[0] for line in Path(f"/proc/{worker.pid}/maps").read_text().splitlines()])
        worker.end()
    assert lies[0] != lies[1]


def test_a_fork_draws_random_numbers_of_its_own():
    drawn = set()
    for _ in range(3):
        random.seed(0)
        fork_server.unlike()
        drawn.add(random.random())
    assert len(drawn) == 3


def test_what_a_worker_has_imported_is_told_in_order_and_has_no_module_of_the_users(monkeypatch):
    monkeypatch.setitem(sys.modules, "a_users_own", type(sys)("a_users_own"))
    names = notes.modules()
    both = [name for name in sys.modules if name in ("numpy", "edgescope.errors")]
    assert [name for name in names if name in both] == both
    assert not {"a_users_own", "__main__", "json", "numpy.linalg"} & {*names} and names[-1] == WORKER_PROGRAM


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "look"])
def test_a_trial_that_ran_alone_tells_what_its_process_has_imported(verb):
    told = []
    alone = replace(SLOW, turn_s=None)
    result = getattr(fresh, verb)(alone, LIMITS, noted=lambda *found: told.append(found))
    ((trial, found),) = told
    assert trial is alone and {"numpy", "edgescope.backends.base"} < {*found.names}
    assert found.names[-1] == WORKER_PROGRAM
    assert found.took_bytes == result.metrics["peak_rss_bytes"].value > 0
    assert Imports.from_json(found.to_json()) == found


def test_what_a_process_tells_of_its_imports_may_be_missing_or_nonsense(tmp_path):
    assert notes.told(tmp_path) is None
    for text in ("", "[1]", '{"names": 3}', '{"took_bytes": 1}', '{"names": [], "took_bytes": "much"}'):
        (tmp_path / notes.IMPORTS_FILE).write_text(text)
        assert notes.told(tmp_path) is None


def test_trials_of_one_kind_import_the_same_whatever_their_precision_and_data():
    same = replace(SLOW, precision="int8", data="mine", batch=4, options={})
    others = [replace(SLOW, **{k: v}) for k, v in (("backend", "onnxruntime"), ("workload", "training"))]
    assert notes.kind(SLOW) == notes.kind(same)
    assert len({notes.kind(t) for t in (SLOW, *others)}) == 3


@pytest.mark.slow
def test_the_first_worker_of_a_cell_is_started_or_nobody_would_know_what_a_process_takes(source):
    other = replace(SLOW, batch=4)
    source.expect([SLOW, other])
    assert len(source.pids) == 1 and source.unknown(other)
    first = source.worker(0, other)
    source.learn(
        other, Imports(("json", "decimal", WORKER_PROGRAM), 1.0)
    )  # the first of a kind to tell counts
    source.expect([other])
    second = source.worker(0, other)
    assert type(first) is WorkerProcess and isinstance(second, forks.ForkedWorker)
    assert len(source.pids) == 1
    for worker in (first, second):
        worker.end()


@pytest.mark.slow
def test_servers_import_beside_each_other_and_are_ready_when_that_is_waited_for(tmp_path, monkeypatch):
    for name in ("slow_a", "slow_b"):
        (tmp_path / f"{name}.py").write_text("import time; time.sleep(3)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    trials = [replace(SLOW, model=name) for name in ("slow_a", "slow_b")]
    with Forks() as source:
        for trial in trials:
            source.learn(trial, Imports((trial.model,), 1.0))
        begun = time.monotonic()
        source.expect(trials)
        assert time.monotonic() - begun < 3
        source.ready()
        assert time.monotonic() - begun > 3 and len(source.pids) == 2


class Expecting(Led):
    """A leader that says what it is told to get ready for."""

    def __init__(self):
        super().__init__()
        self.told = []

    def expect(self, imported, limits):
        self.told.append([(trial.label, found.names) for trial, found in imported])


def test_a_runner_gets_ready_for_coming_pairs_while_it_builds(monkeypatch):
    runner = Isolated()
    runner._leader = led = Expecting()
    monkeypatch.setattr(isolated.fresh, "prepare", lambda *how: None)
    runner._noted(SLOW, Imports(("failed",), 0.0))
    runner._noted(FAST, Imports(LIGHT, 1.0))
    runner._noted(FAST, Imports(("later",), 1.0))
    alone, elsewhere = replace(FAST, turn_s=None), replace(FAST, mode="cpus=0")
    unknown = replace(FAST, model="unknown")
    runner.expect([alone, elsewhere, unknown, SLOW, FAST])
    assert not led.told  # something may be measured now
    for _ in range(2):
        runner.prepare(SLOW, LIMITS)
    assert led.told == [[(FAST.label, LIGHT)]]


@pytest.mark.slow
def test_pairs_after_a_run_alone_are_forked_from_what_was_imported_beside_a_build():
    runner = Isolated()
    runner.run(replace(SLOW, turn_s=None), LIMITS)
    runner.expect([SLOW])
    assert not runner._leader.alive
    runner.prepare(SLOW, LIMITS)
    assert runner._leader.alive
    runner.run(replace(FAST, turn_s=None), LIMITS)
    assert not runner._leader._owes  # nobody imported while it was measured
    pairs = [runner.pair((SLOW, FAST), "confirming", LIMITS) for _ in range(2)]
    assert [[r.process for r in pair] for pair in pairs] == [["forked"] * 2] * 2
    slower = replace(FAST, options={"delay_us": 2000})  # nothing that ran alone shows what it takes
    assert [r.process for r in runner.pair((SLOW, slower), "confirming", LIMITS)] == ["forked", "fresh"]
    runner._leader.close()


def test_what_a_process_takes_hangs_neither_on_its_data_nor_on_how_long_it_is_measured():
    same = replace(
        SLOW,
        data="mine",
        preprocess="half",
        metric="top1",
        min_accuracy=0.9,
        max_s=9.0,
        replicate=3,
        turn_s=None,
    )
    others = [replace(SLOW, **{k: v}) for k, v in (("batch", 4), ("options", {}), ("precision", "int8"))]
    assert notes.program(SLOW) == notes.program(same)
    assert len({notes.program(t) for t in (SLOW, *others)}) == 4


@pytest.mark.slow
def test_a_leader_that_hangs_or_dies_while_it_gets_ready_is_replaced(tmp_path, monkeypatch):
    (tmp_path / "slow_module.py").write_text("import time; time.sleep(60)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    slow = [(SLOW, Imports(("slow_module",), 1.0))]
    with PersistentChild() as leader:
        leader.expect(slow)
        leader.settle(Limits(timeout_s=0.3))
        assert not leader.alive
        leader.expect(slow)
        leader._child.kill()
        leader.settle(LIMITS)
        assert not leader.alive
        ends = leader.pair((SLOW, FAST), "confirming", LIMITS)
        assert {end.status for end in ends} <= {Status.OK, Status.UNSTABLE}
        leader.expect([(SLOW, Imports(LIGHT, 1.0))])
        assert leader.pair((SLOW, FAST), "confirming", LIMITS)[0].process == "forked"


@pytest.mark.slow
def test_nobody_imports_while_the_sides_have_their_turns(monkeypatch):
    """A worker is forked once no server imports any more."""
    seen = []

    class Seen(Forks):
        def ready(self):
            super().ready()
            seen.append("ready")

    warm = turns.Side.warm
    monkeypatch.setattr(turns.Side, "warm", lambda side: seen.append("warm") or warm(side))
    devices = bench.present()
    begun = tuple(Result.begun(trial, manifest.machine(devices)) for trial in (SLOW, FAST))
    with Seen() as source:
        source.learn(SLOW, Imports(LIGHT, 1.0))
        ends = turns.measure(begun, devices, 20.0, forks=source)
        assert len(source.pids) == 1
    assert [end.process for end in ends] == ["forked", "fresh"] and seen == ["ready", "warm", "warm"]


@pytest.mark.slow
def test_an_import_that_starts_a_thread_is_left_to_the_workers_with_what_follows_it(tmp_path, monkeypatch):
    """ONNX Runtime's does: its workers begin with everything before it imported."""
    (tmp_path / "threaded.py").write_text(
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    (tmp_path / "after.py").write_text("open('after', 'w')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    server = ForkServer(["json", "threaded", "after"])
    assert server.refusal() == ""
    assert Path(f"/proc/{server.pid}/cmdline").read_bytes().split(b"\0")[-2] == b"1"
    worker = forks.ForkedWorker(0, server)
    assert worker.pipe.receive(10)["pid"] == worker.pid and not (tmp_path / "after").exists()
    worker.end()
    server.end()
