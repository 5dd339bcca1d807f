"""Who forks workers and what may be forked, with hands in place of the kernel, the processes and their sockets."""

import json
import os
import signal
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest

from edgescope.isolate import fork_server, forks, notes
from edgescope.isolate.forks import Forks, ForkServer, Orphan
from edgescope.isolate.notes import Imports
from edgescope.records import Absent, Measured, Trial
from making import result

A, B = (Trial(model=name, backend="null") for name in "ab")


class Kernel:
    """What Orphan asks of os and select about process 7; each look at it takes the next status."""

    WNOHANG, waitstatus_to_exitcode = os.WNOHANG, staticmethod(os.waitstatus_to_exitcode)

    def __init__(self, *statuses):
        self.statuses, self.did = list(statuses), []

    def waitpid(self, pid, how):
        assert (pid, how) == (7, os.WNOHANG)
        status = self.statuses.pop(0)
        if status == "taken":
            raise ChildProcessError
        return (0, 0) if status is None else (7, status)

    def pidfd_open(self, pid):
        return pid * 100

    def select(self, reads, writes, errors, timeout):
        self.did.append(("select", reads, timeout))
        return reads, writes, errors

    def close(self, handle):
        self.did.append(("close", handle))

    def kill(self, pid, number):
        self.did.append(("kill", pid, number))


@pytest.fixture
def orphan(monkeypatch):
    """An orphan with the kernel that knows of it."""

    def made(*statuses):
        kernel = Kernel(*statuses)
        monkeypatch.setattr(forks, "os", kernel)
        monkeypatch.setattr(forks, "select", kernel)
        return Orphan(7, None, None), kernel

    return made


@pytest.mark.parametrize(("status", "code"), [(0, 0), (3 << 8, 3), (9, -9), ("taken", 0)])
def test_an_exit_code_is_asked_for_until_it_is_known(orphan, status, code):
    one, kernel = orphan(None, status)
    assert [one.poll() for _ in range(3)] == [None, code, code] and not kernel.statuses
    assert one.wait(1.0) == code and not kernel.did


@pytest.mark.parametrize(("timeout", "told"), [(2.5, 2.5), (None, 0.0)])
def test_one_that_does_not_end_in_time_is_told_with_that_time(orphan, timeout, told):
    one, kernel = orphan(None, None)
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        one.wait(timeout)
    assert caught.value.timeout == told
    assert kernel.did == [("select", [700], timeout), ("close", 700)]


def test_one_that_ends_meanwhile_is_waited_for_once(orphan):
    one, kernel = orphan(None, 5 << 8)
    assert one.wait(2.5) == 5 and kernel.did == [("select", [700], 2.5), ("close", 700)]


def test_only_one_that_runs_is_sent_a_signal(orphan):
    one, kernel = orphan(None, None, 0)
    for send in (one.kill, one.terminate, one.kill):
        send()
    assert kernel.did == [("kill", 7, signal.SIGKILL), ("kill", 7, signal.SIGTERM)]


def server(*answers):
    """A server whose answers are given: text, or an error; what it was asked and how long that may take is kept."""
    made, left = ForkServer.__new__(ForkServer), list(answers)
    made._refusal, made.limits = None, []

    def answer(limit_s):
        made.limits.append(limit_s)
        if isinstance(found := left.pop(0), Exception):
            raise found
        return found

    made._answer = answer
    return made


@pytest.mark.parametrize(
    ("answer", "why"), [("\n", ""), ("two threads\n", "two threads"), (TimeoutError("late"), "late")]
)
def test_a_server_is_asked_once_whether_it_forks(answer, why):
    one = server(answer)
    assert [one.refusal(), one.refusal()] == [why, why] and one.limits == [forks.IMPORT_S]


def test_an_empty_packet_is_the_end_of_a_server(monkeypatch):
    one, limits = ForkServer.__new__(ForkServer), []
    packets = [b"words", b""]
    one._ours = SimpleNamespace(settimeout=limits.append, recv=lambda most: packets.pop(0)[:most])
    monkeypatch.setattr(one, "how_it_ended", lambda: "exited with 3", raising=False)
    assert one._answer(4.0) == "words" and limits == [4.0]
    with pytest.raises(OSError, match=r"exited with 3"):
        one._answer(4.0)


