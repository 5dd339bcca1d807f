"""Marks of the queries' clock inside a profiler's own trace, so that both can be laid on one axis.

A mark is a range whose name holds the monotonic time at its start. Two marks, at both ends of a window, also show how
far the profiler's clock drifts between them.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from edgescope.errors import Message
from edgescope.records import CLOCK_MARK, Trace

#: Drift between two marks beyond which a note says so.
DRIFT_NS = 50_000


def name() -> str:
    """Return the name of a mark that begins now."""
    return f"{CLOCK_MARK}{time.monotonic_ns()}"


def aligned(trace: Trace) -> Trace:
    """Return the trace on the queries' clock, without its marks; with a note instead if it has none."""
    spans = trace.spans
    marks = [i for i, n in enumerate(spans.names) if n.startswith(CLOCK_MARK)]
    rows = np.flatnonzero(np.isin(spans.columns["name"], marks)) if marks else np.empty(0, "int64")
    shifts = [
        int(spans.names[int(spans.columns["name"][row])].removeprefix(CLOCK_MARK))
        - int(spans.columns["start_ns"][row])
        for row in rows.tolist()
    ]
    if not shifts:
        note = Message(
            "W-PROF-8", "the trace has no mark of the queries' clock", effect="Its times are its own"
        )
        return replace(trace, notes=(*trace.notes, note))
    kept = np.ones(len(spans), bool)
    kept[rows] = False
    moved = replace(trace, spans=spans.where(kept)).on_monotonic(round(float(np.median(shifts))))
    drift = max(shifts) - min(shifts)
    if drift <= DRIFT_NS:
        return moved
    note = Message(
        "W-PROF-9",
        f"the profiler's clock moves {drift / 1000:.0f} us against the queries' within the window",
        effect="Spans and queries may lie that far apart",
    )
    return replace(moved, notes=(*moved.notes, note))
