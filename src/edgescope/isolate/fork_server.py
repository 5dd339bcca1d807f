"""The fork server's own program: it imports what a worker needs, then forks a worker for each request.

python -m edgescope.isolate.fork_server LEADER_PID [MODULES]

Its stdin is a socket of packets. The first lists the modules to import; the answer is '', or why no process may be
forked after that. Each later packet brings a worker's stdin, stdout and stderr; the answer is the worker's process id.

A fork copies one thread and every open device, so a library that has started a thread or opened a device while it was
imported may hang or fail in the copy. An import that starts a thread, as ONNX Runtime's does, is left to the workers,
with all that follow it: this program begins anew with the first so many MODULES. After imports that open a device it
refuses. A library that ends its threads before a fork, as OpenBLAS does, may have some.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import mmap
import os
import random
import socket
import sys
import time
import traceback
from collections.abc import Sequence
from typing import NoReturn

from edgescope import registry
from edgescope.process import die_with_parent

LONGEST = 1 << 20
"""Bytes of a packet at most; the names of a thousand modules are 30 kB."""
STREAMS = 3
MOST_PAGES = 1 << 14
_HARMLESS = (
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/pts/",
    "/dev/shm/",
)


def main(argv: Sequence[str]) -> None:
    """Import what the leader lists; fork workers for it until it has gone."""
    leader = int(argv[0])
    die_with_parent(leader)
    orders = socket.socket(fileno=os.dup(0))
    packet = orders.recv(LONGEST, socket.MSG_PEEK)  # it stays, for the program that begins anew
    if not packet:
        return
    names = json.loads(packet)[: int(argv[1]) if len(argv) > 1 else None]
    why, done = imported(names)
    if why and 0 < done < len(names):
        os.execv(sys.executable, [*sys.orig_argv[: -len(argv)], argv[0], str(done)])
    orders.recv(LONGEST)
    why = why or refusal()
    orders.send(why.encode() or b"\n")
    while not why:
        order, streams, *_ = socket.recv_fds(orders, 1, STREAMS)
        if not order:
            return
        pid = fork(leader, streams, orders)
        for stream in streams:
            os.close(stream)
        orders.send(str(pid).encode())


def imported(names: Sequence[str]) -> tuple[str, int]:
    """Import the modules one after the other; return why there may be no fork after the last one, and their number.

    A module that fails may be half there: then the number is that of all.
    """
    for done, name in enumerate(names):
        try:
            importlib.import_module(name)
        except Exception as error:
            return f"{name} cannot be imported: {error}", len(names)
        if threads() > 1 and (why := refusal()):
            return why, done
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the pages of everything that it looks at
    return "", len(names)


def threads() -> int:
    """Return how many threads this process has."""
    return len(os.listdir("/proc/self/task"))


def refusal() -> str:
    """Return why this process must not be forked, or '' if it may be."""
    if not (first := os.fork()):
        os._exit(0)
    os.waitpid(first, 0)
    if more := threads() - 1:
        return f"{more} threads run once everything is imported"
    opened = sorted(device for device in map(_target, os.listdir("/proc/self/fd")) if _is_device(device))
    return f"{', '.join(opened)} is open once everything is imported" if opened else ""


def _target(handle: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(f"/proc/self/fd/{handle}")
    return ""


def _is_device(path: str) -> bool:
    return path.startswith("/dev/") and not path.startswith(_HARMLESS)


def fork(leader: int, streams: Sequence[int], orders: socket.socket) -> int:
    """Fork a worker that becomes the leader's child; return its process id, 0 if there is no room for another.

    The process between them ends at once. The kernel gives its orphan to the leader, which has asked for orphans.
    """
    reads, writes = os.pipe()
    if not (between := os.fork()):
        try:
            mine = os.getpid()
            if worker := os.fork():
                os.write(writes, str(worker).encode())
            else:
                os.close(reads)
                os.close(writes)
                orders.close()
                _work(mine, leader, streams)
        finally:
            os._exit(0)
    os.close(writes)
    os.waitpid(between, 0)
    with os.fdopen(reads) as told:
        return int(told.read() or 0)


def _work(between: int, leader: int, streams: Sequence[int]) -> NoReturn:
    while os.getppid() == between:
        time.sleep(0.0002)
    code = 1
    try:
        if os.getppid() == leader:
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            unlike()
            importlib.import_module(registry.WORKER_PROGRAM).main([str(leader)])
            code = 0
    except BaseException:  # whatever it was, the leader reads it in the worker's stderr
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def unlike() -> None:
    """Make this fork differ from its siblings where started processes differ: where memory lies, what is drawn."""
    pages = random.SystemRandom().randrange(1, MOST_PAGES)
    globals()["_gap"] = mmap.mmap(-1, pages * mmap.PAGESIZE)  # never touched: it takes addresses, no memory
    random.seed()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed()


if __name__ == "__main__":
    main(sys.argv[1:])
