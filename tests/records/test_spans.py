"""Tables of spans: made of rows and columns, joined, chosen and moved; a constant column takes no memory."""

import numpy as np
import pytest

from edgescope.records import Channel, Readings, Spans, Trace
from edgescope.records.rows import SPAN_DTYPES, SPAN_KINDS


def table(spans, *names):
    return [tuple(row) for row in zip(*(spans.columns[name].tolist() for name in names), strict=True)]


ROWS = [("unit", 7, 0, 100), ("load", 7, 5, 20), ("net", 7, 20, 90), ("load", 8, 100, 130)]


def test_rows_of_one_kind_are_spans_and_the_whole_unit_is_of_its_own():
    found = Spans.of("stage", ROWS, expected=["save", "load"])
    assert found.names == ("save", "load", "unit", "net") and len(found) == 4
    assert found.named() == ["unit", "load", "net", "load"]
    kinds = [SPAN_KINDS.index(kind) for kind in ("unit", "stage", "stage", "stage")]
    assert table(found, "kind", "query_id", "start_ns", "end_ns") == [
        (kind, *row[1:]) for kind, row in zip(kinds, ROWS, strict=True)
    ]
    others = set(SPAN_DTYPES) - {"name", "kind", "query_id", "start_ns", "end_ns"}
    assert {name: set(found.columns[name].tolist()) for name in others} == {name: {-1} for name in others}
    assert {name: str(column.dtype) for name, column in found.columns.items()} == SPAN_DTYPES


def test_lengths_are_those_of_a_name_in_order():
    found = Spans.of("stage", ROWS)
    assert found.durations_ns("load").tolist() == [15, 30] and found.durations_ns("unit").tolist() == [100]
    assert found.durations_ns("nobody").tolist() == []


def test_no_spans_are_a_table_without_rows():
    none = Spans.none()
    assert (len(none), none.names, set(none.columns)) == (0, (), set(SPAN_DTYPES))
    assert len(Spans.joined([])) == 0 and len(Spans.of("range", [])) == 0


def test_tables_are_joined_under_one_list_of_names():
    one, two = (
        Spans.of("range", [("a", 1, 0, 1), ("b", 2, 1, 2)]),
        Spans.of("api", [("c", 3, 2, 3), ("b", 4, 3, 4)]),
    )
    both = Spans.joined([one, two.of_process(5)])
    assert both.names == ("a", "b", "c") and both.named() == ["a", "b", "c", "b"]
    assert table(both, "process", "query_id") == [(-1, 1), (-1, 2), (5, 3), (5, 4)]
    assert both.columns["name"].dtype == np.int32


@pytest.mark.parametrize(
    ("first", "second", "constant"),
    [(3, 3, True), (3, 4, False), (3, np.array([3, 3]), False), (np.array([1, 2]), 3, False)],
)
def test_a_column_that_is_constant_stays_so_where_all_parts_agree(first, second, constant):
    starts = np.arange(2)
    parts = [
        Spans.from_columns(("a",), {"name": 0, "start_ns": starts, "device": of}) for of in (first, second)
    ]
    parts.insert(1, Spans.none())
    device = Spans.joined(parts).columns["device"]
    assert (device.strides == (0,)) is constant
    assert device.tolist() == [*np.broadcast_to(first, 2), *np.broadcast_to(second, 2)]
    assert device.dtype == np.int16


def test_a_column_that_is_left_out_takes_no_memory():
    found = Spans.from_columns(["a"], {"name": 0, "start_ns": np.arange(3), "end_ns": np.arange(3) + 1})
    assert found.columns["bytes"].tolist() == [-1] * 3 and found.columns["bytes"].strides == (0,)
    assert found.names == ("a",) and found.columns["end_ns"].strides != (0,)


def test_rows_are_chosen_by_kind_place_and_time():
    found = Spans.of("stage", ROWS)
    assert found.of_kind("unit").named() == ["unit"] and len(found.of_kind("unit", "stage")) == 4
    assert len(found.of_kind("api")) == 0
    assert found.where(np.array([3, 0])).named() == ["load", "unit"]
    assert found.between(5, 90).named() == ["load", "net"]
    assert found.between(6, 89).named() == [] and found.between(0, 130).named() == found.named()


def test_only_times_move():
    found = Spans.of("stage", ROWS).moved(1000)
    assert table(found, "start_ns", "end_ns", "query_id") == [(s + 1000, e + 1000, q) for _, q, s, e in ROWS]


def test_a_trace_on_the_queries_clock_has_its_samples_there_too():
    channel = Channel("a", "share", "gpu", "gauge", "file")
    samples = Readings((channel,), np.array([1, 2]), np.zeros(2, "int16"), np.ones(2))
    trace = Trace(Spans.of("api", [("a", 1, 10, 20)]), "a program", samples)
    moved = trace.on_monotonic(-5)
    assert (trace.clock, moved.clock) == ("its own", "monotonic")
    assert moved.samples.t_ns.tolist() == [-4, -3] and table(moved.spans, "start_ns", "end_ns") == [(5, 15)]
    assert Trace(Spans.none(), "").on_monotonic(5).samples is None and trace.timed
