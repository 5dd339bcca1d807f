"""How many times faster one variant is than another when both took turns, in several pairs of fresh processes.

A pair is two processes that are alive together and take short turns, baseline, candidate, candidate, baseline: a
block. A speed that drifts evenly, or that changes more slowly than a block lasts, is the same for both sides, so the
ratio of their times is free of it. The ratio is the mean of the pairs' logs, each with the same weight: what differs
between processes (layout, placement) is more than what differs between turns.

Something outside may slow the machine for tenths of a second or for minutes, a neighbour on its cores say, and one
variant more than the other: then there is a ratio for each speed, and one for each mixture. The ratio here is that at
full speed: where a turn of one side and the turn of the other next to it are both slowed, neither counts, and of a
pair in which that is often so no slowed turn does (`by_speed`): a neighbour that comes and goes slows one turn of two,
too. They are left out for what both sides say of the machine, never for their ratio, and a variant that is slow by
itself slows only its own turns, which count on a machine that nothing else slows. A pair's ratio at full speed is that
of its sides' medians: now and then a turn is long by chance.

The interval is Student's t over the pairs' logs; it is honest from three pairs on, where a bootstrap over so few pairs
is too narrow (`benchmarks/alternation.py holds` has both). Pairs that follow each other closely may resemble each other
for what nothing slowed; the interval is widened by how much they do (`kinship`). Pairs of one run do not show that full
speed itself changes from run to run, and two variants not by the same share: UNSEEN stands for it. Where more
than two thirds of the turns are slowed, or fewer than half of the pairs speak for full speed, leftovers would tell it,
and often wrongly: all turns count then, and the ratio is that of the machine as it was. So they do where more than a
third are slowed and what is left bounds the ratio worse than all turns: it is not of one speed. That last choice looks
at how much the pairs' ratios differ, not at which way.

Full speed is the best that these pairs met. Of a machine that something slows from their first turn to their last they
cannot know it, and their interval does not hold what the machine does else: `benchmarks/alternation.py recorded` says
how often that is, and that pairs which are spread over an hour hold its ratio.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress, pairwise

from edgescope.records.lazy import NDArray, np
from edgescope.stats.intervals import Interval, normal_quantile, t_quantile, times
from edgescope.stats.pairs import MIN_PAIRS, ratio, unbounded

SLOWED = 0.10
"""A turn is slowed where it takes longer than its side's best by more than this share."""
BEST = 0.10
"""The quantile of a side's turns that is its best: lower ones are chance."""
OFTEN = 0.10
"""A larger share of a pair's turns, slowed on both sides, is a neighbour that comes and goes."""
MANY = 1 / 3
"""A larger share of all turns, slowed, and the best may be those of a machine that is slowed a little less."""
MOSTLY = 2 / 3
"""A larger share of all turns, slowed, leaves too little to tell full speed from (benchmarks/alternation.py holds)."""
QUORUM = 1 / 2
"""A smaller share of the pairs does not speak for full speed: they are the lucky ones of a busy time."""
SUPPOSED_KIN, DOUBT = 0.2, 8
"""Neighbours are supposed to resemble each other by so much; that is worth as much as so many pairs that show it.

It keeps the likeness of n pairs below (n + 3) / (n + DOUBT), so below 1.
"""
UNSEEN = 0.007
"""Standard deviation of a ratio's log between runs that their pairs do not show, as a share of the log.

`benchmarks/alternation.py holds` measures it: 0.3 and 1 % on two machines. Two variants that are as fast as each other
are taken to change alike.
"""
BASE, OURS = 0, 1
"""The sides of a pair: the baseline and the candidate."""


