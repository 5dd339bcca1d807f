"""Several queries at once in fake time: twice as many slots, the same work."""

import numpy as np
import pytest

from edgescope.analysis.run import summary
from edgescope.scenarios import Burst, FixedRate, Offline, Server, SingleStream
from fake_time import MS, drive_servers, trial


def test_twice_as_many_in_flight_answer_twice_as_many_at_the_same_latency():
    said = []
    for in_flight in (1, 2, 4):
        t = trial(scenario="single_stream", in_flight=in_flight, max_s=2.0, min_s=2.0)
        queries, plan = drive_servers(SingleStream, t, lambda q: 10 * MS)
        assert set(queries.latency_ns()) == {10 * MS}
        said.append(summary.throughput(queries, plan.window).value)
    assert said == [pytest.approx(100, rel=0.01), pytest.approx(200, rel=0.01), pytest.approx(400, rel=0.01)]


def test_a_pile_lasts_as_long_whatever_the_slots_because_it_is_sized_for_them():
    for in_flight in (1, 2, 4):
        t = trial(scenario="offline", in_flight=in_flight, warmup=0.1, min_s=1.0, max_s=9.0)
        queries, plan = drive_servers(Offline, t, lambda q: 10 * MS)
        rows = queries.rows(plan.window)
        assert len(rows) == 100 * in_flight
        assert plan.window.stop_ns - plan.window.start_ns == 1000 * MS
        assert set(rows.columns["scheduled_ns"]) == {plan.start_ns}


def test_a_pile_of_stated_size_is_that_size_and_without_a_warm_up_a_millisecond_is_assumed():
    t = trial(scenario="offline", in_flight=2, max_queries=7, max_s=9.0)
    queries, plan = drive_servers(Offline, t, lambda q: 10 * MS)
    assert len(queries.rows(plan.window)) == 7
    assert plan.window.stop_ns - plan.window.start_ns == 40 * MS
    blind = trial(scenario="offline", in_flight=2, min_s=0.05, max_s=9.0)
    queries, plan = drive_servers(Offline, blind, lambda q: MS)
    assert len(queries.rows(plan.window)) == 2 * 50


def one_by_one(due, service, slots):
    free, out = [0] * slots, []
    for t, s in zip(due, service, strict=True):
        first = min(range(slots), key=lambda k: free[k])
        free[first] = max(free[first], t) + s
        out.append(free[first])
    return out


@pytest.mark.parametrize("slots", [1, 2, 3])
@pytest.mark.parametrize(
    ("scenario", "name"), [(Server, "server"), (FixedRate, "fixed_rate"), (Burst, "burst")]
)
def test_every_query_ends_when_a_queue_told_event_by_event_says(scenario, name, slots):
    options = {"burst_size": 5} if name == "burst" else {}
    t = trial(scenario=name, rate=80.0 * slots, in_flight=slots, max_s=3.0, scenario_options=options)

    def service(q):
        return (5 + 7 * (q % 3)) * MS

    queries, plan = drive_servers(scenario, t, service)
    c = queries.rows(plan.window).columns
    due = [int(x) for x in c["scheduled_ns"]]
    assert list(c["done_ns"]) == one_by_one(due, [service(q) for q in range(len(due))], slots)
    assert (c["issued_ns"] >= c["scheduled_ns"]).all() and len(due) > 100


def test_delaying_one_query_ends_nothing_sooner_and_what_was_due_before_it_as_it_did():
    t = trial(scenario="server", rate=150.0, in_flight=2, max_s=3.0)

    def ends(slow):
        queries, plan = drive_servers(Server, t, lambda q: (300 if q == slow else 8) * MS)
        return queries.rows(plan.window).columns["done_ns"]

    even, late = ends(None), ends(100)
    assert np.array_equal(even[:100], late[:100])
    assert (late[100:] >= even[100:]).all() and late[100] - even[100] == 292 * MS
    assert np.count_nonzero(late[101:] > even[101:]) > 10


def test_rows_of_cameras_in_turn_name_their_camera_also_behind_rows_that_do_not_count():
    from edgescope.clock import MonotonicClock
    from edgescope.records import QUERY_END
    from edgescope.scenarios.query_log import Log

    class Cameras:
        streams = 3

        def flush(self):
            pass

    log = Log(1, MonotonicClock())
    for number in range(8):
        log.done(log.add(number), QUERY_END if number == 4 else 0)
        log.free.get()
    log.drain(Cameras())
    assert log.queries(1).columns["stream"].tolist() == [0, 1, 2, 0, 2, 0, 1]
