"""A memory probe: the same walk over a buffer that no cache holds, before and after a run.

A neighbour that takes memory bandwidth or the shared cache slows a network and leaves the spin probe, which touches no
memory, as it was. The walk reads one byte of every cache line in one C call. It runs in a child process, so that its
buffer is not in the memory that the trial is charged for, and it is the same child before and after: another buffer
would lie elsewhere and take another time. Standard library only.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from edgescope.process import Process

LINE = 64
"""Bytes of a cache line."""
LEAST, MOST = 8 << 20, 64 << 20
"""Bytes of the buffer, at least and at most: a small board has little memory to spare."""
ROUNDS = 15


class Walker:
    """A child process that holds the buffer while the block runs and walks over it when asked."""

    def __enter__(self) -> Walker:
        """Start the child; one that cannot be started walks nowhere."""
        self._child: Process | None = None
        with suppress(OSError):
            self._child = Process([sys.executable, "-m", "edgescope.devices.walk"])
        return self

    def __exit__(self, *exc: object) -> None:
        """End the child."""
        if self._child is not None:
            self._child.end()

    def seconds(self) -> float | None:
        """Return the seconds of the least disturbed walk now; None where the child is gone."""
        if self._child is None:
            return None
        try:
            self._child.pipe.write(b"\n")
            return float(self._child.pipe.line())
        except (OSError, EOFError, ValueError):
            return None


def walk(buffer: bytearray, rounds: int = ROUNDS, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the seconds of the fastest of `rounds` walks over the buffer."""
    times = []
    for _ in range(rounds):
        start = clock()
        buffer[::LINE]
        times.append(clock() - start)
    return min(times)


def size(root: Path = Path("/")) -> int:
    """Return the bytes of a buffer twice as large as this machine's largest cache, within bounds."""
    found = [_bytes(p) for p in root.glob("sys/devices/system/cpu/cpu0/cache/index*/size")]
    return min(max(2 * max(found, default=MOST), LEAST), MOST)


def _bytes(path: Path) -> int:
    try:
        text = path.read_text().strip()
        return int(text.rstrip("KM")) * {"K": 1 << 10, "M": 1 << 20}.get(text[-1:], 1)
    except (OSError, ValueError):
        return 0


def main() -> None:
    """Walk once for every line of stdin; its end means stop, so that a parent that dies takes this process along."""
    buffer = bytearray(b"\1") * size()  # written once: untouched pages would all be one page of zeros
    for _ in sys.stdin:
        print(walk(buffer), flush=True)


if __name__ == "__main__":
    main()
