"""Intervals of differences between two variants on the same samples, against published and exact values."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.stats.differences import drawn_difference, share_difference
from edgescope.stats.special import binomial_cdf, normal_quantile

Z2 = normal_quantile(0.975) ** 2


def answers(both, gained, lost, neither):
    ours = np.repeat([True, True, False, False], [both, gained, lost, neither])
    theirs = np.repeat([True, False, True, False], [both, gained, lost, neither])
    return ours, theirs


def test_tangos_own_example():
    """Airway hyper-responsiveness before and after transplantation: Fagerland et al. print -0.517 to -0.026."""
    found = share_difference(*answers(1, 1, 7, 12))
    assert (found.value, found.lo, found.hi) == pytest.approx((-6 / 21, -0.517, -0.026), abs=5e-4)


@given(st.integers(0, 30), st.integers(0, 30), st.integers(1, 200))
def test_it_holds_zero_unless_mcnemars_test_refutes_it(gained, lost, same):
    found = share_difference(*answers(same, gained, lost, 0))
    refuted = gained + lost > 0 and (gained - lost) ** 2 / (gained + lost) > Z2
    assert (not found.lo <= 0 <= found.hi) == refuted
    assert found.lo <= found.value <= found.hi
    other = share_difference(*answers(same, lost, gained, 0))
    assert (-other.hi, -other.lo) == pytest.approx((found.lo, found.hi), abs=1e-9)


def exact_p(gained, lost):
    """McNemar's exact two-sided test: the discordant pairs are a fair coin."""
    return min(1.0, 2 * binomial_cdf(min(gained, lost), gained + lost, 0.5))


@pytest.mark.parametrize(("gained", "lost"), [(0, 7), (1, 9), (3, 15), (5, 5), (4, 9), (20, 41)])
def test_it_agrees_with_mcnemars_exact_test_where_that_is_sure(gained, lost):
    found, p = share_difference(*answers(200, gained, lost, 50)), exact_p(gained, lost)
    if p < 0.02:
        assert found.hi < 0
    if p > 0.1:
        assert found.lo < 0 < found.hi


def test_no_difference_seen_says_how_large_a_one_may_have_been_missed():
    found = share_difference(*answers(60, 0, 0, 40))
    assert (found.lo, found.value, found.hi) == pytest.approx((-Z2 / (100 + Z2), 0, Z2 / (100 + Z2)))


@pytest.mark.parametrize("loss", [0.0, 0.02, 0.06])
def test_it_covers_the_truth(loss):
    rng, n, covered = np.random.default_rng(5), 150, 0
    chances = [0.9 - 0.03 - loss, 0.03, 0.03 + loss, 0.07]
    for _ in range(1000):
        covered += (f := share_difference(*answers(*rng.multinomial(n, chances)))).lo <= -loss <= f.hi
    assert covered >= 930


def test_scenes_that_answer_alike_count_for_fewer_and_the_interval_still_covers():
    rng, covered, naive = np.random.default_rng(3), 0, 0
    scenes = np.repeat(np.arange(40), 10)
    for _ in range(300):
        lost = np.repeat(rng.random(40) < 0.1, 10)
        found = share_difference(~lost, np.ones(400, bool), scenes)
        alone = share_difference(~lost, np.ones(400, bool))
        covered += found.lo <= -0.1 <= found.hi
        naive += alone.lo <= -0.1 <= alone.hi
    assert covered >= 276 and naive < 230
    assert found.n_eff < 60 < found.n == 400


def test_drawn_sets_cover_the_mean_of_a_skewed_difference():
    rng, covered = np.random.default_rng(1), 0
    for run in range(300):
        x = rng.exponential(1.0, 80) - 1.0
        found = drawn_difference(lambda rows, x=x: float(x[rows].mean()), 80, draws=300, seed=run)
        covered += found.lo <= 0 <= found.hi
    assert covered >= 275


def test_drawn_sets_keep_groups_whole():
    rng, covered, scenes = np.random.default_rng(2), 0, np.repeat(np.arange(25), 8)
    for run in range(200):
        x = np.repeat(rng.standard_normal(25), 8)
        found = drawn_difference(lambda rows, x=x: float(x[rows].mean()), 200, scenes, draws=300, seed=run)
        covered += found.lo <= 0 <= found.hi
    assert covered >= 182


def test_one_group_has_no_interval_and_neither_has_what_mostly_cannot_be_measured():
    x = np.arange(10.0)
    one = drawn_difference(lambda rows: float(x[rows].mean()), 10, np.zeros(10, int))
    assert not one.reliable and one.value == 4.5 and one.measured("1").lo is None
    rare = drawn_difference(lambda rows: 4.5 if len(set(rows)) == 10 else math.nan, 10, draws=100)
    assert not rare.reliable and "sets drawn" in rare.note
