"""CPU time of many short pieces of work, of which a few are looked at.

Its clock costs a system call, ten times as much as the time of day, which would be most of what watching a step costs.
"""

from __future__ import annotations

import random

EVERY_NS = 50_000_000


class Looks:
    """Says which pieces are looked at: the first, then one every 25 to 75 ms."""

    def __init__(self) -> None:
        self._next_ns = 0
        self._random = random.Random(0)
        """At random, so that no pattern of steps fits it; its own, as a data set may draw from the module's."""

    def due(self, now_ns: int) -> bool:
        """Return whether the piece that begins now is looked at."""
        if now_ns < self._next_ns:
            return False
        self._next_ns = now_ns + int(EVERY_NS * (0.5 + self._random.random()))
        return True


def scaled(spent: float, looked: float, whole: float) -> float | None:
    """Return the CPU time of a `whole` if `spent` was that of the `looked` part of it; None without a look."""
    return spent / looked * whole if looked else None
