"""Energy as the integral of one sensor's readings, with bounds on the power between them.

A counter's difference has no sampling error; the bounds are what its steps leave open. A gauge or an average is
integrated by trapezoid over its updates m_j, first seen at f_j. Let g_j be the time since the poll before when it
was seen (g: usually), D the longest delay of an update (one refresh and g), W the time that an average covers
(0 for a gauge), A and B the values shown within D + W of the window's start and of its stop, E(d) the integral over the
window moved by d. Then

    truth >= min E(d) - W (R(A) + R(B)) / 2 - H - J      d from 0 to D; if the readings end before the window and D,
    truth <= max E(d) + W (R(A) + R(B)) / 2 + H + J      E(0) - D (max A - min B) and E(0) + D (max B - min A), or E(0)
    H = sum |m_j+1 - m_j| (f_j+1 - f_j + g_j) / 2   gauges only: between two updates the power may have been all the
                                                    one value or all the other; of a value that was held, twice the
                                                    slowest refresh stands for f_j+1 - f_j
    J = sum |m_j+1 - m_j| (x_j + i)                 x_j = max(g_j - g / 2, g / 2): an update is up to g_j older than
                                                    it looks, g / 2 of it in common; refreshes of an average differ
                                                    by i

It rests on three assumptions. A gauge's power between two updates lies between their values. An average is the mean
since the update before, so its sum misses nothing inside and only the edges are smeared, by W (H = 0). A sensor's
delay is its own constant: the integral covers the window shifted by it, which gains the energy just before the start
and loses the energy just before the stop. J is summation by parts: moving f_j by x_j changes the trapezoids by sum
x_j (m_j+1 - m_j-1) / 2. The sensor's own errors (gain, offset and steps of one digit) are not in the bounds. That
sensors show late means over a part of the time only is measured in Yang, Adamek and Armour, arXiv 2312.02741 (NVML),
and in the INA3221's data sheet, SBOS576 (averaging of up to 1024 conversions).

Updates holds each new value of a polled sensor once, at its first appearance. A sensor that converts every 430 ms and
is read every 100 ms repeats itself four times; the repeats add nothing and, counted as readings, would smear every
change of power. Repeats are collapsed to the first. An unchanged value from a new conversion looks the same, so a
value shown for longer than a refresh is held until one refresh before it changes, instead of being joined to the next
by a long ramp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MIN_COVERAGE = 0.95
"""Share of the window that the readings must span; the rest is filled with the mean power."""
MAX_GAP = 0.2
"""Longest silence of a power sensor inside the window, as a share of it; a counter goes on counting meanwhile."""
PROMPT_S = 0.1
"""A first reading this soon after an edge stands for the edge, if the reading before it is far more distant."""
_STEEPER = 2.0
"""Power in the moment until that reading is at most this multiple of the steepest that the counter showed."""


_DELAYS = 129
"""Number of delays tried: between two of them the energy moves by less than a thousandth of the edge's."""


@dataclass(frozen=True)
class Curve:
    """Energy used since the first point, as a function of time."""

    t_s: Floats
    joules: Floats
    watts: Floats | None = None
    """Power at the points, linear between them; None: the energy is linear between them."""

    def times(self, by: float) -> Curve:
        """Return the curve with all energy, and power, multiplied."""
        return Curve(self.t_s, self.joules * by, None if self.watts is None else self.watts * by)

    def at(self, t_s: Floats) -> Floats:
        """Return the energy used by each moment (J); flat beyond the ends."""
        if self.watts is None:
            return np.interp(t_s, self.t_s, self.joules)
        x = np.clip(t_s, self.t_s[0], self.t_s[-1])
        j = np.clip(np.searchsorted(self.t_s, x, side="right") - 1, 0, len(self.t_s) - 2)
        w = np.interp(x, self.t_s, self.watts)
        return np.asarray(self.joules[j] + (x - self.t_s[j]) * (self.watts[j] + w) / 2, dtype=np.float64)


@dataclass(frozen=True)
class Total:
    """The energy of [0, stop] with its bounds (None if nothing bounds it), and the curve behind it."""

    joules: float
    updates: int
    """Distinct updates inside the window."""
    polls: int
    """Readings inside the window, repeats included."""
    refresh_s: float
    curve: Curve
    lo: float | None = None
    hi: float | None = None


