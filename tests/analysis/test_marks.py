"""Figures of marks: quantiles over the window's queries, whichever workers they are of, and nothing else."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope import metrics
from edgescope.analysis.run import summary, workers
from edgescope.clock import MonotonicClock
from edgescope.metrics import METRICS
from edgescope.records import (
    QUERY_DROPPED,
    QUERY_DTYPES,
    QUERY_ERROR,
    QUERY_OK,
    Absent,
    Measured,
    Queries,
    Trial,
    Window,
    Worker,
    mark_column,
)
from edgescope.scenarios import SingleStream
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.blocking import Failures, Inline, Unit

FIRST_TOKEN = """
[first_token_p50_s]
title = "Median time to first token"
unit = "s"
merge = "rows"
of_mark = "first_token"

[later_tokens_p25_s]
title = "Time from the first token to the last"
unit = "s"
merge = "rows"
of_mark = "last_token"
since = "first_token"
mark_quantile = 0.25
"""
S = 1_000_000_000


@pytest.fixture(scope="module", autouse=True)
def tokens():
    """Two metrics of a workload that generates text, as a package adds them."""
    before = dict(METRICS)
    metrics.add(FIRST_TOKEN)
    yield
    METRICS.clear()
    METRICS.update(before)


def made(issued, took, found=None, **columns):
    """Rows that were issued at some nanoseconds and took some; `found`: name -> moments of a mark."""
    n = len(issued)
    table = {name: np.full(n, -1, kind) for name, kind in QUERY_DTYPES.items()}
    table |= {"query_id": np.arange(n), "worker": np.zeros(n, np.int16), "status": np.zeros(n, np.int8)}
    table |= {
        "issued_ns": np.array(issued, np.int64),
        "done_ns": np.array(issued, np.int64) + np.array(took, np.int64),
    }
    table |= {"samples": np.ones(n, np.int32)}
    table |= {name: np.array(values, QUERY_DTYPES[name]) for name, values in columns.items()}
    table |= {mark_column(name): np.array(moments, np.int64) for name, moments in (found or {}).items()}
    return Queries(table)


def test_a_time_runs_from_when_the_query_was_due_or_from_another_mark():
    rows = made([10, 20, 30], [9, 9, 9], {"first_token": [12, 24, 36], "last_token": [15, 25, 39]})
    assert summary.took_ns(rows, "first_token").tolist() == [2, 4, 6]
    assert summary.took_ns(rows, "last_token", "first_token").tolist() == [3, 1, 3]
    found = summary.of_marks(rows)
    assert set(found) == {"first_token_p50_s", "later_tokens_p25_s", "ttft_p50_s", "ttft_p99_s"}
    assert found["first_token_p50_s"].value == pytest.approx(4e-9)
    assert found["later_tokens_p25_s"].value == pytest.approx(2e-9)
    waited = made([10, 20], [9, 9], {"first_token": [12, 24]}, scheduled_ns=[0, 20])
    assert summary.took_ns(waited, "first_token").tolist() == [12, 4]


def test_a_query_that_failed_or_lacks_one_of_the_moments_does_not_count():
    states = [QUERY_OK, QUERY_ERROR, QUERY_DROPPED, QUERY_OK, QUERY_OK]
    moments = {"a_begin": [1, 1, 1, -1, 0], "a_end": [5, 6, 7, 8, 9]}
    rows = made([0] * 5, [9] * 5, moments, status=states)
    assert summary.took_ns(rows, "a_end", "a_begin").tolist() == [4, 9]
    failed = made([0], [9], {"a_begin": [1], "a_end": [5]}, status=[QUERY_ERROR])
    assert isinstance(summary.of_marks(failed)["a_part_p50_s"], Absent)
    assert summary.of_marks(made([0], [9], {"a_begin": [-1], "a_end": [-1]})) == {}


def test_each_part_has_its_figures_without_a_table_of_its_own():
    rows = made(
        [0] * 200,
        [9] * 200,
        {
            f"{n}_{at}": np.arange(200) * k
            for n, at, k in (("x", "begin", 0), ("x", "end", 1), ("y", "end", 1), ("z", "begin", 1))
        },
    )
    found = summary.of_marks(rows)
    assert set(found) == {"x_part_p50_s", "x_part_p99_s"}
    assert found["x_part_p99_s"].value == pytest.approx(np.quantile(np.arange(200), 0.99) * 1e-9)
    few = summary.of_marks(Queries({k: v[:99] for k, v in rows.columns.items()}))
    assert isinstance(few["x_part_p99_s"], Absent) and isinstance(few["x_part_p50_s"], Measured)
    assert metrics.find("x_part_p50_s").name == "*_part_p50_s"


def test_work_without_marks_has_no_figures_of_any():
    assert summary.of_marks(made([0, 1], [2, 2])) == {}


def test_the_summary_has_those_of_the_window_and_offline_none_since_a_query_was_due():
    rows = made([0, 10, 20, 30], [9] * 4, {"first_token": [9, 14, 24, 34], "last_token": [9, 15, 25, 35]})
    found = summary.metrics(rows, Window(1, 4, 10, 39))
    assert found["first_token_p50_s"] == Measured(pytest.approx(4e-9), "s", n=3)
    offline = summary.metrics(rows, Window(1, 4, 10, 39), "offline")
    assert offline["first_token_p50_s"] == summary.NOT_DUE
    assert offline["later_tokens_p25_s"].n == 3


unit = st.tuples(
    st.integers(0, 2),  # worker
    st.integers(1, 10**6),  # from issue to the first token
    st.integers(0, 10**6),  # and on to the last
    st.sampled_from([QUERY_OK, QUERY_OK, QUERY_OK, QUERY_ERROR]),
    st.booleans(),  # whether it reached the first token
)


def of_workers(units, count, warm):
    """The rows of some workers, `warm` of each before the window; query k is issued in millisecond k."""
    parts = []
    for number in range(count):
        mine = [(k, *each[1:]) for k, each in enumerate(units) if each[0] % count == number]
        issued = [-2_000_000 - k for k in range(warm)] + [k * 10_000_000 for k, *_ in mine]
        first = [5] * warm + [k * 10_000_000 + a if told else -1 for k, a, _, _, told in mine]
        last = [6] * warm + [k * 10_000_000 + a + b for k, a, b, *_ in mine]
        took = [1] * warm + [2_000_001] * len(mine)
        states = [QUERY_OK] * warm + [each[3] for each in mine]
        table = made(issued, took, {"first_token": first, "last_token": last}, status=states).columns
        parts.append(workers.Rows(table, warm, warm + len(mine)))
    return parts


@settings(max_examples=60)
@given(st.lists(unit, min_size=3, max_size=60), st.integers(1, 3), st.integers(0, 5))
def test_figures_are_of_the_pooled_queries_whichever_worker_answered_them_and_however_long_it_warmed_up(
    units, count, warm
):
    def figures(count, warm):
        queries, window = workers.joined(of_workers(units, count, warm), count, 0, len(units) * 10_000_000)
        return summary.of_marks(queries.rows(window))

    found = figures(count, warm)
    assert found == figures(1, 0)
    right = [(a, b) for _, a, b, status, told in units if status == QUERY_OK and told]
    for name, values, q in (
        ("first_token_p50_s", [a for a, _ in right], 0.5),
        ("later_tokens_p25_s", [b for _, b in right], 0.25),
    ):
        if len(values) < 2:
            assert not isinstance(found.get(name), Measured)
            continue
        assert found[name].n == len(values)
        assert found[name].value == pytest.approx(float(np.quantile(values, q)) * 1e-9)


def test_a_worker_beside_that_notes_other_marks_adds_nothing():
    own = workers.Rows(made([0, 10], [9, 9], {"first_token": [4, 16]}).columns, 0, 2)
    beside = workers.Rows(
        made([0, 10], [9, 9], {"forward_begin": [0, 10], "forward_end": [5, 15]}).columns, 0, 2
    )
    plain = workers.Rows(made([0, 10], [9, 9]).columns, 0, 2)
    queries, window = workers.joined([own, plain, beside], 2, 0, 100)
    assert queries.marks["first_token"].tolist() == [4, -1, 16, -1, -1, -1]
    assert queries.marks["forward_end"].tolist() == [-1, -1, -1, -1, 5, 15]
    trial = Trial(model="null", backend="null", processes=2)
    own_two = [Worker(number=n, model="null", pid=n, start_ns=0, stop_ns=19) for n in (0, 1)]
    found = workers.worker_metrics(trial, queries, window, own_two)
    assert found["first_token_p50_s"] == Measured(pytest.approx(5e-9), "s", n=2)
    assert "forward_part_p50_s" not in found


def test_a_query_that_the_stop_cut_off_counts_as_its_latency_does():
    """One of two workers is at work when the window ends: to leave its query out would leave out slow ones."""
    trial = Trial(model="null", backend="null", processes=2)
    parts = [
        made([0, 10], [9, 9], {"first_token": [4, 16]}),
        made([0, 50], [9, 200], {"first_token": [8, 150]}),
    ]
    table = [workers.Rows(part.columns, 0, 2) for part in parts]
    queries, window = workers.joined(table, 2, 0, 100)
    both = [Worker(number=n, model="null", pid=n, start_ns=0, stop_ns=100) for n in (0, 1)]
    found = workers.worker_metrics(trial, queries, window, both)
    assert found["queries"].n == 3 and found["latency_p50_s"].n == found["first_token_p50_s"].n == 4
    assert found["first_token_p50_s"].value == pytest.approx(7e-9)


def test_a_workload_that_notes_its_first_token_has_its_figure():
    """All the way through the seam: a blocking call, a closed loop, its log, and the summary of its window."""
    clock = MonotonicClock()

    def generate(query_id):
        return Unit(5, {"first_token": clock.now()})

    trial = Trial(model="null", backend="null", warmup=0.0, max_queries=20, min_s=0.0, max_s=1.0)
    plan = Plan(trial)
    queries = SingleStream(trial, plan).drive(Inline(generate, Failures()), clock)
    found = summary.metrics(queries, plan.window)
    assert found["first_token_p50_s"].n == found["queries"].n == len(queries.rows(plan.window))
    assert 0 <= found["first_token_p50_s"].value <= found["latency_max_s"].value
    assert found["throughput_sps"].n and set(queries.columns["samples"]) == {5}
