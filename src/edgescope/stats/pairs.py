"""Is B faster than A? Only if the difference is both certain and large enough to care.

The unit is a pair of fresh processes, one of each, run next to each other in random order: what the machine
does to one it does to the other, and what differs between processes (layout, placement) is in the spread.
Ratios of times are compared as logs, where doubling and halving are the same distance. FASTER needs the 95 %
interval to exclude 1 and the ratio to be at least 1 % away; SAME is a claim of its own, that the 90 %
interval lies within +-2 % (two one-sided tests); everything else is AMBIGUOUS: measure longer.
"""

from __future__ import annotations

import math
from enum import Enum

import numpy as np
from numpy.typing import ArrayLike

from edgescope.stats.intervals import Interval
from edgescope.stats.special import normal_quantile, t_quantile

MIN_EFFECT = 0.01
SAME_WITHIN = 0.02


class Judgement(str, Enum):
    """What a comparison came to."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"
    NOT_COMPARABLE = "NOT-COMPARABLE"


def wilson(k: int, n: int, level: float = 0.95) -> Interval:
    """Share k / n with Wilson's score interval; 0 of 0 is the whole of [0, 1], unreliable."""
    if not 0 <= k <= n:
        raise ValueError(f"need 0 <= k <= n, not {k} of {n}")
    if n == 0:
        return Interval(0.0, 1.0, math.nan, 0, 0, False, "interval unreliable: no trials")
    z2, share = normal_quantile(0.5 + level / 2) ** 2, k / n
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    lo = 0.0 if k == 0 else max(0.0, middle - half)
    return Interval(lo, 1.0 if k == n else min(1.0, middle + half), share, n, n)


def paired_log_ratio(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """Ratio a / b (geometric mean over pairs) with Student's t interval on its log; n is the number of pairs.

    a[i] and b[i] are one number each of two processes of pair i, positive. One pair has no interval: 0 to
    inf.
    """
    over, under = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if over.shape != under.shape or over.ndim != 1 or not len(over):
        raise ValueError(f"need two equally long lists, not {over.shape} and {under.shape}")
    if not (np.all(over > 0) and np.all(under > 0)):
        raise ValueError("need positive numbers: a ratio of absent or zero values means nothing")
    logs = np.log(over / under)
    n, centre = len(logs), float(logs.mean())
    if n < 2:
        return Interval(0.0, math.inf, math.exp(centre), n, n, False, "interval unreliable: one pair")
    half = t_quantile(0.5 + level / 2, n - 1) * float(logs.std(ddof=1)) / math.sqrt(n)
    return Interval(math.exp(centre - half), math.exp(centre + half), math.exp(centre), n, n)


def judge(ratio95: Interval, ratio90: Interval, higher_is_better: bool = False) -> Judgement:
    """Judge candidate / baseline: of times by default, of rates with `higher_is_better`."""
    if is_different(ratio95):
        return Judgement.FASTER if (ratio95.value > 1) == higher_is_better else Judgement.SLOWER
    if ratio90.lo >= 1 - SAME_WITHIN and ratio90.hi <= 1 + SAME_WITHIN:
        return Judgement.SAME
    return Judgement.AMBIGUOUS


def is_different(ratio95: Interval) -> bool:
    """Whether a ratio is significantly and noticeably away from 1."""
    excludes = ratio95.lo > 1 or ratio95.hi < 1
    return excludes and abs(ratio95.value - 1) >= MIN_EFFECT


def judge_pairs(a: ArrayLike, b: ArrayLike, higher_is_better: bool = False) -> tuple[Interval, Judgement]:
    """Ratio a / b with its 95 % interval, and the judgement on it."""
    ratio95 = paired_log_ratio(a, b, 0.95)
    return ratio95, judge(ratio95, paired_log_ratio(a, b, 0.90), higher_is_better)
