"""The idle-gap curve: the latency of the first query after an idle gap, relative to queries back to back.

The scenario idle_gap numbers its gaps in the column `stream`. The requested length of a gap is scheduled - done of the
query before; its actual length is issued - done of the query before. Latency runs from issued, because the timer's
delay is not the model's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgescope.records import QUERY_OK, Absent, Field, Measured, Queries, Window
from edgescope.stats import Interval, percentile, quantile_interval, refusal
from edgescope.stats.intervals import Floats

LEVEL = 0.975
"""Level of each median's interval: the ends of two such intervals bound the ratio of the medians at 95 % or more."""


@dataclass(frozen=True)
class Gap:
    """One point of the curve."""

    requested_s: float
    """Requested idle time."""
    idle_s: float
    """Median actual idle time before these queries; the timer is late."""
    latency: Field
    """Their median latency in seconds, with its 97.5 % interval."""
    penalty: Field
    """That latency over the median without a gap."""

    @property
    def label(self) -> str:
        """Return the requested gap: `33ms`."""
        return f"{self.requested_s * 1e3:g}ms"


def curve(queries: Queries, window: Window) -> tuple[Gap, ...]:
    """Return the points in the order of their gaps, beginning without a gap; empty if there are none."""
    c = queries.rows(window).columns
    before = np.concatenate([[-1], queries.columns["done_ns"]])[window.first : window.stop]
    requested, idle, latency = (
        (c[until] - since) * 1e-9
        for until, since in (("scheduled_ns", before), ("issued_ns", before), ("done_ns", c["issued_ns"]))
    )
    good = c["status"] == QUERY_OK
    found: list[Gap] = []
    base: Field = Absent("no query without a gap succeeded")
    for number in range(1, int(c["stream"].max(initial=0)) + 1):
        mine = good & (c["stream"] == number)
        if not mine.any():
            continue
        median = _median(latency[mine])
        base = median if number == 1 else base
        gap = float(np.median(requested[mine])), float(np.median(idle[mine]))
        found.append(Gap(*gap, median, ratio(median, base)))
    return tuple(found)


def metrics(queries: Queries, window: Window) -> dict[str, Field]:
    """Return `idle_gap_33ms_latency_p50_s` and `idle_gap_33ms_penalty` for every gap of the window."""
    out: dict[str, Field] = {}
    for gap in curve(queries, window):
        out[f"idle_gap_{gap.label}_latency_p50_s"] = gap.latency
        out[f"idle_gap_{gap.label}_penalty"] = gap.penalty
    return out


def back_to_back(rows: Queries) -> Queries:
    """Return the rows between the gaps, as a closed loop would measure them."""
    mine = rows.columns["stream"] == 0
    return Queries({name: column[mine] for name, column in rows.columns.items()})


def _median(x: Floats) -> Field:
    if len(x) < 2:
        return refusal(len(x), 2)
    interval = quantile_interval(x, 0.5, LEVEL)
    if isinstance(interval, Interval):
        return interval.measured("s")
    return Measured(percentile(x, 0.5), "s", n=len(x))


def ratio(above: Field, below: Field) -> Field:
    """Return above / below with an interval from the ends of both, which is wider than necessary."""
    for field in (above, below):
        if isinstance(field, Absent):
            return field
    assert isinstance(above, Measured) and isinstance(below, Measured)
    value = above.value / below.value
    if above is below:
        return Measured(1.0, "1", n=above.n)
    if above.lo is None or above.hi is None or not below.lo or not below.hi:
        return Measured(value, "1", n=above.n)
    return Measured(value, "1", above.lo / below.hi, above.hi / below.lo, above.n)
