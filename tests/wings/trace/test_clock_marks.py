"""Marks of the queries' clock: the least delayed of each end counts, and a drift is said."""

from __future__ import annotations

import time

import numpy as np
import pytest

from edgescope.records import CLOCK_MARK, Channel, Readings, Spans, Trace
from edgescope.wings.trace import tracers


def marked(*marks: tuple[int, int], work: int = 1000) -> Trace:
    """A span of 5 ns at `work`, and marks (when they began by the trace's clock, what the queries' said)."""
    names = ["a", *(f"{CLOCK_MARK}{theirs}" for _, theirs in marks)]
    start = np.array([work, *(own for own, _ in marks)], "int64")
    spans = Spans.from_columns(names, {"name": np.arange(len(names)), "start_ns": start, "end_ns": start + 5})
    samples = Readings(
        (Channel("x", "W", "rail", "gauge", "y"),), np.array([7]), np.zeros(1, "int16"), np.ones(1)
    )
    return Trace(spans, "x", samples=samples)


@pytest.mark.parametrize(
    ("marks", "shift", "notes"),
    [
        ([(100, 600)], 500, 0),
        ([(100, 600), (900, 1400)], 500, 0),
        (
            [(100, 590), (200, 700), (900, 1400), (990, 1500)],
            (500 + 510) // 2,
            0,
        ),  # the least delayed of each end
        ([(900, 1390), (100, 600), (200, 690)], (500 + 490) // 2, 0),  # the middle one is of the first half
        ([(0, 0), (9, 50_009)], 25_000, 0),
        ([(0, 0), (9, 50_010)], 25_000, 1),
        ([(0, 50_001), (9, 9)], 25_000, 1),
    ],
)
def test_the_shift_is_that_of_the_least_delayed_marks(marks, shift, notes):
    found = tracers.aligned(marked(*marks))
    assert found.spans.columns["start_ns"].tolist() == [1000 + shift] and found.spans.named() == ["a"]
    assert found.samples.t_ns.tolist() == [7 + shift] and found.clock == "monotonic"
    assert [note.code for note in found.notes] == ["W-PROF-9"] * notes


def test_a_trace_without_a_mark_keeps_its_own_clock():
    found = tracers.aligned(marked())
    assert (found.clock, len(found.spans)) == ("its own", 1) and [n.code for n in found.notes] == ["W-PROF-8"]


def test_a_mark_holds_the_time_at_which_it_was_made():
    before = time.monotonic_ns()
    told = int(tracers.clock_mark().removeprefix(CLOCK_MARK))
    assert before <= told <= time.monotonic_ns()
