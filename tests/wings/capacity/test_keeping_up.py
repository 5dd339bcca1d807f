"""Whether a machine keeps up, from rows whose every time was chosen."""

import re
from dataclasses import replace

import numpy as np
import pytest

from edgescope.analysis.run.lateness import FEW
from edgescope.records import (
    QUERY_DROPPED,
    QUERY_ERROR,
    QUERY_OK,
    Absent,
    Measured,
    Queries,
    Trial,
    Window,
    Worker,
)
from edgescope.wings.capacity.keeping_up import GROWTH, achieved, behind, busy, measured_rows, queue_growth
from making import queries, result

MS = 1_000_000


def rows(due_ms, begun_ms, done_ms, *, status=None, worker=0):
    """Rows by times in milliseconds; -1 is never."""
    n = len(due_ms)
    table = dict(queries(n).columns)
    for name, times in (("scheduled_ns", due_ms), ("issued_ns", begun_ms), ("done_ns", done_ms)):
        table[name] = np.array([t * MS if t >= 0 else -1 for t in times], dtype=np.int64)
    table["worker"] = np.broadcast_to(np.asarray(worker, np.int16), n).copy()
    table["status"] = np.zeros(n, np.int8) if status is None else np.array(status, np.int8)
    return Queries(table)


THREE = rows([0, 10, 20], [0, 15, 35], [15, 35, 50])


def test_what_was_answered_counts_from_the_first_due_to_the_last_done():
    assert achieved(THREE) == Measured(pytest.approx(3 / 0.050), "queries/s", n=3)
    mixed = rows([0, 10, 20], [0, 15, 35], [15, 35, 50], status=[0, 0, QUERY_ERROR])
    assert achieved(mixed) == Measured(pytest.approx(2 / 0.035), "queries/s", n=2)
    assert isinstance(achieved(rows([0], [0], [5], status=[QUERY_ERROR])), Absent)
    unscheduled = rows([-1, -1], [100, 120], [120, 150])
    assert achieved(unscheduled).value == pytest.approx(2 / 0.050)


def test_a_server_is_busy_from_issued_to_done():
    assert busy(THREE, 1) == Measured(pytest.approx(1.0), "share", n=3)
    assert busy(THREE, 2).value == pytest.approx(0.5)
    idle = rows([0, 50], [0, 50], [10, 60])
    assert busy(idle, 1).value == pytest.approx(20 / 60)
    waiting = rows([0, 90], [0, -1], [30, -1], status=[0, QUERY_DROPPED])  # due at 90, never begun
    assert busy(waiting, 1).value == pytest.approx(30 / 90)
    twice = rows([0, 0], [0, 0], [30, 30])
    assert busy(twice, 1).value == 1.0 and busy(twice, 2).value == pytest.approx(1.0)
    assert isinstance(busy(rows([], [], []), 1), Absent)


def climbing(n, by=0.05, period_ms=10):
    due = [k * period_ms for k in range(n)]
    begun = [round(d * (1 + by)) for d in due]
    return rows(due, begun, [b + 5 for b in begun])


def test_the_wait_grows_by_the_slope_that_was_put_in():
    found = queue_growth(climbing(1000))
    assert (found.value, found.n) == (pytest.approx(0.05, rel=0.01), 1000)
    assert found.lo <= 0.05 <= found.hi * 1.01 and found.lo > 0.04
    steady = queue_growth(climbing(1000, by=0.0))
    assert (steady.value, steady.lo) == (pytest.approx(0.0, abs=1e-9), None)
    assert queue_growth(climbing(FEW)).n == FEW
    assert queue_growth(climbing(FEW - 1)) == Absent("n/a: have 19, need 20")
    at_once = rows([5] * 30, range(5, 35), range(6, 36))
    assert queue_growth(at_once) == Absent("all of them were at one moment")


def test_doubling_every_time_leaves_the_slope_and_what_was_never_begun_is_left_out():
    once, twice = queue_growth(climbing(400, 0.1)), queue_growth(climbing(400, 0.1, period_ms=20))
    assert once.value == pytest.approx(twice.value, rel=0.01)
    table = climbing(400, 0.1)
    table.columns["issued_ns"][300:] = -1
    assert queue_growth(table).n == 300 and queue_growth(table).value == pytest.approx(0.1, rel=0.02)


