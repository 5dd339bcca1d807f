"""When a clock of CPU time is read: it costs a system call, ten times as much as the time of day."""

from __future__ import annotations

import random

EVERY_NS = 50_000_000
_random = random.Random(0)
"""A generator of its own: a data set may draw from the module's."""


def next_look(now_ns: int) -> int:
    """Return the moment of the next look, 25 to 75 ms from now: at random, so that no pattern of steps fits it."""
    return now_ns + int(EVERY_NS * (0.5 + _random.random()))


def scaled(spent: float, looked: float, whole: float) -> float:
    """Return the CPU time of a `whole` if `spent` was that of the `looked` part of it; 0 without a look."""
    return spent / looked * whole if looked else 0.0
