"""The interval of a share, and of a difference, when samples come in groups (scenes) and neighbours answer alike.

Frames of one film are not independent: a variant that misreads an object misreads it for a second. The samples are
put into groups (a scene, a video), and the share counts as one of n* independent samples (Korn and
Graubard, Survey Methodology 24, 1998):

    n* = n / deff (z / t)^2       deff = variance of the share between groups / s (1 - s) / n, at least 1

The variance between groups leaves each out in turn (the jackknife's: a group weighs 1 / (1 - its share of n)
more). t is Student's with the degrees of freedom of deff itself: it is known only from the groups in which the
rarer answer occurs, so their number plus 2 counts, not the number of all groups. Wilson's interval of
n* then holds as often as it says (simulated at n = 370 by benchmarks/intervals.py gate), where that of n holds
in 56 to 62 % at a correlation of 0.7.

Where two variants answered the same samples, what both get right, or both get wrong, says nothing of their difference:
only the samples on which they differ do. The interval of a difference of shares is Tango's (Statistics in Medicine 17,
1998), all differences that McNemar's test does not refute; it needs no sample on which they differ, and then says how
large a difference so many samples can miss. For any other measure of a set of samples, whole groups (or samples) are
drawn anew with replacement, and the interval lies between percentiles of the differences that these sets show, as far
out as Student's t asks of so few groups (Hesterberg, The American Statistician 69, 2015: the expanded percentile
interval).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import NormalDist

from edgescope.records.lazy import ArrayLike, NDArray, np
from edgescope.stats.intervals import Interval, normal_quantile, quantile_effective_n, t_quantile
from edgescope.stats.pairs import wilson

DRAWS, FEWEST = 1000, 40
"""Sets drawn, and the least of them whose percentiles mean something."""
_STEPS = 60
_LEAST = 3
"""Degrees of freedom granted if the rarer answer occurs in one group or in none."""


def clustered_share(hits: ArrayLike, groups: ArrayLike | None = None, level: float = 0.95) -> Interval:
    """Return the share of true `hits` with its interval; n_eff is the number of independent samples they count for.

    `groups` has one number per sample; None: they are independent. A single group counts as one sample, because nothing
    shows how alike its samples are.
    """
    hit = np.asarray(hits, dtype=bool)
    n, k = len(hit), int(hit.sum())
    if groups is None or n == 0:
        return wilson(k, n, level)
    of = np.unique(np.asarray(groups), return_inverse=True)[1]
    found = worth(hit, of, min(len(set(of[hit])), len(set(of[~hit]))), level)
    return replace(wilson(found * (k / n), found, level), n=n, n_eff=found, value=k / n)


def bursty_share(hits: ArrayLike, of: ArrayLike | None = None, level: float = 0.95) -> Interval:
    """Return the share of true `hits`, in the order of time, with Wilson's interval of their effective number.

    `of` is the quantity whose large values are hits (the lateness of a miss); None takes the hits themselves. A share
    k / n says at which quantile of `of` the limit lies, so n counts as for that quantile, because hits come in bursts:
    n / tau, with the larger tau of `of` and of the hits, and at most what clusters of large values allow
    (stats.quantiles). A burst that never came is in no figure: fewer than five bursts bound a share too narrowly.
    """
    hit = np.asarray(hits, dtype=bool)
    n, k = len(hit), int(hit.sum())
    if n == 0:
        return wilson(0, 0, level)
    x = hit.astype(np.float64) if of is None else np.asarray(of, dtype=np.float64)
    found = max(1.0, quantile_effective_n(x, 1.0 - k / n))
    return replace(wilson(found * (k / n), found, level), n=n, n_eff=found, value=k / n)


def worth(values: ArrayLike, of: NDArray[np.intp], telling: int, level: float = 0.95) -> float:
    """Return how many independent samples these are worth, for their mean; `of` is each one's group, from 0 on.

    `telling` is the number of groups in which the rarer answer occurs.
    """
    x = np.asarray(values, dtype=float)
    size, total = np.bincount(of).astype(float), np.bincount(of, weights=x)
    n, mean = len(x), float(x.mean())
    if len(size) < 2:
        return 1.0
    rest = (total - mean * size) / (1.0 - size / n)
    spread = float(rest @ rest) * len(size) / (len(size) - 1) / n**2
    alone = float(x.var()) / n
    dof = min(len(size) - 1, max(_LEAST, telling + 2))
    z, t = (quantile(0.5 + level / 2) for quantile in (normal_quantile, lambda p: t_quantile(p, dof)))
    return min(float(n), n / max(1.0, spread / alone if alone else 1.0) * (z / t) ** 2)


def share_difference(
    ours: ArrayLike, theirs: ArrayLike, groups: ArrayLike | None = None, level: float = 0.95
) -> Interval:
    """Return share of true `ours` - share of true `theirs`, both of the same samples, with its interval.

    `groups` has one number per sample, None: they are independent; n_eff is how many independent ones they count for.
    """
    a, b = np.asarray(ours, dtype=bool), np.asarray(theirs, dtype=bool)
    if a.shape != b.shape or a.ndim != 1 or not len(a):
        raise ValueError(f"need two equally long lists, not {a.shape} and {b.shape}")
    n, gained, lost = len(a), int((a & ~b).sum()), int((b & ~a).sum())
    found = float(n)
    if groups is not None:
        of = np.unique(np.asarray(groups), return_inverse=True)[1]
        found = worth(a.astype(float) - b, of, len(set(of[a != b])), level)
    z, part = normal_quantile(0.5 + level / 2), found / n
    hi = _edge(gained * part, lost * part, found, z)
    lo = -_edge(lost * part, gained * part, found, z)
    return Interval(lo, hi, (gained - lost) / n, n, found)


def _edge(gained: float, lost: float, n: float, z: float) -> float:
    """Return the largest difference that the score test does not refute, by bisection."""
    lo, hi = (gained - lost) / n, 1.0
    for _ in range(_STEPS):
        middle = 0.5 * (lo + hi)
        lo, hi = (middle, hi) if _score(gained, lost, n, middle) < z else (lo, middle)
    return 0.5 * (lo + hi)


def _score(gained: float, lost: float, n: float, difference: float) -> float:
    """Return by how many standard errors a true `difference` exceeds the one that was seen."""
    b = (2 * n - gained + lost) * difference - gained - lost
    root = math.sqrt(max(0.0, b * b + 8 * n * lost * difference * (1 - difference)))
    rarer = (root - b) / (4 * n)  # the likeliest share of losses, were the difference true
    spread = n * (2 * rarer + difference * (1 - difference))
    apart = n * difference - gained + lost
    return apart / math.sqrt(spread) if spread > 0 else math.inf if apart > 0 else 0.0


def drawn_difference(
    difference: Callable[[NDArray[np.intp]], float],
    n: int,
    groups: ArrayLike | None = None,
    *,
    level: float = 0.95,
    draws: int = DRAWS,
    seed: int = 0,
    most_s: float = math.inf,
) -> Interval:
    """Return difference(all n samples) with the interval over sets drawn anew; a set is given by its samples' numbers.

    Drawing ends after `most_s` seconds. Unreliable, with a note, with fewer than FEWEST sets or one group; a set whose
    difference is NaN (nothing to measure in it) does not count.
    """
    of = np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    count = int(of.max()) + 1 if n else 0
    members = np.split(np.argsort(of, kind="stable"), np.cumsum(np.bincount(of))[:-1]) if n else []
    value = difference(np.arange(n))
    rng, found, start = np.random.default_rng(seed), list[float](), time.monotonic()
    for _ in range(draws if count > 1 else 0):
        seen = difference(np.concatenate([members[i] for i in rng.integers(0, count, count)]))
        found += [seen] if math.isfinite(seen) else []
        if time.monotonic() - start > most_s:
            break
    if len(found) < FEWEST:
        note = f"interval unreliable: {count} independent samples, {len(found)} sets drawn"
        return Interval(-math.inf, math.inf, value, n, count, False, note)
    reach = math.sqrt(count / (count - 1)) * t_quantile(0.5 + level / 2, count - 1)
    tail = NormalDist().cdf(-reach)
    lo, hi = np.quantile(found, [tail, 1 - tail])
    return Interval(float(lo), float(hi), value, n, count)
