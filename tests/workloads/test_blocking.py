"""A blocking callable as work: each unit is reported once, with its status, whatever the call does."""

import threading
import time

import pytest

from edgescope.records import QUERY_END, QUERY_ERROR, QUERY_OK
from edgescope.workloads.base import EndOfInput
from edgescope.workloads.blocking import Failures, Inline, Pool, Unit, blocking


def call(query_id):
    """Return what a unit of this number does."""
    if query_id == 2:
        raise ValueError("two")
    if query_id == 3:
        raise KeyError("three")
    if query_id == 9:
        raise EndOfInput
    return {0: None, 1: 5, 4: True, 5: 2.5, 6: 0}.get(query_id)


def noted():
    told = []
    return told, lambda *what: told.append(what)


def test_a_unit_is_done_with_its_status_and_the_samples_that_it_says():
    failures, (told, done) = Failures(), noted()
    work = Inline(call, failures)
    for query in range(7):
        work.issue(query, 8, done)
    fine = [(0, QUERY_OK), (1, QUERY_OK, 5), (2, QUERY_ERROR), (3, QUERY_ERROR)]
    assert told == [*fine, (4, QUERY_OK), (5, QUERY_OK), (6, QUERY_OK, 0)]
    assert (failures.count, failures.first) == (2, "ValueError: two")
    with pytest.raises(EndOfInput):
        work.issue(9, 8, done)
    assert told[7:] == [(9, QUERY_END)] and failures.count == 2


def test_a_unit_tells_the_moments_that_it_reached():
    told, done = noted()
    Inline(lambda query_id: Unit(3, {"first_token": 7}), Failures()).issue(0, 8, done)
    Inline(lambda query_id: Unit(), Failures()).issue(1, 8, done)
    assert told == [(0, QUERY_OK, 3, -1, {"first_token": 7}), (1, QUERY_OK, 0, -1, {})]


def test_the_first_failure_is_kept():
    failures = Failures()
    assert (failures.count, failures.first) == (0, "")
    assert failures.add(ValueError("a")) == failures.add(KeyError("b")) == QUERY_ERROR
    assert (failures.count, failures.first) == (2, "ValueError: a")


def test_units_of_a_pool_run_side_by_side_and_none_follows_the_end():
    (told, done), together = noted(), threading.Barrier(3, timeout=10)

    def meet(query_id):
        together.wait()
        return call(query_id)

    pool = Pool(meet, Failures(), 3)
    for query in (0, 1, 9):
        pool.issue(query, 8, done)
    while len(told) < 3 or not pool.ended:
        time.sleep(0.001)
    assert sorted(told) == [(0, QUERY_OK), (1, QUERY_OK, 5), (9, QUERY_END)]
    with pytest.raises(EndOfInput):
        pool.issue(10, 8, done)
    assert told[3:] == [(10, QUERY_END)]
    assert len(pool.threads) == 3 and all(thread.daemon for thread in pool.threads)
    pool.close()
    assert not any(thread.is_alive() for thread in pool.threads)


@pytest.mark.parametrize(("in_flight", "threads"), [(1, None), (2, 2), (4, 4)])
def test_one_unit_in_flight_needs_no_thread(in_flight, threads):
    work = blocking(call, in_flight, Failures())
    assert isinstance(work, Inline if threads is None else Pool)
    if threads:
        assert len(work.threads) == threads
        work.close()
