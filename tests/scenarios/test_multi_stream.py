"""One query of N samples, the next when all of them are done."""

import threading
import time

from edgescope.clock import MonotonicClock
from edgescope.records import QUERY_ERROR
from edgescope.scenarios import MultiStream
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.blocking import Failures, Inline, Pool
from fake_time import MS, FakeClock, drive, trial


def test_a_query_has_in_flight_times_batch_samples_and_its_latency_is_that_of_all():
    t = trial(scenario="multi_stream", batch=2, in_flight=4, max_queries=10, max_s=9.0)
    queries, _plan = drive(MultiStream, t, lambda q: 3 * MS)  # one engine: four calls after another
    assert len(queries) == 10
    assert set(queries.columns["samples"]) == {8}
    assert set(queries.latency_ns()) == {12 * MS}


def test_the_parts_of_a_query_run_side_by_side_and_the_next_waits_for_the_last():
    running, most, overlaps = 0, 0, []
    lock, together = threading.Lock(), threading.Barrier(3, timeout=10)

    def call(query_id):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            overlaps.append(query_id // 3)
        together.wait()  # passes only when all three parts of a query are there
        time.sleep(0.001 * (query_id % 3))
        with lock:
            running -= 1

    work = Pool(call, Failures(), 3)
    t = trial(scenario="multi_stream", in_flight=3, max_queries=20, max_s=60.0)
    queries = MultiStream(t, Plan(t)).drive(work, MonotonicClock())
    work.close()
    assert most == 3
    assert overlaps == sorted(overlaps)  # no part of a query begins before the last of the one before
    c = queries.columns
    assert (c["issued_ns"][1:] >= c["done_ns"][:-1]).all()
    assert (queries.latency_ns() >= 2 * MS).all()


def test_a_query_holds_the_samples_that_its_parts_say_and_the_usual_number_of_the_others():
    t = trial(scenario="multi_stream", batch=4, in_flight=3, max_queries=2, max_s=9.0)
    work = Inline(lambda query_id: 1 if query_id == 5 else None, Failures())
    assert list(MultiStream(t, Plan(t)).drive(work, FakeClock()).columns["samples"]) == [12, 9]


def test_one_failed_part_fails_the_query():
    def call(query_id):
        if query_id == 5:
            raise ValueError("no")

    t = trial(scenario="multi_stream", in_flight=4, max_queries=3, max_s=9.0)
    queries = MultiStream(t, Plan(t)).drive(Inline(call, Failures()), FakeClock())
    assert list(queries.columns["status"]) == [0, QUERY_ERROR, 0]