@pytest.mark.parametrize("answer", ["0", "no number", TimeoutError("late")])
def test_a_fork_that_fails_leaves_no_pipe_open(monkeypatch, answer):
    one, opened, closed = server(answer), [(10, 11), (12, 13)], []
    kernel = SimpleNamespace(pipe=iter(opened).__next__, close=closed.append)
    monkeypatch.setattr(one, "_ours", None, raising=False)
    monkeypatch.setattr(forks.socket, "send_fds", lambda to, what, streams: None)
    monkeypatch.setattr(forks, "os", kernel)
    with pytest.raises((OSError, ValueError)):
        one.fork(2)
    assert one.limits == [forks.FORK_S] and sorted(closed) == [10, 11, 12, 13]


def test_a_fork_gets_the_other_ends_of_its_pipes(monkeypatch):
    one, sent = server("41"), []
    monkeypatch.setattr(one, "_ours", "socket", raising=False)
    monkeypatch.setattr(
        forks.socket,
        "send_fds",
        lambda to, what, streams: sent.append((to, what, [*map(os.dup, streams[:2])], streams[2])),
    )
    made = one.fork(2)
    ((to, what, (reads, writes), stderr),) = sent
    assert (made.pid, made.returncode, to, what, stderr) == (41, None, "socket", [b"\n"], 2)
    with made.stdin, made.stdout, os.fdopen(reads, "rb", 0) as told, os.fdopen(writes, "wb", 0) as tells:
        made.stdin.write(b"order")
        tells.write(b"answer")
        assert (told.read(5), made.stdout.read(6)) == (b"order", b"answer")


class Server:
    """A fork server that is a name."""

    refusals: ClassVar[dict[str, str]] = {}

    def __init__(self, names):
        (self.pid,) = names
        self.ended = 0

    def refusal(self):
        return self.refusals.get(self.pid, "")

    def end(self):
        self.ended += 1


@pytest.fixture
def room(monkeypatch):
    """What was asked about memory; it is there for whoever needs at most the last of these bytes."""
    asked = [250.0]

    def fits(prestart, more, each):
        asked.insert(-1, (prestart.floor_bytes, more, each))
        return each <= asked[-1]

    monkeypatch.setattr(forks.Prestart, "fits", fits)
    monkeypatch.setattr(forks, "ForkServer", Server)
    monkeypatch.setattr(Server, "refusals", {})
    return asked


def known(*trials, took=100.0):
    source = Forks()
    for trial in trials:
        source.learn(trial, Imports((trial.model,), took))
    return source


def test_a_server_is_started_where_one_more_worker_than_all_that_come_fits(room):
    source = known(A)
    source.floor_bytes = 17
    source.expect([A])
    assert room[:-1] == [(17, 1, 200.0)] and source.pids == {"a"}
    source.expect([A, B])  # it is there, and nobody knows B
    assert room[:-1] == [(17, 1, 200.0)] and source.pids == {"a"}


def test_no_server_is_started_without_room_or_for_what_takes_nobody_knows_what(room):
    source = known(A, B)
    source.expect([A, B])
    assert room[:-1] == [(None, 1, 300.0), (None, 1, 400.0)] and not source.pids
    source = known(A, took=0.0)
    source.expect([A])
    assert len(room) == 3 and not source.pids


def test_a_server_that_cannot_be_started_is_none(room, monkeypatch):
    def refused(names):
        raise BlockingIOError("no room for a process")

    monkeypatch.setattr(forks, "ForkServer", refused)
    source = known(A)
    source.expect([A])
    assert not source.pids and len(room) == 2


def test_those_that_may_not_fork_are_ended_once_they_have_said_so(room):
    room[-1] = 1e9
    source = known(A, B)
    source.expect([A, B])
    a, b = source._running()
    Server.refusals["a"] = "two threads"
    source.ready()
    source.ready()
    assert source.pids == {"b"} and (a.ended, b.ended) == (1, 0)
    assert source._servers == {("a",): None, ("b",): b}
    with source:
        pass
    assert (a.ended, b.ended) == (1, 1) and not source._servers


@pytest.fixture
def workers(monkeypatch):
    """Workers that are words."""
    monkeypatch.setattr(forks, "ForkedWorker", lambda number, server: ("forked", number, server.pid))
    monkeypatch.setattr(forks, "WorkerProcess", lambda number, there: ("started", number, there.cpus))


def test_a_worker_is_forked_where_its_server_is_ready_and_else_started(room, workers):
    source = known(A, B)
    source.expect([A])
    unseen = replace(A, batch=2)
    assert source.worker(3, A) == ("forked", 3, "a")
    assert [source.worker(4, other) for other in (B, unseen)] == [("started", 4, ())] * 2
    Server.refusals["a"] = "two threads"
    assert source.worker(5, A) == ("started", 5, ()) and not source.pids


