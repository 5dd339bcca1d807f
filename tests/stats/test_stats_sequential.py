"""Stop rule, drift and warm-up on series whose truth is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

from edgescope.stats import StopRule, drift, warm, warmup_length


def ar1(runs, n, rho, seed, cv=0.1):
    noise = np.random.default_rng(seed).normal(size=(runs, n + 200)) * np.sqrt(1 - rho**2)
    return 1 + cv * lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 200:]


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
def test_drift_is_rarely_seen_where_there_is_none(rho):
    assert np.mean([drift(x).significant for x in ar1(500, 3000, rho, 2)]) <= 0.03


def test_drift_is_seen_and_sized():
    series = ar1(100, 3000, 0.5, 3) + 0.1 * np.linspace(0, 1, 3000)
    found = [drift(x) for x in series]
    assert np.mean([d.significant for d in found]) >= 0.95
    assert np.mean([d.share for d in found]) == pytest.approx(0.1 / 1.05, rel=0.05)


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
