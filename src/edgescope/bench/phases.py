"""Where a query's time goes on a GPU: enqueue, H2D, GPU compute and D2H, as trtexec defines them.

The device events that tell cost time themselves, so the phases come from queries of their own after the measured
window, and how much slower those were than plain ones is stored beside them.
"""

from __future__ import annotations

import time

import numpy as np

from edgescope.analysis.run.summary import quantile_metric
from edgescope.backends.base import Phases
from edgescope.records import Absent, Field
from edgescope.workloads.base import Opened

#: Queries with events: as many as fit into the seconds, at most so many, at least a few.
MOST, FEWEST, SECONDS = 200, 10, 1.0
NAMES = {
    "enqueue_ns": "enqueue_s",
    "h2d_ns": "h2d_s",
    "compute_ns": "gpu_compute_s",
    "d2h_ns": "d2h_s",
    "latency_ns": "phased_latency_s",
}
COPIES = ("h2d_s", "d2h_s")


def metrics(opened: Opened, io: str) -> dict[str, Field]:
    """Return the median of each phase in seconds, and `phased_latency_s` of the queries they come from; {} without."""
    if opened.phases is None:
        return {}
    rows: list[Phases] = []
    start = time.monotonic()
    while len(rows) < FEWEST or (len(rows) < MOST and time.monotonic() - start < SECONDS):
        rows.append(opened.phases())
    return {name: _median([getattr(row, key) for row in rows[1:]], name, io) for key, name in NAMES.items()}


def _median(durations_ns: list[int | None], name: str, io: str) -> Field:
    if io == "device" and name in COPIES:
        return Absent("io device leaves the copies out")
    told = [d for d in durations_ns if d is not None]
    if not told:
        return Absent("the engine does not tell: it waits for the device within its own call")
    return quantile_metric(np.asarray(told, dtype=np.float64) * 1e-9, 0.5)
