"""Scenarios and plans in fake time: no sleeping, exact expectations."""

import threading

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.records import QUERY_DROPPED, QUERY_ERROR
from edgescope.scenarios import FixedRate, Offline, SingleStream
from edgescope.scenarios.query_log import Log
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.blocking import Failures, Inline, Pool
from fake_time import MS, FakeClock, drive, trial


def test_single_stream_measures_each_service_time():
    queries, plan = drive(SingleStream, trial(), lambda q: 5 * MS)
    assert len(queries) == 201  # the last one is issued at 1.000 s
    assert set(queries.latency_ns()) == {5 * MS}
    assert plan.window.stop - plan.window.first == 201
    assert plan.window.stop_ns - plan.window.start_ns == 1_005 * MS


def test_a_warm_up_ends_once_latencies_settle_and_stays_in_the_raw_rows():
    slow_start = lambda q: (50 if q < 20 else 5) * MS  # noqa: E731
    queries, plan = drive(SingleStream, trial(warmup=None), slow_start)
    assert plan.window.first >= 20
    assert plan.settled
    assert set(queries.rows(plan.window).latency_ns()) == {5 * MS}
    assert queries.latency_ns()[0] == 50 * MS


def test_a_warm_up_that_never_settles_is_cut_off_and_says_so():
    _, plan = drive(SingleStream, trial(warmup=None), lambda q: (q + 1) * MS)
    assert not plan.settled


def test_the_stop_rule_stops_early_when_the_mean_is_known_and_at_the_latest_at_max():
    rng = np.random.default_rng(0)
    noise = rng.normal(5, 0.1, 100_000)
    _, plan = drive(SingleStream, trial(min_s=0.5, max_s=60), lambda q: int(noise[q] * MS))
    assert plan.stopped_by == "rel_width"
    wild = rng.lognormal(0, 2, 100_000)
    _, plan = drive(SingleStream, trial(min_s=0.5, max_s=3), lambda q: int(wild[q] * MS))
    assert plan.stopped_by == "max_s"


def test_max_queries_is_exact():
    queries, plan = drive(SingleStream, trial(max_queries=137, max_s=1e6), lambda q: MS)
    assert plan.window.stop - plan.window.first == 137 == len(queries)


def test_fixed_rate_charges_a_stall_to_every_query_it_delayed():
    stall = lambda q: (100 if q == 10 else 1) * MS  # noqa: E731
    queries, plan = drive(FixedRate, trial(scenario="fixed_rate", rate=100.0), stall)
    latency = queries.rows(plan.window).latency_ns() / MS
    assert latency[9] == 1
    assert latency[10] == 100
    assert latency[11] == pytest.approx(91)  # was due 10 ms after the stalled one, served 90 ms late
    assert latency[12] == pytest.approx(82)
    issued = queries.columns["issued_ns"] - queries.columns["scheduled_ns"]
    assert issued[11] == 90 * MS  # from the issue time alone it would look like 1 ms
    assert latency[-1] == 1


def test_fixed_rate_below_capacity_keeps_its_schedule():
    queries, plan = drive(FixedRate, trial(scenario="fixed_rate", rate=50.0), lambda q: 3 * MS)
    rows = queries.rows(plan.window)
    assert set(np.diff(rows.columns["scheduled_ns"])) == {20 * MS}
    assert set(rows.latency_ns()) == {3 * MS}


def test_fixed_rate_needs_a_rate():
    with pytest.raises(UsageError, match="--rate"):
        FixedRate(trial(scenario="fixed_rate"), Plan(trial()))


def test_offline_has_everything_there_at_the_start():
    queries, plan = drive(Offline, trial(scenario="offline", warmup=0.1, max_s=10), lambda q: 2 * MS)
    rows = queries.rows(plan.window)
    assert len(rows) == 500  # what the warm-up's speed says lasts min_s
    assert len(set(rows.columns["scheduled_ns"])) == 1
    assert rows.latency_ns()[-1] == 1_000 * MS


def test_several_in_flight_overlap_and_none_is_lost():
    from edgescope.clock import MonotonicClock

    both = threading.Barrier(2, timeout=5)
    failures = Failures()
    work = Pool(lambda q: both.wait(), failures, 2)  # passes only if two run at once
    t = trial(in_flight=2, max_queries=40, max_s=30)
    plan = Plan(t)
    queries = SingleStream(t, plan).drive(work, MonotonicClock())
    work.close()
    assert len(queries) == 40
    assert failures.first == ""
    assert (queries.columns["done_ns"] >= queries.columns["issued_ns"]).all()


def test_a_query_that_raises_is_recorded_and_the_others_go_on():
    def call(query_id):
        if query_id == 3:
            raise ValueError("no")

    failures = Failures()
    clock = FakeClock()
    t = trial(max_queries=10, max_s=30)
    queries = SingleStream(t, Plan(t)).drive(Inline(call, failures), clock)
    assert len(queries) == 10
    assert queries.columns["status"][3] == QUERY_ERROR
    assert len(queries.latency_ns()) == 9
    assert failures.first == "ValueError: no"


def test_fixed_rate_judges_its_precision_by_the_latency_it_reports():
    # 100 arrivals/s, 20 ms each: service times are constant, the queue and so the latency grow without end.
    _, plan = drive(FixedRate, trial(scenario="fixed_rate", rate=100.0, min_s=1, max_s=6), lambda q: 20 * MS)
    assert plan.stopped_by == "max_s"


def test_fixed_rate_offers_nothing_that_is_due_after_the_longest_time():
    queries, plan = drive(FixedRate, trial(scenario="fixed_rate", rate=0.4, max_s=6, min_s=6), lambda q: MS)
    assert len(queries) == 3  # due at 0, 2.5 and 5 s; the next would be at 7.5 s
    assert plan.window.stop_ns - plan.window.start_ns <= 6_000 * MS


def test_the_rows_of_one_process_are_worker_0s():
    queries, _ = drive(SingleStream, trial(), lambda q: 5 * MS)
    assert set(queries.columns["worker"]) == {0} and set(queries.columns["source_ns"]) == {-1}


def test_a_row_that_was_never_issued_says_so():
    log = Log(1, FakeClock())
    log.drop()
    columns = log.queries(4).columns
    assert (columns["issued_ns"][0], columns["done_ns"][0]) == (-1, -1)
    assert columns["status"][0] == QUERY_DROPPED and columns["samples"][0] == 4
