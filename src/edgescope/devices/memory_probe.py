"""A memory probe: the same walk over a buffer too large for any cache, before and after a run.

A neighbour that takes memory bandwidth or the shared cache slows a network but not the spin probe, which touches no
memory. The walk reads one byte of every cache line in one C call. It runs in a child process (`prober`), the same one
before and after: another buffer would lie at other addresses and take another time. Standard library only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from edgescope.devices.prober import answer

LINE = 64
"""Bytes of a cache line."""
LEAST, MOST = 8 << 20, 64 << 20
"""Smallest and largest size of the buffer in bytes: a small board has little memory to spare."""
ROUNDS = 7


def walk(buffer: bytearray, rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of the fastest of `rounds` walks over the buffer."""
    times = []
    for _ in range(rounds):
        start = clock()
        buffer[::LINE]
        times.append(clock() - start)
    return min(times)


def size(root: Path = Path("/")) -> int:
    """Return the buffer's size in bytes: twice this machine's largest cache, within bounds."""
    found = [_bytes(p) for p in root.glob("sys/devices/system/cpu/cpu0/cache/index*/size")]
    return min(max(2 * max(found, default=MOST), LEAST), MOST)


def _bytes(path: Path) -> int:
    try:
        text = path.read_text().strip()
        return int(text.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    except (OSError, ValueError):
        return 0


def main() -> None:
    """Walk whenever asked."""
    buffer = bytearray(b"\1") * size()  # written once: untouched pages would all map to one page of zeros
    answer(lambda: walk(buffer))


if __name__ == "__main__":
    main()
