"""What a warden asks of the kernel and when it ends, with hands in place of the kernel and the processes."""

import errno
import os
import signal
from types import SimpleNamespace

import pytest

from edgescope.isolate import warden

PARENT, CHILD, WAKES = 20, 31, 41
"""Handle of the parent, process id of the child, handle that tells of signals."""


class Ended(BaseException):
    """This process would have ended with that code."""


class Kernel:
    """Does what it is told and keeps it: to `os`, `signal`, `select`, `ctypes` of the warden."""

    WNOHANG, POLLIN, O_RDWR, devnull = os.WNOHANG, 1, os.O_RDWR, os.devnull
    SIGTERM, SIGCHLD, SIGKILL, SIG_DFL = signal.SIGTERM, signal.SIGCHLD, signal.SIGKILL, signal.SIG_DFL
    SIG_BLOCK, SIG_UNBLOCK = signal.SIG_BLOCK, signal.SIG_UNBLOCK
    WIFSIGNALED, WTERMSIG, WIFEXITED = map(staticmethod, (os.WIFSIGNALED, os.WTERMSIG, os.WIFEXITED))
    waitstatus_to_exitcode, path = staticmethod(os.waitstatus_to_exitcode), os.path

    def __init__(self, *, forks=0, parent=60, waits=(), polls=(), gone=False):
        self.forks, self.parent, self.waits, self.polls = forks, parent, list(waits), list(polls)
        self.gone, self.did, self.handlers = gone, [], {}

    def CDLL(self, name, use_errno=False):
        return self

    def prctl(self, *words):
        self.did.append(("prctl", *words))

    def fork(self):
        return self.forks

    def getpid(self):
        return 60

    def getppid(self):
        return self.parent

    def execvp(self, program, words):
        self.did.append(("execvp", program, words))
        raise OSError(2, "No such file or directory")

    def _exit(self, code):
        raise Ended(code)

    def kill(self, pid, number):
        self.did.append(("kill", pid, number))

    def signal(self, number, handler):
        if number == signal.SIGKILL:
            raise OSError(22, "Invalid argument")
        self.handlers[number] = handler

    def pthread_sigmask(self, how, which):
        self.did.append((how, *which))

    def set_wakeup_fd(self, handle, **more):
        self.did.append(("wakes", handle, more))

    def pipe(self):
        return WAKES, 42

    def set_blocking(self, handle, blocks):
        self.did.append(("blocks", handle, blocks))

    def poll(self, *limit):
        if not hasattr(self, "registered"):  # the maker of such
            self.registered = []
            return self
        happened = self.polls.pop(0)
        if "SIGTERM" in happened:
            self.handlers[signal.SIGTERM](signal.SIGTERM, None)
        if WAKES in happened:
            self.handlers[signal.SIGCHLD](signal.SIGCHLD, None)
        return [(handle, 1) for handle in happened if handle != "SIGTERM"]

    def register(self, handle, events):
        self.registered.append((handle, events))

    def read(self, handle, most):
        self.did.append(("read", handle))

    def waitpid(self, pid, how):
        assert (pid, how) == (-1, os.WNOHANG)
        if (found := self.waits.pop(0)) is None:
            raise ChildProcessError
        return found

    def pidfd_open(self, pid):
        self.did.append(("pidfd", pid))
        return PARENT

    def open(self, path, flags):
        self.did.append(("open", path, flags))
        return 50

    def dup2(self, handle, number):
        self.did.append(("dup2", handle, number))

    def select(self, reads, writes, errors, limit):
        self.did.append(("select", *reads, limit))
        return (reads if self.gone else []), [], []


@pytest.fixture
def kernel(monkeypatch):
    def made(**how):
        found = Kernel(**how)
        for name in ("os", "signal", "select", "ctypes"):
            monkeypatch.setattr(warden, name, found)
        return found

    return made


def test_orphans_are_asked_for(kernel):
    here = kernel()
    warden.adopt()
    assert here.did == [("prctl", 36, 1, 0, 0, 0)]


def test_the_program_is_a_child_that_dies_with_its_warden(kernel, capsys):
    assert kernel(forks=CHILD).did == [] and warden._start(["nice", "true"]) == CHILD
    here = kernel()
    with pytest.raises(Ended) as ended:
        warden._start(["nice", "true"])
    assert here.did == [
        ("prctl", 1, signal.SIGKILL, 0, 0, 0),
        (signal.SIG_UNBLOCK, signal.SIGTERM),
        ("execvp", "nice", ["nice", "true"]),
    ]
    assert ended.value.args == (127,)
    assert capsys.readouterr().err == f"nice: {os.strerror(errno.ENOENT)}\n"


def test_a_program_whose_warden_has_gone_is_not_begun(kernel):
    here = kernel(parent=1)
    with pytest.raises(Ended) as ended:
        warden._start(["true"])
    assert ended.value.args == (127,) and len(here.did) == 2


