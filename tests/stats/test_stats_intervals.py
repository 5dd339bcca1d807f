"""Mean intervals: coverage and width on series whose truth is known."""

import math
import time

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.stats import MIN_EFFECTIVE, StopRule, effective_n, intervals, mean_interval, tau
from edgescope.stats.intervals import times

MEAN_NS, CV = 1_000_000, 0.1


def ar1(runs, n, rho, seed):
    """`runs` stationary AR(1) series of n latencies in ns, CV 10 %."""
    noise = np.random.default_rng(seed).normal(size=(runs, n + 200)) * np.sqrt(1 - rho**2)
    return MEAN_NS * (1 + CV * scipy.signal.lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:])


def stopped(latencies, rule):
    """How many queries a closed loop with these latencies has done when the rule stops it, and why."""
    done = np.cumsum(latencies)
    while True:
        n = int(np.searchsorted(done, rule.next_check_ns)) + 1
        assert n < len(latencies), "the series is too short for this rule"
        reason = rule.decide(int(done[n - 1]) + 1, latencies[:n])
        if reason:
            return n, reason


@pytest.mark.slow
@pytest.mark.parametrize(("rel_width", "min_s", "seed"), [(0.01, 3.3, 11), (0.02, 3.3, 12)])
def test_mean_interval_covers_with_the_stop_rule_active(rel_width, min_s, seed):
    rho, true_tau = 0.9, 19.0
    covered, widths, counts = [], [], []
    for series in ar1(500, 26_000, rho, seed):
        n, reason = stopped(series, StopRule(rel_width, int(min_s * 1e9), 10**11))
        interval = mean_interval(series[:n])
        assert reason == "rel_width" and interval.reliable
        covered.append(interval.lo <= MEAN_NS <= interval.hi)
        widths.append(interval.half_width / (1.96 * CV * MEAN_NS * np.sqrt(true_tau / n)))
        counts.append(n)
    assert min(counts) >= 3000
    assert np.mean(covered) >= 0.93  # of 500, as sure to miss a true 90 % as 92 % of 1000
    assert np.median(widths) <= 1.4


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.0, 0.5, 0.97])
def test_mean_interval_covers_other_correlations_at_a_fixed_length(rho):
    found = [mean_interval(x) for x in ar1(500, 12_000, rho, 5)]
    assert np.mean([i.lo <= MEAN_NS <= i.hi for i in found]) >= 0.92


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


def test_the_autocovariance_is_the_biased_one_of_every_lag():
    x = np.random.default_rng(2).normal(3, 1, 37)
    c = x - x.mean()
    want = [float(c[: 37 - k] @ c[k:]) / 37 for k in range(37)]
    assert intervals.autocovariance(x) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("rho", [0.5, 0.8, 0.95])
def test_tau_of_a_first_order_process_is_that_of_the_textbook(rho):
    noise = np.random.default_rng(4).normal(size=(20, 40_200))
    series = scipy.signal.lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:]
    assert np.mean([intervals.tau(x) for x in series]) == pytest.approx((1 + rho) / (1 - rho), rel=0.08)


def test_tau_is_the_same_backwards_and_in_any_unit_and_doubles_with_every_sample():
    x = scipy.signal.lfilter([1.0], [1.0, -0.8], np.random.default_rng(5).normal(size=3000))
    assert intervals.tau(x[::-1]) == pytest.approx(intervals.tau(x))
    assert intervals.tau(-1e-6 * x + 4) == pytest.approx(intervals.tau(x))
    assert intervals.tau(np.repeat(x, 2)) == pytest.approx(2 * intervals.tau(x), rel=0.05)
    assert intervals.effective_n(np.repeat(x, 2)) == pytest.approx(intervals.effective_n(x), rel=0.05)


def test_a_long_series_is_averaged_before_its_tau_is_taken_and_it_stays_the_same():
    x = scipy.signal.lfilter([1.0], [1.0, -0.97], np.random.default_rng(6).normal(size=60_000))
    short = np.mean([intervals.tau(part) for part in x.reshape(10, 6000)])
    assert intervals.tau(x) == pytest.approx(short, rel=0.25)


def test_what_cannot_be_told_from_independence_has_a_tau_of_exactly_1():
    rng = np.random.default_rng(7)
    assert (
        np.mean([intervals.tau(rng.normal(size=n)) == 1.0 for n in (50, 200, 1000) for _ in range(100)])
        > 0.95
    )
    for flat in ([], [1.0], [1.0, 2.0, 1.0], [5.0] * 50):
        assert intervals.tau(flat) == 1.0
    alternating = np.tile([0.0, 1.0], 200)
    assert intervals.tau(alternating) == 1.0  # never below
    for averaged_away in (np.tile([0.0, 1.0], 8192), [1e-200, 0.0] * 9):
        assert intervals.tau(averaged_away) == 1.0


@pytest.mark.parametrize(
    ("covariance", "tau"),
    [
        ([1, 0, 0, 0], 1.0),
        ([1, 0.5, 0.2, 0.1, -0.3, 0.2], 2.6),
        ([1, 0.5, 0.8, 0.9, -1, 0], 5.0),
        ([1, -1, 0, 0], 1.0),
        ([1, 0.5, 0.1], 2.0),
        ([1], 1.0),
    ],
)
def test_pairs_of_lags_are_added_while_positive_and_never_growing(covariance, tau):
    """[1, .5], [.2, .1] make 2 x 1.8 - 1; [.8, .9] counts as 1.5, since it may not exceed the pair before."""
    assert intervals._geyer(np.array(covariance, dtype=float)) == pytest.approx(tau)


