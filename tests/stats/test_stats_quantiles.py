"""Percentile bounds: exact coverage when independent, simulated coverage when not, LoadGen's own answers."""

import itertools
import json
import math
import re
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.records import Absent
from edgescope.stats import (
    early_stopping_estimate,
    intervals,
    needed,
    percentile,
    quantile_effective_n,
    quantile_interval,
    reach,
    upper_bound,
    upper_rank,
)
from edgescope.stats.intervals import _theta, beta_quantile, extremal_index

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
        assert scipy.stats.binom.cdf(rank - 1, n, q) >= confidence - 1e-9
        assert rank == 1 or scipy.stats.binom.cdf(rank - 2, n, q) < confidence + 1e-9


def test_p99_needs_459():
    assert needed(0.99, 0.99) == 459
    assert upper_rank(458, 0.99, 0.99) is None
    assert upper_rank(459, 0.99, 0.99) == 459


def test_refusal_says_what_it_has_and_needs():
    x = np.random.default_rng(1).exponential(size=300)
    found = upper_bound(x, 0.99)
    assert isinstance(found, Absent)
    have = re.fullmatch(r"n/a: have (\d+), need 459", found.reason)
    assert have and int(have[1]) <= 300


def test_independent_samples_lose_little_to_the_counting_of_clusters():
    worth = [quantile_effective_n(np.random.default_rng(i).normal(size=2000), 0.99) for i in range(40)]
    assert 0.3 * 2000 <= np.median(worth) <= 2000
    bounds = [upper_bound(np.random.default_rng(i).normal(size=2000), 0.99) for i in range(40)]
    assert not any(isinstance(b, Absent) for b in bounds)
    assert np.median(bounds) == pytest.approx(scipy.stats.norm.ppf(0.99), abs=0.7)


def stalls(rng, n, stall, share):
    """Which of n queries are in a stall: dwells are geometric."""
    apart = stall * (1 - share) / share
    dwells = rng.geometric(np.tile([1 / apart, 1 / stall], n // stall + 20))
    return np.repeat(np.arange(len(dwells)) % 2 == 1, dwells)[:n]


@pytest.mark.parametrize(("n", "stall"), [(5_000, 10), (20_000, 10), (20_000, 40)])
@pytest.mark.slow
def test_stalls_within_reach_hardly_ever_get_a_bound_that_is_too_low(n, stall):
    assert stall <= reach(n, 0.99)
    rng = np.random.default_rng(5)
    low = 0
    for _ in range(60):
        slow = stalls(rng, n, stall, 0.012)
        x = np.exp(0.2 * rng.normal(size=n)) * np.where(slow, 3.0, 1.0)
        found = upper_bound(x, 0.99)
        low += not isinstance(found, Absent) and found < 2.0  # the true p99 is a stall's, 2.47
    assert low <= 3


def test_the_slowest_in_one_clump_are_one_opinion():
    x = np.random.default_rng(8).normal(1.0, 0.1, 20_000)
    x[700:760] += 0.45
    assert isinstance(upper_bound(x, 0.99), Absent)
    assert quantile_effective_n(x, 0.5) > 2500, "the median knows nothing of it"


def test_equal_latencies_of_a_coarse_clock_are_no_clump():
    x = np.where(np.random.default_rng(9).uniform(size=4000) < 0.3, 11.0, 10.0)
    assert quantile_effective_n(x, 0.99) > 1000


def test_reach_is_the_longest_stall_that_is_hardly_ever_missed():
    assert reach(4590, 0.99) == pytest.approx(10)
    assert 0.99 ** (4590 / reach(4590, 0.99)) <= 0.01


@given(st.integers(1, 60), st.integers(1, 60), st.floats(0.01, 0.99))
@pytest.mark.slow
def test_beta_quantile_turns_the_incomplete_beta_round(a, b, p):
    assert beta_quantile(p, a, b) == pytest.approx(scipy.stats.beta.ppf(p, a, b), abs=1e-9)


@settings(max_examples=50)
@given(st.integers(8, 5000), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_quantile_interval_covers_exactly_when_independent(n, q):
    x = np.random.default_rng(n).permutation(np.arange(1.0, n + 1.0))
    interval = quantile_interval(x, q)
    if isinstance(interval, Absent):
        # the last: few slow samples that lie together by chance count for fewer still
        assert 1 - q**n < 0.975 or 1 - (1 - q) ** n < 0.975 or n * (1 - q) < 15
        return
    if interval.n_eff < n:  # a permutation that looks correlated by chance: wider, still covers
        return
    below = scipy.stats.binom.cdf(interval.hi - 1, n, q) - scipy.stats.binom.cdf(interval.lo - 1, n, q)
    assert below >= 0.95 - 1e-9
    assert interval.lo <= interval.value <= interval.hi


@pytest.mark.slow
def test_p99_bound_covers_an_autocorrelated_series_or_is_refused():
    rho = 0.9
    noise = np.random.default_rng(21).normal(size=(1000, 12_200)) * np.sqrt(1 - rho**2)
    series = 1 + 0.1 * scipy.signal.lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:]
    truth = 1 + 0.1 * scipy.stats.norm.ppf(0.99)
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
@pytest.mark.slow
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


@pytest.mark.parametrize("q", [0.05, 0.5, 0.9, 0.95, 0.99, 0.999])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.975, 0.99])
def test_needed_is_the_least_count_whose_slowest_bounds_the_quantile(q, confidence):
    n = needed(q, confidence)
    assert 1 - q**n >= confidence and (n == 1 or 1 - q ** (n - 1) < confidence)
    assert upper_rank(n, q, confidence) == n and (n == 1 or upper_rank(n - 1, q, confidence) is None)


