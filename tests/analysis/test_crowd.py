"""Numbers of several workers, from rows made by hand: what counts, how evenly, and how far two accounts are apart."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.analysis.run import workers as crowd
from edgescope.analysis.run.workers import Rows
from edgescope.records import QUERY_ERROR, QUERY_OK, Absent, Measured, Trial, Worker

MS = 1_000_000
TRIAL = Trial(model="null", backend="null", processes=2)


def rows(issued, took, *, first=0, batch=1, status=None, ran_on=True) -> Rows:
    """A worker's rows from times of issue and durations in milliseconds."""
    issued = np.asarray(issued, dtype=np.int64) * MS
    n = len(issued)
    return Rows(
        {
            "query_id": np.arange(n, dtype=np.int64),
            "worker": np.zeros(n, np.int16),
            "stream": np.zeros(n, np.int16),
            "source_ns": np.full(n, -1, np.int64),
            "scheduled_ns": np.full(n, -1, np.int64),
            "issued_ns": issued,
            "done_ns": issued + np.asarray(took, dtype=np.int64) * MS,
            "samples": np.full(n, batch, np.int32),
            "status": np.asarray(status or [QUERY_OK] * n, np.int8),
        },
        first,
        n,
        ran_on,
    )


def workers(table):
    return [
        Worker(number=n, model="null", pid=n, start_ns=r.ends()[0], stop_ns=r.ends()[1])
        for n, r in enumerate(table)
    ]


def measured(table, start_ms, stop_ms, trial=TRIAL):
    span = crowd.window_of(table[: trial.processes], start_ms * MS, stop_ms * MS)
    queries, window = crowd.joined(table, trial.processes, *span)
    return crowd.worker_metrics(trial, queries, window, workers(table)), queries, window


def test_the_window_is_from_the_latest_start_to_the_earliest_stop():
    late, short = rows([13, 20, 30], 10), rows([10, 20], 10, ran_on=False)
    assert crowd.window_of([late, short], 10 * MS, 100 * MS) == (13 * MS, 30 * MS)
    assert crowd.window_of([late], 10 * MS, 100 * MS) == (13 * MS, 100 * MS)


def test_a_clock_may_begin_at_the_first_query():
    assert rows([0], 0).ends() == (0, 0) and rows([0], 10, first=1).ends() == (-1, -1)
    assert crowd.window_of([rows([0], 0, ran_on=False)], -5 * MS, 100 * MS) == (0, 0)
    assert crowd.window_of([rows([5], 5, first=1, ran_on=False)], 10 * MS, 100 * MS) == (10 * MS, 100 * MS)


def test_only_what_was_done_within_the_window_counts_and_warm_up_does_not():
    a = rows([0, 10, 20, 30, 40], 10, first=1)  # one of warm-up; done at 20, 30, 40, 50
    b = rows([0, 10, 30], [5, 20, 30], first=1)  # done at 30, 60
    found, queries, window = measured([a, b], 10, 50)
    assert found["throughput_sps"].value == pytest.approx(5 / 0.040)
    assert found["throughput_per_process_sps"].value == pytest.approx(2.5 / 0.040)
    assert found["fairness"].value == pytest.approx((4 + 1) ** 2 / (2 * (16 + 1)))
    assert window.stop - window.first == 5 and len(queries) == 8
    assert len(crowd.of_worker(queries, 1, window)) == 1
    assert found["stop_skew_s"].value == pytest.approx(0.010) and found["start_skew_s"].value == 0


def test_errors_count_but_not_as_throughput():
    found, *_ = measured([rows([10, 20], 10, status=[QUERY_OK, QUERY_ERROR]), rows([10, 20], 10)], 10, 50)
    assert found["errors"].value == 1 and found["throughput_sps"].n == 3


def test_what_runs_beside_stands_apart_after_the_window():
    own, other = rows(range(10, 50, 2), 2), rows(range(10, 50, 4), 4, batch=8)
    found, queries, window = measured([own, rows(range(10, 50, 2), 2), other], 10, 50)
    assert set(queries.columns["worker"][window.first : window.stop]) == {0, 1}
    assert set(queries.columns["worker"][window.stop :]) == {2}
    assert found["colocated_throughput_sps"].value == pytest.approx(10 * 8 / 0.040)
    assert found["throughput_sps"].value == pytest.approx(40 / 0.040)
    assert isinstance(found["colocated_latency_p99_s"], Absent)


def test_the_worst_workers_tail_needs_every_tail():
    few, many = rows([10, 20], 10), rows(range(200), 1)
    assert isinstance(measured([many, few], 0, 210)[0]["latency_p99_worst_worker_s"], Absent)
    slow = rows(range(0, 400, 2), 2)
    worst = measured([many, slow], 0, 400)[0]["latency_p99_worst_worker_s"]
    assert worst.value == pytest.approx(0.002)


def test_fairness_of_one_that_got_everything_and_of_nothing():
    some, nothing = Measured(8.0, "samples/s"), Absent("no query succeeded in the window")
    assert crowd.jain([some, nothing, nothing, nothing]).value == pytest.approx(0.25)
    assert isinstance(crowd.jain([nothing]), Absent)


def test_a_worker_that_issued_nothing_has_no_skew():
    assert isinstance(crowd.skew([5, -1]), Absent)