def test_falling_behind_is_said_with_both_rates():
    sure = Measured(0.05, "1", 0.04, 0.06, 100)
    (told,) = behind(THREE, sure, 105.0)
    assert re.search(r"arrivals 105/s .*service 100/s: .* 50 ms ", told)
    assert behind(THREE, Measured(0.05, "1", n=100), 105.0) == []  # it may be chance
    assert behind(THREE, replace(sure, value=GROWTH * 0.99), 105.0) == []
    assert len(behind(THREE, replace(sure, value=GROWTH), 105.0)) == 1
    assert behind(THREE, Absent("few"), 105.0) == []
    dropped = rows([0, 10], [0, -1], [5, -1], status=[0, QUERY_DROPPED])
    assert behind(dropped, sure, 105.0)[1:] == ["1 of 2 queries still waited when the run had to end"]


def test_the_rows_that_count_come_in_the_order_in_which_they_fell_due():
    mixed = rows([20, 0, 10], [20, 0, 10], [29, 9, 19])
    run = result(queries=mixed, window=Window(0, 3, 0, 30 * MS))
    assert list(measured_rows(run).columns["scheduled_ns"] // MS) == [0, 10, 20]
    assert len(measured_rows(replace(run, window=Window(1, 3, 0, 30 * MS)))) == 2


def test_of_a_crew_what_fell_due_from_the_start_to_before_the_stop_counts_and_no_models_beside():
    due = [9, 10, 20, 29, 30, 15]
    table = rows(due, due, [d + 50 for d in due], worker=[0, 0, 1, 1, 1, 2])
    crew = tuple(Worker(number=n, model="null", pid=n) for n in range(3))
    run = result(
        Trial(model="null", processes=2), queries=table, window=Window(2, 3, 10 * MS, 30 * MS), workers=crew
    )
    assert list(measured_rows(run).columns["scheduled_ns"] // MS) == [10, 20, 29]
    late = replace(run, window=Window(2, 3, 90 * MS, 99 * MS))  # nothing fell due in it: its own rows
    assert list(measured_rows(late).columns["scheduled_ns"] // MS) == [20]


def test_a_query_that_was_dropped_is_answered_by_nobody_and_keeps_nobody_busy():
    status = [QUERY_OK, QUERY_OK, QUERY_DROPPED, QUERY_OK]
    four = rows([0, 10, 20, 30], [0, 20, -1, 35], [20, 30, -1, 50], status=status)
    assert achieved(four) == Measured(pytest.approx(3 / 0.050), "queries/s", n=3)
    assert busy(four, 1) == Measured(pytest.approx((20 + 10 + 15) / 50), "share", n=4)
    assert busy(four, 3).value == pytest.approx(45 / 150)


@pytest.mark.parametrize(("served", "late"), [(10.0, False), (9.0, True), (5.0, True), (20.0, False)])
def test_a_load_that_falls_behind_says_what_was_served(served, late):
    due = np.arange(400) / 10
    done = np.maximum.accumulate(np.maximum(due + 0.01, np.arange(1, 401) / served))
    table = rows(due * 1000, (done - 0.005) * 1000, done * 1000)
    said = behind(table, queue_growth(table), 10.0)
    assert len(said) == late and all(f"service {served:.4g}/s" in one for one in said)


def test_what_was_dropped_is_behind_only_where_it_still_waited_or_may_not_be():
    status = [QUERY_OK, QUERY_DROPPED, QUERY_DROPPED, QUERY_DROPPED]
    dropped = rows([0, 10, 20, 30], [5, 10, 20, -1], [10, 20, 25, -1], status=status)
    assert [x.split()[0] for x in behind(dropped, Absent("x"), 1.0)] == ["1", "2"]
    assert [x.split()[0] for x in behind(dropped, Absent("x"), 1.0, may_drop=True)] == ["1"]
    for growth, lo, said in ((GROWTH, 0.0, 1), (0.99 * GROWTH, 0.0, 0), (0.5, None, 0)):
        assert len(behind(rows([], [], []), Measured(growth, "1", lo, 1.0), 1.0)) == said
