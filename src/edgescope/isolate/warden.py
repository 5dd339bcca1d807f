"""A process between edgescope and a trial's process; it ends whatever the trial started, wherever that hides.

python -I -S warden.py PARENT FOLDER PROGRAM [ARGUMENT ...]

A process that starts its own session (setsid) and outlives its parent belongs to no parent and no process group of
ours; on a shared machine it would disturb every later trial. The kernel gives such orphans to the nearest ancestor that
asked for them (PR_SET_CHILD_SUBREAPER): this process, which has no other children. It ends them all once PROGRAM has
ended, on SIGTERM, and when PARENT is gone for any reason; then it also removes FOLDER, which no other process would.

It uses the standard library alone and sleeps until something happens. It exits with PROGRAM's exit code or signal.
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
#: Seconds to wait for a process after SIGKILL: it may belong to another user or be stuck in a driver.
PATIENCE_S = 5.0
SURVIVORS = "survivors"
"""File in FOLDER that lists the processes that could not be ended."""


def adopt() -> None:
    """Have the kernel make orphans below this process its children."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def below(pid: int) -> list[int]:
    """Return the descendants of a process, nearest first; processes started meanwhile may be missing."""
    found = _children(pid)
    for child in found:  # the list grows while it is read
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

    Killing a process makes its children ours, so this repeats until the kernel reports no child: a process started
    during one round is found in the next.
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
    """End the children of this process that are not in `known`, and their descendants."""
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
    """Wait for the child's end, SIGTERM or the parent's end; return the child's wait status, None if it lives."""
    sigterms: list[int] = []
    wakes, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda number, frame: sigterms.append(number))
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
        if sigterms or parent in happened:
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
    """End this process with the same exit code or signal as `status`, without a second core dump."""
    if os.WIFSIGNALED(status):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        number = os.WTERMSIG(status)
        with contextlib.suppress(OSError, ValueError):  # SIGKILL needs no default
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


def main(argv: list[str]) -> None:
    """Start the program, wait, end its remaining processes, and end with its status."""
    folder = argv[1]
    parent = os.pidfd_open(int(argv[0]))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # until _watch handles it
    adopt()
    child = _start(argv[2:])
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in (0, 1):  # they belong to the program; their readers must see it end
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
