"""How much better one of two variants is, when both answered the same samples.

What both get right, or both get wrong, says nothing of the difference: only the samples on which they differ do. For
shares of right answers the interval is Tango's (Statistics in Medicine 17, 1998), all differences that McNemar's
test does not refute; it needs no sample on which they differ, and then says how large a difference so many samples can
miss. Samples in groups (scenes) count for fewer independent ones, as in `shares`.

For any other measure of a set of samples, whole groups (or samples) are drawn anew with replacement, and the interval
lies between percentiles of the differences that these sets show, as far out as Student's t asks of so few
groups (Hesterberg, The American Statistician 69, 2015: the expanded percentile interval).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgescope.stats.intervals import Interval
from edgescope.stats.shares import worth
from edgescope.stats.special import normal_quantile, t_quantile

DRAWS, FEWEST = 1000, 40
"""Sets drawn, and the least of them whose percentiles mean something."""
_STEPS = 60


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