def test_no_samples_have_no_rank():
    assert upper_rank(0, 0.5, 0.9) is None and upper_rank(-3, 0.5, 0.9) is None
    assert upper_rank(1, 0.5, 0.5) == 1


def test_effective_samples_are_the_fewer_of_the_series_and_of_its_tail():
    from edgescope.stats.intervals import quantile_effective_n, tau

    rng = np.random.default_rng(8)
    slow = scipy.signal.lfilter([1.0], [1.0, -0.9], rng.normal(size=5000))
    above = slow > np.quantile(slow, 0.9)
    assert quantile_effective_n(slow, 0.9) == pytest.approx(5000 / max(tau(slow), tau(above)))
    assert quantile_effective_n(slow, 0.9) == pytest.approx(quantile_effective_n(slow[::-1], 0.9))
    assert quantile_effective_n(3 * slow + 7, 0.9) == pytest.approx(quantile_effective_n(slow, 0.9))
    clustered = rng.normal(1, 0.1, 5000)
    for start in (500, 1500, 2500, 3500):
        clustered[start : start + 50] += 0.25
    tail = tau(clustered > np.quantile(clustered, 0.95))
    assert quantile_effective_n(clustered, 0.95) == pytest.approx(5000 / tail) and tail > tau(clustered)
    assert quantile_effective_n([], 0.5) == 0.0 and quantile_effective_n([3.0], 0.5) == 1.0


@pytest.mark.parametrize(("n", "q"), [(100, 0.5), (200, 0.8), (40, 0.5), (1500, 0.3)])
def test_the_interval_of_independent_samples_lies_at_the_binomials_ranks(n, q):
    x = next(
        y
        for seed in range(99)
        if (y := np.random.default_rng(seed).permutation(np.arange(1.0, n + 1))) is not None
        and quantile_interval(y, q).n_eff == quantile_interval(n + 1 - y, 1 - q).n_eff == n
    )
    found = quantile_interval(x, q)
    top = next(r for r in range(1, n + 1) if scipy.stats.binom.cdf(r - 1, n, q) >= 0.975)
    low = next(r for r in range(1, n + 1) if scipy.stats.binom.cdf(r - 1, n, 1 - q) >= 0.975)
    assert (found.lo, found.hi) == (n + 1 - low, top)
    mirrored = quantile_interval(n + 1 - x, 1 - q)
    assert (mirrored.lo, mirrored.hi) == (n + 1 - found.hi, n + 1 - found.lo)
    wide = quantile_interval(x, q, 0.5)
    assert found.lo < wide.lo <= wide.hi < found.hi and wide.value == found.value == percentile(x, q)


def test_the_interval_says_what_the_harder_of_its_ends_needs():
    x = np.random.default_rng(0).permutation(np.arange(30.0))
    assert quantile_interval(x, 0.9) == Absent("n/a: have 30, need 36")
    assert quantile_interval(x, 0.1) == Absent("n/a: have 30, need 36")


def test_a_rank_among_effective_samples_is_mapped_away_from_the_quantile():
    from edgescope.stats.intervals import _spread

    assert _spread(459, 459.0, 459) == 458 and _spread(1, 459.0, 459) == 0
    assert _spread(50, 100.0, 1000) == 499 and _spread(100, 100.0, 1000) == 999
    assert _spread(1, 3.0, 10) == 3 and _spread(2, 3.0, 10) == 6 and _spread(3, 3.0, 10) == 9
    assert _spread(100, 99.5, 1000) == 999  # never beyond the slowest