@pytest.mark.parametrize("n", [2, 5, 30, 127])
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_the_interval_of_a_few_independent_samples_is_students(n, level):
    x = next(
        y
        for s in range(99)
        if intervals.tau(y := np.random.default_rng(s).normal(5, 1, n)) == 1.0
        and (n < 16 or intervals._lag1(y) < 0)
    )
    found = intervals.mean_interval(x, level)
    low, high = scipy.stats.ttest_1samp(x, 0).confidence_interval(level)
    assert (found.lo, found.hi) == (pytest.approx(low), pytest.approx(high))
    assert (found.value, found.n, found.n_eff) == (pytest.approx(x.mean()), n, n)
    assert found.reliable is (n >= 100) and (found.note == "") is found.reliable
    assert n >= 100 or found.note == f"interval unreliable: {n} effective samples, need 100"


def test_no_sample_and_one_have_no_interval():
    none, one = intervals.mean_interval([]), intervals.mean_interval([4.0])
    assert math.isnan(none.value) and one.value == 4.0 and (none.n, one.n) == (0, 1)
    for found in (none, one):
        assert (found.lo, found.hi, found.reliable) == (-math.inf, math.inf, False)
    assert one.note == "interval unreliable: 1 samples"


def test_batches_are_at_most_64_of_independent_samples_and_some_8_taus_of_others():
    x = np.random.default_rng(9).normal(size=6400)
    means, block = intervals._batches(x, 1.0)
    assert (len(means), block) == (64, 100) and means[-1] == pytest.approx(x[-100:].mean())
    means, block = intervals._batches(x[:6399], 1.0)
    assert block == 99 and len(means) == 64 and means[0] == pytest.approx(x[6399 - 64 * 99 :][:99].mean())
    assert intervals._batches(x[:1000], 10.0)[1] == 80 and intervals._batches(x[:1000], 40.0)[1] == 125
    assert intervals._batches(x[:127], 1.0)[1] == 1 and intervals._batches(x[:5], 3.0)[1] == 1


def test_an_interval_in_another_unit_and_without_where_it_is_unreliable():
    sure = intervals.Interval(1.0, 4.0, 2.0, 7, 7.0)
    assert sure.half_width == 1.5
    found = sure.measured("ms", 1e3)
    assert (found.value, found.unit, found.lo, found.hi, found.n) == (2000.0, "ms", 1000.0, 4000.0, 7)
    for unsure in (
        intervals.Interval(1.0, 4.0, 2.0, 7, 7.0, False),
        intervals.Interval(1.0, math.inf, 2.0, 7, 7.0),
        intervals.Interval(-math.inf, 4.0, 2.0, 7, 7.0),
    ):
        assert (unsure.measured("s").lo, unsure.measured("s").hi) == (None, None)


@pytest.mark.parametrize("rho", [0.0, 0.7])
@pytest.mark.slow
def test_the_interval_of_the_mean_covers_neither_too_rarely_nor_too_often(rho):
    noise = np.random.default_rng(11).normal(size=(1000, 2200)) * math.sqrt(1 - rho**2)
    series = scipy.signal.lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:]
    found = [intervals.mean_interval(x) for x in series]
    missed_low = np.mean([f.lo > 0 for f in found])
    missed_high = np.mean([f.hi < 0 for f in found])
    assert 0.01 < missed_low < 0.045 and 0.01 < missed_high < 0.045  # 2.5 % each


def test_batches_of_what_never_settles_grow_until_eight_are_left():
    means, block = intervals._batches(np.arange(3000.0), 1.0)
    assert len(means) == 8 and block == 46 * 8


def test_what_batches_miss_across_their_edges_is_made_up_for():
    """Of batches of m samples the variance is short by tau / 2m, which is added again, though never more than half."""
    x = scipy.signal.lfilter([1.0], [1.0, -0.9], np.random.default_rng(14).normal(size=4000))
    correlation_time = intervals.tau(x)
    means, block = intervals._batches(x, correlation_time)
    missing = max(0.5, 1 - correlation_time / (2 * block))
    error = means.std(ddof=1) / math.sqrt(len(means) * missing)
    assert intervals.mean_interval(x).half_width == pytest.approx(
        scipy.stats.t.ppf(0.975, len(means) - 1) * error
    )
    assert 0.5 < missing < 0.97


def test_the_last_pair_of_lags_counts_too():
    assert intervals._geyer(np.array([1, 0.5, 0.2, 0.1, 0.1, 0.1])) == pytest.approx(2 * 2.0 - 1)


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0.00099, "below 0.001x"),
        (0.001, "0.001x"),
        (0.5, "0.5x"),
        (99.94, "99.9x"),
        (100.0, "100x"),
        (1667.4, "1,667x"),
        (999_999.0, "999,999x"),
        (1e6, "above a million x"),
    ],
)
def test_a_factor_is_shown_with_three_digits_or_by_its_limits(ratio, shown):
    assert times(ratio) == shown


@pytest.mark.parametrize(
    ("x", "lag1"),
    [
        ([1, 2, 3, 4], 0.25),
        ([10, 20, 30, 40], 0.25),
        ([1, -1, 1, -1], -0.75),
        ([0, 0, 3, 3], 0.25),
        ([7, 7, 7], 0),
    ],
)
def test_neighbours_are_correlated_as_the_textbook_says_in_any_unit(x, lag1):
    assert intervals._lag1(np.array(x, dtype=float)) == pytest.approx(lag1)
