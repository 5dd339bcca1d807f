"""Stop rule, drift and warm-up on series whose truth is known."""

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.stats import StopRule, drift, sequential, warm, warmup_length


def ar1(runs, n, rho, seed, cv=0.1):
    noise = np.random.default_rng(seed).normal(size=(runs, n + 200)) * np.sqrt(1 - rho**2)
    return 1 + cv * scipy.signal.lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:]


def test_stop_rule_never_stops_before_min_and_always_by_max():
    rule = StopRule(0.5, 1_000, 5_000, start_ns=100)
    calm = np.full(500, 10.0)
    assert rule.decide(1_099, calm) is None
    assert rule.decide(1_100, calm) == "rel_width"
    assert rule.decide(5_100, calm[:2]) == "max_s"


def test_stop_rule_counts_queries():
    rule = StopRule(0.01, 1_000, 5_000, max_queries=3)
    assert rule.decide(10, [1.0, 1.0]) is None
    assert rule.decide(10, [1.0, 1.0, 1.0]) == "max_queries"


def test_stop_rule_looks_at_geometrically_growing_times_and_not_between():
    rule, looks, noisy = StopRule(1e-9, 1_000, 1_000_000), 0, ar1(1, 300, 0.5, 0)[0]
    for now in range(0, 1_000_000, 100):
        before = rule.next_check_ns
        assert rule.decide(now, noisy) is None
        looks += rule.next_check_ns != before
    assert 15 <= looks <= 25


def test_stop_rule_does_not_stop_on_an_unreliable_interval():
    rule = StopRule(0.5, 1_000, 50_000)
    assert rule.decide(2_000, ar1(1, 60, 0.0, 1)[0]) is None
    assert rule.interval is not None and not rule.interval.reliable


@pytest.mark.parametrize("rho", [0.0, 0.9])
@pytest.mark.slow
def test_drift_is_rarely_seen_where_there_is_none(rho):
    assert np.mean([drift(x).significant for x in ar1(500, 3000, rho, 2)]) <= 0.03


def test_drift_is_seen_and_sized():
    series = ar1(100, 3000, 0.5, 3) + 0.1 * np.linspace(0, 1, 3000)
    found = [drift(x) for x in series]
    assert np.mean([d.significant for d in found]) >= 0.95
    assert np.mean([d.share for d in found]) == pytest.approx(0.1 / 1.05, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("x", [[], [1.0], [1.0] * 5, [3.0] * 100])
def test_drift_needs_blocks_and_variation(x):
    assert not drift(x).significant


def test_warmup_cuts_a_slow_start():
    calm = ar1(200, 2000, 0.5, 4, cv=0.03)
    slow = calm + 5 * np.exp(-np.arange(2000) / 20)  # under 1 % of the level after 124 samples
    cuts = [warmup_length(x) for x in slow]
    assert np.percentile(cuts, 5) >= 60 and np.percentile(cuts, 95) <= 300
    kept = [x[c:].mean() for x, c in zip(slow, cuts, strict=True)]
    assert np.mean(kept) == pytest.approx(1.0, abs=0.005)


def test_warmup_keeps_a_stationary_series():
    assert np.percentile([warmup_length(x) for x in ar1(200, 3000, 0.5, 5)], 90) <= 150


def test_one_late_spike_does_not_move_the_cut():
    x = ar1(1, 1000, 0.0, 6, cv=0.02)[0]
    x[400] = 50.0
    assert warmup_length(x) < 100


def test_warm_says_no_while_falling_and_yes_when_settled():
    x = ar1(1, 3000, 0.3, 7, cv=0.03)[0] + 8 * np.exp(-np.arange(3000) / 40)
    assert not any(warm(x[:n]) for n in range(0, 200, 10))
    assert all(warm(x[:n]) for n in range(800, 3000, 100))


def test_warm_needs_samples():
    assert not warm(np.ones(59)) and warm(np.ones(60))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3000))
def test_warmup_never_takes_more_than_half(seed, n):
    assert 0 <= warmup_length(np.random.default_rng(seed).exponential(size=n)) <= n // 2 + 5


