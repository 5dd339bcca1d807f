"""Turns of two processes that a script leads: blocks of baseline, candidate, candidate, baseline, and their ratio.

A process is anything with a `turn(seconds)` that returns the mean time of a call in it, and a `pid`. The next turn
begins once the threads of the one before are asleep.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from edgescope.bench.alternation import ORDER
from edgescope.process.threads import until_asleep
from edgescope.stats.alternation import Turns, alternation_ratio


class Side(Protocol):
    """One process of a pair."""

    @property
    def pid(self) -> int:
        """Its number."""

    def turn(self, seconds: float) -> float:
        """Return the mean time of a call in a turn."""


def turns(sides: Sequence[Side], count: int, seconds: float) -> Turns:
    """Return so many blocks of a pair, baseline first, with turns of so many seconds."""
    order, found = [*ORDER] * count, list[float]()
    for number in order:
        found.append(math.log(sides[number].turn(seconds)))
        until_asleep(sides[number].pid)
    return Turns(order, found)


def ratio(pairs: Sequence[Turns]) -> dict[str, Any]:
    """Return how many times faster the candidate is, with the interval that edgescope gives pairs."""
    found = alternation_ratio(pairs)
    if not found.reliable:
        return {"absent": found.note, "n": found.n, "pairs": len(pairs)}
    return {"value": found.value, "lo": found.lo, "hi": found.hi, "n": found.n, "pairs": len(pairs)}
