"""Scenarios and plans in fake time: no sleeping, exact expectations."""

import threading

import numpy as np
import pytest

from edgescope.errors import UsageError
from edgescope.records import QUERY_DROPPED, QUERY_DTYPES, QUERY_END, QUERY_ERROR, Window
from edgescope.scenarios import FixedRate, Offline, SingleStream
from edgescope.scenarios.closed import Split, typical_s
from edgescope.scenarios.query_log import ROWS, Log, closed
from edgescope.scenarios.stop_rule import FOREVER, INPUT_ENDED, Plan
from edgescope.workloads.base import EndOfInput
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


def logged(*rows, slots=1):
    """A log of rows (issued, done, status); done -1: it goes on."""
    clock = FakeClock()
    log = Log(slots, clock)
    for issued, done, status in rows:
        number = log.add(issued)
        if done >= 0:
            clock.t = done
            log.done(number, status)
    return log


def test_service_times_are_of_what_was_served_from_a_row_on():
    log = logged(
        (0, 10, 0), (5, 25, QUERY_ERROR), (30, -1, 0), (40, 70, QUERY_DROPPED), (0, 0, 0), (50, 90, 0)
    )
    assert log.latencies(0).tolist() == [10, 20, 0, 40]
    assert log.latencies(1).tolist() == [20, 0, 40] and log.latencies(5).tolist() == [40]
    assert log.latencies(6).tolist() == []


@pytest.mark.parametrize(
    ("latencies", "typical"), [([], 1e-3), ([7], 7e-9), ([900, 1, 3], 2e-9), ([900, 900, 5, 1], 3e-9)]
)
def test_the_usual_service_time_is_the_median_of_the_later_half(latencies, typical):
    assert typical_s(logged(*((0, ns, 0) for ns in latencies))) == pytest.approx(typical)


def test_what_a_row_says_of_itself_is_in_its_columns():
    log = logged((0, 1, 0), (0, 2, 0), (0, 3, 0))
    log.done(0, 0, 5, 0)
    log.done(2, 0, 0, 77)
    log.schedule, log.streams = (1, np.array([8, 9])), (2, np.array([3], np.int16))
    found = {name: column.tolist() for name, column in log.queries(4).columns.items()}
    assert found["samples"] == [5, 4, 4] and found["source_ns"] == [0, -1, 77]
    assert found["scheduled_ns"] == [-1, 8, 9] and found["stream"] == [0, 0, 3]
    assert found["query_id"] == [0, 1, 2] and found["worker"] == [0] * 3


def test_a_mark_is_a_column_and_unknown_in_rows_that_did_not_reach_it():
    log = logged((0, 1, 0), (0, 2, 0), (0, 3, 0), (0, 4, 0))
    log.done(2, 0, 0, -1, {"first_token": 30, "b": 0})
    log.done(0, 0, 0, -1, {"first_token": 10})
    log.done(1, QUERY_END, 0, -1, {"first_token": 99})
    found = log.queries(4)
    assert {name: column.tolist() for name, column in found.marks.items()} == {
        "first_token": [10, 30, -1],
        "b": [-1, 0, -1],
    }
    assert {column.dtype for column in found.marks.values()} == {np.dtype(np.int64)}
    assert [*found.columns] == [*QUERY_DTYPES, "mark_first_token_ns", "mark_b_ns"]
    assert logged((0, 1, 0)).queries(1).marks == {}


def test_every_slot_is_free_again_once_the_log_is_drained():
    log = Log(3, FakeClock())
    log.free.get()
    log.free.get()
    flushed = []

    class Work:
        def flush(self):
            flushed.append(log.free.qsize())
            log.free.put(None)
            log.free.put(None)

    log.drain(Work())
    assert (log.free.qsize(), flushed, log.turns) == (3, [1], 1)


@pytest.mark.parametrize(
    ("sources", "oldest"),
    [((5, 3, 4), 3), ((-1, -1, -1), -1), ((-1, 0, 7), 0), ((0, -1, -1), 0), ((4, -1, 2), 2)],
)
@pytest.mark.parametrize("samples", [(0, 0, 0), (1, 0, 3)])
def test_a_split_query_is_as_old_as_its_oldest_part_and_as_bad_as_its_worst(sources, oldest, samples):
    told, parts = [], []

    class Work:
        flush = None

        def issue(self, number, held, done):
            parts.append((number, held, done))

    Split(Work(), 3).issue(4, 6, lambda *what: told.append(what))
    assert [(number, held) for number, held, _ in parts] == [(12, 2), (13, 2), (14, 2)]
    for status, held, source, (number, _, done) in zip((0, 4, 1), samples, sources, parts, strict=True):
        assert not told
        done(number, status, held, source)
    assert told == [(4, 4, 6, oldest, {})]