def brute_force_estimate(n, q):
    """LoadGen's rule told plainly: discard the t - 1 slowest, t the most for which n queries still pass."""
    passing = np.flatnonzero(scipy.stats.binom.cdf(np.arange(n), n, 1 - q) < 0.01)
    return n - int(passing[-1]) if len(passing) and passing[-1] else None


@pytest.mark.parametrize("n", [64, 80, 81, 100, 333, 662, 837, 838, 1000, 4000])
@pytest.mark.parametrize("q", [0.9, 0.99])
def test_early_stopping_equals_the_rule_told_plainly(n, q):
    rank = brute_force_estimate(n, q)
    found = early_stopping_estimate(np.random.default_rng(n).permutation(np.arange(n)), q)
    assert isinstance(found, Absent) if rank is None else found == rank


def test_slow_samples_that_lie_evenly_are_all_opinions_of_their_own_and_no_more():
    assert _theta(np.arange(0, 10_000, 100), 10_000) == 1.0
    assert 0.05 < _theta(np.repeat(np.arange(0, 10_000, 1000), 10) + np.tile(np.arange(10), 10), 10_000) < 0.2


@pytest.mark.parametrize("off", [0, 1, 2])
def test_a_logarithm_that_is_rounded_down_needs_no_more_and_no_fewer_samples(monkeypatch, off):
    rounded = SimpleNamespace(**vars(math) | {"ceil": lambda x: math.ceil(x) - off})
    monkeypatch.setattr(intervals, "math", rounded)
    assert [needed(0.9, 0.99), needed(0.99, 0.99), needed(0.5, 0.95)] == [44, 459, 5]


def clusters_told(x, q):
    """The rule told plainly: ten slowest, twenty and so on, up to twice those beyond q, and at most a tenth of all."""
    n, beyond, found = len(x), len(x) * (1 - q), [1.0]
    for k in (10 * 2**i for i in range(20)):
        if k > max(10, 2 * beyond) or k > n / 10 or k < beyond / 20:
            continue
        places = [i for i, value in enumerate(x) if value >= sorted(x)[n - k]]
        gap = math.floor(0.1 * n / len(places))
        clusters = 1 + sum(b - a > gap for a, b in itertools.pairwise(places))
        least = scipy.stats.beta.ppf(0.05, clusters, len(places) - clusters + 1)
        found.append(least / (1 - len(places) / n) ** gap)
    return min(found)


@pytest.mark.parametrize(
    ("n", "q"), [(400, 0.5), (320, 0.96875), (99, 0.9), (100, 0.9), (160, 0.9375), (800, 0.99), (450, 0.97)]
)
@pytest.mark.parametrize("clump", [0, 10, 20, 40])
def test_the_slowest_are_counted_in_clusters_at_each_of_their_numbers(n, q, clump):
    x = np.random.default_rng(n + clump).permutation(np.arange(float(n)))
    slowest = np.argsort(x)[n - clump :]
    if clump:  # these lie side by side, and of the others none is beside another
        x[slowest], x[30 : 30 + clump] = x[30 : 30 + clump].copy(), np.arange(n - clump, n)
    assert extremal_index(x, q) == pytest.approx(clusters_told(x.tolist(), q), rel=1e-6)
    ties = np.floor(x / 7)
    assert extremal_index(ties, q) == pytest.approx(clusters_told(ties.tolist(), q), rel=1e-6)


def test_twice_as_many_as_lie_beyond_the_quantile_are_counted_too():
    """Ten slowest apart from each other, and the next ten each beside one of them: ten clusters of two."""
    x = np.arange(320.0) / 320
    x[100:140:4], x[101:141:4] = 1000 + np.arange(10), 500 + np.arange(10)
    assert extremal_index(x, 0.96875) == pytest.approx(scipy.stats.beta.ppf(0.05, 10, 11) / (1 - 20 / 320))
    assert extremal_index(x, 0.97) > 0.7


def test_the_effective_number_of_a_tail_is_divided_by_the_spread_of_its_clusters():
    x = np.random.default_rng(3).permutation(np.arange(2000.0))
    theta = extremal_index(x, 0.99)
    assert 0.1 < theta < 1.0
    assert quantile_effective_n(x, 0.99) == pytest.approx(2000 * theta / (2 - theta))
    assert quantile_effective_n(x, 0.899) == 2000.0  # no tail yet
    assert quantile_effective_n(x, 0.9) == pytest.approx(2000 * (t := extremal_index(x, 0.9)) / (2 - t))
