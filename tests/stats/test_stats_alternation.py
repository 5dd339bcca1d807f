"""The ratio of two variants in turns: exact where nothing varies, right on hosts of two speeds."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from edgescope.stats import paired_log_ratio
from edgescope.stats.alternation import (
    BASE,
    OURS,
    UNSEEN,
    Turns,
    alternation_ratio,
    by_speed,
    difference,
    kinship,
    mean_ratio,
    pairs_for,
    standard_errors,
)
from edgescope.stats.intervals import t_quantile
from two_speeds import RATIO, Host, abba

floats = st.floats(-2, 2)
logs = st.lists(floats, min_size=3, max_size=9)


@given(logs, st.floats(-1, 1))
def test_a_common_factor_moves_the_ratio_and_not_its_width(pairs, shift):
    plain, moved = mean_ratio(pairs), mean_ratio([x + shift for x in pairs])
    assert moved.value == pytest.approx(plain.value * math.exp(shift))
    assert math.log(moved.hi / moved.lo) == pytest.approx(math.log(plain.hi / plain.lo), abs=1e-6)


@given(logs)
def test_the_other_way_round_is_the_inverse(pairs):
    there, back = mean_ratio(pairs), mean_ratio([-x for x in pairs])
    assert (back.lo, back.value, back.hi) == pytest.approx((1 / there.hi, 1 / there.value, 1 / there.lo))


def quiet(ratio, blocks=1):
    """Return a pair whose candidate is exp(ratio) times as fast, on a machine that nothing slows."""
    return abba([0.0] * 2 * blocks, [-ratio] * 2 * blocks)


def test_a_pair_counts_once_however_many_blocks_it_has():
    found = alternation_ratio([quiet(1.0, 50), quiet(0.0), quiet(0.5)])
    assert found.value == pytest.approx(math.exp(0.5)) and found.n == 3


def test_the_ratio_of_a_pair_is_that_of_its_sides_medians():
    """One long turn, of one side alone, moves it by no more than chance does."""
    pair = abba([0.0, 0.01, 0.9, 0.02], [-1.0, -1.0, -1.0, -1.02])
    assert pair.ratio == pytest.approx(1.015)


@pytest.mark.slow
@given(st.floats(1e-3, 0.5), st.integers(3, 12), st.floats(0.02, 0.2))
@settings(deadline=None)
def test_so_many_pairs_of_one_kind_bound_a_ratio_and_one_fewer_does_not(half, n, within):
    spread = half / (standard_errors(n) / math.sqrt(n))
    needed = pairs_for(half, n, within)
    assert spread * standard_errors(needed) / math.sqrt(needed) <= within * (1 + 1e-9) or needed == n
    if needed > n:
        assert spread * standard_errors(needed - 1) / math.sqrt(needed - 1) >= within * (1 - 1e-9)


@pytest.mark.parametrize(
    ("far", "factor"),
    [(0.5, "0.339x to 8.01x"), (2.5, "0.00451x to 32,930x"), (200.0, "below 0.001x to above a million x")],
)
def test_an_unresolved_ratio_says_how_far_its_pairs_bound_it(far, factor):
    found = mean_ratio([0.0, far, 2 * far])
    assert found.note == f"too uncertain: 3 pairs of processes allow {factor}"


def test_what_no_pair_shows_is_not_bounded_by_more_pairs():
    log, within = 2.0, 0.05
    unseen = 1.96 * UNSEEN * log
    needed = pairs_for(math.hypot(0.09, unseen), 8, math.hypot(within, unseen), log)
    assert needed == pairs_for(0.09, 8, within) > 8
    assert pairs_for(0.09, 8, within, log) > needed and pairs_for(0.09, 8, within, -log) > needed
    assert pairs_for(0.09, 8, unseen * 0.99, log) is None
    five = math.log1p(0.05)  # docs/reference/metrics.md names the ratio from which on no number of pairs does
    assert pairs_for(0.09, 8, five, math.log(34)) and pairs_for(0.09, 8, five, math.log(36)) is None


def test_too_few_pairs_have_a_value_and_no_interval():
    found = alternation_ratio([quiet(0.7), quiet(0.7)])
    assert found.value == pytest.approx(math.exp(0.7)) and not found.reliable
    assert (found.lo, found.hi) == (0.0, math.inf) and "2 pairs" in found.note
    assert not alternation_ratio([Turns([], [])]).reliable and not by_speed([]).at_full_speed


def test_a_pair_that_is_far_off_is_not_dropped():
    near = [0.5 + 0.001 * i for i in range(7)]
    assert mean_ratio([*near, 2.0]).hi > 1.5 * mean_ratio(near).hi


def test_neighbours_that_resemble_each_other_widen_the_interval():
    steps = np.array([0.0, 0.01] * 4 + [0.5, 0.51] * 4)
    mixed = steps.reshape(2, 8).T.ravel()
    assert kinship(steps) > 0.5 and kinship(mixed) == 0.0
    near, far = mean_ratio(steps), mean_ratio(mixed)
    assert math.log(near.hi / near.lo) > 1.5 * math.log(far.hi / far.lo)
    # the autocorrelation 0.625 of these eight, plus 1 / 8, as much as the 0.2 that is supposed
    assert kinship(np.repeat([0.0, 1.0], 4)) == pytest.approx((0.75 + 0.2) / 2)
    assert kinship(np.zeros(8)) == pytest.approx(0.1)  # they show nothing


@given(logs, st.floats(0.1, 10), st.floats(-5, 5))
def test_how_much_neighbours_resemble_each_other_is_a_share_of_their_spread_either_way_in_time(
    pairs, times, more
):
    assume(max(pairs) - min(pairs) > 0.01)
    pairs = np.array(pairs)
    kin = kinship(pairs)
    assert 0.0 <= kin < 1.0
    assert kin == pytest.approx(kinship(times * pairs + more), abs=1e-3)
    assert kin == pytest.approx(kinship(pairs[::-1]))


@given(st.integers(3, 100))
def test_more_pairs_are_worth_more(n):
    """Of Student's interval, and of what chance adds to its width."""
    fewer, more = (standard_errors(k) / t_quantile(0.975, k - 1) for k in (n, n + 1))
    assert 1.0 < more < fewer < 1.2 and standard_errors(n + 1) < standard_errors(n)


