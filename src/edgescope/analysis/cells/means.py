"""Means over a handful of fresh processes, and over the networks of a table, with the intervals they deserve.

The interval of a mean over networks says how well the mean of these networks is known, not what another network would
give: it joins their own intervals, which are independent, by the delta method with Welch and Satterthwaite's degrees of
freedom. A mean of ratios is geometric; the arithmetic one is here because studies print it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from edgescope.analysis.cells.replicates import MIN_REPLICATES, Ends, reaching
from edgescope.records import Absent, Field, Measured
from edgescope.stats.pairs import MIN_PAIRS, trimmed
from edgescope.stats.special import t_quantile


def spread(values: Sequence[float | None], unit: str, bounds: Sequence[Ends | None] = ()) -> Field:
    """Return the mean of one value a process, with Student's t interval between them from three on.

    `bounds` are a meter's, one pair a process: the interval reaches to their mean.
    """
    x = np.array([v for v in values if v is not None], dtype=np.float64)
    if not len(x):
        return Absent("not measured: no raw rows, or too few before the window")
    mean, n = float(x.mean()), len(x)
    if n < MIN_REPLICATES:
        return Measured(mean, unit, n=n)
    half = t_quantile(0.975, n - 1) * float(x.std(ddof=1)) / math.sqrt(n)
    return Measured(mean, unit, *reaching(max(0.0, mean - half), mean + half, bounds), n)


def log_mean(ratios: Sequence[Field]) -> Field:
    """Return the geometric mean of the measured ratios; n is their number."""
    found = [f for f in ratios if isinstance(f, Measured)]
    if not found:
        return Absent("nothing was measured")
    errors = [_error(f) for f in found]
    centre = float(np.mean([math.log(f.value) for f in found]))
    half = _half(errors, [1.0] * len(found))
    if half is None:
        return Measured(math.exp(centre), "1", n=len(found))
    return Measured(math.exp(centre), "1", math.exp(centre - half), math.exp(centre + half), len(found))


def plain_mean(ratios: Sequence[Field]) -> Field:
    """Return the arithmetic mean of the measured ratios; n is their number."""
    found = [f for f in ratios if isinstance(f, Measured)]
    if not found:
        return Absent("nothing was measured")
    mean = float(np.mean([f.value for f in found]))
    half = _half([_error(f) for f in found], [f.value for f in found])
    if half is None:
        return Measured(mean, "1", n=len(found))
    # taken on its log, as those of its parts are: no mean of ratios lies below 0, however little is known of it
    return Measured(mean, "1", mean * math.exp(-half / mean), mean * math.exp(half / mean), len(found))


Error = tuple[float, int]
"""Standard error of the log of a ratio, and its degrees of freedom."""


def _error(ratio: Measured) -> Error | None:
    """Return what a paired ratio's interval says of its log; exact for a ratio that is 1 by definition."""
    if ratio.lo is None or ratio.hi is None or ratio.lo <= 0 or ratio.n < MIN_PAIRS:
        return (0.0, 1) if ratio.value == 1.0 else None
    half = (math.log(ratio.hi) - math.log(ratio.lo)) / 2
    freedom = ratio.n - 2 * trimmed(ratio.n) - 1
    return half / t_quantile(0.975, freedom), freedom


def _half(errors: Sequence[Error | None], weights: Sequence[float]) -> float | None:
    """Return the half width of the mean of weighted, independent errors; None where one of them is not known."""
    if any(e is None for e in errors):
        return None
    parts = [((w * e[0] / len(errors)) ** 2, e[1]) for e, w in zip(errors, weights, strict=True) if e]
    variance = sum(v for v, _ in parts)
    if variance == 0:
        return 0.0
    freedom = variance**2 / sum(v**2 / df for v, df in parts)
    return t_quantile(0.975, max(1, math.floor(freedom))) * math.sqrt(variance)
