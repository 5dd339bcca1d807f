"""A side's turns in fake time: what counts of them, and what they are told to have taken."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from edgescope.bench import worker
from edgescope.bench.worker import Side, Stretch
from edgescope.records import QUERY_ERROR, Trial
from fake_time import MS, FakeClock, FakeWork

TRIAL = Trial(model="null", backend="null", warmup=0, batch=2)


class Clock(FakeClock):
    """Also what the module asks for time: the processor's runs at half the speed."""

    def __init__(self):
        super().__init__()
        self.t = 1000 * MS

    monotonic_ns = FakeClock.now

    def process_time_ns(self):
        return self.t // 2


@pytest.fixture
def made(monkeypatch):
    """Make a side of a clock and a leader that gives these orders, whose threads take 5 ms to fall asleep."""
    clock = Clock()

    def asleep(pid):
        clock.t += 5 * MS
        return 0.005

    monkeypatch.setattr(worker, "MonotonicClock", lambda: clock)
    monkeypatch.setattr(worker, "time", clock)
    monkeypatch.setattr(worker, "until_asleep", asleep)

    def make(*orders, trial=TRIAL, work=None):
        pipe = SimpleNamespace(sent=[], receive=lambda left=[*orders, {"do": "rows"}]: left.pop(0))
        pipe.send = lambda **what: pipe.sent.append(what)
        return Side(trial, work or FakeWork(clock, lambda query: 2 * MS), pipe), pipe.sent, clock

    return make


def order(seconds=0.01, block=3, *, again=False):
    return {"do": "turn", "seconds": seconds, "block": block, "again": again}


def test_turns_are_told_with_their_ends_and_what_the_side_took_between_them(made):
    side, sent, clock = made(order(), order(0.02, 4, again=True))
    clock.t += 100 * MS  # the other side's turns
    side.serve()
    start = 1108 * MS  # four queries are dropped: the fourth begins when 5 ms are over
    first = {"event": "turned", "block": 3, "start_ns": start, "stop_ns": start + 12 * MS, "queries": 6}
    assert sent[0] == first | {"time_s": 0.002, "idle_ns": 100 * MS, "idle_cpu_ns": 50 * MS, "awake_s": 0.005}
    start += 17 * MS  # nothing is dropped after a turn of one's own
    second = {"event": "turned", "block": 4, "start_ns": start, "stop_ns": start + 22 * MS, "queries": 11}
    assert sent[1] == second | {"time_s": 0.002, "idle_ns": 0, "idle_cpu_ns": 0, "awake_s": 0.005}
    assert side.kept == [(4, 10), (10, 21)] and side.counted == 17


def test_rows_that_count_are_the_last_in_the_order_of_time(made):
    side, _, _ = made(order(), order())
    side.serve()
    assert side.kept == [(4, 10), (14, 20)] and side.counted == 12
    found = side.queries.columns
    assert (np.diff(found["issued_ns"]) < 0).nonzero()[0].tolist() == [7] and set(found["samples"]) == {2}
    assert found["query_id"].tolist() == [*range(4), *range(10, 14), *range(4, 10), *range(14, 20)]


def test_a_turn_shorter_than_a_query_has_one(made):
    side, sent, _ = made(order(0.001, again=True), order(0.0, again=True))
    side.serve()
    assert [turn["queries"] for turn in sent] == [2, 1]


class Failing(FakeWork):
    """Every third unit fails at once, and so do all from the tenth on."""

    def issue(self, query_id, samples, done):
        right = query_id % 3 != 2 and query_id < 10
        self.clock.t += (2 if right else 1) * MS
        done(query_id, 0 if right else QUERY_ERROR)


@pytest.mark.parametrize(
    ("scenario", "times_s"),
    [("single_stream", [0.002, 0.002]), ("offline", [0.012 / (5 * 2), 0.011 / (2 * 2)])],
)
def test_units_that_fail_have_no_time(made, scenario, times_s):
    """Timed scenarios tell a query's latency, others the time of a sample: of five right units of two, and of two."""
    side, sent, clock = made(*[order(again=True)] * 2, trial=replace(TRIAL, scenario=scenario))
    side.work = Failing(clock, None)
    side.serve()
    took = [(turn["queries"], turn["stop_ns"] - turn["start_ns"]) for turn in sent]
    assert took == [(7, 12 * MS), (9, 11 * MS)]
    assert [turn["time_s"] for turn in sent] == pytest.approx(times_s)


def test_a_turn_without_a_right_unit_has_no_time(made):
    side, sent, clock = made(*[order(again=True)] * 3)
    side.work = Failing(clock, None)
    side.serve()
    assert sent[2]["queries"] == 11 and sent[2]["time_s"] == 0.0


def plan(first, waited_ms, rows, warmup=None):
    """Whether a warm-up goes on that began at row `first` so long ago, with so many latencies that do not settle."""
    made = Stretch(replace(TRIAL, warmup=warmup))
    made.warming().begin(first, 50 * MS)
    latencies = np.arange(1, 999, dtype=np.int64) * MS  # each is longer than the one before

    return made.goes_on((50 + waited_ms) * MS, 0, lambda row: latencies[row : row + rows])


@pytest.mark.parametrize(
    ("waited_ms", "rows", "on"),
    [(199, 3, True), (200, 2, True), (200, 3, False), (999, 2, True), (999, 9, False)],
)
def test_a_warm_up_ends_after_a_fifth_of_a_second_with_three_queries(waited_ms, rows, on):
    assert plan(7, waited_ms, rows) is on


def test_a_turn_ends_at_its_time_and_never_goes_on():
    made = Stretch(TRIAL).until(70 * MS)
    made.begin(5, 60 * MS)
    assert made.check_ns == 70 * MS and not made.goes_on(65 * MS, 9, len)
    made.warming().begin(5, 60 * MS)
    assert made.check_ns == 60 * MS  # a warm-up is no turn


def test_a_warm_up_is_told_with_how_long_a_query_takes(made):
    side, sent, clock = made({"do": "warm"}, trial=replace(TRIAL, warmup=0.01))
    side.serve()
    assert sent == [{"event": "warmed", "settled": True, "typical_s": 0.002}]
    assert side.rested == (clock.t, clock.t // 2) and side.counted == 0