@pytest.mark.parametrize(
    ("in_flight", "min_s", "service_ms", "pile"),
    [
        (1, 1.0, 10, 100),
        (3, 1.0, 10, 300),
        (1, 0.0, 10, 1),
        (1, 0.0, 0.1, 10),
        (1, 0.0005, 0.1, 10),
        (2, 1.0, 0, 20_000_000),
    ],
)
def test_a_pile_lasts_as_long_as_the_shortest_run(in_flight, min_s, service_ms, pile):
    asked = trial(scenario="offline", in_flight=in_flight, min_s=min_s, max_s=9.0)
    assert Offline(asked, Plan(asked))._pile(logged((0, round(service_ms * MS), 0))) == pile


def begun(at_ns=50 * MS, row=7, whole=False, pile=None, **keys):
    plan = Plan(trial(**keys)).measuring()
    plan.whole, plan.pile = whole, pile
    plan.begin(row, at_ns)
    return plan


S = 1000 * MS


@pytest.mark.parametrize(
    ("keys", "limit", "check_ns"),
    [
        ({"min_s": 2.0, "max_s": 9.0}, 7 + FOREVER, 2 * S),
        ({"min_s": 2.0, "max_s": 9.0, "whole": True}, 7 + FOREVER, 9 * S),
        ({"max_queries": 30, "min_s": 2.0, "max_s": 9.0}, 37, 9 * S),
        ({"pile": 20, "min_s": 2.0, "max_s": 9.0}, 27, 9 * S),
        ({"pile": 20, "max_queries": 30, "min_s": 2.0, "max_s": 9.0}, 27, 9 * S),
    ],
)
def test_a_phase_ends_at_its_time_or_its_number(keys, limit, check_ns):
    plan = begun(**keys)
    assert plan.limit == limit and plan.check_ns == 50 * MS + check_ns
    assert (plan.start_ns, plan.deadline_ns) == (50 * MS, 50 * MS + 9 * S)
    even = np.full(500, MS)
    if limit < FOREVER:
        assert not plan.goes_on(60 * MS, limit, None) and plan.stopped_by == "all queries done"
        assert plan.goes_on(60 * MS, limit - 1, lambda row: even)
    at = plan.check_ns
    assert plan.goes_on(at - 1, 9, lambda row: even) and plan.stopped_by == ""
    assert not plan.goes_on(at, 9, lambda row: even)
    assert plan.stopped_by == ("rel_width" if at == 2 * S + 50 * MS else "max_s")


@pytest.mark.parametrize(
    ("warmup", "check_ns", "limit"), [(None, 50 * MS, FOREVER), (0.5, 500 * MS, FOREVER), (0, 0, 7)]
)
def test_a_warm_up_is_looked_at_after_its_time_or_soon(warmup, check_ns, limit):
    plan = Plan(trial(warmup=warmup)).warming()
    plan.begin(7, 10 * MS)
    assert (plan.check_ns, plan.limit) == (10 * MS + check_ns, limit)


def test_a_warm_up_goes_on_for_ten_seconds_at_most_and_is_looked_at_less_and_less():
    plan = Plan(trial(warmup=None)).warming()
    plan.begin(7, 10 * MS)
    rows = []

    def rising(row):
        rows.append(row)
        return np.arange(1, 400) * MS

    for elapsed_ns in (50 * MS, 65 * MS, 10 * S - 1):
        assert plan.goes_on(10 * MS + elapsed_ns, 99, rising) and plan.settled
        assert plan.check_ns == 10 * MS + round(elapsed_ns * 1.3)
    assert not plan.goes_on(10 * MS + 10 * S, 99, rising) and not plan.settled
    assert rows == [7] * 4
    asked = Plan(trial(warmup=0.5)).warming()
    asked.begin(0, 0)
    assert not asked.goes_on(1, 0, rising) and asked.settled


@pytest.mark.parametrize(("n", "settled"), [(29, False), (30, True)])
def test_thirty_queries_are_the_shortest_warm_up(n, settled):
    plan = Plan(trial(warmup=None)).warming()
    plan.begin(0, 0)
    assert plan.goes_on(60 * MS, n, lambda row: np.full(n, MS)) is not settled


