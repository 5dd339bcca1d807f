"""Did an open loop keep up? What was offered, what was done, and the queue between the two.

Where more falls due than is done the queue grows for as long as one looks: latency then measures the length of the
run, and there is no steady state that a percentile could describe.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgescope.errors import message
from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Field, Measured, Queries, Window
from edgescope.stats import drift
from edgescope.stats.intervals import Floats

OPEN = ("fixed_rate", "server", "burst", "trace", "mlperf_server")
"""Scenarios with a schedule that does not wait."""
GROWTH_MATTERS = 0.02
"""Share of the offered queries that join the queue for good, from which the load has fallen behind."""
NAMES = ("offered_rate_qps", "achieved_rate_qps", "backlog_queries", "backlog_growth_qps")


@dataclass(frozen=True)
class Backlog:
    """The four numbers by name, and whether the queue grew for good."""

    fields: dict[str, Field]
    behind: bool


def backlog(rows: Queries, window: Window) -> Backlog:
    """Return how an open loop's window kept up, of all workers together; rates in queries/s."""
    c = rows.columns
    due = np.sort(c["scheduled_ns"])
    n, length_s = len(due), (window.stop_ns - window.start_ns) * 1e-9
    span_s = float(due[-1] - due[0]) * 1e-9 if n else 0.0
    if span_s <= 0 or length_s <= 0:
        return Backlog(dict.fromkeys(NAMES, Absent("every query fell due at one moment")), behind=False)
    offered = float(np.count_nonzero(due < due[-1])) / span_s
    ok = int(np.count_nonzero(c["status"] == QUERY_OK))
    waiting = in_system(rows)
    found = drift(waiting)
    growth: Field = Absent(f"n/a: have {found.n_blocks} blocks, need 8")
    if np.isfinite(found.lo):
        per_s = float(waiting.mean()) / span_s
        growth = Measured(found.share * per_s, "queries/s", found.lo * per_s, found.hi * per_s, n)
    grows = isinstance(growth, Measured) and growth.value >= GROWTH_MATTERS * offered and found.significant
    fields: dict[str, Field] = {
        "offered_rate_qps": Measured(offered, "queries/s", n=n),
        "achieved_rate_qps": Measured(ok / length_s, "queries/s", n=ok),
        "backlog_queries": Measured(float(waiting[-1]), "queries", n=n),
        "backlog_growth_qps": growth,
    }
    return Backlog(fields, behind=grows or bool(np.any(c["status"] == QUERY_DROPPED)))


def in_system(rows: Queries) -> Floats:
    """Return how many earlier queries were not yet done, waiting or worked on, when each fell due; in that order."""
    c = rows.columns
    done = np.sort(np.where(c["done_ns"] >= 0, c["done_ns"], np.iinfo(np.int64).max))
    gone = np.searchsorted(done, np.sort(c["scheduled_ns"]), side="right")
    return np.asarray(np.arange(len(done)) - gone, dtype=np.float64)


def warning(found: Backlog) -> str:
    """Return what a reader must know of a load that fell behind."""
    offered, achieved, waiting = (found.fields[name] for name in NAMES[:3])
    assert isinstance(offered, Measured) and isinstance(achieved, Measured) and isinstance(waiting, Measured)
    return message(
        "W-LOAD-1",
        f"{offered.value:.4g} queries/s were offered and {achieved.value:.4g} done",
        evidence=f"{waiting.value:.0f} waited or were worked on when the last one fell due",
        effect="Latency grows with the length of the run and has no steady state:"
        " the percentiles describe this run only",
        fix=f"{achieved.value / offered.value:.0%} of this load or less, or more --in-flight",
    )