def integrate(seen: Updates, stop_s: float, *, average_s: float | None = None) -> Total | str:
    """Return the energy of [0, stop] from power readings in W, or the reason why there is none.

    `average_s` is None for a gauge, else the time that each reading is the mean of (0: that since the one before).
    """
    span = _cover(seen.polls_s, stop_s)
    if isinstance(span, str):
        return span
    gaps = np.minimum(seen.polls_s[1:], stop_s) - np.maximum(seen.polls_s[:-1], 0.0)
    if gaps.max() > MAX_GAP * stop_s and len(seen.polls_s) > 2:
        return f"it was silent for {gaps.max():.2f} s of a window of {stop_s:.2f} s"
    if not seen.value.any():
        return "it reads 0 W throughout: no sensor is behind it"
    mean_of = 0.0 if average_s is None else max(average_s, seen.refresh_s)
    curve = _trapezoids(seen, mean_of / 2)
    joules = float(np.diff(curve.at(np.array(span)))[0]) * stop_s / (span[1] - span[0])
    below, above = _errors(seen, stop_s, average_s, curve)
    least = 0.0 if seen.value.min() >= 0 else -np.inf  # the monitor of an idle rail may read a little below 0
    lo, hi = max(least, joules - below), joules + above
    # the value that holds at the start counts as an update
    return Total(joules, 1 + seen.inside(stop_s), _polls(seen, stop_s), seen.refresh_s, curve, lo, hi)


def _trapezoids(seen: Updates, age_s: float) -> Curve:
    """Return the curve through the updates, each at the middle of the time that it averages."""
    t, w = seen.held()
    t = t - age_s
    if age_s:  # the last value is the best guess for the moments whose mean has not come yet
        t, w = np.append(t, t[-1] + age_s), np.append(w, w[-1])
    return Curve(t, np.concatenate(([0.0], np.cumsum((w[1:] + w[:-1]) * np.diff(t)) / 2)), w)


def _errors(seen: Updates, stop_s: float, average_s: float | None, curve: Curve) -> tuple[float, float]:
    """Return how far the truth may lie below and above the integral in J, as derived at the head of this module."""
    late, gauge = seen.slowest_s + seen.usual_blind_s, average_s is None
    mean_of = 0.0 if average_s is None else max(average_s, seen.slowest_s)
    a, b = (_shown(seen, x, late + mean_of) for x in (0.0, stop_s))
    inside = _inside(seen, stop_s, late + mean_of, gauge) + mean_of * float(np.ptp(a) + np.ptp(b)) / 2
    early = 0.0 if gauge else (seen.slowest_s - seen.refresh_s) / 2  # the curve was moved by half the usual
    if curve.t_s[0] <= -early and curve.t_s[-1] >= stop_s + late + early:
        below, above = _shifted(curve, stop_s, -early, late + early)
    else:
        late += early
        below, above = (max(0.0, late * float(x.max() - y.min())) for x, y in ((a, b), (b, a)))
    return inside + below, inside + above


def _shifted(curve: Curve, stop_s: float, first_s: float, last_s: float) -> tuple[float, float]:
    """Return how far the window's energy lies above the least and below the most that these delays give."""
    delays = np.linspace(first_s, last_s, _DELAYS)
    each = curve.at(stop_s + delays) - curve.at(delays)
    own = float(np.diff(curve.at(np.array([0.0, stop_s])))[0])
    return max(0.0, own - float(each.min())), max(0.0, float(each.max()) - own)


def _inside(seen: Updates, stop_s: float, reach_s: float, gauge: bool) -> float:
    """Return H + J in J, for the updates in the window and `reach_s` around it."""
    near = (seen.t_s[1:] > -reach_s) & (seen.t_s[:-1] < stop_s + reach_s)
    step, apart = np.abs(np.diff(seen.value))[near], np.diff(seen.t_s)[near]
    usual = seen.usual_blind_s / 2
    late = np.maximum(seen.blind_s - usual, usual)
    jitter = float(np.sum(step * ((late[1:] + late[:-1])[near] / 2 + seen.irregular_s)))
    if not gauge:
        return jitter
    lasted = (
        apart > seen.slowest_s
    )  # held until the usual refresh before its end, which may have been a slow one
    between = np.where(lasted, 2 * seen.slowest_s, apart) + seen.blind_s[1:][near]
    return jitter + float(np.sum(step * between)) / 2


def _shown(seen: Updates, x: float, reach_s: float) -> Floats:
    """Return the values shown within `reach_s` of x, with the updates next to it."""
    first = max(0, int(np.searchsorted(seen.t_s, x - reach_s)) - 1)
    last = int(np.searchsorted(seen.t_s, x + reach_s, side="right")) + 1
    return seen.value[first:last]


def count(seen: Updates, stop_s: float) -> Total | str:
    """Return the energy of [0, stop] from a counter in J, bounded by its steps, or the reason why there is none."""
    if (np.diff(seen.value) < 0).any():
        return "the counter went backwards: it was reset, or wrapped over an unknown range"
    found = seen.inside(stop_s)
    if not found or len(seen) < 2:
        return f"the counter did not move in a window of {stop_s:.2f} s"
    span = _cover(seen.polls_s, stop_s)
    if isinstance(span, str):
        return span
    curve = Curve(seen.t_s, seen.value - seen.value[0])
    # beyond its last update a counter is stale, not idle
    a, b = max(0.0, float(seen.t_s[0])), min(stop_s, float(seen.t_s[-1]))
    used = float(np.diff(curve.at(np.array([a, b])))[0])
    lo, hi = _steps(seen, stop_s)
    return Total(used * stop_s / (b - a), found, _polls(seen, stop_s), _finest_s(seen, stop_s), curve, lo, hi)