@pytest.mark.parametrize(
    ("waits", "polls", "status", "reads"),
    [
        ([(CHILD, 256)], [], 256, 0),  # it has ended before anybody looked
        ([(7, 0), (8, 9), (CHILD, 9)], [], 9, 0),  # after orphans that it left
        ([(0, 0), (7, 0), (0, 0), (CHILD, 0)], [[WAKES], [WAKES]], 0, 2),
        ([(0, 0), (0, 0)], [[WAKES], [PARENT]], None, 1),
        ([(0, 0)], [[WAKES, "SIGTERM"]], None, 1),
        ([None, (CHILD, 0)], [[WAKES]], 0, 1),  # nobody is there yet, or any more
    ],
)
def test_a_warden_waits_for_the_child_the_parent_or_a_request(kernel, waits, polls, status, reads):
    here = kernel(waits=waits, polls=polls)
    assert warden._watch(PARENT, CHILD) == status
    assert not here.waits and not here.polls and here.did.count(("read", WAKES)) == reads
    assert here.registered == [(WAKES, 1), (PARENT, 1)] and ("blocks", 42, False) in here.did
    assert ("wakes", 42, {"warn_on_full_buffer": False}) in here.did
    assert (signal.SIG_UNBLOCK, signal.SIGTERM) in here.did


@pytest.mark.parametrize(
    ("status", "did", "code"),
    [
        (0, [], 0),
        (3 << 8, [], 3),
        (signal.SIGSEGV, [("prctl", 4, 0, 0, 0, 0), ("kill", 60, signal.SIGSEGV)], 1),
        (signal.SIGKILL, [("prctl", 4, 0, 0, 0, 0), ("kill", 60, signal.SIGKILL)], 1),
    ],
)
def test_a_warden_ends_as_its_program_did_and_dumps_no_core(kernel, status, did, code):
    here = kernel()
    with pytest.raises(Ended) as ended:
        warden._end_as(status)
    assert (here.did, ended.value.args) == (did, (code,))
    assert here.handlers == ({signal.SIGSEGV: signal.SIG_DFL} if status == signal.SIGSEGV else {})


@pytest.fixture
def guarded(kernel, monkeypatch, tmp_path):
    """Guard a program that ends with a status; return what this did, and the status that it ended with."""

    def run(status, survivors=(), there=True, **how):
        here, kept = kernel(**how), {}
        kept["folder"] = tmp_path / "trial"
        if there:
            kept["folder"].mkdir()
        monkeypatch.setattr(warden, "adopt", lambda: here.did.append("adopt"))
        monkeypatch.setattr(warden, "_start", lambda program: here.did.append(program) or CHILD)
        monkeypatch.setattr(warden, "_watch", lambda *who: here.did.append(("watch", *who)) or status)
        monkeypatch.setattr(warden, "end_all", lambda: here.did.append("end") or [*survivors])
        monkeypatch.setattr(warden, "_end_as", lambda number: kept.update(ended=number))
        warden.main(["12", str(kept["folder"]), "nice", "true"])
        return here.did, SimpleNamespace(**kept)

    return run


def test_a_warden_lets_go_of_the_programs_streams_and_ends_what_is_left(guarded):
    did, kept = guarded(256)
    assert did == [
        ("pidfd", 12),
        (signal.SIG_BLOCK, signal.SIGTERM),
        "adopt",
        ["nice", "true"],
        ("open", os.devnull, os.O_RDWR),
        ("dup2", 50, 0),
        ("dup2", 50, 1),
        ("watch", PARENT, CHILD),
        ("wakes", -1, {}),
        "end",
        ("select", PARENT, 0),
    ]
    assert kept.ended == 256 and [*kept.folder.iterdir()] == []


@pytest.mark.parametrize(("status", "ends"), [(None, signal.SIGKILL), (0, 0), (9, 9)])
def test_who_could_not_be_ended_is_written_down_for_the_parent(guarded, status, ends):
    _, kept = guarded(status, survivors=[8, 9])
    assert kept.ended == ends and (kept.folder / warden.SURVIVORS).read_text() == "8 9"


@pytest.mark.parametrize("there", [True, False])
def test_the_folder_of_a_parent_that_has_gone_is_removed(guarded, there):
    """The parent may have removed it as the last thing that it did."""
    _, kept = guarded(None, survivors=[8], there=there, gone=True)
    assert not kept.folder.exists() and kept.ended == signal.SIGKILL


def test_the_children_of_all_threads_are_found(monkeypatch, tmp_path):
    for task, children in (("1", "4 5 "), ("2", ""), ("3", "6")):
        (tmp_path / f"9/task/{task}").mkdir(parents=True)
        (tmp_path / f"9/task/{task}/children").write_text(children)
    (tmp_path / "9/task/4").mkdir()  # it has ended meanwhile
    moved = SimpleNamespace(
        listdir=lambda path: sorted(os.listdir(str(tmp_path) + path.removeprefix("/proc")))
    )
    monkeypatch.setattr(warden, "os", moved)
    opened = lambda path: (tmp_path / path.removeprefix("/proc/")).open()  # noqa: E731
    monkeypatch.setattr(warden, "open", opened, raising=False)
    assert warden._children(9) == [4, 5, 6] and warden._children(10) == []
