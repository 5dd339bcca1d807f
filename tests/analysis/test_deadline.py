"""Misses of a deadline, and the ages of frames, on rows that are written down."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.run import lateness
from edgescope.analysis.run.lateness import MISSES, depth, dropped_share, misses, queue_depth
from edgescope.records import QUERY_DROPPED, QUERY_DTYPES, QUERY_ERROR, QUERY_OK, Absent, Queries

MS = 1_000_000


def rows(ages_ms, *, period_ms=33, status=None, worker=None, source=False):
    """Queries due every `period_ms`, with results so many milliseconds later."""
    n, due = len(ages_ms), np.arange(len(ages_ms)) * period_ms * MS
    columns = {name: np.full(n, -1, dtype=dtype) for name, dtype in QUERY_DTYPES.items()}
    columns["query_id"] = np.arange(n)
    columns["source_ns" if source else "scheduled_ns"] = due
    columns["issued_ns"] = due
    columns["done_ns"] = due + (np.asarray(ages_ms) * MS).astype(np.int64)
    columns["samples"] = np.ones(n, dtype=np.int32)
    columns["stream"] = np.zeros(n, dtype=np.int16)
    columns["worker"] = np.asarray(worker if worker is not None else [0] * n, dtype=np.int16)
    columns["status"] = np.asarray(status if status is not None else [QUERY_OK] * n, dtype=np.int8)
    columns["done_ns"] = np.where(columns["status"] == QUERY_DROPPED, -1, columns["done_ns"])
    return Queries(columns)


def values(found):
    return [getattr(found[name], "value", None) for name in MISSES]


@pytest.mark.parametrize("source", [False, True])
def test_misses_are_counted_from_the_stamp_or_the_due_time(source):
    found = misses(rows([10, 33, 33.5, 40, 10, 50, 10, 10], source=source), 0.033)
    assert values(found) == [3 / 8, pytest.approx(0.017), 2.0]
    assert found["deadline_overrun_worst_s"].n == 3


def test_a_drop_and_an_error_are_misses_without_an_overrun():
    status = [QUERY_OK, QUERY_DROPPED, QUERY_ERROR, QUERY_DROPPED, QUERY_OK]
    found = misses(rows([10] * 5, status=status), 0.033)
    assert values(found) == [0.6, None, 3.0]
    assert "had no result" in found["deadline_overrun_worst_s"].reason
    assert "no query missed" in misses(rows([10] * 5), 0.033)["deadline_overrun_worst_s"].reason
    assert dropped_share(rows([10] * 5, status=status)).value == 0.4


def test_a_run_of_misses_is_one_workers_own():
    """Two workers that take turns: neither misses twice in a row."""
    found = misses(rows([50, 50, 10, 10] * 3, worker=[0, 1] * 6), 0.033)
    assert found["deadline_miss_burst"].value == 1.0
    assert misses(rows([50, 50, 10, 10] * 3), 0.033)["deadline_miss_burst"].value == 2.0


def test_a_closed_loop_without_stamps_has_no_misses_and_no_ages():
    closed = rows([10] * 30)
    closed.columns["scheduled_ns"][:] = -1
    assert all(isinstance(f, Absent) and "closed loop" in f.reason for f in misses(closed, 0.033).values())
    assert isinstance(lateness.jitter(closed), Absent)
    assert all(isinstance(f, Absent) for f in misses(rows([]), 0.033).values())


@given(st.lists(st.floats(1, 100), min_size=1, max_size=60), st.floats(0.001, 0.1))
@pytest.mark.slow
def test_a_longer_deadline_is_never_missed_more_often(ages, deadline_s):
    queries = rows(ages)
    short, long = (misses(queries, d) for d in (deadline_s, 2 * deadline_s))
    for name in ("deadline_miss_ratio", "deadline_miss_burst"):
        assert long[name].value <= short[name].value
    ratio = short["deadline_miss_ratio"]
    assert 0 <= ratio.lo <= ratio.value <= ratio.hi <= 1
    assert (short["deadline_miss_burst"].value == 0) == (ratio.value == 0)


def test_misses_in_bursts_count_for_fewer_queries():
    rng = np.random.default_rng(0)
    scattered = np.where(rng.random(2000) < 0.05, 40, 10)
    bursts = np.where(np.arange(2000) % 400 < 20, 40, 10)
    wide = [(f := misses(rows(a), 0.033)["deadline_miss_ratio"]).hi - f.lo for a in (scattered, bursts)]
    assert wide[1] > 2.5 * wide[0]


def test_jitter_is_rfc_3550s_change_of_transit_times():
    """S 0, 33, 66, 99; ages 10, 14, 8, 8: D = 4, -6, 0."""
    assert lateness.jitter(rows([10, 14, 8, 8], source=True)).value == pytest.approx(10 / 3 * 1e-3)
    apart = lateness.jitter(rows([10, 30, 10, 30, 10, 30], worker=[0, 1] * 3))
    assert apart.value == 0.0  # of each worker by itself


def test_ages_grow_by_the_slope_that_was_put_in():
    steps = np.arange(600)
    found = lateness.age_growth(
        rows(20 + steps * 33 * 0.25, source=True)
    )  # a quarter of a second each second
    assert found.value == pytest.approx(0.25 / 1.25, rel=1e-6)  # seen when the results come
    assert found.lo <= found.value * 1.01 and found.hi >= found.value * 0.99
    steady = lateness.age_growth(rows(20 + np.random.default_rng(1).random(600), source=True))
    assert steady.lo is None


def test_depth_counts_what_is_due_and_not_done():
    queries = rows([50, 50, 10, 70], period_ms=20)  # due 0 20 40 60, done 50 70 50 130
    times, count = depth(queries)
    assert (times // MS).tolist() == [0, 20, 40, 50, 50, 60, 70, 130]
    assert count.tolist() == [1, 2, 3, 2, 1, 2, 1, 0]
    found = queue_depth(queries)
    assert found["queue_depth_max"].value == 3.0
    assert found["queue_depth_mean"].value == pytest.approx((50 + 50 + 10 + 70) / 130)  # Little's law
