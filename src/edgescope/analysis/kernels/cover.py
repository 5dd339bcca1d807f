"""Covers: sets of time as sorted intervals that do not touch, with the algebra that accounts of time are made of.

Every account here is a partition of time by such sets, so its parts sum to the whole by construction; what a test
must hold is that the sets are the right ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]


@dataclass(frozen=True)
class Cover:
    """A set of time: intervals [start, end) in nanoseconds, sorted, apart from each other, none empty."""

    start: Times
    end: Times

    @classmethod
    def of(cls, start: NDArray[Any], end: NDArray[Any]) -> Cover:
        """Return the union of intervals in any order; those that are empty or end before they begin are left out."""
        if not len(start):
            return cls(np.empty(0, "int64"), np.empty(0, "int64"))
        if (end <= start).any():
            start, end = start[end > start], end[end > start]
        if (start[1:] < start[:-1]).any():
            order = np.argsort(start, kind="stable")
            start, end = start[order], end[order]
        if not len(start):
            return cls(np.empty(0, "int64"), np.empty(0, "int64"))
        reach = np.maximum.accumulate(end)
        first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
        return cls(start[first], reach[np.append(first[1:] - 1, len(reach) - 1)])

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def _before(self) -> Times:
        """Return the covered time before each interval."""
        return np.concatenate(([0], np.cumsum(self.end - self.start)))

    @property
    def total(self) -> int:
        """Return the covered nanoseconds."""
        return int(self._before[-1])

    def until(self, t: NDArray[Any]) -> Times:
        """Return the covered nanoseconds before each time."""
        if not len(self):
            return np.zeros(len(t), "int64")
        i = np.searchsorted(self.start, t, side="right") - 1
        inside = np.minimum(t, self.end[i]) - self.start[i]
        return np.where(i < 0, 0, self._before[i] + inside)

    def within(self, start: NDArray[Any], end: NDArray[Any]) -> Times:
        """Return the covered nanoseconds within each interval [start, end)."""
        return self.until(end) - self.until(start)

    def holds(self, t: NDArray[Any]) -> NDArray[np.bool_]:
        """Return whether each time is covered."""
        if not len(self):
            return np.zeros(len(t), bool)
        i = np.searchsorted(self.start, t, side="right") - 1
        return np.asarray((i >= 0) & (t < self.end[i]))

    def __or__(self, other: Cover) -> Cover:
        return Cover.of(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def __and__(self, other: Cover) -> Cover:
        return self._where(other, 3)

    def __sub__(self, other: Cover) -> Cover:
        return self._where(other, 1)

    def _where(self, other: Cover, wanted: int) -> Cover:
        """Return the time in which exactly this (1), exactly the other (2) or both (3) cover."""
        times = np.concatenate((self.start, self.end, other.start, other.end))
        steps = np.repeat(np.array([1, -1, 2, -2], "int8"), [len(self), len(self), len(other), len(other)])
        order = np.argsort(times, kind="stable")
        times, state = times[order], np.cumsum(steps[order])
        chosen = np.flatnonzero((state[:-1] == wanted) & (times[1:] > times[:-1]))
        return Cover.of(times[chosen], times[chosen + 1])


def whole(start: int, end: int) -> Cover:
    """Return one interval as a set of time."""
    return Cover.of(np.array([start], "int64"), np.array([end], "int64"))
