"""Verdict rules and their error rates."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.signal import lfilter
from scipy.stats import binomtest, ttest_1samp

from edgescope.stats import Interval, Judgement, is_different, judge, judge_pairs, paired_log_ratio, wilson

positive = st.lists(st.floats(0.001, 1000), min_size=2, max_size=30)


@given(st.integers(1, 3000), st.data(), st.sampled_from([0.9, 0.95, 0.99]))
def test_wilson_equals_scipy(n, data, level):
    k = data.draw(st.integers(0, n))
    want = binomtest(k, n).proportion_ci(level, "wilson")
    got = wilson(k, n, level)
    assert (got.lo, got.hi) == (pytest.approx(want.low, abs=1e-9), pytest.approx(want.high, abs=1e-9))


def test_wilson_of_nothing_says_so():
    assert not wilson(0, 0).reliable
    with pytest.raises(ValueError):
        wilson(3, 2)


@given(positive, st.integers(0, 2**32 - 1))
def test_ratio_equals_scipy_on_logs(a, seed):
    b = np.random.default_rng(seed).uniform(0.5, 2, len(a))
    want = ttest_1samp(np.log(np.asarray(a) / b), 0).confidence_interval(0.95)
    got = paired_log_ratio(a, b)
    assert (math.log(got.lo), math.log(got.hi)) == (pytest.approx(want.low), pytest.approx(want.high))


@given(positive)
def test_ratio_inverts_when_swapped(a):
    b = a[::-1]
    there, back = paired_log_ratio(a, b), paired_log_ratio(b, a)
    assume(math.isfinite(there.hi) and there.lo > 0)
    assert there.value * back.value == pytest.approx(1)
    assert there.lo * back.hi == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([0.0, 1.0], [1.0, 1.0]), ([1.0], [-1.0])]
)
def test_ratio_refuses_nonsense(a, b):
    with pytest.raises(ValueError):
        paired_log_ratio(a, b)


def test_one_pair_has_no_interval_and_no_verdict():
    ratio, judgement = judge_pairs([1.0], [2.0])
    assert not ratio.reliable and math.isinf(ratio.hi) and judgement is Judgement.AMBIGUOUS


def interval(lo, value, hi):
    return Interval(lo, hi, value, 10, 10)


@pytest.mark.parametrize(
    ("ratio95", "ratio90", "rate", "want"),
    [
        ((0.90, 0.95, 0.98), (0.91, 0.95, 0.97), False, Judgement.FASTER),
        ((1.02, 1.05, 1.08), (1.03, 1.05, 1.07), False, Judgement.SLOWER),
        ((1.02, 1.05, 1.08), (1.03, 1.05, 1.07), True, Judgement.FASTER),
        ((0.90, 0.95, 0.98), (0.91, 0.95, 0.97), True, Judgement.SLOWER),
        ((0.985, 1.0, 1.015), (0.99, 1.0, 1.01), False, Judgement.SAME),
        ((1.002, 1.008, 1.014), (1.003, 1.008, 1.013), False, Judgement.SAME),  # certain, too small to care
        ((0.95, 1.0, 1.05), (0.96, 1.0, 1.04), False, Judgement.AMBIGUOUS),
        ((0.99, 1.03, 1.07), (1.01, 1.03, 1.05), False, Judgement.AMBIGUOUS),
        (
            (1.000, 1.02, 1.04),
            (1.004, 1.02, 1.036),
            False,
            Judgement.AMBIGUOUS,
        ),  # touching 1 is not excluding it
    ],
)
def test_judge(ratio95, ratio90, rate, want):
    assert judge(interval(*ratio95), interval(*ratio90), rate) is want


def test_is_different_needs_certainty_and_size():
    assert is_different(interval(1.001, 1.011, 1.02))
    assert not is_different(interval(1.001, 1.009, 1.02))
    assert not is_different(interval(0.999, 1.011, 1.02))


def replicates(rng, experiments, pairs, slowdown=1.0, n=2000, rho=0.9):
    """Mean of each process (experiments, pairs): SD 1 % between, AR(1) rho 0.9 and CV 10 % within."""
    noise = rng.normal(size=(experiments * pairs, n + 100)) * math.sqrt(1 - rho**2)
    within = 1 + 0.1 * lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 100:].mean(axis=1)
    process = np.exp(rng.normal(0, 0.01, experiments * pairs))
    return (slowdown * within * process).reshape(experiments, pairs)


def test_a_a_is_rarely_different_and_a_three_percent_slowdown_is_found():
    rng = np.random.default_rng(31)
    a = np.concatenate([replicates(rng, 100, 10) for _ in range(10)])
    b = np.concatenate([replicates(rng, 100, 10) for _ in range(10)])
    different = {Judgement.FASTER, Judgement.SLOWER}
    false = np.mean([judge_pairs(y, x)[1] in different for x, y in zip(a, b, strict=True)])
    assert false <= 0.065
    found = np.mean([judge_pairs(1.03 * y, x)[1] is Judgement.SLOWER for x, y in zip(a, b, strict=True)])
    assert found >= 0.90
