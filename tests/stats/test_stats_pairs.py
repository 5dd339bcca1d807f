"""Verdict rules and their error rates."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import assume, given
from hypothesis import strategies as st

from edgescope.analysis.cells.replicates import of_pairs
from edgescope.records import Measured
from edgescope.stats import (
    Interval,
    Judgement,
    is_different,
    judge,
    judge_pairs,
    mean_interval,
    paired_log_ratio,
    pairs,
    quantile_interval,
    wilson,
)
from edgescope.stats.pairs import standard_errors

positive = st.lists(st.floats(0.001, 1000), min_size=2, max_size=30)


@given(st.integers(1, 3000), st.data(), st.sampled_from([0.9, 0.95, 0.99]))
@pytest.mark.slow
def test_wilson_equals_scipy(n, data, level):
    k = data.draw(st.integers(0, n))
    want = scipy.stats.binomtest(k, n).proportion_ci(level, "wilson")
    got = wilson(k, n, level)
    assert (got.lo, got.hi) == (pytest.approx(want.low, abs=1e-9), pytest.approx(want.high, abs=1e-9))


def test_wilson_of_nothing_says_so():
    assert not wilson(0, 0).reliable and (wilson(0, 0).lo, wilson(0, 0).hi) == (0.0, 1.0)
    with pytest.raises(ValueError):
        wilson(3, 2)


@given(positive.filter(lambda a: len(a) > 2), st.integers(0, 2**32 - 1))
@pytest.mark.slow
def test_ratio_equals_scipy_on_logs(a, seed):
    b = np.random.default_rng(seed).uniform(0.5, 2, len(a))
    logs, n = np.log(np.asarray(a) / b), len(a)
    got, centre = paired_log_ratio(a, b), scipy.stats.trim_mean(logs, 0.2)
    want = scipy.stats.mstats.trimmed_mean_ci(
        logs, limits=((n // 5 + 1e-9) / n,) * 2, alpha=0.05
    )  # Student's t with h - 1 degrees, not widened
    kept = n - 2 * (n // 5)
    half = (want[1] - want[0]) / 2 * (1 + 2.3 * (n // 5) / kept**2)
    assert math.log(got.value) == pytest.approx(centre)
    assert math.log(got.hi) == pytest.approx(min(centre + half, centre + 300), rel=1e-6, abs=1e-9)
    assert got.reliable == (half <= math.log(2))


@pytest.mark.parametrize("n", [3, 4, 5, 7, 10])
@pytest.mark.parametrize("spoilt", [0.0, 0.1])
def test_the_interval_covers_as_often_as_it_says(n, spoilt):
    """Pairs of log-normal processes; in a tenth of them one side was disturbed by a factor of ten or more."""
    rng, runs = np.random.default_rng(n), 1000
    logs = rng.normal(0.1, 0.02, (runs, n))
    logs += (rng.random((runs, n)) < spoilt) * rng.choice([-1, 1], (runs, n)) * rng.uniform(2.3, 6, (runs, n))
    found = [paired_log_ratio(np.exp(x), np.ones(n)) for x in logs]
    assert np.mean([f.lo <= np.exp(0.1) <= f.hi for f in found]) >= 0.935


def test_one_spoilt_pair_of_five_makes_no_ratio_and_hides_none():
    before, after = [12.5, 12.4, 1240.0, 12.6, 12.5], [11.4, 11.3, 11.4, 11.5, 11.4]
    found = paired_log_ratio(before, after)
    assert found.value == pytest.approx(1.1, rel=0.01) and found.reliable and found.n == 5
    assert found.lo > 1.05 and found.hi < 1.15


@pytest.mark.parametrize(
    ("before", "after", "note"),
    [
        ([63.0], [0.0378], "1 pair gives no interval"),
        ([0.19, 63.0], [0.0378, 0.0378], "2 pairs give no interval"),
        ([0.19, 0.19, 63.0], [0.0378, 0.0378, 0.0378], "too uncertain: 3 pairs lie between 5.03x and 1,667x"),
        (
            [1e-4, 1.0, 2e6],
            [1.0, 1.0, 1.0],
            "too uncertain: 3 pairs lie between below 0.001x and above a million x",
        ),
        ([1e-3, 1.0, 9e5], [1.0, 1.0, 1.0], "too uncertain: 3 pairs lie between 0.001x and 900,000x"),
    ],
)
def test_a_ratio_that_pairs_do_not_bound_says_so(before, after, note):
    found = paired_log_ratio(before, after)
    assert not found.reliable and found.note == note


@given(st.lists(st.floats(1e-9, 1e9), min_size=1, max_size=12))
@pytest.mark.slow
def test_no_interval_is_printed_that_reaches_beyond_a_factor_of_two(a):
    found = of_pairs(paired_log_ratio(a, np.ones(len(a))), "--rounds")
    if isinstance(found, Measured):
        assert found.hi / found.value <= 2.0000001 and found.value / found.lo <= 2.0000001
        assert len(a) >= 3
    else:
        assert "use --rounds" in str(found.reason) or "quieter machine" in str(found.reason)


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
    within = 1 + 0.1 * scipy.signal.lfilter([1.0], [1.0, -rho], noise, axis=1)[:, 100:].mean(axis=1)
    process = np.exp(rng.normal(0, 0.01, experiments * pairs))
    return (slowdown * within * process).reshape(experiments, pairs)


@pytest.mark.slow
def test_a_a_is_rarely_different_and_a_three_percent_slowdown_is_found():
    rng = np.random.default_rng(31)
    a = np.concatenate([replicates(rng, 100, 10) for _ in range(10)])
    b = np.concatenate([replicates(rng, 100, 10) for _ in range(10)])
    different = {Judgement.FASTER, Judgement.SLOWER}
    false = np.mean([judge_pairs(y, x)[1] in different for x, y in zip(a, b, strict=True)])
    assert false <= 0.065
    found = np.mean([judge_pairs(1.03 * y, x)[1] is Judgement.SLOWER for x, y in zip(a, b, strict=True)])
    assert found >= 0.90


def test_an_interval_is_one_of_95_percent_unless_another_is_asked_for():
    assert wilson(3, 10) == wilson(3, 10, 0.95) and standard_errors(9) == standard_errors(9, 0.95)
    assert paired_log_ratio([1, 2, 3], [2, 2, 2]) == paired_log_ratio([1, 2, 3], [2, 2, 2], 0.95)
    assert mean_interval(np.arange(200.0)) == mean_interval(np.arange(200.0), 0.95)
    assert quantile_interval(np.arange(200.0), 0.5) == quantile_interval(np.arange(200.0), 0.5, 0.95)


@pytest.mark.parametrize(
    ("value", "lo", "hi", "different"),
    [
        (1.01, 1.001, 1.02, True),  # exactly one per cent is large enough
        (0.99, 0.98, 0.999, True),
        (1.0099, 1.001, 1.02, False),
        (1.5, 1.0, 2.0, False),  # touching 1 is not excluding it
        (0.5, 0.2, 1.0, False),
    ],
)
def test_a_difference_is_certain_and_at_least_one_per_cent(value, lo, hi, different):
    assert is_different(interval(lo, value, hi)) is different


def told(lo, value, hi):
    return Interval(lo, hi, value, 9, 9)


@pytest.mark.parametrize(
    ("lo", "value", "hi", "different"),
    [
        (1.0, 1.5, 2.0, False),  # touching 1 is not excluding it
        (0.5, 0.75, 1.0, False),
        (1.001, 1.25, 2.0, True),  # the least effect that counts
        (1.001, 1.249, 2.0, False),
        (0.5, 0.75, 0.999, True),
        (0.5, 0.751, 0.999, False),
    ],
)
def test_a_difference_is_certain_and_large_enough(monkeypatch, lo, value, hi, different):
    monkeypatch.setattr(pairs, "MIN_EFFECT", 0.25)
    assert pairs.is_different(told(lo, value, hi)) is different


@pytest.mark.parametrize(
    ("lo", "hi", "same"),
    [(0.98, 1.02, True), (0.9799, 1.02, False), (0.98, 1.0201, False), (0.99, 1.01, True)],
)
def test_the_same_lies_within_two_percent_on_either_side(lo, hi, same):
    wide = told(0.5, 1.0, 2.0)
    found = pairs.judge(wide, told(lo, 1.0, hi))
    assert found is (pairs.Judgement.SAME if same else pairs.Judgement.AMBIGUOUS)


@pytest.mark.parametrize(
    ("value", "higher", "said"),
    [
        (2.0, True, "FASTER"),
        (2.0, False, "SLOWER"),
        (0.5, True, "SLOWER"),
        (0.5, False, "FASTER"),
    ],
)
def test_what_is_more_is_faster_of_rates_and_slower_of_times(value, higher, said):
    found = pairs.judge(told(value * 0.9, value, value * 1.1), told(0, 1, 2), higher)
    assert found is pairs.Judgement[said]


def test_what_has_no_interval_says_so_in_every_field():
    nothing = pairs.wilson(0, 0)
    assert (nothing.lo, nothing.hi, nothing.n, nothing.n_eff, nothing.reliable) == (0.0, 1.0, 0, 0, False)
    for n, words in ((1, "1 pair gives"), (2, "2 pairs give")):
        few = pairs.paired_log_ratio([2.0] * n, [1.0] * n)
        assert (few.lo, few.hi, few.n, few.n_eff, few.reliable) == (0.0, math.inf, n, n, False)
        assert few.value == pytest.approx(2.0) and few.note.startswith(words)


def test_an_interval_reaches_a_power_of_e_that_can_be_told():
    found = pairs.paired_log_ratio([1e300, 1.0, 1e-300], [1.0] * 3)
    assert math.log(found.hi) == pytest.approx(300) == -math.log(found.lo) and not found.reliable
    assert "below 0.001x and above a million x" in found.note


@pytest.mark.parametrize("half", [math.log(2) * 0.999, math.log(2) * 1.001])
def test_a_ratio_is_resolved_within_a_factor_of_two(half):
    spread = half * math.sqrt(3) / pairs.standard_errors(3)
    logs = np.array([-1.0, 0.0, 1.0]) * spread
    found = pairs.paired_log_ratio(np.exp(logs), np.ones(3))
    assert found.reliable is (half < math.log(2)) is (found.note == "")
    assert math.log(found.hi) == pytest.approx(half)


@pytest.mark.parametrize(("n", "cut"), [(4, 0), (5, 1), (9, 1), (10, 2), (14, 2), (15, 3)])
def test_a_fifth_of_the_pairs_is_trimmed_at_either_end(n, cut):
    """Tukey and McLaughlin's interval told plainly, with Student's t by SciPy."""
    logs = np.sort(np.random.default_rng(n).normal(0, 0.1, n))
    found = pairs.paired_log_ratio(np.exp(logs), np.ones(n))
    kept = logs[cut : n - cut]
    wins = np.clip(logs, kept[0], kept[-1])
    h = n - 2 * cut
    error = wins.std(ddof=1) / ((1 - 2 * cut / n) * math.sqrt(n))
    half = scipy.stats.t.ppf(0.975, h - 1) * (1 + 2.3 * cut / h**2) * error
    assert pairs.trimmed(n) == cut and math.log(found.value) == pytest.approx(kept.mean())
    assert math.log(found.hi / found.value) == pytest.approx(half) == math.log(found.value / found.lo)
