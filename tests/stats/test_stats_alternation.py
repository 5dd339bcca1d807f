"""The ratio of two variants in turns: exact where nothing varies, right on hosts of two speeds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.stats import paired_log_ratio
from edgescope.stats.alternation import Blocks, alternation_ratio, difference, kinship
from two_speeds import Host

logs = st.lists(st.floats(-2, 2), min_size=1, max_size=6)


@given(st.lists(logs, min_size=3, max_size=9), st.floats(-1, 1))
def test_a_common_factor_moves_the_ratio_and_not_its_width(pairs, shift):
    plain = alternation_ratio([Blocks(p) for p in pairs])
    moved = alternation_ratio([Blocks([x + shift for x in p]) for p in pairs])
    assert moved.value == pytest.approx(plain.value * math.exp(shift))
    assert math.log(moved.hi / moved.lo) == pytest.approx(math.log(plain.hi / plain.lo), abs=1e-6)


@given(st.lists(logs, min_size=3, max_size=9))
def test_the_other_way_round_is_the_inverse(pairs):
    there = alternation_ratio([Blocks(p) for p in pairs])
    back = alternation_ratio([Blocks([-x for x in p]) for p in pairs])
    assert (back.lo, back.value, back.hi) == pytest.approx((1 / there.hi, 1 / there.value, 1 / there.lo))


def test_a_pair_counts_once_however_many_blocks_it_has():
    found = alternation_ratio([Blocks([1.0] * 50), Blocks([0.0]), Blocks([0.5])])
    assert found.value == pytest.approx(math.exp(0.5)) and found.n == 3


def test_too_few_pairs_have_a_value_and_no_interval():
    found = alternation_ratio([Blocks([0.7]), Blocks([0.7])])
    assert found.value == pytest.approx(math.exp(0.7)) and not found.reliable
    assert (found.lo, found.hi) == (0.0, math.inf) and "2 pairs" in found.note
    assert not alternation_ratio([Blocks([])]).reliable


def test_an_outlier_is_not_dropped():
    quiet = [Blocks([0.5 + 0.001 * i]) for i in range(7)]
    assert alternation_ratio([*quiet, Blocks([2.0])]).hi > 1.5 * alternation_ratio(quiet).hi


def test_neighbours_that_resemble_each_other_widen_the_interval():
    steps = np.array([0.0, 0.01, 0.0, 0.01, 0.5, 0.51, 0.5, 0.51])
    mixed = steps[[0, 4, 1, 5, 2, 6, 3, 7]]
    assert kinship(steps) > 0.5 and kinship(mixed) == 0.0
    near, far = (alternation_ratio([Blocks([x]) for x in order]) for order in (steps, mixed))
    assert math.log(near.hi / near.lo) > 1.5 * math.log(far.hi / far.lo)


def test_the_difference_of_two_candidates_pools_their_spread():
    a, b = [Blocks([1.0 + d]) for d in (0, 0.02, -0.02)], [Blocks([0.6])]
    found = difference(a, b)
    assert found.value == pytest.approx(math.exp(0.4)) and found.lo > 1
    assert difference(a[:1], b) is None


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000))
def test_what_slows_both_sides_alike_leaves_no_trace(seed):
    """A block that lies within one state knows nothing of it; the processes' own spread is all there is."""
    host, rng = Host((1.0, 10.0), seed, process=0.0, turn=0.0), np.random.default_rng(seed)
    begin = host.begin(rng)
    blocks = [x for i in range(20) for x in host.pair(rng, begin + 5.0 * i).logs]
    pure = {round(math.log(4.0), 6), round(math.log(4.0 * 1.6 / 1.35), 6)}
    assert sum(round(x, 6) in pure for x in blocks) > 0.8 * len(blocks)


@pytest.mark.parametrize(("pairs", "least"), [(5, 0.93), (8, 0.93)])
def test_the_interval_holds_the_long_run_ratio_on_hosts_of_two_speeds(pairs, least):
    host, rng = Host((1.0, 10.0), seed=2, whole_s=5e4), np.random.default_rng(2)
    found = [alternation_ratio(host.pairs(rng, pairs)) for _ in range(300)]
    held = np.mean([f.lo <= host.ratio() <= f.hi for f in found])
    assert held >= least - 0.03  # two standard errors of 300 runs
    alone = [paired_log_ratio(*host.one_by_one(rng, 5)) for _ in range(60)]
    width = np.median([math.log(f.hi / f.lo) for f in found])
    assert width < np.median([math.log(f.hi / f.lo) for f in alone if f.lo > 0]) / 2
