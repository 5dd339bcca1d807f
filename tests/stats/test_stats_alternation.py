"""The ratio of two variants in turns: exact where nothing varies, right on hosts of two speeds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.stats import paired_log_ratio
from edgescope.stats.alternation import Blocks, alternation_ratio, by_speed, difference, kinship
from two_speeds import RATIO, Host

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
    steps = np.array([0.0, 0.01] * 4 + [0.5, 0.51] * 4)
    mixed = steps.reshape(2, 8).T.ravel()
    assert kinship(steps) > 0.5 and kinship(mixed) == 0.0
    near, far = (alternation_ratio([Blocks([x]) for x in order]) for order in (steps, mixed))
    assert math.log(near.hi / near.lo) > 1.5 * math.log(far.hi / far.lo)
    # the autocorrelation 0.625 of these eight, plus 1 / 8, at half of its weight
    assert kinship(np.repeat([0.0, 1.0], 4)) == pytest.approx(0.375)


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


def test_blocks_in_which_both_sides_were_slowed_do_not_count():
    """Of the last pair's blocks the first is slowed on both sides, the second on one alone."""
    quick = [Blocks.of([0.01 * i, 0.0, 0.01], [-2.0, -2.01, -2.0]) for i in range(3)]
    last = Blocks.of([0.4, 0.4, 0.0], [-1.4, -2.0, -2.0])
    parts = by_speed([*quick, last])
    assert parts.full[:3] == quick and not any(p.logs for p in parts.slowed[:3])
    assert parts.slowed[3].logs == pytest.approx([1.8]) and parts.full[3].logs == pytest.approx([2.4, 2.0])
    mean = np.mean([*(p.mean for p in quick), 2.2])
    assert alternation_ratio([*quick, last]).value == pytest.approx(math.exp(mean))


def test_a_pair_with_one_block_at_full_speed_does_not_count():
    quick = [Blocks.of([0.0] * 4, [-2.0] * 4) for _ in range(3)]
    mixed = Blocks.of([0.0, 0.4, 0.4, 0.4], [-2.5, -1.4, -1.4, -1.4])
    assert by_speed([*quick, mixed]).counted == quick
    assert alternation_ratio([*quick, mixed]).value == pytest.approx(math.exp(2.0))


def test_a_variant_that_is_slow_by_itself_counts():
    """A process of the candidate with a bad layout slows one side: its pair is in the ratio."""
    pairs = [Blocks.of([0.0] * 4, [-2.0] * 4) for _ in range(3)] + [Blocks.of([0.0] * 4, [-1.5] * 4)]
    found = alternation_ratio(pairs)
    assert found.n == 4 and found.value == pytest.approx(math.exp((3 * 2.0 + 1.5) / 4))


def test_one_pair_at_full_speed_is_bounded_by_the_spread_of_the_slowed_ones():
    quick = [Blocks.of([0.0] * 4, [-2.0] * 4)]
    slowed = [Blocks.of([0.4] * 4, [-1.4 + d] * 4) for d in (-0.01, 0.0, 0.01)]
    found = alternation_ratio(quick + slowed)
    assert found.n == 1 and found.value == pytest.approx(math.exp(2.0)) and found.reliable
    assert 0.02 < math.log(found.hi / found.value) < 0.1
    assert not alternation_ratio(quick + slowed[:2]).reliable  # one degree of freedom


def test_pairs_that_never_ran_at_full_speed_are_all_there_is():
    among = [Blocks.of([0.0] * 4, [-2.0] * 4)]
    slowed = [Blocks.of([0.4] * 4, [-1.4 + d] * 4) for d in (-0.01, 0.0, 0.01)]
    found = alternation_ratio(slowed, among=[*among, *slowed])
    assert found.n == 3 and found.value == pytest.approx(math.exp(1.8))
    assert not by_speed(slowed, [*among, *slowed]).counted
    few = alternation_ratio(slowed[:2], among=[*among, *slowed])
    assert not few.reliable and few.n == 2  # and do not bound themselves


@given(st.lists(logs, min_size=3, max_size=9), st.integers(0, 2**16))
def test_what_counts_does_not_depend_on_the_ratio(pairs, seed):
    """The candidate made faster by a constant: the same blocks are left out."""
    rng = np.random.default_rng(seed)
    base = [rng.normal(0, 0.3, len(p)).tolist() for p in pairs]
    one, other = (
        by_speed(
            [
                Blocks.of(b, [x - log - faster for x, log in zip(b, p, strict=True)])
                for b, p in zip(base, pairs, strict=True)
            ]
        )
        for faster in (0.0, 1.0)
    )
    assert [p.base for p in one.full] == [p.base for p in other.full]


@pytest.mark.parametrize("pairs", [5, 8])
def test_the_interval_holds_the_ratio_at_full_speed_on_hosts_of_two_speeds(pairs):
    host, rng = Host((1.0, 10.0), seed=2, whole_s=5e4), np.random.default_rng(2)
    every = [host.pairs(rng, pairs) for _ in range(300)]
    found = [alternation_ratio(p) for p in every]
    held = np.mean([f.lo <= RATIO <= f.hi for f in found])
    assert held >= 0.93 - 0.03  # two standard errors of 300 runs
    width = np.median([math.log(f.hi / f.lo) for f in found])
    whole = [alternation_ratio([Blocks(p.logs) for p in of]) for of in every]
    assert width < 0.95 * np.median([math.log(f.hi / f.lo) for f in whole])
    alone = [paired_log_ratio(*host.one_by_one(rng, 5)) for _ in range(60)]
    assert width < np.median([math.log(f.hi / f.lo) for f in alone if f.lo > 0]) / 2
