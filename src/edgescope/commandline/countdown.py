"""How long the rest of a job of like parts takes, by the pace of those that are done."""

from __future__ import annotations

import time
from collections.abc import Callable

EVERY_S = 5.0
"""Seconds between two lines about a job of many short parts."""


class Countdown:
    """Estimates from the pace since the first report: what comes before it is loading, and happens once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.begun = clock, clock()
        self._first: tuple[float, float] | None = None
        self._said = -EVERY_S

    def left_s(self, done: float, total: float) -> float | None:
        """Return the seconds left once `done` parts are done; None at the first report, which has no pace yet."""
        now = self.clock()
        self._first = self._first or (done, now)
        start, since = self._first
        return (now - since) / (done - start) * (total - done) if done > start else None

    def words(self, done: float, total: float) -> str:
        """Return `, about 40 s left`; the time so far where there is no pace yet, and that of all at the end."""
        from edgescope.units import lasting, remaining  # needs numpy, through records

        left, spent = self.left_s(done, total), self.clock() - self.begun
        return f", {lasting(spent)} in all" if done >= total else remaining(left, spent)

    def due(self, done: float, total: float) -> bool:
        """Return whether to print a line: for the first part and the last, and every EVERY_S seconds."""
        now = self.clock() - self.begun
        due = done >= total or now - self._said >= EVERY_S
        self._said = now if due else self._said
        return due
