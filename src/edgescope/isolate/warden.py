"""A process between edgescope and a trial's, so that whatever the trial starts ends with it, wherever it hides.

python -I -S warden.py PARENT FOLDER PROGRAM [ARGUMENT ...]

A process that makes a session of its own (setsid) and lets its parent end is nobody's child any more, and no group's;
on a shared machine it would disturb every later trial. The kernel hands such orphans to the nearest ancestor that asked
for them (PR_SET_CHILD_SUBREAPER): that is this process, and it has no other children. It ends them all once PROGRAM
has ended, on SIGTERM, and when PARENT is gone, however that ended; then it removes FOLDER too, which nobody else would.

It runs with the standard library alone and sleeps until something happens. It ends as PROGRAM did.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import time

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER = 1, 4, 36
#: Seconds after which a process that SIGKILL does not end is left: one of another user's, or stuck in a driver.
PATIENCE_S = 5.0
SURVIVORS = "survivors"
"""File in FOLDER that names the processes which could not be ended."""


def adopt() -> None:
    """Have the kernel make orphans below this process its children."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def below(pid: int) -> list[int]:
    """Return the processes below one, the nearest first; what is started meanwhile may be lacking."""
    found = _children(pid)
    for child in found:  # grows
        found.extend(p for p in _children(child) if p not in found)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
    return found


def end_all(patience_s: float = PATIENCE_S) -> list[int]:
    """End everything below this process; return the children that could not be ended.

    Killing a process makes its children ours, so this goes on until the kernel says that there is none: a process
    that starts another while it is looked for is found in the next round.
    """
    until = time.monotonic() + patience_s
    while True:
        _kill(below(os.getpid()))
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return []
        if time.monotonic() > until:
            return _children(os.getpid())
        time.sleep(0.0005)


def end_strangers(known: set[int], patience_s: float = PATIENCE_S) -> None:
    """End the children of this process that are not in `known`, and what is below them."""
    until = time.monotonic() + patience_s
    while (strangers := [p for p in _children(os.getpid()) if p not in known]) and time.monotonic() < until:
        for stranger in strangers:
            _kill([stranger, *below(stranger)])
            with contextlib.suppress(ChildProcessError):
                os.waitpid(stranger, os.WNOHANG)
        time.sleep(0.0005)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _watch(parent: int, child: int) -> int | None:
    """Wait for the child's end, SIGTERM or the parent's end; return how the child ended, None where it lives."""
    asked: list[int] = []
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    ready = select.poll()
    ready.register(wakes, select.POLLIN)
    ready.register(parent, select.POLLIN)
    while True:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == child:
                    return ended[1]
        happened = {handle for handle, _ in ready.poll()}
        if wakes in happened:
            os.read(wakes, 4096)
        if asked or parent in happened:
            return None


def _start(program: list[str]) -> int:
    """Start the program as a child that ends with this process; return its process id."""
    libc, mine = ctypes.CDLL(None, use_errno=True), os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        if os.getppid() == mine:
            os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.strerror}\n")
        sys.stderr.flush()
    os._exit(127)


def _end_as(status: int) -> None:
    """End as a process with this wait status did, without a core dump of its own."""
    if os.WIFSIGNALED(status):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):  # SIGKILL needs no default
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def main(argv: list[str]) -> None:
    """Start the program, wait, end what it left, end as it did."""
    folder = argv[1]
    parent = os.pidfd_open(int(argv[0]))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until somebody listens
    adopt()
    child = _start(argv[2:])
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1):  # they are the program's; who reads them must see its end
        os.dup2(nothing, handle)
    status = _watch(parent, child)
    signal.set_wakeup_fd(-1)
    survivors = end_all()
    if select.select([parent], [], [], 0)[0]:
        shutil.rmtree(folder, ignore_errors=True)
    elif survivors:
        with open(os.path.join(folder, SURVIVORS), "w") as file:
            file.write(" ".join(map(str, survivors)))
    _end_as(signal.SIGKILL if status is None else status)


if __name__ == "__main__":
    main(sys.argv[1:])
