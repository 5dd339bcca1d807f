"""The idle-gap curve in fake time: which gap came before which query, and what it cost."""

import numpy as np
import pytest

from edgescope.analysis.cells.replicates import latencies_s
from edgescope.analysis.run import summary
from edgescope.records import QUERY_END, Absent
from edgescope.report.result import gaps
from edgescope.scenarios import IdleGap
from edgescope.scenarios.closed import repeats
from edgescope.scenarios.stop_rule import INPUT_ENDED, Plan
from edgescope.workloads.base import EndOfInput
from fake_time import MS, FakeClock, FakeWork, trial
from making import result

GAPS = "0,10,33,100,1000,10000"


class Sleepy:
    """A device that clocks down: 2 ms, and 10 % more for every tenfold of idle milliseconds."""

    def __init__(self, clock):
        self.clock, self.last = clock, 0

    def issue(self, query_id, samples, done):
        idle_ms = (self.clock.t - self.last) / MS
        self.clock.t += round(2 * MS * (1 + 0.1 * np.log10(max(idle_ms, 1.0))))
        done(query_id, 0)
        self.last = self.clock.t

    def flush(self):
        pass


def measured(**keys):
    clock, t = FakeClock(), trial(**({"scenario": "idle_gap", "max_s": 1.0, "warmup": 0.1} | keys))
    plan = Plan(t)
    return IdleGap(t, plan).drive(Sleepy(clock), clock), plan, t


def test_every_gap_is_tried_often_enough_in_random_order():
    queries, plan, _t = measured()
    stream = queries.rows(plan.window).columns["stream"]
    tried = stream[stream > 0]
    assert [np.count_nonzero(tried == k) for k in range(1, 7)] == [60, 60, 60, 60, 20, 7]
    assert len(set(np.diff(np.flatnonzero(tried == 6)))) > 1  # not in turn
    other, plan, _ = measured(seed=1)
    assert not np.array_equal(tried, other.rows(plan.window).columns["stream"][: len(tried)])


def test_the_end_of_the_input_ends_it():
    """A row that met the end does not count, and what was measured before stays."""

    class Short(Sleepy):
        def issue(self, query_id, samples, done):
            if query_id == 100:
                done(query_id, QUERY_END)
                raise EndOfInput
            super().issue(query_id, samples, done)

    clock, t = FakeClock(), trial(scenario="idle_gap", scenario_options={"gaps_ms": "10"}, warmup=0.0)
    plan = Plan(t)
    queries = IdleGap(t, plan).drive(Short(clock), clock)
    assert len(queries) == 100 == plan.window.stop and plan.stopped_by == INPUT_ENDED
    assert set(queries.columns["status"]) == {0} and queries.columns["stream"].max() == 2


def test_longer_gaps_are_tried_less_often():
    assert [repeats(ms) for ms in (0, 100, 100.1, 2000, 2000.1)] == [60, 60, 20, 20, 7]


def test_before_every_gap_the_device_is_warm_again():
    """Back to back for 50 ms, and twice at least: 25 queries of 2 ms and a bit, or 2 of a second."""
    queries, plan, _ = measured(scenario_options={"gaps_ms": "10"}, warmup=0.0)
    rows = queries.rows(plan.window).columns
    stretches = np.diff(np.flatnonzero(rows["stream"] > 0)) - 1
    assert stretches.min() >= 23 and stretches.max() <= 26 and rows["stream"][:23].max() == 0
    slow, t = FakeClock(), trial(scenario="idle_gap", scenario_options={"gaps_ms": "10"})
    plan = Plan(t)
    rows = IdleGap(t, plan).drive(FakeWork(slow, lambda q: 1000 * MS), slow).rows(plan.window).columns
    assert set(np.diff(np.flatnonzero(rows["stream"] > 0)) - 1) == {2}
    after = np.flatnonzero(rows["stream"] == 2)
    assert set(rows["scheduled_ns"][after] - rows["done_ns"][after - 1]) == {10 * MS}


def test_the_curve_is_read_from_the_raw_rows():
    queries, plan, _ = measured()
    curve = summary.idle_gap_curve(queries, plan.window)
    assert [gap.label for gap in curve] == [f"{g}ms" for g in GAPS.split(",")]
    for gap, ms in zip(curve, GAPS.split(","), strict=True):
        penalty = 1 + 0.1 * np.log10(max(float(ms), 1.0))
        assert gap.penalty.value == pytest.approx(penalty, rel=0.002)
        assert gap is curve[0] or gap.penalty.lo <= gap.penalty.value <= gap.penalty.hi
        assert gap.requested_s * 1e3 == pytest.approx(float(ms), abs=1e-6)
        assert gap.idle_s * 1e3 == pytest.approx(float(ms), abs=0.1)


def test_a_timer_that_is_late_changes_the_idleness_not_the_name_of_the_gap():
    clock, t = FakeClock(), trial(scenario="idle_gap", scenario_options={"gaps_ms": "10"}, warmup=0.1)
    clock.late_ns = 4 * MS
    plan = Plan(t)
    _, gap = summary.idle_gap_curve(IdleGap(t, plan).drive(Sleepy(clock), clock), plan.window)
    assert gap.label == "10ms"
    assert gap.idle_s == pytest.approx(14e-3)
    assert gap.latency.value == pytest.approx(2e-3 * (1 + 0.1 * np.log10(14)), rel=1e-3)


def test_latency_is_that_of_the_queries_back_to_back_and_the_curve_stands_beside_it():
    queries, plan, t = measured()
    said = summary.metrics(queries, plan.window, "idle_gap")
    assert said["latency_p50_s"].value == pytest.approx(2e-3)
    assert said["idle_gap_10000ms_penalty"].value == pytest.approx(1.4, rel=0.01)
    assert said["idle_gap_33ms_latency_p50_s"].unit == "s"
    assert isinstance(said["throughput_sps"], Absent)
    made = result(t, queries=queries, window=plan.window, metrics=said)
    assert len(latencies_s(made)) < len(queries)
    (table,) = gaps(made)
    gap, latency, penalty, n = table.rows[-1].cells
    assert len(table.rows) == 6 and (gap, n) == ("10000 ms", 7) and latency.unit == "s"
    assert penalty.startswith("1.40x")


def test_gaps_of_ones_own():
    queries, plan, _ = measured(scenario_options={"gaps_ms": "250,2.5"})
    assert [gap.label for gap in summary.idle_gap_curve(queries, plan.window)] == ["0ms", "2.5ms", "250ms"]


def test_a_gap_without_a_good_query_is_left_out():
    queries, plan, _ = measured(scenario_options={"gaps_ms": "10"})
    columns = dict(queries.columns)
    columns["status"] = np.where(columns["stream"] == 2, 1, 0).astype(np.int8)
    curve = summary.idle_gap_curve(type(queries)(columns), plan.window)
    assert [gap.label for gap in curve] == ["0ms"]