def test_a_server_that_forks_none_is_not_trusted_again(room, workers, monkeypatch):
    def refused(number, server):
        raise OSError("no room")

    source = known(A)
    source.expect([A])
    (one,) = source._running()
    with monkeypatch.context() as now:
        now.setattr(forks, "ForkedWorker", refused)
        assert source.worker(0, A) == ("started", 0, ())
    assert one.ended == 1 and source.worker(1, A) == ("started", 1, ())
    source.expect([A])
    assert not source.pids and not source.distrust([A])


def test_distrust_says_whether_any_of_them_would_have_been_forked(room):
    source = known(A, B)
    source.expect([A])
    assert not source.distrust([B]) and source.pids == {"a"}
    assert source.distrust([B, A]) and not source.pids


def test_the_first_of_a_kind_tells_what_all_import(room):
    source, later = known(A), replace(A, batch=2)
    assert source.unknown(later)
    source.learn(later, Imports(("later",), 100.0))
    assert not source.unknown(later) and not source.unknown(A)
    source.expect([later])
    assert source.pids == {"a"}


# -- the fork server's own program ---------------------------------------------------------------------------


@pytest.fixture
def program(monkeypatch):
    """The fork server with this many threads, and why it must not be forked; what it does is kept."""

    def made(threads=1, why=""):
        did = []
        monkeypatch.setattr(fork_server, "threads", lambda: did.append("threads") or threads)
        monkeypatch.setattr(fork_server, "refusal", lambda: did.append("refusal") or why)
        garbage = SimpleNamespace(collect=lambda: did.append("collect"), freeze=lambda: did.append("freeze"))
        monkeypatch.setattr(fork_server, "gc", garbage)
        return did

    return made


@pytest.mark.parametrize(("threads", "looks"), [(1, []), (2, ["refusal"]), (3, ["refusal"])])
def test_from_the_second_thread_on_it_is_asked_whether_they_stay(program, threads, looks):
    did = program(threads)
    assert fork_server.imported(["json", "os"]) == ("", 2)
    assert did == ["threads", *looks, "threads", *looks, "collect", "freeze"]


def test_what_starts_a_thread_is_left_out_with_all_that_follow(program, monkeypatch):
    did = program(2, "1 threads run")
    assert fork_server.imported(["json", "os"]) == ("1 threads run", 0)
    counts = iter([1, 2])
    monkeypatch.setattr(fork_server, "threads", lambda: next(counts))
    assert fork_server.imported(["json", "os", "no_such_module"]) == ("1 threads run", 1)
    assert "freeze" not in did


def test_what_cannot_be_imported_counts_as_all(program):
    did = program()
    why, done = fork_server.imported(["json", "no_such_module", "os"])
    assert why.startswith("no_such_module cannot be imported: ") and done == 3 and did == ["threads"]


class Packets:
    """The server's stdin: what the leader sends, and what it is answered."""

    MSG_PEEK = 2

    def __init__(self, names, orders=()):
        self.first, self.orders, self.sent, self.read = json.dumps(names).encode(), list(orders), [], []

    def socket(self, fileno):
        return self

    def recv(self, most, how=0):
        assert most == 1_048_576  # the names of 30,000 modules
        self.read.append(how)
        return self.first

    def send(self, answer):
        self.sent.append(answer)

    def recv_fds(self, orders, most, streams):
        return (b"\n", [self.orders.pop(0)]) if self.orders else (b"", [])


@pytest.fixture
def serve(monkeypatch):
    """Run the program with these packets, imports and arguments; return what it did to processes and files."""

    def run(packets, found, why="", argv=("12",)):
        did = []
        kernel = SimpleNamespace(
            dup=lambda handle: handle,
            close=lambda handle: did.append(("close", handle)),
            execv=lambda path, words: did.append(("execv", words)) or (_ for _ in ()).throw(SystemExit),
        )
        monkeypatch.setattr(fork_server, "os", kernel)
        monkeypatch.setattr(fork_server, "socket", packets)
        monkeypatch.setattr(fork_server, "die_with_parent", lambda pid: did.append(("parent", pid)))
        monkeypatch.setattr(fork_server, "imported", lambda names: did.append(names) or found)
        monkeypatch.setattr(fork_server, "refusal", lambda: why)
        monkeypatch.setattr(fork_server, "fork", lambda leader, streams, orders: leader + streams[0])
        monkeypatch.setattr(fork_server.sys, "orig_argv", ["python", "-m", "it", *argv])
        try:
            fork_server.main(argv)
        except SystemExit:
            did.append("another program")
        return did

    return run