def test_the_interval_is_usually_so_many_standard_errors_wide():
    """Of independent pairs: half of the intervals are wider."""
    rng = np.random.default_rng(4)
    for n in (3, 8, 18):
        drawn = rng.standard_normal((400, n))
        wide = [
            math.log(mean_ratio(x).hi / mean_ratio(x).value) * math.sqrt(n) / x.std(ddof=1) for x in drawn
        ]
        assert np.median(wide) == pytest.approx(standard_errors(n), rel=0.03)


def test_what_changes_between_minutes_widens_every_interval_by_a_share_of_the_log():
    alike = [quiet(2.0)] * 8  # pairs that do not differ at all: what is left is what no pair shows
    found = alternation_ratio(alike)
    assert math.log(found.hi / found.value) == pytest.approx(1.96 * UNSEEN * 2.0, rel=1e-3)
    assert math.log(alternation_ratio(alike, 0.90).hi / found.value) == pytest.approx(
        1.645 * UNSEEN * 2.0, rel=1e-3
    )
    same = alternation_ratio([quiet(0.0)] * 8)
    assert (same.lo, same.hi) == (1.0, 1.0)  # as fast as each other: they change alike
    apart = difference([quiet(1.5)] * 4, [quiet(2.0)] * 4)
    assert math.log(apart.hi / apart.value) == pytest.approx(1.96 * UNSEEN * 2.5, rel=1e-3)


@pytest.mark.parametrize("logs", [[1.0, 1.02, 1.05], [1.0, 1.04, 0.99, 1.05, 1.01, 1.03]])
def test_the_interval_is_students_wider_by_how_much_neighbours_resemble_each_other(logs):
    found, kin = mean_ratio(logs), kinship(np.array(logs))
    low, high = scipy.stats.t.interval(0.95, len(logs) - 1, np.mean(logs), scipy.stats.sem(logs))
    half = (high - low) / 2 * math.sqrt((1 + kin) / (1 - kin))
    assert math.log(found.hi / found.value) == pytest.approx(half) == math.log(found.value / found.lo)