def test_a_stop_rule_looks_first_at_the_shortest_run_and_then_two_fifths_later():
    rule = StopRule(0.01, 1_000, 10_000, start_ns=500)
    assert rule.next_check_ns == 1_500
    noisy = ar1(1, 200, 0.0, 0)[0]
    assert rule.decide(1_499, noisy) is None and rule.next_check_ns == 1_500 and rule.interval is None
    assert rule.decide(1_500, noisy) is None and rule.next_check_ns == 1_900
    assert rule.decide(1_900, noisy) is None and rule.next_check_ns == pytest.approx(500 + 1_960, abs=1)
    assert rule.decide(8_500, noisy) is None and rule.next_check_ns == 10_500  # not after the end
    assert rule.decide(10_499, noisy) is None and rule.decide(10_500, noisy) == "max_s"
    assert StopRule(0.01, 9_000, 5_000).next_check_ns == 5_000
    slow = StopRule(0.01, 1, 5_000)
    assert slow.decide(1, noisy) is None and slow.next_check_ns == 2  # always later


@pytest.mark.parametrize("sign", [1, -1])
def test_a_run_stops_where_half_the_interval_is_the_asked_share_of_the_mean(sign):
    x = sign * ar1(1, 400, 0.0, 2, cv=0.3)[0]
    rule = StopRule(0.5, 10, 1000)
    rule.decide(10, x)
    share = rule.interval.half_width / abs(rule.interval.value)
    assert StopRule(share * 1.001, 10, 1000).decide(10, x) == "rel_width"
    assert StopRule(share * 0.999, 10, 1000).decide(10, x) is None


def test_queries_are_counted_before_anything_else():
    assert StopRule(0.01, 1_000, 5_000, max_queries=3).decide(9_999, [1.0] * 3) == "max_queries"
    assert StopRule(0.01, 1_000, 5_000, max_queries=4).decide(9_999, [1.0] * 3) == "max_s"


@pytest.mark.parametrize("n", [16, 100, 320, 3200])
def test_drift_is_the_slope_of_block_means_by_least_squares(n):
    x = next(
        y for s in range(99) if sequential.tau(y := 1 + 0.1 * np.random.default_rng(s).normal(size=n)) == 1.0
    )
    x = x + 0.02 * np.linspace(0, 1, n)
    found, blocks = drift(x), sequential._blocks(x)
    k = len(blocks)
    length = n // k
    assert k * length == n and np.allclose(blocks, x.reshape(k, length).mean(axis=1))
    fit = scipy.stats.linregress((np.arange(k) + 0.5) / k, blocks)
    mean = x.mean()
    assert (found.share, found.n_blocks) == (pytest.approx(fit.slope / mean), k)
    assert found.p == pytest.approx(fit.pvalue, rel=1e-6) and found.significant == (fit.pvalue < 0.01)
    half = scipy.stats.t.ppf(0.975, k - 2) * fit.stderr / mean
    assert (found.lo, found.hi) == (pytest.approx(found.share - half), pytest.approx(found.share + half))


def test_drift_turns_round_with_time_and_is_the_same_in_any_unit():
    x = ar1(1, 3200, 0.5, 12)[0] + 0.05 * np.linspace(0, 1, 3200)
    there, back, scaled = drift(x), drift(x[::-1]), drift(1e6 * x)
    assert back.share == pytest.approx(-there.share) and back.p == pytest.approx(there.p)
    assert (back.lo, back.hi) == (pytest.approx(-there.hi), pytest.approx(-there.lo))
    assert scaled.share == pytest.approx(there.share) and scaled.p == pytest.approx(there.p)


def test_blocks_are_32_of_independent_samples_and_longer_than_what_hangs_together():
    rng = np.random.default_rng(1)
    assert len(sequential._blocks(rng.normal(size=15))) == 15
    assert len(sequential._blocks(rng.normal(size=16))) == 8  # 4 tau may be as long as an eighth
    assert len(sequential._blocks(rng.normal(size=3200))) == 32
    slow = ar1(1, 3200, 0.95, 3)[0]
    assert 8 <= len(sequential._blocks(slow)) < 32
    x = rng.normal(size=3210)
    blocks = sequential._blocks(x)
    assert (
        blocks[-1] == pytest.approx(x[-100:].mean()) and len(blocks) == 32
    )  # what is over is left out at the start


