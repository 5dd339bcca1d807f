"""What a fork of the fork server is made of, call by call, with hands in place of the kernel."""

import mmap
import os
import random
import socket
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.isolate import fork_server, forks
from edgescope.process import Process


class Ended(BaseException):
    """This process would have ended with that code."""


class Kernel:
    """Forks nobody: `forks` and `parents` are what each call of fork and getppid answers; the rest is kept."""

    def __init__(self, forks=(), parents=()):
        self.forks, self.parents, self.did = list(forks), list(parents), []
        self.files: dict[str, str | None] = {}
        self.reads, self.writes = None, None

    def fork(self):
        return self.forks.pop(0)

    def getpid(self):
        return 60

    def getppid(self):
        return self.parents.pop(0)

    def pipe(self):
        return self.reads, self.writes

    def waitpid(self, pid, how):
        self.did.append(("waitpid", pid, how))

    def close(self, handle):
        self.did.append(("close", handle))

    def dup2(self, handle, number):
        self.did.append(("dup2", handle, number))

    def write(self, handle, text):
        self.did.append(("write", handle, text))

    def fdopen(self, handle):
        return os.fdopen(handle)

    def listdir(self, folder):
        return [*self.files] if folder == "/proc/self/fd" else []

    def readlink(self, path):
        if (target := self.files[path.rpartition("/")[2]]) is None:
            raise FileNotFoundError(path)
        return target

    def _exit(self, code):
        raise Ended(code)


@pytest.fixture
def kernel(monkeypatch):
    def made(forks=(), parents=()):
        found = Kernel(forks, parents)
        monkeypatch.setattr(fork_server, "os", found)
        return found

    return made


@pytest.mark.parametrize(("said", "pid"), [(b"77", 77), (b"", 0)])
def test_the_server_waits_for_the_process_between_which_says_who_the_worker_is(kernel, said, pid):
    here = kernel([5])
    here.reads, writes = os.pipe()
    os.write(writes, said)
    os.close(writes)
    assert fork_server.fork(12, [30], None) == pid
    assert here.did == [("close", None), ("waitpid", 5, 0)]


def test_the_process_between_tells_the_worker_and_ends(kernel):
    here = kernel([0, 77])
    here.reads, here.writes = 8, 9
    with pytest.raises(Ended) as ended:
        fork_server.fork(12, [30], None)
    assert ended.value.args == (0,) and here.did == [("write", 9, b"77")]


def test_the_worker_holds_no_end_of_the_servers_pipes(kernel, monkeypatch):
    here, orders = kernel([0, 0]), SimpleNamespace(close=lambda: here.did.append("orders"))
    here.reads, here.writes = 8, 9
    monkeypatch.setattr(fork_server, "_work", lambda *what: here.did.append(what))
    with pytest.raises(Ended) as ended:
        fork_server.fork(12, [30], orders)
    assert ended.value.args == (0,)
    assert here.did == [("close", 8), ("close", 9), "orders", (60, 12, [30])]


@pytest.fixture
def work(kernel, monkeypatch):
    """Be a worker of leader 12 below process 60, with these parents; return its exit code and what it did."""

    def worked(parents, program=lambda words: None):
        here = kernel(parents=parents)
        module = SimpleNamespace(main=lambda words: here.did.append(("main", words)) or program(words))
        monkeypatch.setattr(fork_server, "importlib", SimpleNamespace(import_module=lambda name: module))
        monkeypatch.setattr(fork_server, "unlike", lambda: here.did.append("unlike"))
        monkeypatch.setattr(fork_server, "time", SimpleNamespace(sleep=here.did.append))
        with pytest.raises(Ended) as ended:
            fork_server._work(60, 12, [30, 31, 32])
        return ended.value.args[0], here.did

    return worked


TAKES = [
    (word, 30 + n, n) if word == "dup2" else (word, 30 + n) for n in range(3) for word in ("dup2", "close")
]


def test_a_worker_begins_once_it_is_the_leaders_with_streams_of_its_own(work):
    assert work([60, 60, 12, 12]) == (0, [0.0002, 0.0002, *TAKES, "unlike", ("main", ["12"])])


def test_a_worker_whose_leader_has_gone_does_nothing(work, capsys):
    assert work([60, 1, 1]) == (1, [0.0002]) and capsys.readouterr().err == ""


