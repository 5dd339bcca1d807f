"""Is B faster than A? Only if the difference is both certain and large enough to care.

The unit is a pair of fresh processes, one of each, run next to each other in random order: what the machine
does to one it does to the other, and what differs between processes (layout, placement) is in the spread.
Ratios of times are compared as logs, where doubling and halving are the same distance. FASTER needs the 95 %
interval to exclude 1 and the ratio to be at least 1 % away; SAME is a claim of its own, that the 90 %
interval lies within +-2 % (two one-sided tests); everything else is AMBIGUOUS: measure longer.

Every pair counts, none is left out for its value. The ratio is the 20 % trimmed mean of the pairs' logs and its
interval that of Tukey and McLaughlin (Wilcox, Introduction to Robust Estimation, 4.3): from five pairs on, a fifth of
them at either end counts by its rank alone, so that one pair that the machine spoilt neither makes a difference nor
hides one. Three or four pairs are too few to trim; one or two have no interval.
"""

from __future__ import annotations

import math
from enum import Enum

from edgescope.records.lazy import ArrayLike, np
from edgescope.stats.intervals import Interval, normal_quantile, t_quantile, times

MIN_EFFECT = 0.01
SAME_WITHIN = 0.02
MIN_PAIRS = 3
"""The interval of two pairs would be 12.7 standard errors wide on either side, which is useless."""
RESOLVED = 2.0
"""A ratio whose interval is wider than this factor either way is not resolved: its size is not known."""
_MOST_LOG = 300.0
"""exp() of more overflows."""
_WIDEN = 2.3
"""Student's t covers 93 % of five trimmed normal pairs; times 1 + _WIDEN g / h^2 at least 95 % (simulated, 5 to 40)."""


class Judgement(str, Enum):
    """The outcome of a comparison."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    AMBIGUOUS = "AMBIGUOUS"
    NOT_COMPARABLE = "NOT-COMPARABLE"


def wilson(k: float, n: float, level: float = 0.95) -> Interval:
    """Return k / n with Wilson's score interval; 0 of 0 gives [0, 1], unreliable. Counts need not be whole."""
    if not 0 <= k <= n:
        raise ValueError(f"need 0 <= k <= n, not {k} of {n}")
    if n == 0:
        return Interval(0.0, 1.0, math.nan, 0, 0, False, "interval unreliable: no trials")
    z2, share = normal_quantile(0.5 + level / 2) ** 2, k / n
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n * n))) / (1 + z2 / n)
    lo = 0.0 if k == 0 else max(0.0, middle - half)
    return Interval(lo, 1.0 if k == n else min(1.0, middle + half), share, int(n), n)


def paired_log_ratio(a: ArrayLike, b: ArrayLike, level: float = 0.95) -> Interval:
    """Return the ratio a / b with its interval, from the 20 % trimmed mean of the pairs' logs; n counts the pairs.

    a[i] and b[i] are positive numbers of the two processes of pair i. Fewer than MIN_PAIRS have no interval: 0 to
    inf. The result is unreliable, with a note that says why, if the pairs do not resolve the ratio within a factor of
    RESOLVED.
    """
    over, under = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if over.shape != under.shape or over.ndim != 1 or not len(over):
        raise ValueError(f"need two equally long lists, not {over.shape} and {under.shape}")
    if not (np.all(over > 0) and np.all(under > 0)):
        raise ValueError("need positive numbers: a ratio of absent or zero values means nothing")
    logs = np.sort(np.log(over / under))
    n, g = len(logs), trimmed(len(logs))
    centre = float(logs[g : n - g].mean())
    if n < MIN_PAIRS:
        return unbounded(centre, n, "pair")
    spread = float(np.clip(logs, logs[g], logs[n - 1 - g]).std(ddof=1)) / (1 - 2 * g / n)
    half = standard_errors(n, level) * spread / math.sqrt(n)
    least, most = math.exp(logs[0]), math.exp(logs[-1])
    return ratio(centre, half, n, f"too uncertain: {n} pairs lie between {times(least)} and {times(most)}")


def unbounded(centre: float, n: int, pair: str) -> Interval:
    """Return a ratio without an interval, from its log: n are too few."""
    note = (
        f"1 {pair} gives no interval" if n == 1 else f"{n} {pair.replace('pair', 'pairs')} give no interval"
    )
    return Interval(0.0, math.inf, math.exp(centre), n, n, False, note)


def ratio(centre: float, half: float, n: int, why: str = "") -> Interval:
    """Return the ratio of n pairs from its log and half the interval of that; unreliable, says `why`, if unresolved."""
    resolved, half = half <= math.log(RESOLVED), min(half, _MOST_LOG)
    lo, value, hi = (math.exp(log) for log in (centre - half, centre, centre + half))
    return Interval(lo, hi, value, n, n, resolved, "" if resolved else why)


def trimmed(n: int) -> int:
    """Return how many of n pairs are trimmed at either end."""
    return n // 5


def standard_errors(n: int, level: float = 0.95) -> float:
    """Return half the width of the interval of n pairs in standard errors, for n of MIN_PAIRS or more."""
    kept = n - 2 * trimmed(n)
    return t_quantile(0.5 + level / 2, kept - 1) * (1 + _WIDEN * trimmed(n) / kept**2)


def judge(ratio95: Interval, ratio90: Interval, higher_is_better: bool = False) -> Judgement:
    """Return the judgement on candidate / baseline: a ratio of times by default, of rates with `higher_is_better`."""
    if is_different(ratio95):
        return Judgement.FASTER if (ratio95.value > 1) == higher_is_better else Judgement.SLOWER
    if ratio90.lo >= 1 - SAME_WITHIN and ratio90.hi <= 1 + SAME_WITHIN:
        return Judgement.SAME
    return Judgement.AMBIGUOUS


def is_different(ratio95: Interval) -> bool:
    """Return whether a ratio differs from 1 significantly and noticeably."""
    excludes = ratio95.lo > 1 or ratio95.hi < 1
    return excludes and abs(ratio95.value - 1) >= MIN_EFFECT


def judge_pairs(a: ArrayLike, b: ArrayLike, higher_is_better: bool = False) -> tuple[Interval, Judgement]:
    """Return the ratio a / b with its 95 % interval, and the judgement on it."""
    ratio95 = paired_log_ratio(a, b, 0.95)
    return ratio95, judge(ratio95, paired_log_ratio(a, b, 0.90), higher_is_better)
