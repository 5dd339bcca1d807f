"""Mean intervals: coverage and width on series whose truth is known."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from edgescope.stats import MIN_EFFECTIVE, StopRule, effective_n, mean_interval, tau

MEAN_NS, CV = 1_000_000, 0.1


def ar1(runs, n, rho, seed):
    """`runs` stationary AR(1) series of n latencies in ns, CV 10 %."""
    noise = np.random.default_rng(seed).normal(size=(runs, n + 200)) * np.sqrt(1 - rho**2)
    return MEAN_NS * (1 + CV * lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:])


def stopped(latencies, rule):
    """How many queries a closed loop with these latencies has done when the rule stops it, and why."""
    done = np.cumsum(latencies)
    while True:
        n = int(np.searchsorted(done, rule.next_check_ns)) + 1
        assert n < len(latencies), "the series is too short for this rule"
        reason = rule.decide(int(done[n - 1]) + 1, latencies[:n])
        if reason:
            return n, reason


@pytest.mark.parametrize(("rel_width", "min_s", "seed"), [(0.01, 3.3, 11), (0.02, 3.3, 12)])
def test_mean_interval_covers_with_the_stop_rule_active(rel_width, min_s, seed):
    rho, true_tau = 0.9, 19.0
    covered, widths, counts = [], [], []
    for series in ar1(1000, 26_000, rho, seed):
        n, reason = stopped(series, StopRule(rel_width, int(min_s * 1e9), 10**11))
        interval = mean_interval(series[:n])
        assert reason == "rel_width" and interval.reliable
        covered.append(interval.lo <= MEAN_NS <= interval.hi)
        widths.append(interval.half_width / (1.96 * CV * MEAN_NS * np.sqrt(true_tau / n)))
        counts.append(n)
    assert min(counts) >= 3000
    assert np.mean(covered) >= 0.92
    assert np.median(widths) <= 1.4


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.97])
def test_mean_interval_covers_other_correlations_at_a_fixed_length(rho):
    intervals = [mean_interval(x) for x in ar1(500, 12_000, rho, 5)]
    assert np.mean([i.lo <= MEAN_NS <= i.hi for i in intervals]) >= 0.92


def test_naive_interval_would_fail_the_same_test():
    series = ar1(300, 3000, 0.9, 6)
    half = 1.96 * series.std(axis=1) / np.sqrt(3000)
    assert np.mean(np.abs(series.mean(axis=1) - MEAN_NS) <= half) < 0.6


@pytest.mark.parametrize(("rho", "truth"), [(0.0, 1.0), (0.5, 3.0), (0.9, 19.0)])
def test_tau_is_right(rho, truth):
    assert np.median([tau(x) for x in ar1(60, 20_000, rho, 7)]) == pytest.approx(truth, rel=0.1)


def test_tau_of_a_long_series_is_averaged_down_without_bias():
    assert tau(ar1(1, 1_000_000, 0.9, 8)[0]) == pytest.approx(19.0, rel=0.15)


def test_iid_counts_in_full():
    series = ar1(200, 459, 0.0, 9)
    assert np.mean([effective_n(x) == 459 for x in series]) >= 0.95


def test_below_the_floor_it_says_so():
    interval = mean_interval(ar1(1, 400, 0.9, 10)[0])
    assert not interval.reliable
    assert interval.note.startswith("interval unreliable: ") and str(MIN_EFFECTIVE) in interval.note
    measured = interval.measured("s", 1e-9)
    assert (measured.lo, measured.hi, measured.unit) == (None, None, "s")


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5])
def test_tiny_inputs_never_raise_and_are_never_reliable(n):
    interval = mean_interval(np.arange(n, dtype=float))
    assert not interval.reliable and interval.n == n


def test_constant_series_has_no_width():
    interval = mean_interval(np.full(1000, 7.0))
    assert (interval.lo, interval.hi, interval.reliable) == (7.0, 7.0, True)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 600), st.floats(0.001, 1000), st.floats(0, 0.95))
def test_interval_is_ordered_and_scales_with_the_unit(seed, n, scale, rho):
    x = ar1(1, n, rho, seed)[0]
    one, other = mean_interval(x), mean_interval(x * scale)
    assert one.lo <= one.value <= one.hi and 0 < one.n_eff <= n
    assert other.half_width == pytest.approx(one.half_width * scale, rel=1e-6)
    assert one.half_width <= mean_interval(x, 0.99).half_width


def test_a_checkpoint_on_a_million_queries_is_cheap():
    x = ar1(1, 1_000_000, 0.9, 3)[0]
    mean_interval(x[:1000])
    best = min(_timed(lambda: mean_interval(x)) for _ in range(5))
    assert best < 0.25  # 10 ms on a quiet core; an FFT of the whole series would take longer than this


def _timed(call):
    start = time.process_time()  # of this process alone: a busy machine adds little
    call()
    return time.process_time() - start