@pytest.mark.parametrize("error", [ValueError("no such model"), KeyboardInterrupt("stopped")])
def test_a_worker_that_fails_says_so_on_its_stderr(work, capsys, error):
    def program(words):
        raise error

    assert work([12, 12], program)[0] == 1
    assert f"{type(error).__name__}: {error}" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("end", [0, 1], ids=["least", "most"])
def test_two_forks_differ_in_where_memory_lies_and_in_what_they_draw(monkeypatch, end):
    monkeypatch.setattr(random, "SystemRandom", lambda: SimpleNamespace(randrange=lambda *ends: ends[end]))
    monkeypatch.setattr(fork_server, "_gap", None, raising=False)
    drawn = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        fork_server.unlike()
        drawn.append((random.random(), np.random.random()))
    assert drawn[0][0] != drawn[1][0] and drawn[0][1] != drawn[1][1]
    assert len(fork_server._gap) == [1, 16384][end] * mmap.PAGESIZE  # at most 64 MiB of addresses


def test_a_program_without_numpy_needs_none(monkeypatch):
    monkeypatch.delitem(sys.modules, "numpy")
    fork_server.unlike()


def test_threads_are_counted():
    before, ends = fork_server.threads(), threading.Event()
    one = threading.Thread(target=ends.wait)
    one.start()
    assert fork_server.threads() == before + 1
    ends.set()
    one.join()


@pytest.mark.parametrize(
    ("threads", "open_files", "says"),
    [
        (1, {"0": "/dev/null", "1": "pipe:[4]", "2": None}, ""),
        (1, {"3": "/dev/nvidia0", "4": "/dev/kfd", "5": "/dev/null"}, "/dev/kfd, /dev/nvidia0 is open"),
        (3, {"3": "/dev/nvidia0"}, "2 threads run"),
        (2, {}, "1 threads run"),
    ],
)
def test_threads_that_stay_and_open_devices_forbid_a_fork(kernel, monkeypatch, threads, open_files, says):
    here = kernel([5])
    here.files = open_files
    monkeypatch.setattr(fork_server, "threads", lambda: threads)
    found = fork_server.refusal()
    assert found.startswith(says) and bool(found) is bool(says)
    assert here.did == [
        ("waitpid", 5, 0)
    ]  # a library may end its threads before a fork: one that ends at once


def test_the_fork_that_is_tried_ends_at_once(kernel):
    kernel([0])
    with pytest.raises(Ended) as ended:
        fork_server.refusal()
    assert ended.value.args == (0,)


# -- the leader's side -----------------------------------------------------------------------------------------


@pytest.fixture
def started(monkeypatch):
    """A fork server whose process is none: the program, and the standard input that it was given."""

    def popen(program, *, stdin, stdout, stderr):
        inputs.append((program, os.dup(stdin), stdout is stderr))
        return SimpleNamespace(pid=7, returncode=None, stdin=None, stdout=None)

    inputs = []
    monkeypatch.setattr(forks.subprocess, "Popen", popen)
    return inputs


def test_a_server_is_told_what_to_import_on_its_standard_input(started, monkeypatch):
    made = forks.ForkServer(("torch", "timm"))
    ((program, handle, one_file),) = started
    assert program[-3:] == ["-m", "edgescope.isolate.fork_server", str(os.getpid())] and one_file
    with socket.socket(fileno=handle) as theirs:
        assert theirs.recv(1000) == b'["torch", "timm"]'
        theirs.send(b"\n")
        assert made.refusal() == ""
        ended = []
        monkeypatch.setattr(Process, "end", lambda self, patience_s: ended.append(patience_s))
        made.end()
        assert ended == [0.0] and theirs.recv(1000) == b""


def test_how_a_server_ended_is_told_with_its_last_line(monkeypatch):
    made, waited = forks.ForkServer.__new__(forks.ForkServer), []
    monkeypatch.setattr(made, "wait", waited.append, raising=False)
    monkeypatch.setattr(made, "ending", lambda: "exited with 3", raising=False)
    monkeypatch.setattr(made, "tail", lambda: ["first", "second", "last"], raising=False)
    assert made.how_it_ended() == "exited with 3 | last" and waited == [forks.FORK_S]


def test_a_forked_worker_is_one_that_its_server_forked():
    asked = []
    child = SimpleNamespace(pid=41, stdin=None, stdout=None, returncode=0)
    worker = forks.ForkedWorker(3, SimpleNamespace(fork=lambda stderr: asked.append(stderr) or child))
    assert (worker.number, worker.pid, worker.used) == (3, 41, False) and asked == [worker._log.fileno()]
