"""A time line: a row for each step and each of its parts, on the host's clock or by a GPU's events."""

import numpy as np
import pytest

from edgescope.records import SPAN_KINDS, UNIT
from edgescope.wings.training import timeline
from edgescope.wings.training.epochs import PARTS
from edgescope.wings.training.timeline import Timeline


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by 10 ns at each look."""
    ticks = iter(range(0, 10_000, 10))
    monkeypatch.setattr(timeline.time, "monotonic_ns", lambda: next(ticks))


def stepped(line):
    line.begin()
    for part in PARTS:
        line.mark(part)
    return line.end()


def rows(spans, name):
    found = spans.where(spans.columns["name"] == spans.names.index(name)).columns
    return [
        tuple(row)
        for row in np.stack([found[c] for c in ("query_id", "start_ns", "end_ns")], axis=1).tolist()
    ]


def test_parts_follow_one_another_within_their_step(clock):
    line = Timeline("cpu")
    assert [stepped(line), stepped(line)] == [60, 130] and line.steps == 2
    spans = line.spans()
    assert rows(spans, UNIT) == [(0, 0, 60), (1, 70, 130)]
    assert [rows(spans, part)[1] for part in PARTS] == [
        (1, 70 + 10 * i, 80 + 10 * i) for i in range(len(PARTS))
    ]
    kinds = {
        name: SPAN_KINDS[int(spans.columns["kind"][spans.named().index(name)])] for name in (UNIT, "fetch")
    }
    assert kinds == {UNIT: "unit", "fetch": "phase"}


def test_the_marks_of_a_step_are_those_of_the_last_one(clock):
    line = Timeline("cpu")
    stepped(line)
    stepped(line)
    found = line.marks()
    assert [*found] == [f"{part}_{at}" for part in PARTS for at in ("begin", "end")]
    spans = line.spans()
    for part in PARTS:
        assert rows(spans, part)[1] == (1, found[f"{part}_begin"], found[f"{part}_end"])


def test_a_fetch_that_brought_nothing_belongs_to_no_step(clock):
    line = Timeline("cpu")
    stepped(line)
    line.begin()
    assert line.waited() == 80
    stepped(line)
    assert rows(line.spans(), "fetch") == [(-1, 70, 80), (0, 0, 10), (1, 90, 100)]


def test_a_step_that_failed_leaves_nothing(clock):
    line = Timeline("cpu")
    line.begin()
    line.mark("fetch")
    stepped(line)
    assert line.steps == 1 and rows(line.spans(), UNIT) == [(0, 20, 80)]


def test_no_step_no_spans():
    assert not len(Timeline("cpu").spans())


def test_parts_on_a_gpu_are_bounded_by_events(clock, monkeypatch):
    made = []

    class Event:
        def __init__(self):
            made.append(self)
            self.at = np.nan

        def record(self):
            self.at = next(moments)

        def elapsed_time(self, other):
            return other.at - self.at

    moments = iter([5.0, 7.0, 7.5, 8.0, 9.0, 9.25])  # milliseconds of the GPU's clock
    monkeypatch.setattr(timeline, "_event", lambda place: Event())
    line = Timeline("cuda")
    timeline.time.monotonic_ns()  # the step begins at 10 ns
    stepped(line)
    assert len(made) == 6
    assert rows(line.spans(), "fetch") == [(0, 10, 2_000_010)]
    assert rows(line.spans(), "optimizer") == [(0, 4_000_010, 4_250_010)]


def test_the_time_of_steps_is_from_begin_to_end_and_what_lies_between_does_not_count(clock):
    line = Timeline("cpu")
    stepped(line)
    timeline.time.monotonic_ns()
    stepped(line)
    assert line.seconds == pytest.approx(120e-9)
    starts, ends = line.ends()
    assert (starts.tolist(), ends.tolist()) == ([0, 80], [60, 140])
    assert len(line.spans()) == 2 * (1 + len(PARTS)) and line.steps == 2


def test_spans_are_of_a_kind_a_step_and_a_worker():
    made = timeline.spans_of("phase", "read", np.array([1, 2]), np.array([3, 4]), steps=7)
    assert [made.columns[c].tolist() for c in ("query_id", "stream")] == [[7, 7], [-1, -1]]
    mine = timeline.spans_of("unit", "read", np.array([1]), np.array([3]), steps=-1, workers=2)
    assert [int(mine.columns[c][0]) for c in ("query_id", "stream", "kind")] == [
        -1,
        2,
        SPAN_KINDS.index("unit"),
    ]
