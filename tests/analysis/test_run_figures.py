"""Figures of one run from rows that fit on a hand: epochs, gaps, deadlines, ages, queues, workers, noise."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from edgescope.analysis.run import lateness, noise, summary, workers
from edgescope.records import (
    QUERY_DROPPED,
    QUERY_DTYPES,
    QUERY_ERROR,
    QUERY_OK,
    UNIT,
    Absent,
    Measured,
    Queries,
    Spans,
    Trial,
    Window,
    Worker,
)
from edgescope.stats.alternation import standard_errors
from edgescope.stats.intervals import t_quantile
from edgescope.wings.training import epochs
from making import result

S = 1_000_000_000


def table(n: int, **columns: Any) -> Queries:
    """Rows with these columns in seconds where they are times; all else is -1, and every row has succeeded."""
    made = {name: np.full(n, -1, dtype) for name, dtype in QUERY_DTYPES.items()}
    made["query_id"], made["status"], made["samples"] = np.arange(n), np.full(n, QUERY_OK), np.ones(n, int)
    made["worker"], made["stream"] = np.zeros(n, int), np.zeros(n, int)
    for name, values in columns.items():
        x = np.asarray(values)
        made[name] = np.where(x < 0, -1, np.rint(x * S)).astype(np.int64) if name.endswith("_ns") else x
    return Queries({name: np.asarray(made[name], dtype) for name, dtype in QUERY_DTYPES.items()})


# -- epochs ------------------------------------------------------------------------------------------------------------


def spans(*rows: tuple[str, int, int, int]) -> Spans:
    """(name, number, start ms, end ms) rows."""
    return Spans.of("phase", [(name, n, a * 1_000_000, b * 1_000_000) for name, n, a, b in rows])


STEP = (
    *((UNIT, 0, 0, 20), ("fetch", 0, 0, 8), ("h2d", 0, 8, 9), ("forward", 0, 9, 12), ("backward", 0, 12, 16)),
    *(
        ("optimizer", 0, 16, 17),
        (UNIT, 1, 20, 40),
        ("fetch", 1, 20, 24),
        ("forward", 1, 24, 30),
        ("backward", 1, 30, 38),
    ),
)
LOADER = (
    *(("load", 0, 2, 10), ("load", 0, 3, 6), ("load", 1, 22, 30)),
    *(
        ("read", 0, 2, 4),
        ("read", 0, 3, 5),
        ("read", 1, 22, 23),
        ("decode", 0, 4, 10),
        ("collate", 1, 25, 30),
    ),
)


def test_an_epoch_is_its_parts_and_what_the_loader_held_up():
    found = epochs.anatomy(spans(*STEP, *LOADER), 0, 40_000_000)
    ms = {name: round(s * 1000, 6) for name, s in found.parts.items()}
    assert ms == {"fetch": 12, "h2d": 1, "forward": 9, "backward": 12, "optimizer": 1, "other": 5}
    assert (found.wall, found.steps) == (pytest.approx(0.04), 2)
    work = {name: round(s * 1000, 6) for name, s in found.work.items()}
    assert work == {"read": 5, "decode": 6, "collate": 5}
    # 2 to 8 and 22 to 24 ms were waited for while something loaded; of the stages' own 5 + 4 ms in the fetches
    stall = {name: s * 1000 for name, s in found.stall.items()}
    assert stall == pytest.approx({"read": 8 * 5 / 9, "decode": 8 * 4 / 9, "collate": 0, "handover": 4})
    assert found.hidden == pytest.approx(1 - 8 / 16)
    bare = epochs.anatomy(spans(*STEP), 0, 40_000_000)
    assert bare.hidden is None and bare.stall == {"handover": pytest.approx(0.012)}


def test_a_stretch_takes_what_begins_in_it_and_cuts_what_ends_after_it():
    part = epochs.anatomy(spans(*STEP, *LOADER), 20_000_000, 30_000_000)
    assert (part.steps, part.parts["fetch"], part.parts["forward"]) == (
        1,
        pytest.approx(0.004),
        pytest.approx(0.006),
    )
    assert part.parts["backward"] == 0.0, "it begins where the stretch ends"
    cut = epochs.anatomy(spans(*STEP), 0, 35_000_000)
    assert cut.parts["backward"] == pytest.approx(0.009)


def test_figures_a_step_and_of_epochs():
    second = [(name, n + 2, a + 50, b + 50) for name, n, a, b in (*STEP, *LOADER)]
    both = spans(*STEP, *LOADER, *second, ("epoch", 0, 0, 45), ("epoch", 1, 50, 92))
    found = epochs.metrics(both)
    assert found["fetch_s"] == Measured(pytest.approx(0.006), "s", n=4)
    assert found["other_s"].value == pytest.approx((0.045 + 0.042 - 2 * 0.035) / 4)
    assert (found["read_s"].value, found["stall_read_s"].value) == pytest.approx((0.0025, 0.008 * 5 / 9 / 2))
    assert found["stall_share"].value == pytest.approx(0.024 / 0.087) and found["stall_share"].n == 4
    assert (found["loader_hidden_share"].value, found["loader_hidden_share"].n) == (pytest.approx(0.5), 2)
    assert found["stall_handover_s"].value == pytest.approx(0.002) and "augment_s" not in found
    assert found["epoch_first_s"].value == pytest.approx(0.045) and found[
        "epoch_later_s"
    ].value == pytest.approx(0.042)
    whole = epochs.metrics(spans(*STEP))
    assert whole["other_s"].value == pytest.approx(0.0025) and isinstance(whole["epoch_first_s"], Absent)
    assert isinstance(whole["loader_hidden_share"], Absent) and isinstance(whole["epoch_later_s"], Absent)
    later = epochs.metrics(spans(*STEP, ("epoch", 1, 0, 40)))
    assert "--warmup 0" in later["epoch_first_s"].reason and later["epoch_later_s"].value == pytest.approx(
        0.04
    )
    first = epochs.metrics(spans(*STEP, ("epoch", 0, 0, 40)))
    assert first["epoch_later_s"] == Absent("one epoch ended in the window")
    assert epochs.metrics(spans(("fetch", 0, 0, 5))) == {}


# -- idle gaps ---------------------------------------------------------------------------------------------------------


def test_the_curve_of_idle_gaps():
    """Three queries a gap: none, 33 ms and 100 ms; each comes 1 ms late and takes 10, 20 and 40 ms."""
    rows, at = [], 1.0
    for number, (gap, takes) in enumerate(((0.0, 0.010), (0.033, 0.020), (0.1, 0.040)), 1):
        for k in range(3):
            issued = at + gap + 0.001
            rows.append((number, at + gap, issued, issued + takes + 0.001 * k))
            at = rows[-1][3]
    stream, due, issued, done = (np.array(c) for c in zip(*rows, strict=True))
    status = np.full(9, QUERY_OK)
    status[8] = QUERY_ERROR
    q = table(9, stream=stream, scheduled_ns=due, issued_ns=issued, done_ns=done, status=status)
    none, short, long = summary.idle_gap_curve(q, Window(1, 9, 0, 9 * S))
    assert [g.requested_s for g in (none, short, long)] == pytest.approx([0, 0.033, 0.1])
    assert [g.idle_s for g in (none, short, long)] == pytest.approx([0.001, 0.034, 0.101])
    assert [(g.latency.value, g.latency.n) for g in (none, short, long)] == [
        (pytest.approx(x), n) for x, n in ((0.0115, 2), (0.021, 3), (0.0405, 2))
    ]
    assert none.penalty == Measured(1.0, "1", n=2) and short.penalty.value == pytest.approx(0.021 / 0.0115)
    assert short.label == "33ms" and set(summary.idle_gap_metrics(q, Window(1, 9, 0, S))) == {
        *(f"idle_gap_{g}_{what}" for g in ("0ms", "33ms", "100ms") for what in ("latency_p50_s", "penalty"))
    }
    few = summary.idle_gap_curve(q, Window(0, 1, 0, S))
    assert isinstance(few[0].latency, Absent) and len(summary.idle_gap_curve(q, Window(3, 9, 0, S))) == 2
    assert isinstance(summary.idle_gap_curve(q, Window(3, 9, 0, S))[0].penalty, Absent), (
        "nothing without a gap"
    )
    assert len(summary.back_to_back(table(3, stream=[0, 1, 0]))) == 2


@pytest.mark.parametrize(
    ("above", "below", "ends"),
    [
        ((4, 2, 8), (2, 1, 4), (0.5, 8.0)),
        ((4, None, 8), (2, 1, 4), None),
        ((4, 2, None), (2, 1, 4), None),
        ((4, 2, 8), (2, None, 4), None),
        ((4, 2, 8), (2, 1, None), None),
        ((4, 0, 8), (2, 1, 4), (0.0, 8.0)),
    ],
)
def test_a_penalty_is_bounded_by_the_ends_of_both(above, below, ends):
    found = summary.ratio(*(Measured(v, "s", lo, hi, 9 - v) for v, lo, hi in (above, below)))
    assert (found.value, found.n) == (2.0, 5)
    assert (found.lo, found.hi) == (ends or (None, None))


# -- noise -------------------------------------------------------------------------------------------------------------


def test_the_noise_of_a_machine_by_its_formulas():
    assert noise.floor(0.01, 20) == pytest.approx(math.expm1(t_quantile(0.975, 20) * 0.01))
    for k in (3, 5, 40):
        wanted = math.expm1((standard_errors(k, 0.95) + t_quantile(0.8, k - 1)) * 0.01 / math.sqrt(k))
        assert noise.detectable(0.01, k) == pytest.approx(wanted)
    for change in (0.01, 0.02, 0.05):
        k = noise.needed(0.01, change)
        assert noise.detectable(0.01, k) <= change < noise.detectable(0.01, k - 1) or k == noise.MIN_PAIRS
    assert noise.needed(10.0, 0.01) is None and noise.needed(1e-9, 0.01) == noise.MIN_PAIRS
    exact = noise.detectable(0.05, 30)
    assert noise.needed(0.05, exact) == 30 and noise.needed(0.05, exact * 0.9999) == 31


# -- deadlines and ages ------------------------------------------------------------------------------------------------


def test_deadlines_are_missed_by_what_comes_after_them():
    due = np.arange(6) * 1.0
    done = due + np.array([0.1, 0.2, 0.3, 0.15, 0.5, -1])
    done[5] = -1
    status = np.array([QUERY_OK] * 5 + [QUERY_DROPPED])
    rows = table(6, scheduled_ns=due, done_ns=done, status=status)
    late = lateness.overruns_s(rows, 0.2)
    assert late == pytest.approx([-0.1, 0.0, 0.1, -0.05, 0.3, 0.5])
    found = lateness.misses(rows, 0.2)
    assert found["deadline_miss_ratio"].value == pytest.approx(0.5)
    assert found["deadline_overrun_worst_s"] == Measured(pytest.approx(0.3), "s", n=2)
    assert found["deadline_miss_burst"] == Measured(2.0, "queries", n=6)
    kept = lateness.overruns_s(rows, 5.0)
    assert kept[5] == pytest.approx(5.0), "beyond the worst, which is none"
    assert isinstance(lateness.misses(rows, 5.0)["deadline_overrun_worst_s"], Absent)
    stamped = table(6, scheduled_ns=due, done_ns=done, status=status, source_ns=np.maximum(due - 0.5, 0))
    assert lateness.overruns_s(stamped, 0.2)[1] == pytest.approx(0.5)
    loop = table(2, issued_ns=[0, 1], done_ns=[1, 2])
    assert lateness.misses(loop, 1.0)["deadline_miss_ratio"] == lateness.NO_DUE_TIME
    assert lateness.misses(table(0), 1.0)["deadline_miss_ratio"] == Absent("no query was offered")
    assert lateness.dropped_share(rows).value == pytest.approx(1 / 6)


@pytest.mark.parametrize(
    ("missed", "stream", "worker", "burst"),
    [
        ([1, 1, 0, 1, 1, 1], [0] * 6, [0] * 6, 3),
        ([1, 1, 1, 0, 0, 0], [0] * 6, [0] * 6, 3),
        ([0] * 6, [0] * 6, [0] * 6, 0),
        ([1] * 6, [0, 1, 0, 1, 0, 1], [0] * 6, 3),
        ([1] * 6, [0] * 6, [0, 1, 1, 1, 1, 0], 4),
        ([1] * 6, [1, 0, 1, 0, 1, 0], [0, 1, 0, 1, 0, 1], 3),
    ],
)
def test_a_burst_is_of_one_workers_stream(missed, stream, worker, burst):
    rows = table(6, stream=stream, worker=worker)
    assert lateness.longest_burst(rows, np.array(missed, bool)) == burst


def test_ages_run_from_the_time_stamp_or_the_due_time():
    rows = table(
        *(4,),
        **{"scheduled_ns": [5, 1, 2, -1], "source_ns": [4, -1, 0, -1], "done_ns": [9, 3, 6, 7]},
        status=[QUERY_OK, QUERY_OK, QUERY_ERROR, QUERY_OK],
    )
    assert lateness.origin_ns(rows).tolist() == [4 * S, S, 0, -1]
    done, age = lateness.ages(rows)
    assert (done.tolist(), age.tolist()) == ([3 * S, 9 * S], [2.0, 5.0])
    assert not lateness.stamped(rows)
    assert lateness.stamped(table(2, source_ns=[0, -1], status=[QUERY_OK, QUERY_ERROR]))
    assert not lateness.stamped(table(1, source_ns=[0], status=[QUERY_ERROR]))


def test_the_age_grows_by_its_slope_once_there_are_twenty_results():
    at = np.arange(20) * 0.5
    age = 0.1 + 0.02 * at
    rows = table(20, source_ns=at, done_ns=at + age)
    found = lateness.age_growth(rows)
    assert found.value == pytest.approx(0.02 / 1.02, rel=1e-3) and found.n == 20
    fewer = table(19, source_ns=at[:19], done_ns=(at + age)[:19])
    assert lateness.age_growth(fewer) == Absent("n/a: have 19, need 20")
    assert isinstance(lateness.trend(np.full(20, S), age), Absent)
    steep = lateness.trend((at * S).astype(np.int64), 10 * age)
    assert steep.value == pytest.approx(0.2) and steep.lo <= 0.2 <= steep.hi


def test_jitter_is_the_mean_change_of_the_age_within_a_stream():
    rows = table(
        *(6,),
        **{"scheduled_ns": [0, 1, 2, 0, 1, 2], "done_ns": [0.1, 1.3, 2.2, 0.5, 1.1, 2.4]},
        stream=[0, 0, 0, 1, 1, 1],
    )
    assert lateness.jitter(rows).value == pytest.approx((0.2 + 0.1 + 0.4 + 0.3) / 4)
    assert lateness.jitter(table(2, scheduled_ns=[0, 1], done_ns=[1, 3])) == Absent("n/a: have 1, need 2")
    assert lateness.jitter(table(3, scheduled_ns=[0, 1, 2], done_ns=[1, 3, 3])).value == pytest.approx(1.0)


# -- queues ------------------------------------------------------------------------------------------------------------


def test_who_waits_and_how_deep_the_queue_is():
    rows = table(
        *(4,),
        **{"scheduled_ns": [0, 1, 2, 3], "issued_ns": [0, 2, -1, 3.5], "done_ns": [2, 3, -1, 5]},
        status=[QUERY_OK, QUERY_OK, QUERY_DROPPED, QUERY_OK],
    )
    assert lateness.in_system(rows).tolist() == [0, 1, 1, 1]
    assert lateness.unserved(rows).tolist() == [False, False, True, False]
    times, count = lateness.depth(rows)
    assert (times / S).tolist() == [0, 1, 2, 2, 3, 3, 5] and count.tolist() == [1, 2, 1, 2, 1, 2, 1]
    found = lateness.queue_depth(rows)
    assert found["queue_depth_mean"].value == pytest.approx((1 + 2 + 2 + 2 * 2) / 5)
    assert found["queue_depth_max"] == Measured(2.0, "queries", n=4)
    once = lateness.queue_depth(table(0))
    assert isinstance(once["queue_depth_mean"], Absent)


@pytest.mark.parametrize(("served", "behind"), [(10.0, False), (9.0, True), (5.0, True), (20.0, False)])
def test_a_load_that_falls_behind_is_one_whose_queue_grows(served, behind):
    n = 400
    due = np.arange(n) / 10
    done = np.maximum.accumulate(np.maximum(due + 0.01, np.arange(1, n + 1) / served))
    rows = table(n, scheduled_ns=due, issued_ns=done - 0.005, done_ns=done)
    found = lateness.backlog(rows, Window(0, n, 0, 50 * S))
    assert found.behind is behind
    fields = found.fields
    assert fields["offered_rate_qps"] == Measured(pytest.approx(10.0), "queries/s", n=n)
    assert fields["achieved_rate_qps"] == Measured(pytest.approx(n / 50), "queries/s", n=n)
    assert fields["backlog_queries"].value == pytest.approx(max(0, n - 1 - served * due[-1]), abs=1.5)
    if behind:
        assert fields["backlog_growth_qps"].value == pytest.approx(10 - served, rel=0.15)
        told = lateness.warning(found)
        assert told.fix.startswith(f"{n / 50 / 10:.0%} of this load")


def test_a_load_is_behind_where_a_query_still_waited():
    status, done = np.array([QUERY_OK, QUERY_DROPPED, QUERY_DROPPED, QUERY_DROPPED]), [1.0, 2.0, 2.5, -1.0]
    rows = table(4, scheduled_ns=[0, 1, 2, 3], issued_ns=[0.5, 1, 2, -1], done_ns=done, status=status)
    assert lateness.backlog(rows, Window(0, 4, 0, 4 * S)).behind
    one = lateness.backlog(table(2, scheduled_ns=[1, 1], done_ns=[2, 2]), Window(0, 2, 0, S))
    assert isinstance(one.fields["offered_rate_qps"], Absent) and not one.behind


# -- workers -----------------------------------------------------------------------------------------------------------


def rows_of(done: list[float], first: int = 0, stop: int | None = None, **keys: Any) -> workers.Rows:
    n = len(done)
    times = {"issued_ns": np.array(done) - 0.5, "done_ns": done} | {
        k: v for k, v in keys.items() if k.endswith("_ns")
    }
    other = {k: v for k, v in keys.items() if k in ("status", "samples")}
    made = table(n, **times, **other).columns
    return workers.Rows(made, first, n if stop is None else stop, keys.get("ran_on", True))


def test_the_window_of_several_workers_is_that_of_all_at_work():
    one, two = rows_of([1, 2, 3, 4, 5], 1), rows_of([1.2, 2.4, 9], 1, 2, ran_on=False)
    assert one.ends() == (int(1.5 * S), 5 * S) and two.ends() == (int(1.9 * S), int(2.4 * S))
    assert workers.window_of([one, two], S, 8 * S) == (int(1.9 * S), int(2.4 * S))
    assert workers.window_of([one], S, 4 * S) == (int(1.5 * S), 4 * S)
    none = rows_of([1.0], 1)
    assert none.ends() == (-1, -1) and workers.window_of([none], S, 4 * S) == (S, 4 * S)
    assert one.inside(2 * S, 4 * S).tolist() == [False, True, True, True, False], "both ends count"
    assert two.inside(0, 9 * S).tolist() == [False, True, False] and one.samples == 1
    dropped = rows_of(
        [3.0, 3.0], status=[QUERY_DROPPED, QUERY_OK], scheduled_ns=[1.0, 1.0], issued_ns=[2.0, 2.0]
    )
    assert dropped.inside(2 * S, 2 * S).tolist() == [True, False]
    queries, window = one.within(2 * S, 4 * S)
    assert (len(queries), window) == (3, Window(0, 3, 2 * S, 4 * S))


def test_rows_of_all_workers_in_one_table():
    parts = [rows_of([1, 2, 3]), rows_of([1.5, 2.5, 3.5]), rows_of([2.2])]
    queries, window = workers.joined(parts, 2, 2 * S, 3 * S)
    assert (window.first, window.stop) == (3, 6)
    assert (queries.columns["done_ns"] / S).tolist() == [1, 1.5, 3.5, 2, 2.5, 3, 2.2]
    assert queries.columns["worker"].tolist() == [0, 1, 1, 0, 1, 0, 2]
    inside = workers.of_worker(queries, 0, Window(0, 0, 2 * S, 3 * S))
    assert (inside.columns["done_ns"] / S).tolist() == [3], "what was done at the very start is not"
    due = workers.due_in(queries, [0, 2], Window(0, 0, int(1.5 * S), int(2.5 * S)))
    assert (due.columns["issued_ns"] / S).tolist() == [1.5, 1.7, 2.5]


def test_fairness_and_skew():
    def each(*values: float) -> list[Any]:
        return [Measured(v, "x") if v else Absent("x") for v in values]

    assert workers.jain(each(2, 2)).value == 1.0 and workers.jain(each(2, 0)).value == 0.5
    assert workers.jain(each(1, 3)).value == pytest.approx(16 / 20) and isinstance(
        workers.jain(each(0, 0)), Absent
    )
    assert workers.skew([S, 3 * S, 2 * S]) == Measured(2.0, "s", n=3) and workers.skew([0, 0]).value == 0.0
    assert isinstance(workers.skew([S, -1]), Absent) and isinstance(workers.skew([]), Absent)
    assert workers._divided(Measured(6.0, "x", 3.0, None, 7), 3) == Measured(2.0, "x", 1.0, None, 7)


@pytest.mark.parametrize(
    ("counts", "looks", "gap"),
    [
        ((0, 4), ((0, 0), (4, 4)), 0),
        ((0, 6), ((0, 0), (4, 4)), 1),
        ((0, 2), ((0, 0), (4, 4)), 1),
        ((0, 5), ((0, 0), (4, 4)), 1),
        ((0, 9), ((0, 0), (4, 4)), 3),
        ((3, 7), ((0, 0), (4, 4)), 0),
        ((0, 4), ((0, 1.5), (2.5, 4)), 0),
        ((0, 0), ((0, 2.5), (2.5, 2.5)), 0),
        ((0, 4), ((0, 2.5), (2.5, 2.5)), 0),
        ((0, 5), ((0, 2.5), (2.5, 2.5)), 1),
    ],
)
def test_the_counter_and_the_rows_agree_within_the_time_of_a_look(counts, looks, gap):
    """Two queries of two samples each, done after 1 s and 2 s."""
    rows = rows_of([2.0, 1.0], samples=[2, 2])
    spans_ns = tuple((int(a * S), int(b * S)) for a, b in looks)
    assert workers.counter_gap(rows, counts, spans_ns) == gap  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("skew_s", "gap", "each", "cores", "codes"),
    [
        (0.001, 1, [20, 20], 4, []),
        (0.0011, 1, [20], 4, ["W-WORKER-1"]),
        (0.0, 2, [20], 4, ["W-WORKER-3"]),
        (0.0, 0, [20, 19], 4, ["W-WORKER-4"]),
        (0.0, 0, [], 4, []),
    ],
)
def test_what_is_told_of_workers(skew_s, gap, each, cores, codes):
    fields = {"start_skew_s": Measured(skew_s, "s"), "counter_gap_queries": Measured(float(gap), "queries")}
    told = workers.warnings(Trial(model="m", processes=2), fields, each, cores)
    assert [w.code for w in told] == codes
    for n, fix in ((2, True), (1, False)):
        (late,) = workers.warnings(Trial(model="m", processes=2), {"start_skew_s": Measured(1.0, "s")}, [], n)
        assert bool(late.fix) is fix


@pytest.mark.parametrize(
    ("given", "union"),
    [
        ([(5, 20), (0, 10), (2, 3), (30, 40), (35, 36)], [[0, 20], [30, 40]]),
        ([(0, 10), (10, 12), (13, 14)], [[0, 12], [13, 14]]),
        ([(0, 9), (1, 2), (5, 6), (10, 11)], [[0, 9], [10, 11]]),
        ([(3, 4)], [[3, 4]]),
        ([], []),
    ],
)
def test_the_union_of_intervals_is_of_disjoint_ones(given, union):
    assert epochs._merged(np.array(given, np.int64)).tolist() == union


def test_what_intervals_have_of_fetches_is_counted_for_each():
    fetches = np.array([[10, 20], [30, 40]], np.int64) + 10**15
    starts, ends = (np.array(t, np.int64) + 10**15 for t in ([0, 12, 15, 22], [5, 18, 35, 28]))
    assert epochs._overlap(starts, ends, fetches) == 0 + 6 + (5 + 5) + 0
    assert epochs._overlap(starts[:0], ends[:0], fetches) == 0.0 == epochs._overlap(starts, ends, fetches[:0])


def test_each_worker_has_its_own_share_of_the_window():
    crew = tuple(Worker(number=n, model="null", pid=n + 1) for n in (0, 1))
    rows = table(6, worker=[0, 1, 0, 0, 1, 0], issued_ns=[0] * 6, done_ns=[1, 1, 2, 3, 4, 4])
    made = replace(result(), workers=crew, queries=rows, window=Window(0, 6, 0, 4 * S))
    each = workers.shares(made)
    assert [share.worker for share in each] == list(crew)
    assert [share.throughput_sps.value for share in each] == [1.0, 0.5]
    assert workers.shares(replace(made, queries=None)) == [] == workers.shares(replace(made, window=None))
    assert workers.shares(replace(made, workers=())) == []


NOISE = noise.Noise(
    machine_id="machine",
    measured_at="2026-01-02T03:04",
    workload="resnet",
    pairs=20,
    spread=0.01,
    floor=0.0213,
    detectable=0.0321,
    needed={"1%": 40, "2%": None},
    verdicts={"CLEAN": 38, "DISTURBED": 2},
    p50_s=[(0.25, 0.5), (1.0, 2.0)],
)


def test_a_machines_noise_is_read_as_it_was_written(tmp_path):
    path = noise.save(NOISE, tmp_path)
    assert path == tmp_path / "machine" / "noise.json" and list(path.parent.iterdir()) == [path]
    assert noise.stored(tmp_path, "machine") == NOISE and noise.stored(tmp_path, "another") is None
    page = json.loads(path.read_text())
    for spoilt in (
        page | {"spread": "x"},
        page | {"p50_s": [[1.0]]},
        page | {"needed": 3},
        page | {"more": 1},
        {k: v for k, v in page.items() if k != "floor"},
        [],
    ):
        path.write_text(json.dumps(spoilt))
        assert noise.stored(tmp_path, "machine") is None, spoilt
    path.write_text("{")
    assert noise.stored(tmp_path, "machine") is None


def test_noise_in_words_tells_what_pairs_find_and_what_disturbed_them():
    said = noise.words(NOISE)
    assert "up to 2.13% (95 % of pairs; 20 pairs of resnet, 2026-01-02)" in said
    assert "5 pairs detect 3.21%; 1% needs 40, 2% needs over 10,000 replicates" in said
    assert "2 of 40 runs were not CLEAN" in said
    assert "CLEAN" not in noise.words(replace(NOISE, verdicts={"CLEAN": 40}))


def test_the_spread_is_about_a_known_mean_of_no_difference():
    assert noise.spread([(math.e, 1.0), (1.0, math.e)]) == pytest.approx(1.0)
    assert noise.spread([(2.0, 1.0), (1.0, 1.0)]) == pytest.approx(math.log(2) / math.sqrt(2))


# -- results of live inputs --------------------------------------------------------------------------------------------


def live(n: int, **columns: Any) -> Queries:
    """Queries due every 10 ms that take 4 ms."""
    due = 1 + 0.01 * np.arange(n)
    return table(n, **{"scheduled_ns": due, "issued_ns": due, "done_ns": due + 0.004} | columns)


def test_a_closed_loop_without_time_stamps_has_no_ages_and_may_have_a_deadline():
    assert summary.live_metrics(live(30), "single_stream", None) == {}
    assert set(summary.live_metrics(live(30), "single_stream", 0.1)) == set(lateness.MISSES)


def test_an_open_loop_without_time_stamps_has_a_queue_and_no_ages():
    found = summary.live_metrics(live(30), "fixed_rate", None)
    assert {name for name, f in found.items() if f == lateness.UNSTAMPED} == set(lateness.NAMES) - {
        "jitter_s"
    }
    assert found["jitter_s"].value == 0.0 and found["dropped_share"].value == 0.0
    assert found["queue_depth_max"].value == 1 and "deadline_miss_ratio" not in found


@pytest.mark.parametrize("scenario", ["single_stream", "fixed_rate"])
def test_time_stamps_give_results_an_age(scenario):
    age = np.linspace(0.010, 0.020, 300)[np.random.default_rng(1).permutation(300)]
    rows = live(300)
    rows.columns["source_ns"] = rows.columns["done_ns"] - np.rint(age * S).astype(np.int64)
    found = summary.live_metrics(rows, scenario, 0.015)
    assert found["frame_age_p50_s"].value == pytest.approx(np.quantile(age, 0.5), rel=1e-3)
    assert found["frame_age_p99_s"].value == pytest.approx(np.quantile(age, 0.99), rel=1e-3)
    assert "need 459" in found["frame_age_p99_bound_s"].reason
    assert found["frame_age_growth"].n == 300 and abs(found["frame_age_growth"].value) < 1e-3
    assert found["jitter_s"].value == pytest.approx(np.abs(np.diff(age)).mean(), rel=1e-3)
    assert found["deadline_miss_ratio"].value == pytest.approx((age > 0.015).mean())
    assert found["dropped_share"].value == 0.0 and found["queue_depth_mean"].value > 0