@dataclass(frozen=True)
class Turns:
    """One pair of processes: the side of each turn (BASE or OURS) and the log of its time, in the order of time."""

    sides: Sequence[int]
    logs: Sequence[float]

    def of(self, side: int) -> list[float]:
        """Return the logs of one side's turns."""
        return [log for whose, log in zip(self.sides, self.logs, strict=True) if whose == side]

    @property
    def ratio(self) -> float:
        """Return the log of the ratio of the sides' medians, baseline over candidate: turns of one speed."""
        return float(np.median(self.of(BASE)) - np.median(self.of(OURS)))

    @property
    def mixed_ratio(self) -> float:
        """Return the difference of the sides' mean logs, baseline less candidate: turns of several speeds."""
        return float(np.mean(self.of(BASE)) - np.mean(self.of(OURS)))

    def __len__(self) -> int:
        return len(self.logs)

    def where(self, marks: Sequence[bool]) -> Turns:
        """Return the turns that are marked."""
        return Turns(list(compress(self.sides, marks)), list(compress(self.logs, marks)))

    def slowed(self, limits: Sequence[float]) -> list[bool]:
        """Return for each turn whether it is above its side's limit, as is one of the other side's next to it.

        Where that is so OFTEN, one above its limit is slowed whatever the other side's next to it says.
        """
        slow = [log > limits[side] for side, log in zip(self.sides, self.logs, strict=True)]
        steps = pairwise(zip(self.sides, slow, strict=True))
        both = [one_slow and other_slow and one != other for (one, one_slow), (other, other_slow) in steps]
        found = [before or after for before, after in zip([False, *both], [*both, False], strict=True)]
        return slow if sum(found) > OFTEN * len(found) else found


@dataclass(frozen=True)
class BySpeed:
    """The turns of some pairs, in the order of the pairs, by whether something slowed the machine in them."""

    whole: Sequence[Turns]
    marks: Sequence[Sequence[bool]]
    """Whether a turn was slowed, of each turn of each pair."""

    @property
    def full(self) -> list[Turns]:
        """Return the turns at full speed."""
        return [p.where([not slow for slow in each]) for p, each in zip(self.whole, self.marks, strict=True)]

    @property
    def slowed(self) -> list[Turns]:
        """Return the turns that were slowed."""
        return [p.where(each) for p, each in zip(self.whole, self.marks, strict=True)]

    @property
    def slowed_share(self) -> float:
        """Return the share of the turns that were slowed."""
        return sum(map(sum, self.marks)) / max(1, sum(map(len, self.marks)))

    @property
    def counted(self) -> list[Turns]:
        """Return the pairs that speak for full speed, with a turn of either side there, without their slowed turns."""
        return [p for p in self.full if {BASE, OURS} <= set(p.sides)]

    @property
    def present(self) -> list[Turns]:
        """Return the pairs that have turns."""
        return [p for p in self.whole if len(p)]

    @property
    def at_full_speed(self) -> bool:
        """Return whether enough of the turns, and of the pairs, are at full speed to tell the ratio there.

        Where many were slowed, what is left must agree: pairs of one speed bound a ratio better than all turns do.
        """
        pairs, counted = self.present, self.counted
        slowed = self.slowed_share
        if slowed > MOSTLY or len(counted) < max(1, QUORUM * len(pairs), min(MIN_PAIRS, len(pairs))):
            return False
        left, whole = [p.ratio for p in counted], [p.mixed_ratio for p in pairs]
        return slowed <= MANY or _standard_error(left) <= _standard_error(whole)

    @property
    def basis(self) -> list[Turns]:
        """Return the pairs that make the ratio: those at full speed, or all, whole, where those do not tell it."""
        return self.counted if self.at_full_speed else self.present

    @property
    def logs(self) -> list[float]:
        """Return the log of the ratio that each pair of `basis` says."""
        if self.at_full_speed:
            return [p.ratio for p in self.counted]
        return [p.mixed_ratio for p in self.basis]


def _standard_error(logs: Sequence[float]) -> float:
    """Return the standard error of a mean; 0 of fewer than MIN_PAIRS, which show none."""
    return float(np.std(logs, ddof=1)) / math.sqrt(len(logs)) if len(logs) >= MIN_PAIRS else 0.0


def by_speed(pairs: Sequence[Turns], among: Sequence[Turns] = ()) -> BySpeed:
    """Return the turns by speed; full speed is told from `among`, every pair of the two variants, or from these."""
    known = [p for p in among or pairs if len(p)]
    limits = [
        float(np.quantile([log for p in known for log in p.of(side)], BEST)) + math.log1p(SLOWED)
        for side in (BASE, OURS)
        if known
    ]
    return BySpeed(pairs, [p.slowed(limits) for p in pairs])


