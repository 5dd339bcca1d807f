"""The shared counter among threads and processes, and the plan that ends at the agreed stop, in fake time."""

import threading

import pytest

from edgescope.isolate import worker
from edgescope.isolate.worker import AT_STOP, Agreed, Counter, Span
from edgescope.records import QUERY_END, Trial
from edgescope.scenarios.stop_rule import FOREVER, Plan
from edgescope.workloads.blocking import Failures, blocking

TRIAL = Trial(model="null", backend="null", warmup=0, batch=2)


def test_threads_lose_no_count_and_two_maps_of_a_file_are_one_counter(tmp_path):
    with Counter(tmp_path / "c", 3) as mine, Counter(tmp_path / "c", 3) as theirs:
        ended = threading.Semaphore(0)
        work = mine.counted(blocking(lambda query_id: None, 4, Failures()), 1)
        for query_id in range(500):
            work.issue(query_id, 2, lambda query_id, state, *more: ended.release())
        for _ in range(500):
            ended.acquire()
        while theirs.look().counts[1] < 1000:  # the last is counted just after it is done
            pass
        look = theirs.look()
    assert look.counts == (0, 1000, 0) and look.before_ns <= look.after_ns


def test_done_comes_before_it_is_counted(tmp_path):
    seen = []
    with Counter(tmp_path / "c", 1) as counter:
        work = counter.counted(blocking(lambda query_id: None, 1, Failures()), 0)
        for query_id in range(2):
            work.issue(query_id, 1, lambda query_id, state, *more: seen.append(counter.look().counts[0]))
        assert seen == [0, 1] and counter.look().counts == (2,)


@pytest.fixture
def plan():
    return Agreed(TRIAL, lambda: Span(1000, 5000))


def test_the_measured_phase_ends_at_the_stop_and_nowhere_else(plan):
    plan.warming().begin(0, 10)
    assert plan.limit == 0  # no warm-up was asked for
    plan.measuring().begin(0, 1003)
    assert plan.check_ns == 5000 and plan.limit == FOREVER and plan.deadline_ns == 5000
    assert plan.goes_on(4999, 7, lambda first: None) and plan.check_ns == 5000
    assert not plan.goes_on(5000, 9, lambda first: None)
    plan.end(9, 5010)
    assert plan.stopped_by == AT_STOP and plan.window.start_ns == 1003 and plan.window.stop == 9


def test_queries_may_run_out_before_the_stop(plan):
    plan.trial = Trial(model="null", backend="null", max_queries=3)
    plan.warming().begin(0, 10)
    plan.measuring().begin(2, 1003)
    assert plan.limit == 5 and plan.check_ns == 5000
    assert not plan.goes_on(2000, 5, lambda first: None) and plan.stopped_by == "all queries done"


def test_a_worker_waits_for_the_start():
    import time

    start = time.monotonic_ns() + 3_000_000
    plan = Agreed(TRIAL, lambda: Span(start, start + 1))
    plan.measuring()
    assert 0 <= time.monotonic_ns() - start < 50_000_000


class Work:
    """Done at once; a query may be asked with other samples than the last."""

    flushed = 0

    def issue(self, query_id, samples, done):
        done(query_id, 0)

    def flush(self):
        self.flushed += 1


def test_many_workers_have_cells_of_their_own_and_a_new_shift_counts_from_zero(tmp_path):
    with Counter(tmp_path / "c", 200) as counter:  # more than a page
        for number in range(200):
            counter.counted(Work(), number).issue(0, number + 1, lambda query_id, state, *more: None)
        assert counter.look().counts == tuple(range(1, 201))
        counter.counted(Work(), 7)
        assert counter.look().counts[6:9] == (7, 0, 9)


def test_every_query_counts_its_own_samples_and_tells_its_own_done(tmp_path):
    told = []
    with Counter(tmp_path / "c", 1) as counter:
        inner = Work()
        work = counter.counted(inner, 0)
        for samples in (2, 2, 5, 2):
            work.issue(samples, samples, lambda query_id, state, *more: told.append(query_id))
        first, second = (lambda q, s, *more: told.append("a")), (lambda q, s, *more: told.append("b"))
        work.issue(0, 1, first)
        work.issue(0, 1, second)
        work.flush()
        assert counter.look().counts == (13,) and told == [2, 2, 5, 2, "a", "b"] and inner.flushed == 1


def test_the_end_of_a_query_that_was_told_in_parts_counts_nothing(tmp_path):
    """Each part says how many samples it held; the end holds none."""
    told = []
    with Counter(tmp_path / "c", 2) as counter:
        inner = Work()
        inner.issue = lambda query_id, samples, done: [
            done(0, 0, 3, 50, {"first_token": 7}),
            done(0, 0, 1),
            done(0, QUERY_END),
        ]
        counter.counted(inner, 1).issue(0, 8, lambda *what: told.append(what))
        assert counter.look().counts == (0, 4)
    assert told == [(0, 0, 3, 50, {"first_token": 7}), (0, 0, 1, -1, None), (0, QUERY_END, 0, -1, None)]


def test_work_that_takes_turns_has_as_many_streams_as_before(tmp_path):
    class Turns(Work):
        streams = 3

        def turn(self, stream):
            return stream

    with Counter(tmp_path / "c", 1) as counter:
        assert [counter.counted(work, 0).streams for work in (Work(), Turns())] == [1, 3]


def test_a_warm_up_goes_on_as_in_any_plan(plan, monkeypatch):
    monkeypatch.setattr(Plan, "goes_on", lambda plan, now_ns, rows, latencies: now_ns < 40)
    plan.warming().begin(0, 10)
    assert [plan.goes_on(now, 1, lambda first: None) for now in (39, 40)] == [True, False]


def test_the_last_millisecond_before_the_start_is_spun(monkeypatch):
    waited = []
    monkeypatch.setattr(worker, "wait_until", lambda *what: waited.append(what))
    Agreed(TRIAL, lambda: Span(1000, 5000)).measuring()
    assert waited == [(1000, 1_000_000)]


def test_a_counter_is_its_users_alone_and_opening_it_again_makes_it_no_smaller(tmp_path):
    with Counter(tmp_path / "c", 200) as many, Counter(tmp_path / "c", 1) as one:
        assert (tmp_path / "c").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "c").stat().st_size == 200 * 64
        many.counted(Work(), 199).issue(0, 7, lambda *what: None)
        assert many.look().counts[-1] == 7 and one.look().counts == (0,)