def test_a_worker_is_forked_for_each_order_until_the_leader_has_gone(serve):
    packets = Packets(["a", "b"], [30, 31])
    did = serve(packets, ("", 2))
    assert did == [("parent", 12), ["a", "b"], ("close", 30), ("close", 31)]
    assert packets.sent == [b"\n", b"42", b"43"] and packets.read == [Packets.MSG_PEEK, 0]


@pytest.mark.parametrize(("found", "why"), [(("no", 2), ""), (("no", 0), ""), (("", 2), "no")])
def test_one_that_must_not_be_forked_says_why_and_ends(serve, found, why):
    packets = Packets(["a", "b"], [30])
    assert serve(packets, found, why) == [("parent", 12), ["a", "b"]] and packets.sent == [b"no"]


def test_it_begins_anew_with_what_came_before_a_thread(serve):
    packets = Packets(["a", "b", "c"])
    assert serve(packets, ("threads", 2))[2:] == [
        ("execv", ["python", "-m", "it", "12", "2"]),
        "another program",
    ]
    assert not packets.sent and packets.read == [Packets.MSG_PEEK]  # the list stays, for that program
    assert serve(packets, ("threads", 1), argv=("12", "2"))[1:3] == [
        ["a", "b"],
        ("execv", ["python", "-m", "it", "12", "1"]),
    ]


def test_a_leader_that_has_gone_wants_nothing(serve):
    packets = Packets([])
    packets.first = b""
    assert serve(packets, ("", 0)) == [("parent", 12)] and not packets.sent


def test_terminals_and_shared_memory_are_no_devices():
    paths = ["/dev/nvidia0", "/dev/null", "/dev/pts/3", "/dev/shm/x", "/home/dev/x", "", "/dev/full"]
    assert [*filter(fork_server._is_device, paths)] == ["/dev/nvidia0", "/dev/full"]


# -- what is told of imports -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metrics", "took"),
    [
        ({"peak_rss_bytes": Measured(123.0, "B")}, 123.0),
        ({"peak_rss_bytes": Absent("forked")}, 0.0),
        ({}, 0.0),
    ],
)
def test_a_process_tells_its_imports_and_what_it_took_if_that_is_known(tmp_path, monkeypatch, metrics, took):
    monkeypatch.setattr(notes, "modules", lambda: ["a", "b"])
    notes.tell(tmp_path, result(A, metrics=metrics))
    assert notes.told(tmp_path) == Imports(("a", "b"), took)


def test_telling_of_imports_may_fail():
    notes.tell(Path("/proc/no/such/folder"), result(A))
    assert notes.told(Path("/proc/no/such/folder")) is None


@pytest.mark.parametrize(
    "data",
    [
        {"names": "ab", "took_bytes": 1},
        {"names": ["a"], "took_bytes": "1"},
        {"names": ["a"]},
        {"took_bytes": 1},
        [],
        7,
    ],
)
def test_what_is_no_list_of_imports_tells_nothing(tmp_path, data):
    (tmp_path / notes.IMPORTS_FILE).write_text(json.dumps(data))
    assert notes.told(tmp_path) is None
    (tmp_path / notes.IMPORTS_FILE).write_text(json.dumps({"names": [], "took_bytes": 1}))
    assert notes.told(tmp_path) == Imports((), 1.0)


def test_what_is_imported_is_told_of_edgescope_and_of_installed_packages(monkeypatch):
    loaded = {
        "__main__": "/venv/site-packages/pytest/__main__.py",
        "edgescope.records": None,
        "edgescope": "/src/edgescope/__init__.py",
        "torch": "/venv/site-packages/torch/__init__.py",
        "torch.nn": "/venv/site-packages/torch/nn/__init__.py",
        "apt": "/usr/dist-packages/apt.py",
        "json": "/lib/json.py",
        "sys": None,
    }
    modules = {name: SimpleNamespace(__file__=path) for name, path in loaded.items()}
    path = ["", "/lib", "/venv/site-packages", "/usr/dist-packages"]
    monkeypatch.setattr(notes, "sys", SimpleNamespace(path=path, modules=modules))
    assert notes.modules() == ["edgescope.records", "torch", "apt", "edgescope.bench.worker"]


def test_what_is_loaded_depends_on_the_program_not_on_effort_seed_or_data():
    same = [replace(A, replicate=3), replace(A, min_s=9.0), replace(A, data="folder", preprocess="resize=8")]
    other = [B, replace(A, batch=2), replace(A, precision="fp16"), replace(A, processes=2)]
    assert {notes.program(trial) == notes.program(A) for trial in same} == {True}
    assert {notes.program(trial) == notes.program(A) for trial in other} == {False}
