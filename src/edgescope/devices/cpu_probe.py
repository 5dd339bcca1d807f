"""A spin probe: the same integer work before and after a run shows whether the core became slower.

It works even if no clock, counter or thermometer is readable, as in a virtual machine. The work is a chain
of SHA-256 rounds: no memory traffic, no floating point, one C call that holds no interpreter lock, so only
clock speed and preemption change its time. The best of several rounds is the least preempted one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

_TARGET_S = 0.01
"""Longer rounds find a slower core no more often, and give no fewer false alarms (benchmarks/probes.py spin_length)."""
_CALIBRATION_LOOPS = 2_000


@dataclass(frozen=True)
class Spin:
    """The time that a fixed amount of integer work took."""

    loops: int
    rounds_s: tuple[float, ...]
    """Seconds of each round, in order."""

    @property
    def best_s(self) -> float:
        """Return the time of the least disturbed round in seconds."""
        return min(self.rounds_s)


def work(loops: int) -> None:
    """Do `loops` rounds of dependent integer work."""
    hashlib.pbkdf2_hmac("sha256", b"edgescope", b"spin", loops)


def calibrate(target_s: float = _TARGET_S, clock: Callable[[], float] = time.perf_counter) -> int:
    """Return the number of loops that take about `target_s` seconds here and now."""
    best = min(_timed(_CALIBRATION_LOOPS, clock) for _ in range(5))
    return max(1, round(_CALIBRATION_LOOPS * target_s / best))


def spin(loops: int, rounds: int = 5, clock: Callable[[], float] = time.perf_counter) -> Spin:
    """Return the time of `rounds` rounds of `loops` loops; about 0.05 s at the calibrated length."""
    return Spin(loops, tuple(_timed(loops, clock) for _ in range(rounds)))


def _timed(loops: int, clock: Callable[[], float]) -> float:
    start = clock()
    work(loops)
    return clock() - start


def slowdown(before: Spin, after: Spin) -> float:
    """Return the seconds after divided by the seconds before, for the same work: 1.10 means 10 % slower afterwards."""
    if before.loops != after.loops:
        raise ValueError(f"the probes did different work: {before.loops} and {after.loops} loops")
    return after.best_s / before.best_s
