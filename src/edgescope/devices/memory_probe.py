"""A memory probe: the same walk over a buffer too large for any cache, before and after a run.

A neighbour that takes memory bandwidth or the shared cache slows a network but not the spin probe, which touches no
memory. The walk reads one byte of every cache line in one C call. It runs in a child process (`prober`), the same one
before and after: another buffer would lie at other addresses. The pages go back to the system between two walks, while
a trial is measured that may need them. Standard library only.
"""

from __future__ import annotations

import contextlib
import mmap
import time
from collections.abc import Callable

LINE = 64
"""Bytes of a cache line."""
LEAST, MOST = 8 << 20, 64 << 20
"""Smallest and largest size of the buffer in bytes: a small board has little memory to spare."""
ROUNDS = 7
LEVELS = 8
"""More than any CPU tells of."""


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


def prepared() -> Callable[[], float | None]:
    """Return the probe, with its buffer."""
    buffer = mmap.mmap(-1, size(), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
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