def test_what_pairs_show_and_what_they_do_not_add_in_squares():
    logs = [2.0 + d for d in (-0.03, 0.02, 0.0, 0.03, -0.02, 0.0)]
    own, both = mean_ratio(logs), mean_ratio(logs, unseen=UNSEEN)
    shown, whole = (math.log(found.hi / found.value) for found in (own, both))
    assert whole**2 - shown**2 == pytest.approx((1.96 * UNSEEN * 2.0) ** 2, rel=1e-3)
    a, b = [quiet(log) for log in logs], [quiet(log - 1.0) for log in logs]
    apart, spread = difference(a, b), np.std(logs, ddof=1)
    student = 2.228 * spread * math.sqrt(2 / 6)  # t of ten degrees of freedom
    expected = math.hypot(student, 1.96 * UNSEEN * math.hypot(2.0, 1.0))
    assert math.log(apart.hi / apart.value) == pytest.approx(expected, rel=1e-3)


def test_the_difference_of_two_candidates_pools_their_spread():
    a, b = [quiet(1.0 + d) for d in (0, 0.02, -0.02)], [quiet(0.6)]
    found = difference(a, b)
    assert found.value == pytest.approx(math.exp(0.4)) and found.lo > 1
    assert difference(a[:1], b) is None
    slowed = [
        abba([0.4] * 9 + [0.0] * 3, [-1.8] * 9 + [-2.0] * 3)
    ] * 3  # mostly: all turns count, by their means
    assert difference(slowed, [quiet(1.0)] * 3).value == pytest.approx(math.exp(0.3 + 1.85 - 1.0))


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 1000))
def test_what_slows_both_sides_alike_leaves_no_trace(seed):
    """A block that lies within one state knows nothing of it; the processes' own spread is all there is."""
    host, rng = Host((1.0, 10.0), seed, process=0.0, turn=0.0), np.random.default_rng(seed)
    begin = host.begin(rng)
    pairs = [host.pair(rng, begin + 5.0 * i) for i in range(20)]
    base, ours = (
        np.reshape([x for p in pairs for x in p.of(side)], (-1, 2)).mean(axis=1) for side in (BASE, OURS)
    )
    pure = {round(math.log(4.0), 6), round(math.log(4.0 * 1.6 / 1.35), 6)}
    assert sum(round(x, 6) in pure for x in base - ours) > 0.8 * len(base)


def mixed(times, slow=0.4):
    """Return a pair of a candidate e^2 times as fast; `.` is a turn at full speed, `s` one that is slowed, ABBA."""
    order = [BASE, OURS, OURS, BASE] * (len(times) // 4)
    return Turns(order, [-2.0 * side + slow * (t == "s") for side, t in zip(order, times, strict=True)])


def left_out(times):
    """Return the turns, `x` for one that is left out beside pairs that show full speed."""
    whole = mixed(times)
    gone = by_speed([mixed("." * 40), whole]).slowed[1]
    marks = whole.slowed([math.log1p(0.1), -2.0 + math.log1p(0.1)])
    assert gone == whole.where(marks)
    return "".join("x" if out else t for out, t in zip(marks, times, strict=True))


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ("ssss....", "xxxx...."),
        ("s.......", "s......."),  # the other side shows nothing: it is the variant's own
        (".ss.....", ".ss....."),
        ("...ss...", "...ss..."),  # two turns of one side
        (".s.s....", ".s.s...."),  # beside each is a turn that nothing slowed
        ("ss......", "xx......"),  # a burst, shorter than a block
        ("..ss....", "..xx...."),
        (".sss....", ".xxx...."),  # it slows one turn of two, too
        ("ss..s...", "xx..x..."),
        ("ss.......s.ss..." + "." * 8, "xx.......s.ss..." + "." * 8),  # one burst does not come and go
    ],
)
def test_a_slowed_turn_is_left_out_where_the_other_sides_next_to_it_was_slowed_too(times, expected):
    assert left_out(times) == expected


