"""Core-to-core latency: the seconds that a cache line takes from one CPU to another.

The threads of a layer wait for each other at its end, so a small network on several threads follows this latency. On a
machine of one's own it is a constant. A hypervisor moves virtual CPUs, for minutes at a time: now they share a cache,
then they sit on two sockets, and nothing else that the guest can read tells one from the other.

Two processes, each on a CPU of its own, answer each other through one page of shared memory. What the interpreter
takes for it is measured on one CPU and taken off. Standard library only; it runs in a child process (`prober`).
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import time
from collections.abc import Callable, Iterator

TRIPS = 2_000
LEAST = 100
"""Fewer round trips do not tell: something else had one of the CPUs."""
LIMIT_S = 0.03
"""Seconds after which no further round trip begins; the usual 2,000 take a millisecond."""
QUICK = 0.1
"""The quantile of the round trips that counts: most of what disturbs one makes it longer."""
ASKED, ANSWERED = 0, 1024
"""Offsets into the page, on two cache lines that no prefetcher fetches together."""
TOKENS = 255
"""As many as one byte tells from 0, which stands for no question."""


def one_way() -> float | None:
    """Return the seconds from the first to the second CPU that this process may use; None if they do not answer."""
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        return None
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as page, _on(cpus[0]):
            own_s = _quick([_trip(page, n, ASKED) for n in range(TRIPS)])
            with _answering(page, cpus[1]):
                trips = list(_trips(page))
    except OSError:  # no further process, or a CPU that may not be chosen
        return None
    return max(_quick(trips) - 2 * own_s, 0.0) / 2 if len(trips) >= LEAST else None


def _trips(page: mmap.mmap) -> Iterator[float]:
    """Yield the seconds of each round trip until there are enough or the time is up."""
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT_S)
    with contextlib.suppress(TimeoutError):
        for n in range(TRIPS):
            yield _trip(page, n, ANSWERED)
    signal.setitimer(signal.ITIMER_REAL, 0)


def _trip(page: mmap.mmap, n: int, reply: int) -> float:
    """Ask, wait until the same token is at `reply`, and return the seconds."""
    token, clock = 1 + n % TOKENS, time.perf_counter
    start = clock()
    page[ASKED] = token
    while page[reply] != token:
        pass
    return clock() - start


def _answer(page: mmap.mmap) -> None:
    token = 0
    while True:
        while page[ASKED] == token:
            pass
        token = page[ASKED]
        page[ANSWERED] = token


def _late(*_: object) -> None:
    raise TimeoutError


def _quick(seconds: list[float]) -> float:
    return sorted(seconds)[int(QUICK * len(seconds))] if seconds else 0.0


@contextlib.contextmanager
def _on(cpu: int) -> Iterator[None]:
    """Stay on one CPU while the block runs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def _answering(page: mmap.mmap, cpu: int) -> Iterator[None]:
    """Have a process on `cpu` answer what is asked, while the block runs."""
    page[ASKED] = page[ANSWERED] = 0
    if not (pid := os.fork()):
        try:
            # ends it, should the parent die before it kills it
            signal.setitimer(signal.ITIMER_REAL, 2 * LIMIT_S)
            os.sched_setaffinity(0, {cpu})
            _answer(page)
        finally:
            os._exit(1)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def prepared() -> Callable[[], float | None]:
    """Return the probe."""
    return one_way
