"""What happened when: the share of each stretch of time that the host and the GPU spent on what, for a figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.cover import Cover
from edgescope.analysis.kernels.rows import Rows
from edgescope.records import SPAN_KINDS, Trace

STRETCHES = 400


@dataclass(frozen=True)
class Timeline:
    """Equal stretches of a trace."""

    t_s: NDArray[np.float64]
    """The middle of each stretch, from the trace's start."""
    shares: Mapping[str, NDArray[np.float64]]
    """What took place -> the share of each stretch in which it did."""
    waits: NDArray[np.int64]
    """Waits for the GPU that began in each stretch."""
    start_ns: int
    end_ns: int


def timeline(trace: Trace) -> Timeline | None:
    """Return the timeline of a trace, or None if its spans have no times or no length."""
    c = trace.spans.columns
    if not trace.timed or not len(trace.spans):
        return None
    start, end = int(c["start_ns"].min()), int(c["end_ns"].max())
    if end <= start:
        return None
    edges = np.linspace(start, end, STRETCHES + 1)
    rows = Rows(trace.spans)
    calls = rows.of("api", "sync")
    waits = calls["kind"] == SPAN_KINDS.index("sync")
    launching = ~waits & rows.launching[calls["name"]] if len(waits) else waits
    covers = {
        "operators": _cover(rows, "op"),
        "launching": Cover.of(calls["start_ns"][launching], calls["end_ns"][launching]),
        "waiting for the GPU": Cover.of(calls["start_ns"][waits], calls["end_ns"][waits]),
        "GPU: kernels": _cover(rows, "kernel", "graph"),
        "GPU: copies": _cover(rows, "copy"),
        "on a CPU": _cover(rows, "sched"),
    }
    width = edges[1:] - edges[:-1]
    shares = {
        name: found.within(edges[:-1], edges[1:]) / width for name, found in covers.items() if len(found)
    }
    counted, _ = np.histogram(calls["start_ns"][waits], edges)
    return Timeline((edges[:-1] + width / 2 - start) * 1e-9, shares, counted, start, end)


def _cover(rows: Rows, *kinds: str) -> Cover:
    found = rows.of(*kinds)
    return Cover.of(found["start_ns"], found["end_ns"])