def test_what_is_left_of_a_slowed_pair_counts():
    quick = [quiet(2.0 + 0.01 * i, 2) for i in range(3)]
    last = mixed("ssss........")
    parts = by_speed([*quick, last])
    assert parts.full[:3] == quick and not any(map(len, parts.slowed[:3]))
    assert len(parts.slowed[3]) == 4 and len(parts.full[3]) == 8 and len(parts.counted) == 4
    assert alternation_ratio([*quick, last]).value == pytest.approx(math.exp(2.0075))


def test_a_pair_counts_if_a_turn_of_either_side_is_left_at_full_speed():
    quick = [quiet(2.0, 4) for _ in range(3)]
    gone, one, both = mixed("ssssssssssss"), mixed("sssssssssss."), mixed("ssssssssss..")
    assert by_speed([*quick, gone]).counted == quick == by_speed([*quick, one]).counted
    assert by_speed([*quick, both]).counted[3:] == [Turns([OURS, BASE], [-2.0, 0.0])]
    assert [alternation_ratio([*quick, last]).n for last in (gone, one, both)] == [3, 3, 4]


def test_a_variant_that_is_slow_by_itself_counts():
    """A process of the candidate with a bad layout slows one side: its pair is in the ratio."""
    pairs = [quiet(2.0, 4) for _ in range(3)] + [quiet(1.5, 4)]
    found = alternation_ratio(pairs)
    assert found.n == 4 and found.value == pytest.approx(math.exp((3 * 2.0 + 1.5) / 4))


@pytest.mark.parametrize(
    ("at_full_speed", "slowed", "told"), [(3, 0, 3), (2, 1, 3), (3, 3, 3), (3, 4, 7), (4, 4, 4)]
)
def test_where_fewer_than_half_of_the_pairs_are_at_full_speed_all_count(at_full_speed, slowed, told):
    """A few lucky pairs of a busy hour tell full speed wrongly; three bound a ratio, two do not."""
    pairs = [quiet(2.0, 12)] * at_full_speed + [abba([0.4] * 4, [-1.4] * 4)] * slowed
    found = alternation_ratio([*pairs, Turns([], [])])
    expected = 2.0 if told == at_full_speed else (2.0 * at_full_speed + 1.8 * slowed) / told
    assert found.n == told and found.value == pytest.approx(math.exp(expected))


def partly(left, slowed, whole_blocks=3, slowed_blocks=2):
    """Return a pair with blocks at full speed, whose ratio is e^left, and slowed ones, whose ratio is e^slowed."""
    base = [0.0] * 2 * whole_blocks + [0.4] * 2 * slowed_blocks
    return abba(base, [-left] * 2 * whole_blocks + [0.4 - slowed] * 2 * slowed_blocks)


def test_where_many_were_slowed_and_what_is_left_differs_more_than_all_turns_do_all_count():
    """Then the best turns are of several speeds: those of a machine that is slowed a little less, say."""
    few, apart = (0.0, 0.01, -0.01, 0.0), (0.03, -0.03, 0.03, -0.03)
    one_speed = [partly(2.0 + d, 1.6 + 10 * e) for d, e in zip(few, apart, strict=True)]
    assert by_speed(one_speed).at_full_speed
    assert alternation_ratio(one_speed).value == pytest.approx(math.exp(2.0))
    several = [partly(2.0 + d, 1.6 - 1.5 * d) for d in apart]  # all turns of each say 1.84
    parts = by_speed(several)
    assert len(parts.counted) == 4 and not parts.at_full_speed and parts.basis == several
    assert alternation_ratio(several).value == pytest.approx(math.exp(1.84))
    seldom = [
        partly(2.0 + d, 1.6 - 5.0 * d, 5, 1) for d in apart
    ]  # a sixth was slowed: the best are the best
    assert by_speed(seldom).at_full_speed
    assert alternation_ratio(seldom).value == pytest.approx(math.exp(2.0))
    assert by_speed(several[:2]).at_full_speed  # two pairs do not show what they differ by
    steady = [partly(2.0, 1.6)] * 3 + [abba([0.4] * 4, [0.4 - 1.84] * 4)]
    near = [
        partly(2.0 + d, 1.6 - 1.5 * d + e) for d, e in zip((0.02, -0.02, 0.0), (0.1, -0.1, 0.0), strict=True)
    ]
    assert by_speed(steady).at_full_speed
    assert not by_speed(
        [*near, *[abba([0.4] * 2, [0.4 - 1.84] * 2)] * 3]
    ).at_full_speed  # more even, but half as many