def test_a_straight_line_drifts_for_certain_and_a_flat_one_does_not():
    line = drift(1 + np.arange(320) / 320)
    assert (
        line.significant
        and line.p == pytest.approx(0.0, abs=1e-12)
        and line.share == pytest.approx(1 / 1.498, rel=1e-2)
    )
    flat = drift(np.full(100, 3.0))
    assert (flat.share, flat.significant, flat.p, flat.lo, flat.hi) == (0.0, False, 1.0, 0.0, 0.0)
    few = drift([1.0, 2.0, 3.0])
    assert (few.lo, few.hi, few.n_blocks, few.significant) == (-np.inf, np.inf, 3, False)
    assert drift(1 + np.arange(7) / 7).significant is False and drift(1 + np.arange(8) / 8).n_blocks == 8


def mser(x):
    """White's rule told plainly, on the clipped series cut into blocks."""
    n = len(x)
    low, high = np.quantile(x[n // 2 :], (0.01, 0.99))
    block = max(1, min(5, n // 20), n // 20_000)
    means = [float(np.clip(x, low, high)[k * block : (k + 1) * block].mean()) for k in range(n // block)]

    def error(cut):
        left = means[cut:]
        return float(np.var(left)) / len(left)

    return min(range(len(means) // 2 + 1), key=error) * block


@pytest.mark.parametrize("n", [10, 19, 39, 100, 333, 1000])
def test_the_cut_is_where_the_standard_error_of_the_rest_is_least(n):
    for seed in range(5):
        x = np.random.default_rng(seed).normal(10, 1, n) + 30 * np.exp(-np.arange(n) / (n / 15))
        assert warmup_length(x) == mser(x)
    assert warmup_length(np.ones(9)) == 0


def test_a_long_series_is_cut_in_blocks_of_a_twenty_thousandth():
    x = np.concatenate([np.full(1200, 9.0), np.tile([1.0, 1.1], 29_400)])
    assert len(x) == 60_000 and warmup_length(x) == 1200


def three(a, b, c, jitter=0.0):
    """60 samples before, which do not count, then three windows of 20 around these levels."""
    wiggle = jitter * np.tile([1.0, -1.0], 10)
    return np.concatenate([np.full(60, 99.0), *(level + wiggle for level in (a, b, c))])


def test_warm_is_when_the_last_three_medians_lie_within_the_tolerance():
    assert warm(three(1.0, 1.0, 1.0399)) and not warm(three(1.0, 1.0, 1.041))
    assert warm(three(1.0399, 1.0, 1.0)) and not warm(three(1.0, 1.09, 1.0))
    assert warm(three(1.0, 1.0, 1.09), tolerance=0.05) and not warm(three(1.0, 1.0, 1.11), tolerance=0.05)
    assert warm(np.ones(120), min_window=20) and not warm(np.ones(119), min_window=20)


def test_levels_closer_than_the_noise_between_neighbours_explains_are_warm():
    """Neighbours 0.4 apart: a deviation of 0.42, and 4 x 1.2533 x 0.42 / sqrt(20) = 0.47 between medians."""
    assert warm(three(1.0, 1.0, 1.46, jitter=0.2)) and not warm(three(1.0, 1.0, 1.48, jitter=0.2))


def test_a_start_of_exactly_half_the_series_may_be_cut():
    x = np.concatenate([np.full(500, 9.0), np.tile([1.0, 1.1], 250)])
    assert warmup_length(x) == mser(x) == 500


def test_the_tolerance_of_warm_is_a_share_of_the_level():
    """A slope of 1.4 % over the later half, far above the noise between neighbours, in units of a million."""
    slope = np.linspace(1e6, 1.02e6, 600)
    assert warm(slope) and warm(slope / 1e9)
    assert not warm(slope, tolerance=0.002)
