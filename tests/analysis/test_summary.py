"""Numbers of a run from rows whose truth is known."""

import time

import numpy as np
import pytest

from edgescope.analysis.run.summary import metrics, speeds, warnings
from edgescope.records import QUERY_ERROR, Absent, Measured, Queries, Window

MS = 1_000_000


def noisy(n, seed=0):
    return (MS * (1 + 0.1 * np.random.default_rng(seed).exponential(size=n))).astype(np.int64)


def test_point_values(make):
    latency = noisy(2000)
    found = metrics(*make.rows(latency, samples=4))
    assert found["latency_mean_s"].value == pytest.approx(latency.mean() * 1e-9)
    for name, q in (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)):
        field = found[f"latency_{name}_s"]
        assert field.value == pytest.approx(np.quantile(latency, q) * 1e-9)
        assert field.lo <= field.value <= field.hi and (field.unit, field.n) == ("s", 2000)
    assert found["latency_max_s"].value == pytest.approx(latency.max() * 1e-9)
    assert found["throughput_sps"].value == pytest.approx(4 * 2000 / (latency.sum() * 1e-9))
    assert found["throughput_sps"].lo < found["throughput_sps"].value < found["throughput_sps"].hi
    assert found["latency_p99_bound_s"].value > found["latency_p99_s"].value
    assert found["latency_cv"].value == pytest.approx(latency.std(ddof=1) / latency.mean())


def test_no_query_takes_time_has_no_spread_to_share(make):
    found = metrics(*make.rows(np.zeros(500, dtype=np.int64)))
    assert found["latency_mean_s"].value == 0
    for name in ("latency_cv", "drift"):
        assert isinstance(found[name], Absent) and "0 s" in found[name].reason


def test_p99_needs_100_for_a_point_and_459_effective_for_a_bound(make):
    few = metrics(*make.rows(noisy(99)))
    assert few["latency_p99_s"] == Absent("n/a: have 99, need 100")
    some = metrics(*make.rows(noisy(300)))
    assert some["latency_p99_s"].lo is None and some["latency_p99_s"].hi is None
    assert some["latency_p99_bound_s"].reason.endswith(", need 459")
    assert some["latency_p99_early_stopping_s"] == Absent("n/a: have 300, need 662")


def test_warm_up_rows_are_left_out(make):
    latency = np.concatenate([np.full(10, 50 * MS), noisy(500)])
    found = metrics(*make.rows(latency, warmup=10))
    assert found["queries"].value == 500
    assert found["latency_max_s"].value < 0.010
    assert found["throughput_sps"].value == pytest.approx(500 / (latency[10:].sum() * 1e-9))


def test_failed_and_dropped_queries_count_and_have_no_latency(make):
    status = np.zeros(1000, dtype=np.int8)
    status[::10], status[5::100] = 1, 2
    latency = np.where(status > 0, 900 * MS, noisy(1000))
    queries, window = make.rows(latency, status=status)
    found = metrics(queries, window)
    assert (found["queries"].value, found["errors"].value, found["dropped"].value) == (1000, 100, 10)
    assert found["latency_max_s"].value < 0.1
    assert found["throughput_sps"].value == pytest.approx(890 / ((window.stop_ns - window.start_ns) * 1e-9))
    assert any("110 of 1000 queries" in str(w) for w in warnings(queries, window))


def test_latency_runs_from_the_scheduled_time(make):
    queries, window = make.rows(np.full(200, MS))
    columns = dict(queries.columns)
    columns["scheduled_ns"] = columns["issued_ns"] - 4 * MS + 10 * MS  # clear of -1
    columns["done_ns"] = columns["done_ns"] + 10 * MS
    found = metrics(Queries(columns), window)
    assert found["latency_p50_s"].value == pytest.approx(0.005)


@pytest.mark.parametrize("n", [0, 1, 2, 7])
def test_tiny_runs_give_reasons_not_numbers(make, n):
    found = metrics(*make.rows(np.full(n, MS)))
    assert isinstance(found["latency_p99_s"], Absent) and isinstance(found["drift"], Absent)
    assert isinstance(found["latency_mean_s"], Absent if n < 2 else Measured)
    assert n > 1 or isinstance(found["throughput_sps"], Absent if n == 0 else Measured)


def test_a_window_without_length_has_no_throughput(make):
    queries, _ = make.rows(np.full(5, MS))
    assert isinstance(metrics(queries, Window(0, 5, 7, 7))["throughput_sps"], Absent)