@settings(max_examples=40, deadline=None)
@given(
    starts=st.lists(st.integers(0, 60), min_size=1, max_size=40).map(sorted),
    lost=st.integers(-3, 3),
    look=st.tuples(st.integers(0, 20), st.integers(30, 70)),
)
def test_the_counter_agrees_with_the_rows_unless_it_lost_some(starts, lost, look):
    mine = rows(starts, 1)
    done = mine.columns["done_ns"]
    a, b = (int((done <= t * MS).sum()) for t in look)
    looks = tuple((t * MS, t * MS) for t in look)
    assert crowd.counter_gap(mine, (a, b + lost), looks) == abs(lost)


def test_a_look_that_took_time_may_have_seen_any_moment_in_it():
    mine = rows(range(10), 1, batch=4)
    looks = ((0, 0), (5 * MS, 8 * MS))
    assert [crowd.counter_gap(mine, (0, n), looks) for n in (16, 20, 32, 36, 22)] == [1, 0, 0, 1, 0]


def test_a_piled_worker_has_its_own_figures_though_its_schedule_lies_before_the_window():
    table = [rows(range(10, 50, 2), 2), rows(range(11, 50, 2), 2)]
    for worker in table:
        worker.columns["scheduled_ns"][:] = 9 * MS
    found, queries, window = measured(table, 10, 50, replace(TRIAL, scenario="offline"))
    each = [len(crowd.of_worker(queries, n, window)) for n in (0, 1)]
    assert each == [20, 19] and found["fairness"].value > 0.99


def test_warnings_name_the_skew_the_gap_and_the_coarse():
    said = crowd.warnings(
        TRIAL,
        {"start_skew_s": Measured(0.004, "s"), "counter_gap_queries": Measured(3, "queries")},
        [5, 900],
        2,
    )
    assert [w.code for w in said] == ["W-WORKER-1", "W-WORKER-3", "W-WORKER-4"]
    assert "4.0 ms" in str(said[0]) and "by 20%" in str(said[2])
    assert crowd.warnings(TRIAL, {"start_skew_s": Measured(0.0009, "s")}, [50], 2) == ()
    cameras = replace(TRIAL, scenario="fixed_rate", rate=15.0)
    assert crowd.warnings(cameras, {"start_skew_s": Measured(0.04, "s")}, [50], 2) == ()  # their phases


def test_swapping_the_workers_swaps_their_shares_and_nothing_else():
    a, b = rows(range(10, 610, 5), 2), rows(range(12, 1212, 10), 6)
    here, *_ = measured([a, b], 10, 700)
    there, *_ = measured([b, a], 10, 700)
    assert here == there


def test_shifting_all_times_changes_no_figure():
    def shifted(by):
        return measured(
            [rows(np.arange(10, 90, 3) + by, 2), rows(np.arange(12, 80, 7) + by, 6)], 10 + by, 100 + by
        )[0]

    found, moved = shifted(0), shifted(10_000)
    for name, field in found.items():
        if isinstance(field, Measured):
            assert moved[name].value == pytest.approx(field.value), name


def test_the_skew_is_from_the_first_to_the_last_and_needs_all():
    assert crowd.skew([0, 3 * MS, 2 * MS]) == Measured(0.003, "s", n=3)
    assert crowd.skew([5]) == Measured(0.0, "s", n=1)
    for lacking in ([5, -1], []):
        assert crowd.skew(lacking) == Absent("a worker issued no query")


def test_one_delayed_query_is_in_the_tail_of_the_window_it_fell_due_in():
    late = rows([10, 20, 30], [5, 5, 500])
    found, queries, window = measured([late, rows(range(10, 60, 10), 5)], 10, 100)
    assert found["latency_max_s"].value == pytest.approx(0.5)
    assert len(crowd.of_worker(queries, 0, window)) == 2  # and counts as done only where it is


@pytest.mark.parametrize(
    ("skew_s", "gap", "each", "codes"),
    [
        (0.001, 1.0, [20, 20], []),
        (0.0011, 1.0, [20, 20], ["W-WORKER-1"]),
        (0.001, 1.1, [20, 20], ["W-WORKER-3"]),
        (0.001, 1.0, [20, 19], ["W-WORKER-4"]),
        (0.1, 9.0, [0, 19], ["W-WORKER-1", "W-WORKER-3", "W-WORKER-4"]),
        (0.001, 1.0, [], []),
    ],
)
def test_what_is_warned_of_a_crew(skew_s, gap, each, codes):
    found = {"start_skew_s": Measured(skew_s, "s"), "counter_gap_queries": Measured(gap, "queries")}
    assert [text.code for text in crowd.warnings(TRIAL, found, each, 4)] == codes
    open_loop = replace(TRIAL, scenario="server", rate=5.0)
    assert "W-WORKER-1" not in [text.code for text in crowd.warnings(open_loop, found, each, 4)]


def test_more_workers_than_cores_need_no_quieter_machine():
    found = {"start_skew_s": Measured(0.5, "s")}
    (crammed,) = crowd.warnings(TRIAL, found, [99], 1)
    (spread,) = crowd.warnings(TRIAL, found, [99], 2)
    assert "without other work" not in str(crammed) and "without other work" in str(spread)
    (coarse,) = crowd.warnings(TRIAL, {}, [8], 2)
    assert "only 8 queries" in str(coarse) and "by 12%" in str(coarse)


def test_a_worker_ran_on_unless_it_is_said_otherwise():
    assert Rows({"samples": np.array([2, 2])}, 0, 2).ran_on
