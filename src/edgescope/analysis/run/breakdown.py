"""The breakdown of a unit's time from its spans: the median of each phase or stage."""

from __future__ import annotations

import numpy as np

from edgescope.records import UNIT, Absent, Field, Spans
from edgescope.stats import quantile_metric

UNTOLD = "the engine does not report it: it waits for the device within its own call"


def metrics(spans: Spans) -> dict[str, Field]:
    """Return `NAME_s`, the median length of each named span in seconds, and `phased_latency_s` of whole units.

    {} if there are no spans. The units were run one by one after the window, with timing around their parts, so
    `phased_latency_s` against the latency of the window shows the cost of the timing.
    """
    return {_metric(name): _median(spans, name) for name in spans.names}


def _metric(name: str) -> str:
    return "phased_latency_s" if name == UNIT else f"{name}_s"


def _median(spans: Spans, name: str) -> Field:
    found = spans.durations_ns(name)
    return quantile_metric(found.astype(np.float64) * 1e-9, 0.5) if len(found) else Absent(UNTOLD)
