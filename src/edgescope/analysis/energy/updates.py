"""What a polled sensor really said: each of its updates once, at its first appearance.

A sensor that converts every 430 ms and is read every 100 ms repeats itself four times; the repeats add nothing and,
counted as readings, would smear every change of power. They are collapsed to the first. A value that comes back
unchanged from a new conversion looks just the same, so a value shown for longer than a refresh is held until one
refresh before it changes, instead of being joined to the next by a long ramp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_QUICK = 0.1
"""Quantile of the times between changes that stands for the quickest: the least would be a poll that came late."""
_SAME = 1.5
"""Times between changes up to this multiple of the quickest and a poll are single refreshes, not repeats."""
_AGREE = 3
"""Single refreshes that must have been seen; fewer changes say nothing of the sensor."""
_UNKNOWN = 1.0
"""The slowest refresh assumed of a sensor that changed too seldom to show its own: that of NVML's averages."""
_SLOW = 2.0
"""A refresh takes at most this multiple of the usual one; a value shown for longer was measured again."""


@dataclass(frozen=True)
class Updates:
    """The updates of one channel; times in seconds since the window's start, one entry an update."""

    t_s: Floats
    """When each was first seen."""
    value: Floats
    blind_s: Floats
    """Time between the poll that saw it and the one before, which did not: how late it may have been seen."""
    polls_s: Floats
    """Every moment at which the sensor was read and answered."""
    refresh_s: float
    """The usual time between two updates."""
    slowest_s: float
    """The longest time that may lie between two updates that are not repeats."""

    def __len__(self) -> int:
        return len(self.t_s)

    @property
    def irregular_s(self) -> float:
        """How much refreshes differ by more than the polls can explain."""
        return max(0.0, self.slowest_s - self.refresh_s - self.usual_blind_s)

    @property
    def usual_blind_s(self) -> float:
        """The usual time for which nobody had looked when an update was seen."""
        return float(np.median(self.blind_s[1:])) if len(self) > 1 else 0.0

    def inside(self, stop_s: float) -> int:
        """Return how many updates appeared in (0, stop]; a value that merely lasts does not appear again."""
        return int(np.count_nonzero((self.t_s > 0) & (self.t_s <= stop_s)))

    def held(self) -> tuple[Floats, Floats]:
        """Return (t_s, value) of a polygon: every update, and the end of each value that outlasted a refresh."""
        lasted = np.flatnonzero(np.diff(self.t_s) > self.slowest_s)
        ends = self.t_s[lasted + 1] - self.refresh_s
        t = np.concatenate((self.t_s, ends, self.polls_s[-1:]))
        value = np.concatenate((self.value, self.value[lasted], self.value[-1:]))
        order = np.argsort(t, kind="stable")
        return t[order], value[order]


def updates(t_ns: NDArray[np.int64], value: Floats, origin_ns: int) -> Updates:
    """Return the updates among readings (any order, repeats and duplicates included; not finite: not answered)."""
    answered = np.isfinite(value)
    t_ns, first = np.unique(t_ns[answered], return_index=True)
    polls, shown = (t_ns - origin_ns) / 1e9, value[answered][first]
    new = np.concatenate(([True], np.diff(shown) != 0))[: len(shown)]
    before = np.concatenate((polls[:1], polls[:-1]))
    refresh, slowest = _refresh(polls, polls[new], (polls - before)[new])
    return Updates(polls[new], shown[new], (polls - before)[new], polls, refresh, slowest)


def _refresh(polls: Floats, changes: Floats, blind: Floats) -> tuple[float, float]:
    """Return (usual, slowest) seconds between updates.

    Where too few changes agree (a steady load that moved now and then), each poll may have been a new update, and the
    slowest that it may have been is what the two closest changes allow, at most a second.
    """
    gaps, poll = np.diff(changes), float(np.median(np.diff(polls))) if len(polls) > 1 else 0.0
    closest = float(
        (gaps + blind[:-1]).min(initial=_UNKNOWN)
    )  # the earlier may have come while nobody looked
    single = gaps[gaps <= _SAME * np.quantile(gaps, _QUICK) + poll] if len(gaps) else gaps
    if len(single) < _AGREE:
        return poll, max(poll, closest)
    usual = float(single.mean())
    slow, unseen = gaps[gaps <= _SLOW * usual], blind[1:][gaps <= _SLOW * usual]
    once = slow < _SLOW * usual - poll
    # of a sensor that keeps its time to a poll, what took two refreshes was shown twice: an equal mean, not a late one
    # (where nobody looked meanwhile, it may have been neither)
    regular = slow[once].max(initial=usual) <= usual + poll and unseen[~once].max(initial=0.0) <= _SAME * poll
    return usual, float((slow[once] if regular else slow).max(initial=usual))
