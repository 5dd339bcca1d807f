"""How many times faster one variant is than another when both took turns, in several pairs of fresh processes.

A pair is two processes that are alive together and take short turns, baseline, candidate, candidate, baseline: a
block. Within a block a speed that drifts evenly, or that changes more slowly than a block lasts, is the same for both
sides, so the log of their times' ratio is free of it. The ratio is the mean of the blocks' logs in a pair, and the
mean of the pairs, each with the same weight: what differs between processes (layout, placement) is more than what
differs between blocks. Nothing is trimmed.

Something outside may slow the machine for seconds, a neighbour on its cores say, and one variant more than the other:
then there is a ratio for each speed, and one for each mixture. The ratio here is that at full speed: a block in which
both sides take clearly longer than at their best does not count (`by_speed`). It is left out for what both sides say of
the machine, never for their ratio, and a variant that is slow by itself slows only one side.

The interval is Student's t over the pairs' means. A mean of tens of blocks is near enough to normal for it, and it is
honest from three pairs on, where a bootstrap over so few pairs is too narrow (benchmarks/alternation.py has both).
Pairs that follow each other closely may resemble each other for what nothing slowed; the interval is widened by how
much they do (`kinship`). Where the machine was slowed in all pairs nothing can show it: only pairs that are spread over
the time there is can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.stats.intervals import Interval
from edgescope.stats.special import t_quantile

MIN_PAIRS = 3
"""Two pairs bound a ratio so badly (12.7 standard errors) that their interval says nothing."""
SLOWED = 0.10
"""A block is slowed where both sides take longer than at their best by more than this share."""
BEST = 0.10
"""The quantile of a side's blocks that is its best: lower ones are chance."""
LEAST_FULL = 2
"""A pair with fewer blocks at full speed does not count."""
RESOLVED = 2.0
"""A ratio whose interval is wider than this factor either way is not resolved."""
MOST_KIN = 0.7
"""A larger correlation of so few pairs is not told from this one."""
LEAST_KIN, SUPPOSED_KIN = 5, 0.2
"""Fewer pairs say nothing of how neighbours resemble each other: so much is supposed (benchmarks/alternation.py)."""
DOUBT = 8
"""So many pairs' worth of belief that neighbours do not resemble each other stands against what n pairs show."""
_WIDENED = 1.06
"""What chance likeness widens the interval of independent pairs by, on average, from LEAST_KIN to 30 of them."""
_MOST_LOG = 300.0


@dataclass(frozen=True)
class Blocks:
    """One pair of processes: the log of the ratio of times, baseline over candidate, of each of its blocks."""

    logs: Sequence[float]
    base: Sequence[float] = ()
    """The logs of the baseline's times; empty where only ratios are known, and no block is taken for slowed."""

    @classmethod
    def of(cls, base: Sequence[float], ours: Sequence[float]) -> Blocks:
        """Return the blocks of which both sides' log times are known."""
        return cls([b - a for b, a in zip(base, ours, strict=True)], list(base))

    @property
    def ours(self) -> list[float]:
        """Return the logs of the candidate's times, as far as the baseline's are known."""
        return [b - log for b, log in zip(self.base, self.logs, strict=False)]

    def where(self, kept: Sequence[bool]) -> Blocks:
        """Return the blocks that are marked."""
        base = [b for b, keep in zip(self.base, kept, strict=False) if keep]
        return Blocks([log for log, keep in zip(self.logs, kept, strict=True) if keep], base)

    @property
    def mean(self) -> float:
        """Return the mean of the blocks' logs."""
        return math.fsum(self.logs) / len(self.logs)


@dataclass(frozen=True)
class BySpeed:
    """The blocks of some pairs, in the order of the pairs, by whether something slowed the machine in them."""

    full: list[Blocks]
    slowed: list[Blocks]

    @property
    def counted(self) -> list[Blocks]:
        """Return the pairs that speak for full speed: one that was slowed has LEAST_FULL others."""
        return [p for p, out in self._halves if _speaks(p, out)]

    @property
    def others(self) -> list[Blocks]:
        """Return the slowed blocks of the pairs that do not."""
        return [out for p, out in self._halves if out.logs and not _speaks(p, out)]

    @property
    def _halves(self) -> list[tuple[Blocks, Blocks]]:
        return list(zip(self.full, self.slowed, strict=True))


def _speaks(full: Blocks, slowed: Blocks) -> bool:
    return len(full.logs) >= (LEAST_FULL if slowed.logs else 1)


def by_speed(pairs: Sequence[Blocks], among: Sequence[Blocks] = ()) -> BySpeed:
    """Return the blocks by speed; full speed is told from `among`, every pair of the two variants, or from these."""
    known = [p for p in among or pairs if p.base]
    if not known:
        return BySpeed(list(pairs), [Blocks([])] * len(pairs))
    base, ours = (
        float(np.quantile(np.concatenate(side), BEST)) + math.log1p(SLOWED)
        for side in ([p.base for p in known], [p.ours for p in known])
    )
    full = []
    for p in pairs:
        either = [b <= base or a <= ours for b, a in zip(p.base, p.ours, strict=True)]
        full.append(either or [True] * len(p.logs))
    return BySpeed(
        [p.where(kept) for p, kept in zip(pairs, full, strict=True)],
        [p.where([not keep for keep in kept]) for p, kept in zip(pairs, full, strict=True)],
    )


