"""Two probes of the machine, and the child process that probes whenever it is asked.

A process of its own: its buffer does not count as the trial's memory, and the same child probes before and after a run.
It waits while the trial is measured, on a board whose memory is small, so this file is its program (`python -I -S
probes.py PROBE ...`) and imports neither this package nor what an installation adds.

The memory probe is the same walk over a buffer too large for any cache. A neighbour that takes memory bandwidth or the
shared cache slows a network but not the spin probe (clocks.py), which touches no memory. The walk reads one byte of
every cache line in one C call. Another buffer would lie at other addresses. The pages go back to the system between two
walks, while a trial is measured that may need them.

The core-to-core probe is the latency of a cache line from one CPU to another. The threads of a layer wait for each
other at its end, so a small network on several threads follows this latency. On a machine of one's own it is a
constant. A hypervisor moves virtual CPUs, for minutes at a time: now they share a cache, then they sit on two sockets,
and nothing else that the guest can read tells one from the other. Two processes, each on a CPU of its own, answer each
other through one page of shared memory. What the interpreter takes for it is measured on one CPU and taken off.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence

TYPE_CHECKING = False  # the child would import typing for it
if TYPE_CHECKING:
    from edgescope.process import Process

LINE = 64
"""Bytes of a cache line."""
LEAST, MOST = 8 << 20, 64 << 20
"""Smallest and largest size of the buffer in bytes: a small board has little memory to spare."""
ROUNDS = 7
LEVELS = 8
"""More than any CPU tells of."""
TRIPS = 2_000
LEAST_TRIPS = 100
"""Fewer round trips do not tell: something else had one of the CPUs."""
LIMIT_S = 0.03
"""Seconds after which no further round trip begins; the usual 2,000 take a millisecond."""
QUICK = 0.1
"""The quantile of the round trips that counts: most of what disturbs one makes it longer."""
ASKED, ANSWERED = 0, 1024
"""Offsets into the page, on two cache lines that no prefetcher fetches together."""
TOKENS = 255
"""As many as one byte tells from 0, which stands for no question."""

Probe = Callable[[], "float | None"]


class Prober:
    """The child process, while the block runs."""

    def __init__(self, *probes: str) -> None:
        """`probes`: names of PROBES."""
        self.probes = probes

    def __enter__(self) -> Prober:
        """Start the child; if it cannot be started, `seconds` returns None."""
        from edgescope.process import Process

        self._child: Process | None = None
        with contextlib.suppress(OSError):
            self._child = Process([sys.executable, "-I", "-S", __file__, *self.probes])
        return self

    def __exit__(self, *exc: object) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()

    def seconds(self, number: int = 0) -> float | None:
        """Probe now with the probe of this number; return its seconds, or None if it has none or the child is gone."""
        if self._child is None:
            return None
        try:
            self._child.pipe.write(b"%d\n" % number)
            return float(self._child.pipe.line())
        except (OSError, EOFError, ValueError):
            return None


def main(names: Sequence[str]) -> None:
    """Probe whenever a line of stdin names a probe by its number, until the parent has gone: stdin ends then."""
    probes = [PROBES[name]() for name in names]
    for line in sys.stdin:
        print(probes[int(line)](), flush=True)


def walk(
    buffer: bytearray | mmap.mmap, rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter
) -> float:
    """Return the seconds of the fastest of `rounds` walks over the buffer."""
    times = []
    for _ in range(rounds):
        start = clock()
        buffer[::LINE]
        times.append(clock() - start)
    return min(times)


def size(caches: str = "/sys/devices/system/cpu/cpu0/cache") -> int:
    """Return the buffer's size in bytes: twice this machine's largest cache, within bounds."""
    found = [_bytes(f"{caches}/index{level}/size") for level in range(LEVELS)]
    return min(max(2 * (max(found) or MOST), LEAST), MOST)


def _bytes(path: str) -> int:
    try:
        with open(path) as file:
            text = file.read().strip()
        return int(text.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    except (OSError, ValueError):
        return 0


def walking(length: int | None = None) -> Probe:
    """Return the memory probe, with its buffer of so many bytes, or of the size for this machine."""
    buffer = mmap.mmap(-1, length or size(), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # the system has huge pages at one time and none at another
        buffer.madvise(mmap.MADV_NOHUGEPAGE)

    def probe() -> float:
        for page in range(
            0, len(buffer), mmap.PAGESIZE
        ):  # untouched pages would all map to one page of zeros
            buffer[page] = 1
        try:
            return walk(buffer)
        finally:
            buffer.madvise(mmap.MADV_DONTNEED)

    return probe


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
    return max(_quick(trips) - 2 * own_s, 0.0) / 2 if len(trips) >= LEAST_TRIPS else None


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


PROBES: dict[str, Callable[[], Probe]] = {"memory": walking, "core_to_core": lambda: one_way}

if __name__ == "__main__":
    main(sys.argv[1:])