def test_on_a_machine_that_was_slowed_in_two_thirds_of_the_turns_all_count():
    """What is left of them tells full speed wrongly now and then."""
    fast = [mixed("." * 24)]
    some, most = ([mixed("s" * n + "." * (24 - n), slow=0.4 + n / 1000)] * 3 for n in (15, 17))
    parts = by_speed(some, fast), by_speed(most, fast)
    assert parts[0].at_full_speed and not parts[1].at_full_speed
    assert len(parts[1].counted) == 3 and parts[1].basis == most
    assert alternation_ratio(some, among=fast).value == pytest.approx(math.exp(2.0))


def test_turns_at_two_speeds_count_by_their_means():
    """Their median is that of the one speed or of the other, by chance."""
    slowed = [abba([0.4, 0.4, 0.2, 0.4], [-1.6, -1.8, -1.8, -1.8 + d]) for d in (0.0, 0.01, 0.02)]
    parts = by_speed(slowed, [mixed("." * 40)])
    assert parts.counted == [] and parts.logs == pytest.approx(
        [0.35 + 1.75 - d / 4 for d in (0.0, 0.01, 0.02)]
    )
    found = alternation_ratio(slowed, among=[mixed("." * 40)])
    assert found.value == pytest.approx(math.exp(2.0975)) and found.n == 3


def test_pairs_that_never_ran_at_full_speed_are_all_there_is():
    among = [quiet(2.0, 4)]
    slowed = [abba([0.4] * 4, [-1.4 + d] * 4) for d in (-0.01, 0.0, 0.01)]
    found = alternation_ratio(slowed, among=[*among, *slowed])
    assert found.n == 3 and found.value == pytest.approx(math.exp(1.8))
    assert not by_speed(slowed, [*among, *slowed]).counted
    few = alternation_ratio(slowed[:2], among=[*among, *slowed])
    assert not few.reliable and few.n == 2  # and do not bound themselves
    again = alternation_ratio(
        [Turns([], []), *slowed], among=[*among, *slowed]
    )  # a pair without a block says nothing
    assert again == found


@given(st.lists(st.lists(floats, min_size=8, max_size=8), min_size=3, max_size=9))
@pytest.mark.slow
def test_what_counts_does_not_depend_on_the_ratio(pairs):
    """The candidate made faster by a constant: the same turns are left out."""
    one, other = (
        by_speed([abba(p[:4], [x - faster for x in p[4:]]) for p in pairs]) for faster in (0.0, 1.0)
    )
    assert [p.of(BASE) for p in one.full] == [p.of(BASE) for p in other.full]


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [5, 8])
def test_the_interval_holds_the_ratio_at_full_speed_on_hosts_of_two_speeds(pairs):
    host, rng = Host((1.0, 10.0), seed=2, whole_s=5e4), np.random.default_rng(2)
    every = [host.pairs(rng, pairs) for _ in range(300)]
    found = [alternation_ratio(p) for p in every if by_speed(p).at_full_speed]
    held = np.mean([f.lo <= RATIO <= f.hi for f in found])
    assert len(found) > 100 and held >= 0.93 - 0.03  # two standard errors of 300 runs
    width = np.median([math.log(f.hi / f.lo) for f in found])
    whole = [mean_ratio([p.ratio for p in of]) for of in every]
    assert width < 0.95 * np.median([math.log(f.hi / f.lo) for f in whole])
    alone = [paired_log_ratio(*host.one_by_one(rng, 5)) for _ in range(60)]
    assert width < np.median([math.log(f.hi / f.lo) for f in alone if f.lo > 0]) / 2
