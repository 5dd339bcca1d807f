"""Marks of the queries' clock inside a profiler's own trace, so that both can be laid on one axis.

A mark is a range whose name holds the monotonic time just before its start. A busy machine may delay the start, so
there are TIMES marks at each end of a window and the least delayed counts; the two ends show how far the clocks drift.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from edgescope.errors import Message
from edgescope.records import CLOCK_MARK, Trace

TIMES = 5
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
    rows = rows[np.argsort(spans.columns["start_ns"][rows])]
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
    half = (len(shifts) + 1) // 2
    ends = [max(part) for part in (shifts[:half], shifts[half:]) if part]
    moved = replace(trace, spans=spans.where(kept)).on_monotonic(sum(ends) // len(ends))
    drift = max(ends) - min(ends)
    if drift <= DRIFT_NS:
        return moved
    note = Message(
        "W-PROF-9",
        f"the profiler's clock moves {drift / 1000:.0f} us against the queries' within the window",
        effect="Spans and queries may lie that far apart",
    )
    return replace(moved, notes=(*moved.notes, note))
