"""How sure one long run is of its energy per sample: Student's t over blocks of its window, never over samples.

Power is correlated from one inference to the next, and a sensor shows each watt several times, so thousands of samples
are not thousands of opinions (an interval over them covers the truth a third of the time at a correlation of 0.9). The
window is cut into blocks of several sensor periods; each has its energy and its samples, and the interval is that of a
ratio of sums (Cochran, Sampling Techniques, 3rd ed. 1977, chapter 6). Blocks are joined while neighbours still
resemble each other; where the last ten to twenty still do, the window is too short to say. The meter's error at a
block's edge is its neighbour's with the other sign and adds nothing to the sum; it makes the interval wider than it
must be, not narrower.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from edgescope.analysis.energy.integral import Floats, Total
from edgescope.records import QUERY_OK, Measured, Queries, Window
from edgescope.stats.special import normal_quantile, t_quantile

MIN_BLOCKS = 10
"""Fewer blocks than this give no interval."""
MAX_BLOCKS = 64
"""More would narrow Student's t by less than 2 %; longer ones forgive a slow drift of the load."""
_ALIKE = 0.9
"""Correlation of neighbouring blocks that the interval is widened for at most."""
PERIODS = 4
"""Sensor periods in a block at least."""


def interval(total: Total, queries: Queries, window: Window) -> Measured | None:
    """Return the window's joules per sample with its 95 % interval, n the blocks; None where it holds too few."""
    seconds = (window.stop_ns - window.start_ns) / 1e9
    found = min(MAX_BLOCKS, int(seconds / (PERIODS * total.refresh_s)) if total.refresh_s > 0 else MAX_BLOCKS)
    if found < MIN_BLOCKS:
        return None
    edges = np.linspace(0.0, seconds, found + 1)
    return ratio(np.diff(total.curve.at(edges)), np.diff(_done(queries, window, edges)))


def ratio(joules: Floats, samples: Floats) -> Measured | None:
    """Return sum(joules) / sum(samples) with Student's interval over the blocks.

    None without ten of them, or where neighbours still resemble each other when no more can be joined. It is widened
    for the correlation that may be there unseen, its upper end at 90 %.
    """
    if samples.sum() <= 0 or len(joules) < MIN_BLOCKS:
        return None
    value = float(joules.sum() / samples.sum())
    rest = joules - value * samples
    while len(rest) >= 2 * MIN_BLOCKS and _lag1(rest) > _doubt(len(rest)):
        rest = rest[len(rest) % 2 :].reshape(-1, 2).sum(axis=1)
    n, seen = len(rest), _lag1(rest)
    if seen > _doubt(n):
        return None
    # a short series shows less correlation than there is, by (1 + 3 rho) / n (Kendall, Biometrika 41, 1954)
    alike = min(max(0.0, seen + (1 + 3 * seen) / n + _doubt(n)), _ALIKE)
    error = math.sqrt(n * float(rest.var(ddof=1)) * (1 + alike) / (1 - alike)) / float(samples.sum())
    half = t_quantile(0.975, n - 1) * error
    least = 0.0 if joules.min() >= 0 else -math.inf  # the monitor of an idle rail may read a little below 0
    return Measured(value, "J", max(least, value - half), value + half, n)


def of_window(per_sample: Measured, blocks: Measured | None) -> Measured:
    """Return the energy per sample, with the interval over blocks where there is one, else the meter's bounds."""
    return replace(per_sample, lo=blocks.lo, hi=blocks.hi, n=blocks.n) if blocks else per_sample


def _done(queries: Queries, window: Window, edges_s: Floats) -> Floats:
    """Return the samples done by each moment; one query's are spread over the time since the one before."""
    c = queries.rows(window).columns
    ok = c["status"] == QUERY_OK
    t = (c["done_ns"][ok] - window.start_ns) / 1e9
    order = np.argsort(t, kind="stable")
    total = np.concatenate(([0.0], np.cumsum(c["samples"][ok][order], dtype=np.float64)))
    return np.interp(edges_s, np.concatenate(([0.0], t[order])), total)


def _doubt(n: int) -> float:
    """Return the correlation that n blocks without any show once in ten times."""
    return normal_quantile(0.9) / math.sqrt(n)


def _lag1(x: Floats) -> float:
    centred = x - x.mean()
    power = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0
