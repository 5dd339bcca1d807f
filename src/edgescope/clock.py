"""The one clock: monotonic nanoseconds, shared by every process of this boot.

On Linux `time.monotonic_ns` reads CLOCK_MONOTONIC, which is the same in all processes, so the sampler's readings
and the queries need no alignment. It is injected everywhere, so tests run a whole benchmark in fake time.
"""

from __future__ import annotations

import time
from typing import Protocol

#: time.sleep overshoots by tens of microseconds; spinning the rest keeps an open loop on its schedule.
SPIN_NS = 150_000


class Clock(Protocol):
    """Tells the time and waits."""

    def now(self) -> int:
        """Return monotonic nanoseconds."""

    def sleep_until(self, t_ns: int) -> None:
        """Return at `t_ns`, or at once if that has passed."""

    def doze_until(self, t_ns: int) -> None:
        """Return a little after `t_ns`; sleep all the time, so that the core is not kept awake."""


class MonotonicClock:
    """The real clock."""

    now = staticmethod(time.monotonic_ns)

    def sleep_until(self, t_ns: int) -> None:
        """Sleep most of the time, then spin until `t_ns`."""
        wait_until(t_ns)

    def doze_until(self, t_ns: int) -> None:
        """Sleep all the time; the timer is late by tens of microseconds."""
        while (left := t_ns - time.monotonic_ns()) > 0:
            time.sleep(left / 1e9)


def wait_until(t_ns: int, spin_ns: int = SPIN_NS) -> None:
    """Return at `t_ns`, or at once if that has passed; spin, not sleep, for the last `spin_ns`."""
    left = t_ns - time.monotonic_ns()
    if left > spin_ns:
        time.sleep((left - spin_ns) / 1e9)
    while time.monotonic_ns() < t_ns:
        pass