def test_the_window_is_told_and_both_edges_are_marked():
    edges = []
    plan = Plan(trial())
    plan.edge = lambda: edges.append(1)
    plan.warming().begin(0, 0)
    assert not edges
    plan.measuring().begin(3, 5)
    plan.end(8, 20)
    assert len(edges) == 2 and plan.window == Window(3, 8, 5, 20)
    assert Plan(trial()).window == Window(0, 0, 0, 0)
    fresh = Plan(trial())
    assert (fresh.whole, fresh.phase, fresh.settled, fresh.check_ns, fresh.pile) == (
        False,
        0.0,
        True,
        0,
        None,
    )


def test_a_closed_loop_ends_between_two_queries_at_its_time():
    """A query is issued as long as its predecessor was before the time; its own moment is what is compared."""
    queries, plan = drive(SingleStream, trial(min_s=0.1, max_s=0.1), lambda q: 50 * MS)
    assert queries.columns["issued_ns"].tolist() == [0, 50 * MS, 100 * MS] and plan.window.stop_ns == 150 * MS
    warm, plan = drive(SingleStream, trial(warmup=0.1, min_s=0.1, max_s=0.1), lambda q: 40 * MS)
    assert plan.window.first == 4 and plan.window.start_ns == 160 * MS and len(warm) == 8


def test_parts_that_tell_nothing_of_their_input_leave_its_age_unknown_and_samples_are_whole():
    told, given = [], []

    class Work:
        flush = None

        def issue(self, number, samples, done):
            given.append(samples)
            done(number, 0)

    Split(Work(), 2).issue(0, 6, lambda *what: told.append(what))
    assert told == [(0, 0, 6, -1, {})] and [type(each) for each in (*given, told[0][2])] == [int] * 3


@pytest.mark.parametrize("count", [1, ROWS - 1, ROWS, ROWS + 1, 2 * ROWS + 3])
def test_a_closed_loop_leaves_as_many_ends_as_queries_and_the_next_row_follows(count):
    log, clock = Log(1, FakeClock()), FakeClock()

    class Fails:
        def issue(self, query_id, samples, done):
            clock.t += 3
            done(query_id, QUERY_ERROR if query_id % 2 else 0)

        def flush(self):
            pass

    log.done = log._recorder(clock.now)
    closed(log, Fails(), clock, Plan(trial(max_queries=count)).measuring(), 1)
    assert len(log.finished) == len(log.status) == len(log.issued) == count
    assert log.latencies(0).tolist() == [3] * count
    assert log.status.tolist() == [QUERY_ERROR * (n % 2) for n in range(count)]
    assert log.add(7) == count and (log.finished[count], log.status[count]) == (-1, 0)


def test_what_is_under_way_has_no_end_and_two_cameras_take_turns():
    log, seen = Log(1, FakeClock()), []

    class Cameras:
        streams = 2

        def issue(self, query_id, samples, done):
            seen.append(log.finished[query_id])
            done(query_id, QUERY_END if query_id == 2 else 0)
            if query_id == 2:
                raise EndOfInput

        def flush(self):
            pass

    assert log.turns == 1 and log.queries(1).columns["stream"].tolist() == []
    plan = Plan(trial(max_queries=9)).measuring()
    closed(log, Cameras(), FakeClock(), plan, 1)
    assert seen == [-1, -1, -1] and len(log) == 2 and plan.stopped_by == INPUT_ENDED
    assert log.queries(1).columns["stream"].tolist() == [0, 1]
    with pytest.raises(UsageError, match="E-WORK-3"):
        Plan(trial()).input_ended()  # as before any phase


def test_a_split_query_begins_a_part_with_its_first_and_reaches_a_mark_with_its_last():
    told, parts = [], []

    class Work:
        flush = None

        def issue(self, number, held, done):
            parts.append((number, done))

    Split(Work(), 3).issue(0, 6, lambda *what: told.append(what[-1]))
    for (number, done), marks in zip(
        parts,
        ({"a_begin": 5, "a_end": 9, "first": 6}, {"a_begin": 3, "a_end": 7, "first": 8}, None),
        strict=True,
    ):
        done(number, 0, 2, -1, marks)
    assert told == [{"a_begin": 3, "a_end": 9, "first": 8}]