def _finest_s(seen: Updates, stop_s: float) -> float:
    """Return the shortest time that the counter's curve resolves: the longest time between two readings."""
    inside = np.clip(seen.polls_s, 0.0, stop_s)
    return max(seen.refresh_s, float(np.diff(inside).max(initial=0.0)))


def _steps(seen: Updates, stop_s: float) -> tuple[float | None, float | None]:
    """Return bounds on the energy of [0, stop].

    At a moment x at least the last value seen by then had been used. If the reading at x came a moment late, it was
    also at least the next value seen, minus what a power well above the steepest uses until then. And at most the
    first value had been used whose update certainly came after x: a value that the reading before it, at or after x,
    did not show.
    """
    since = np.concatenate(([-np.inf], (seen.t_s - seen.blind_s)[1:]))
    least = [_least(seen, x) for x in (0.0, stop_s)]
    most = [int(np.searchsorted(since, x, side="left")) for x in (0.0, stop_s)]
    if least[0] is None or least[1] is None or most[1] >= len(seen):
        return None, None  # no update outside the window to bound it with
    return max(least[1] - float(seen.value[most[0]]), 0.0), float(seen.value[most[1]]) - least[0]


def _least(seen: Updates, x: float) -> float | None:
    """Return the least that a counter had counted by x, or None if it was read too late to say."""
    before = int(np.searchsorted(seen.t_s, x, side="right")) - 1
    known = [float(seen.value[before])] if before >= 0 else []
    after = int(np.searchsorted(seen.polls_s, x, side="left"))
    late = float(seen.polls_s[after]) - x if after < len(seen.polls_s) else PROMPT_S
    lately = x - float(seen.polls_s[after - 1]) if after else np.inf
    if late < PROMPT_S and lately > 10 * late:
        shown = int(np.searchsorted(seen.t_s, x + late, side="right")) - 1
        steepest = float((np.diff(seen.value) / np.maximum(np.diff(seen.t_s), PROMPT_S)).max())
        known.append(float(seen.value[shown]) - late * _STEEPER * steepest)
    return max(known, default=None)


def _polls(seen: Updates, stop_s: float) -> int:
    return int(np.count_nonzero((seen.polls_s >= 0) & (seen.polls_s <= stop_s)))


def _cover(polls_s: Floats, stop_s: float) -> tuple[float, float] | str:
    """Return the part of [0, stop] that the readings span, or the reason why it is too little."""
    if len(polls_s) < 2:
        return f"{len(polls_s)} readings are too few"
    a, b = max(0.0, float(polls_s[0])), min(stop_s, float(polls_s[-1]))
    if b - a < MIN_COVERAGE * stop_s:
        return f"its readings span {max(b - a, 0):.2f} s of a window of {stop_s:.2f} s"
    return a, b


Floats = NDArray[np.float64]

_QUICK = 0.1
"""Quantile of the times between changes that stands for the quickest: the minimum would be a late poll."""
_SAME = 1.5
"""Times between changes up to this multiple of the quickest and a poll are single refreshes, not repeats."""
_AGREE = 3
"""Single refreshes that must have been seen; fewer changes say nothing about the sensor."""
_UNKNOWN = 1.0
"""The slowest refresh, assumed for a sensor that changed too seldom to show its own: the refresh of NVML's averages."""
_SLOW = 2.0
"""A refresh takes at most this multiple of the usual one; a value shown for longer was measured again."""


@dataclass(frozen=True)
class Updates:
    """The updates of one channel; times in seconds since the window's start, one entry per update."""

    t_s: Floats
    """When each was first seen."""
    value: Floats
    blind_s: Floats
    """Time between the poll that saw it and the poll before: how late it may have been seen."""
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
        """How much refreshes differ beyond the effect of the polls."""
        return max(0.0, self.slowest_s - self.refresh_s - self.usual_blind_s)

    @property
    def usual_blind_s(self) -> float:
        """The usual time since the poll before, when an update was seen."""
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
    """Return the updates among readings in any order, with repeats; a value that is not finite is no reading."""
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
    )  # the earlier change may have come between two polls
    single = gaps[gaps <= _SAME * np.quantile(gaps, _QUICK) + poll] if len(gaps) else gaps
    if len(single) < _AGREE:
        return poll, max(poll, closest)
    usual = float(single.mean())
    slow, unseen = gaps[gaps <= _SLOW * usual], blind[1:][gaps <= _SLOW * usual]
    once = slow < _SLOW * usual - poll
    # of a sensor that keeps its time to a poll, what took two refreshes was shown twice: an equal mean, not a late one
    # (without a poll in between, it may have been neither)
    regular = slow[once].max(initial=usual) <= usual + poll and unseen[~once].max(initial=0.0) <= _SAME * poll
    return usual, float((slow[once] if regular else slow).max(initial=usual))
