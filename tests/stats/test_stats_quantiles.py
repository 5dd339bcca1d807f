"""Percentile bounds: exact coverage when independent, simulated coverage when not, LoadGen's own answers."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.signal import lfilter

from edgescope.records import Absent
from edgescope.stats import (
    early_stopping_estimate,
    needed,
    percentile,
    quantile_interval,
    upper_bound,
    upper_rank,
)

LINEAR = np.arange(1.0, 1001.0)


@given(
    st.integers(1, 20_000),
    st.sampled_from([0.5, 0.9, 0.95, 0.99, 0.999]),
    st.sampled_from([0.95, 0.975, 0.99]),
)
def test_upper_rank_is_the_smallest_that_covers_exactly(n, q, confidence):
    rank = upper_rank(n, q, confidence)
    if rank is None:
        assert n < needed(q, confidence)
        assert 1 - q**n < confidence
    else:
        assert stats.binom.cdf(rank - 1, n, q) >= confidence - 1e-9
        assert rank == 1 or stats.binom.cdf(rank - 2, n, q) < confidence + 1e-9


def test_p99_needs_459():
    assert needed(0.99, 0.99) == 459
    assert upper_rank(458, 0.99, 0.99) is None
    assert upper_rank(459, 0.99, 0.99) == 459


def test_bound_of_459_samples_is_the_slowest():
    x = np.random.default_rng(0).permutation(np.arange(459.0))
    assert upper_bound(x, 0.99) == 458.0


def test_refusal_says_what_it_has_and_needs():
    x = np.random.default_rng(1).exponential(size=300)
    assert upper_bound(x, 0.99) == Absent("n/a: have 300, need 459")


@settings(max_examples=50)
@given(st.integers(8, 5000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_quantile_interval_covers_exactly_when_independent(n, q):
    x = np.random.default_rng(n).permutation(np.arange(1.0, n + 1.0))
    interval = quantile_interval(x, q)
    if isinstance(interval, Absent):
        assert 1 - q**n < 0.975 or 1 - (1 - q) ** n < 0.975 or n < 600  # the last: chance correlation
        return
    if interval.n_eff < n:  # a permutation that looks correlated by chance: wider, still covers
        return
    below = stats.binom.cdf(interval.hi - 1, n, q) - stats.binom.cdf(interval.lo - 1, n, q)
    assert below >= 0.95 - 1e-9
    assert interval.lo <= interval.value <= interval.hi


def test_p99_bound_covers_an_autocorrelated_series_or_is_refused():
    rho = 0.9
    noise = np.random.default_rng(21).normal(size=(1000, 12_200)) * np.sqrt(1 - rho**2)
    series = 1 + 0.1 * lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:]
    truth = 1 + 0.1 * stats.norm.ppf(0.99)
    bounds = [upper_bound(x, 0.99) for x in series]
    given_ = [b for b in bounds if not isinstance(b, Absent)]
    assert len(given_) >= 900
    assert np.mean([b >= truth for b in given_]) >= 0.97
    assert np.median(given_) <= 1.08 * truth
    early = [upper_bound(x[:3000], 0.99) for x in series[:200]]
    assert all(isinstance(b, Absent) and re.fullmatch(r"n/a: have \d+, need 459", b.reason) for b in early)


def test_clustered_tail_counts_for_less():
    rng = np.random.default_rng(3)
    x = rng.normal(1.0, 0.1, 4000)
    for start in rng.integers(0, 3950, 4):
        x[start : start + 50] += 0.25  # four bursts that hardly move the mean
    assert quantile_interval(x, 0.95).n_eff < 1000


def test_point_is_numpy_linear():
    assert percentile(LINEAR, 0.99) == pytest.approx(990.01)


def test_early_stopping_starts_at_662():
    x = np.random.default_rng(2).permutation(np.arange(662))
    assert early_stopping_estimate(x) == 661
    assert early_stopping_estimate(x[:661]) == Absent("n/a: have 661, need 662")
    assert early_stopping_estimate(x[:63], 0.9) == Absent("n/a: have 63, need 64")


def test_early_stopping_follows_the_published_counts():
    """t = 2 from 838 queries for p99 and from 81 for p90."""
    x = np.arange(838)
    assert early_stopping_estimate(x[:837]) == 836
    assert early_stopping_estimate(x) == 836
    assert early_stopping_estimate(np.arange(81), 0.9) == 79


LOADGEN = """
import random, sys, time
import mlperf_loadgen as lg
rng = random.Random(int(sys.argv[2]))
def issue(queries):
    end = time.perf_counter_ns() + int(rng.expovariate(1 / 30_000))
    while time.perf_counter_ns() < end:
        pass
    lg.QuerySamplesComplete([lg.QuerySampleResponse(q.id, 0, 0) for q in queries])
settings = lg.TestSettings()
settings.scenario = lg.TestScenario.SingleStream
settings.mode = lg.TestMode.PerformanceOnly
settings.min_query_count = settings.max_query_count = int(sys.argv[2])
settings.min_duration_ms = 0
settings.single_stream_expected_latency_ns = 30_000
log = lg.LogSettings()
log.log_output.outdir = sys.argv[1]
log.log_output.copy_summary_to_stdout = False
log.enable_trace = True
sut, qsl = lg.ConstructSUT(issue, lambda: None), lg.ConstructQSL(64, 64, lambda x: None, lambda x: None)
lg.StartTestWithLogSettings(sut, qsl, settings, log)
"""


@pytest.mark.parametrize("queries", [70, 662, 840, 1500, 6000])
def test_early_stopping_equals_the_official_loadgen(tmp_path, queries):
    pytest.importorskip("mlperf_loadgen")
    subprocess.run([sys.executable, "-c", LOADGEN, str(tmp_path), str(queries)], check=True, timeout=120)
    trace = (tmp_path / "mlperf_log_trace.json").read_text()
    latencies = np.array([int(t) for t in re.findall(r'"complete_ns":(\d+)', trace)])
    assert len(latencies) == queries
    official = _detail(tmp_path)
    assert early_stopping_estimate(latencies, 0.9) == official["early_stopping_latency_ss"]
    if queries < 662:
        assert "early_stopping_latency_ms" not in official or not official["early_stopping_latency_ms"]
        assert early_stopping_estimate(latencies, 0.99) == Absent(f"n/a: have {queries}, need 662")
    else:
        assert early_stopping_estimate(latencies, 0.99) == official["early_stopping_latency_ms"]


def _detail(folder):
    lines = (folder / "mlperf_log_detail.txt").read_text().splitlines()
    records = [json.loads(line.split("MLLOG", 1)[1]) for line in lines if "MLLOG" in line]
    return {r["key"]: r["value"] for r in records}