def alternation_ratio(pairs: Sequence[Turns], level: float = 0.95, among: Sequence[Turns] = ()) -> Interval:
    """Return how many times faster the candidate is at the machine's full speed; n counts the pairs (`basis`).

    Where that was too seldom, it is the ratio of the machine as it was (`BySpeed.at_full_speed` tells).
    Without MIN_PAIRS there is no interval (0 to inf). Unreliable, with a note that says why, where the pairs are too
    few or do not resolve the ratio within a factor of RESOLVED.
    """
    return mean_ratio(by_speed(pairs, among).logs, level, unseen=UNSEEN)


def mean_ratio(logs: Sequence[float], level: float = 0.95, *, unseen: float = 0.0) -> Interval:
    """Return the ratio and its interval from the log of each pair's, in the order of their time.

    `unseen` is the standard deviation of the mean log that no pair shows, as a share of it.
    """
    means, n = np.asarray(logs, dtype=float), len(logs)
    if not n:
        return Interval(0.0, math.inf, math.nan, 0, 0, False, "no pair of processes has a whole block")
    centre = float(means.mean())
    if n < MIN_PAIRS:
        return unbounded(centre, n, "pair of processes")
    error = float(means.std(ddof=1)) / math.sqrt(n) * _widened(kinship(means))
    found = ratio(centre, _half(error, n - 1, unseen * centre, level), n)
    if found.reliable:
        return found
    note = f"too uncertain: {n} pairs of processes allow {times(found.lo)} to {times(found.hi)}"
    return replace(found, note=note)


def _half(error: float, freedom: int, unseen: float, level: float) -> float:
    """Return half an interval from a standard error of so much freedom and one that is known."""
    return math.hypot(t_quantile(0.5 + level / 2, freedom) * error, normal_quantile(0.5 + level / 2) * unseen)


def standard_errors(n: int, level: float = 0.95) -> float:
    """Return half the usual width of the interval of n independent pairs in standard errors, for MIN_PAIRS or more."""
    return t_quantile(0.5 + level / 2, n - 1) * _widened(SUPPOSED_KIN * DOUBT / (n + DOUBT))


def _widened(kin: float) -> float:
    """Return how many times as wide an interval is of pairs whose neighbours resemble each other by so much."""
    return math.sqrt((1 + kin) / (1 - kin))


def pairs_for(half: float, n: int, within: float, log: float = 0.0) -> int | None:
    """Return how many pairs bound a ratio within `within` where n of their kind bound it within `half`, both logs.

    `log` is that of the ratio. None where no number does: what no pair shows (UNSEEN) is wider.
    """
    unseen = normal_quantile(0.975) * UNSEEN * abs(log)
    if within <= unseen:
        return None
    half, within = (math.sqrt(max(0.0, each**2 - unseen**2)) for each in (half, within))
    spread = half * math.sqrt(n) / standard_errors(n)
    needed = max(n, math.floor((normal_quantile(0.975) * spread / within) ** 2))  # fewer are too few
    while spread * standard_errors(needed) > within * math.sqrt(needed):
        needed += 1
    return needed


def kinship(means: NDArray[np.float64]) -> float:
    """Return by how much neighbouring pairs resemble each other: 0 (independent) to less than 1.

    The autocorrelation at lag 1, free of the small sample's bias of -1 / n; the fewer pairs there are, the nearer it is
    to SUPPOSED_KIN: of eight independent pairs it would often be 0.3 by chance.
    """
    n = len(means)
    centred = means - means.mean()
    power = float(centred @ centred)
    shown = float(centred[1:] @ centred[:-1]) / power + 1 / n if power else 0.0
    return max(0.0, (n * shown + DOUBT * SUPPOSED_KIN) / (n + DOUBT))


def difference(a: Sequence[Turns], b: Sequence[Turns], level: float = 0.95) -> Interval | None:
    """Return how many times faster the candidate of `a` is than that of `b`, both held against one baseline.

    Student's t with the spread of both groups pooled, and UNSEEN of either ratio; None where together they have fewer
    than MIN_PAIRS + 1 pairs.
    """
    first, second = (np.array(by_speed(pairs).logs) for pairs in (a, b))
    n, m = len(first), len(second)
    if not n or not m or n + m <= MIN_PAIRS:
        return None
    squares = float(((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum())
    error = math.sqrt(squares / (n + m - 2) * (1 / n + 1 / m))
    centre = float(first.mean() - second.mean())
    unseen = UNSEEN * math.hypot(first.mean(), second.mean())
    return ratio(centre, _half(error, n + m - 2, unseen, level), n + m)