def test_offline_has_throughput_and_no_latency(make):
    run = make.rows(noisy(40) * np.linspace(1, 9, 40))
    found = metrics(*run, "offline")
    assert isinstance(found["latency_p50_s"], Absent) and isinstance(found["drift"], Absent)
    assert isinstance(found["throughput_sps"], Measured) and found["queries"].value == 40
    assert warnings(*run, "offline") == ()


def test_short_run_is_called_unreliable(make):
    run = make.rows(noisy(40))
    assert metrics(*run)["latency_mean_s"].lo is None
    assert any(
        str(w).startswith("W-STAT-3: interval unreliable (40 effective samples, need 100)")
        for w in warnings(*run)
    )


def test_drift_is_measured_and_warned_of(make):
    run = make.rows(noisy(3000) * np.linspace(1, 1.2, 3000))
    drift = metrics(*run)["drift"]
    assert drift.value == pytest.approx(0.2 / 1.1, rel=0.1) and drift.lo > 0
    assert any(w.code == "W-STAT-4" and " +1" in w.what for w in warnings(*run))
    assert warnings(*make.rows(noisy(3000))) == ()


@pytest.mark.slow
def test_a_million_rows_are_quick(make):
    run = make.rows(noisy(1_000_000))
    start = time.process_time()
    metrics(*run)
    assert time.process_time() - start < 1.5


def stepped(*parts):
    """Latencies of so many queries each at so many milliseconds, within one per mille of it."""
    rng = np.random.default_rng(0)
    return np.concatenate([ms * MS * (1 + 0.001 * rng.uniform(-1, 1, n)) for ms, n in parts]).astype(np.int64)


def test_the_speeds_of_a_window_are_told_with_their_shares_and_changes(make):
    run = make.rows(stepped((1, 600), (2, 300)))
    told = speeds(*run, "single_stream")
    assert told == "two speed states: 1 ms for 50%, 2 ms for 50%; change at 0.6 s"
    assert speeds(*make.rows(stepped((1, 900))), "single_stream") == ""
    assert speeds(*run, "offline") == "" and speeds(*run, "idle_gap") == ""
    back = make.rows(stepped((1, 600), (2, 300), (1, 600)))
    assert speeds(*back, "single_stream").endswith("changes at 0.6 s, 1.2 s")
    four, five = (make.rows(stepped(*((1 + k % 2, 600) for k in range(n)))) for n in (4, 5))
    assert speeds(*four, "single_stream").endswith("changes at 0.6 s, 1.8 s, 2.4 s")
    assert speeds(*five, "single_stream").endswith("changes at 0.6 s, 1.8 s, 2.4 s and 1 more")
    three = make.rows(stepped((1, 600), (2, 600), (4, 600)))
    assert speeds(*three, "single_stream").startswith(
        "three speed states: 1 ms for 14%, 2 ms for 29%, 4 ms for 57%"
    )


def test_the_speeds_are_those_of_one_worker_and_of_what_succeeded(make):
    queries, window = make.rows(stepped((1, 600), (2, 300)))
    queries.columns["worker"][:] = 0
    assert speeds(queries, window, "single_stream")
    shared = Queries(queries.columns | {"worker": np.arange(900) % 2})
    assert speeds(shared, window, "single_stream") == ""
    failed = Queries(queries.columns | {"status": np.where(np.arange(900) < 600, QUERY_ERROR, 0)})
    assert speeds(failed, window, "single_stream") == ""
    slowed = Queries(queries.columns | {"scheduled_ns": queries.columns["issued_ns"] - MS})
    assert speeds(slowed, window, "single_stream") == speeds(queries, window, "single_stream")


def codes(*of, **keys):
    return [w.code for w in warnings(*of, **keys)]


def test_each_warning_has_its_own_condition(make):
    two = make.rows(stepped((1, 600), (2, 300)))
    assert "W-STATE-1" in codes(*two) and "W-STAT-4" not in codes(*two)
    slope = np.linspace(1, 1.019, 3000)
    assert codes(*make.rows(noisy(3000) * slope)) == []
    assert codes(*make.rows(noisy(3000) * np.linspace(1, 1.03, 3000))) == ["W-STAT-4"]
    assert codes(*make.rows(noisy(3000) * np.linspace(1, 1.03, 3000)), scenario="offline") == []
    failed = make.rows(noisy(3000), status=[QUERY_ERROR] + [0] * 2999)
    (told,) = warnings(*failed)
    assert told.code == "W-STAT-5" and str(told).startswith("W-STAT-5: 1 of 3000 queries")
    assert codes(*failed, scenario="offline") == ["W-STAT-5"]
