"""The interval of a share when samples come in groups (scenes) and neighbours answer alike.

Frames of one film are not independent: a variant that misreads an object misreads it for a second. The samples are
put into groups (a scene, a video), and the share counts as one of n* independent samples (Korn and
Graubard, Survey Methodology 24, 1998):

    n* = n / deff (z / t)^2       deff = variance of the share between groups / s (1 - s) / n, at least 1

The variance between groups leaves each out in turn (the jackknife's: a group weighs 1 / (1 - its share of n)
more). t is Student's with the degrees of freedom of deff itself: it is known only from the groups in which the
rarer answer occurs, so their number plus 2 counts, not the number of all groups. Wilson's interval of
n* then holds as often as it says (simulated at n = 370 by benchmarks/intervals.py gate), where that of n holds
in 56 to 62 % at a correlation of 0.7.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgescope.stats.intervals import Interval
from edgescope.stats.pairs import wilson
from edgescope.stats.quantiles import quantile_effective_n
from edgescope.stats.special import normal_quantile, t_quantile

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
