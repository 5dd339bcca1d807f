"""One metric of one cell over the same metric of another, with the interval that its runs deserve.

Three replicate numbers that both cells have are pairs of neighbours in time, whose ratios have an interval of their
own (stats.pairs). Where they do not resolve the ratio there is none, and what would resolve it stands in its place.
With fewer, each side keeps the interval it has (from within its run, or between its own replicates) and the two are
joined by the delta method on logs, as those of independent figures are. A figure without one gives a ratio without one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgescope.analysis.cells.replicates import MIN_REPLICATES, across, by_replicate, paired_values
from edgescope.records import Absent, Field, Measured, Result
from edgescope.stats import Interval, paired_log_ratio
from edgescope.stats.pairs import MIN_PAIRS, RESOLVED

NOTICED = 0.05
"""Share by which two cells must differ before a difference between them is spoken of."""
ENOUGH, MOST = 5, 20
"""Pairs that bound a ratio on a quiet machine, and the most that are worth asking for on one that is not."""


def quotient(over: Sequence[Result], under: Sequence[Result], name: str) -> Field:
    """Return `over` / `under` of one metric; n is the number of pairs, 1 where the runs were no pairs."""
    first, second = paired_values(by_replicate(over), by_replicate(under), name)
    if len(first) >= MIN_REPLICATES:
        return of_pairs(paired_log_ratio(first, second), "--replicates")
    return of_fields(across(over, name), across(under, name))


def of_pairs(ratio: Interval, flag: str) -> Field:
    """Return a paired ratio where its pairs resolve it, else why not; `flag` asks for more of them."""
    if ratio.reliable:
        return ratio.measured("1")
    wish = ENOUGH
    if ratio.n >= MIN_PAIRS:  # the interval narrows with the square root of the pairs
        wish = max(ENOUGH, math.ceil(ratio.n * (math.log(ratio.hi / ratio.value) / math.log(RESOLVED)) ** 2))
    more = f"use {flag} {wish}" if wish <= MOST else "measure on a quieter machine"
    return Absent(f"{ratio.note}: {more}")


def of_fields(over: Field, under: Field) -> Field:
    """Return the ratio of two independent figures, its interval joined on logs."""
    for side in (over, under):
        if isinstance(side, Absent):
            return side
    assert isinstance(over, Measured) and isinstance(under, Measured)
    if over.value <= 0 or under.value <= 0:
        return Absent("a ratio of a value that is 0 says nothing")
    centre = math.log(over.value / under.value)
    top, bottom = _ends(over), _ends(under)
    if top is None or bottom is None:
        return Measured(math.exp(centre), "1", n=1)
    (low, high), (least, most) = top, bottom
    lo, hi = math.exp(centre - math.hypot(low, most)), math.exp(centre + math.hypot(high, least))
    return Measured(math.exp(centre), "1", lo, hi, 1)


def _ends(field: Measured) -> tuple[float, float] | None:
    """Return how far the interval reaches below and above, on the log; None where there is none."""
    if field.lo is None or field.hi is None or field.lo <= 0 or not math.isfinite(field.hi):
        return None
    return math.log(field.value / field.lo), math.log(field.hi / field.value)


def above(ratio: Field, limit: float = 1.0, *, exact: bool = False) -> bool | None:
    """Return whether a ratio is surely above `limit` (True), surely below (False), or neither (None).

    An interval from within runs does not hold what lies between processes: without pairs of runs a ratio must also
    differ from the limit by NOTICED. Without an interval nothing is sure, but of figures that are read off rather
    than sampled (`exact`: memory), of which that is enough.
    """
    if isinstance(ratio, Absent):
        return None
    far = abs(ratio.value / limit - 1) >= NOTICED
    if ratio.lo is None or ratio.hi is None:
        return ratio.value > limit if exact and far else None
    if ratio.n < MIN_REPLICATES and not far:
        return None
    if ratio.lo > limit:
        return True
    return False if ratio.hi < limit else None