def counted(pairs: Sequence[Blocks], among: Sequence[Blocks] = ()) -> list[Blocks]:
    """Return the pairs that make the ratio: those at full speed, or all, whole, where none ran at it."""
    return by_speed(pairs, among).counted or _whole(pairs)


def _whole(pairs: Sequence[Blocks]) -> list[Blocks]:
    return [p for p in pairs if len(p.logs)]


def alternation_ratio(pairs: Sequence[Blocks], level: float = 0.95, among: Sequence[Blocks] = ()) -> Interval:
    """Return how many times faster the candidate is at the machine's full speed; n counts the pairs (`counted`).

    Without MIN_PAIRS there is no interval (0 to inf); one or two at full speed are taken to differ as slowed ones do.
    Unreliable, with a note that says why, where the pairs are too few or do not resolve the ratio within a factor of
    RESOLVED.
    """
    parts = by_speed(pairs, among)
    means = np.array([p.mean for p in parts.counted or _whole(pairs)])
    n = len(means)
    if not n:
        return Interval(0.0, math.inf, math.nan, 0, 0, False, "no pair of processes has a whole block")
    pooled = 0 < len(parts.counted) < MIN_PAIRS
    others = np.array([p.mean for p in parts.others] if pooled else [])
    centre = float(means.mean())
    if n + max(0, len(others) - 1) < MIN_PAIRS:
        note = f"{n} pair{'s' if n > 1 else ''} of processes cannot bound a ratio"
        return Interval(0.0, math.inf, math.exp(centre), n, n, False, note)
    groups = [group for group in (means, others) if len(group)]
    freedom = sum(len(group) - 1 for group in groups)
    spread = math.sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in groups) / freedom)
    shared = kinship(means)
    error = spread / math.sqrt(n) * math.sqrt((1 + shared) / (1 - shared))
    half = min(t_quantile(0.5 + level / 2, freedom) * error, _MOST_LOG)
    resolved = half <= math.log(RESOLVED)
    note = "" if resolved else f"not resolved: {n} pairs of processes differ by {math.expm1(half):.0%}"
    return Interval(math.exp(centre - half), math.exp(centre + half), math.exp(centre), n, n, resolved, note)


def standard_errors(n: int, level: float = 0.95) -> float:
    """Return half the usual width of the interval of n independent pairs in standard errors, for MIN_PAIRS or more.

    Chance makes neighbours resemble each other in half of the cases: _WIDENED is what that costs (simulated).
    """
    widened = _WIDENED if n >= LEAST_KIN else math.sqrt((1 + SUPPOSED_KIN) / (1 - SUPPOSED_KIN))
    return t_quantile(0.5 + level / 2, n - 1) * widened


def kinship(means: NDArray[np.float64]) -> float:
    """Return by how much neighbouring pairs resemble each other, 0 (independent) to MOST_KIN.

    The autocorrelation at lag 1, free of the small sample's bias of -1 / n, and less of it the fewer pairs bear it
    out (DOUBT): of eight independent pairs it would often be 0.3 by chance. SUPPOSED_KIN for fewer than LEAST_KIN.
    """
    n = len(means)
    centred = means - means.mean()
    power = float(centred @ centred)
    if n < LEAST_KIN:
        return SUPPOSED_KIN
    if power == 0:
        return 0.0
    shown = float(centred[1:] @ centred[:-1]) / power + 1 / n
    return min(MOST_KIN, max(0.0, shown * n / (n + DOUBT)))


def difference(a: Sequence[Blocks], b: Sequence[Blocks], level: float = 0.95) -> Interval | None:
    """Return how many times faster the candidate of `a` is than that of `b`, both held against one baseline.

    Student's t with the spread of both groups pooled; None where together they have fewer than MIN_PAIRS + 1 pairs.
    """
    first, second = (np.array([p.mean for p in counted(pairs)]) for pairs in (a, b))
    n, m = len(first), len(second)
    if not n or not m or n + m <= MIN_PAIRS:
        return None
    squares = float(((first - first.mean()) ** 2).sum() + ((second - second.mean()) ** 2).sum())
    error = math.sqrt(squares / (n + m - 2) * (1 / n + 1 / m))
    centre = float(first.mean() - second.mean())
    half = min(t_quantile(0.5 + level / 2, n + m - 2) * error, _MOST_LOG)
    return Interval(
        math.exp(centre - half),
        math.exp(centre + half),
        math.exp(centre),
        n + m,
        n + m,
        half <= math.log(RESOLVED),
    )
