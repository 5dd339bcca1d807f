"""Queries and readings as columns: the window, when a query was due, and one channel's values."""

import numpy as np

from edgescope.records import Channel, Queries, Readings, Window
from edgescope.records.rows import QUERY_DROPPED, QUERY_DTYPES, QUERY_END, QUERY_ERROR, QUERY_OK

COLUMNS = {
    "query_id": [0, 1, 2, 3],
    "scheduled_ns": [-1, 0, 50, -1],
    "issued_ns": [10, 20, 60, 70],
    "done_ns": [15, 30, 90, 80],
    "status": [QUERY_OK, QUERY_OK, QUERY_OK, QUERY_ERROR],
}
QUERIES = Queries({name: np.array(column, QUERY_DTYPES[name]) for name, column in COLUMNS.items()})


def test_a_query_is_due_when_it_was_scheduled_or_else_issued():
    assert len(QUERIES) == 4
    assert QUERIES.due_ns().tolist() == [10, 0, 50, 70]


def test_a_latency_counts_from_then_and_those_that_failed_have_none():
    assert QUERIES.latency_ns().tolist() == [5, 30, 40]
    assert QUERIES.latency_ns().dtype == QUERIES.due_ns().dtype == np.int64


def test_a_window_holds_the_rows_from_the_first_to_before_the_stop():
    found = QUERIES.rows(Window(1, 3, 0, 0))
    assert (
        found.columns["query_id"].tolist() == [1, 2]
        and len(found) == 2
        and set(found.columns) == set(COLUMNS)
    )


def test_only_what_succeeded_has_a_latency():
    states = (QUERY_OK, QUERY_ERROR, QUERY_DROPPED, QUERY_END)
    status = np.array(states, QUERY_DTYPES["status"])
    assert Queries({**QUERIES.columns, "status": status}).latency_ns().tolist() == [5] and len({*states}) == 4


def channel(name):
    return Channel(name, "W", "rail", "gauge", "file")


def test_a_series_is_of_one_channel_and_empty_where_nobody_read_it():
    numbers = np.array([0, 1, 0, 1], "int16")
    readings = Readings((channel("a"), channel("b"), channel("c")), np.arange(4), numbers, np.arange(4) / 2)
    assert [column.tolist() for column in readings.series("a")] == [[0, 2], [0.0, 1.0]]
    assert [column.tolist() for column in readings.series("b")] == [[1, 3], [0.5, 1.5]]
    assert [column.tolist() for name in "cd" for column in readings.series(name)] == [[]] * 4
    assert (channel("a").status, channel("a").reason) == ("measured", "")
