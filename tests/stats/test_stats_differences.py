"""Intervals of differences between two variants on the same samples, against published and exact values."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from edgescope.stats import shares
from edgescope.stats.intervals import binomial_cdf, normal_quantile
from edgescope.stats.shares import _score, drawn_difference, share_difference

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


@pytest.mark.slow
def test_drawn_sets_cover_the_mean_of_a_skewed_difference():
    rng, covered = np.random.default_rng(1), 0
    for run in range(300):
        x = rng.exponential(1.0, 80) - 1.0
        found = drawn_difference(lambda rows, x=x: float(x[rows].mean()), 80, draws=300, seed=run)
        covered += found.lo <= 0 <= found.hi
    assert covered >= 275


@pytest.mark.slow
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


def tango(gained, lost, n, difference):
    """The score test told plainly: the likeliest share of losses under a true `difference`, found by looking."""

    def unlikely(share):
        rest = n - gained - lost
        told = [(gained, share + difference), (lost, share), (rest, 1 - 2 * share - difference)]
        return -sum(count * math.log(chance) for count, chance in told if count)

    least, most = max(0.0, -difference), (1 - difference) / 2
    inner = (least + 1e-12, most - 1e-12)
    share = scipy.optimize.minimize_scalar(
        unlikely, bounds=inner, method="bounded", options={"xatol": 1e-12}
    ).x
    return (gained - lost - n * difference) / math.sqrt(n * (2 * share + difference * (1 - difference)))


@pytest.mark.parametrize(
    ("gained", "lost", "same"), [(1, 7, 13), (9, 2, 30), (5, 5, 90), (20, 1, 4), (3, 0, 40), (0, 6, 20)]
)
@pytest.mark.parametrize("level", [0.5, 0.95])
def test_its_ends_are_where_tangos_score_refutes_the_difference(gained, lost, same, level):
    n, z = gained + lost + same, normal_quantile(0.5 + level / 2)
    found = share_difference(*answers(same, gained, lost, 0), level=level)
    assert tango(gained, lost, n, found.lo) == pytest.approx(z, rel=2e-4)
    assert tango(gained, lost, n, found.hi) == pytest.approx(-z, rel=2e-4)
    assert (found.value, found.n, found.n_eff) == (pytest.approx((gained - lost) / n), n, n)


def test_who_differs_on_every_sample_is_at_the_end_of_what_is_possible():
    found = share_difference(*answers(0, 9, 0, 0))
    assert found.hi == pytest.approx(1, abs=1e-9) and found.value == 1 and 0 < found.lo < 1
    assert (_score(9, 0, 9, 1.0), _score(0, 0, 9, 1.0)) == (0.0, math.inf)


def test_scenes_bound_it_as_the_fewer_samples_do_that_they_are_worth():
    """40 scenes of ten, half of them lost or gained in one: the counts shrink with the samples, never the share."""
    ours, theirs = answers(300, 60, 40, 0)
    scenes = np.arange(400) // 10
    found = share_difference(ours, theirs, scenes)
    worth = shares.worth(ours.astype(float) - theirs, scenes, 10)
    part = worth / 400
    assert found.n_eff == pytest.approx(worth) and found.n == 400 and found.value == pytest.approx(0.05)
    assert tango(60 * part, 40 * part, worth, found.lo) == pytest.approx(1.96, rel=1e-3)
    assert tango(60 * part, 40 * part, worth, found.hi) == pytest.approx(-1.96, rel=1e-3)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([True], [True, False]), ([[True]], [[True]])])
def test_answers_to_different_samples_have_no_difference(ours, theirs):
    with pytest.raises(ValueError, match="equally long"):
        share_difference(ours, theirs)


NORMAL = [normal_quantile((i + 0.5) / 256) for i in range(256)]


def normal_of(rows):
    """A standard normal number told by which of four samples were drawn: its quantiles are known."""
    a, b, c, d = rows.tolist()
    return NORMAL[64 * a + 16 * b + 4 * c + d]


def test_the_percentiles_lie_as_far_out_as_students_t_asks():
    found = drawn_difference(normal_of, 4, level=0.8, draws=2000)
    reach = math.sqrt(4 / 3) * scipy.stats.t.ppf(0.9, 3)
    assert (found.lo, found.hi) == (pytest.approx(-reach, rel=0.03), pytest.approx(reach, rel=0.03))
    assert (found.value, found.n, found.n_eff, found.reliable) == (normal_of(np.arange(4)), 4, 4, True)
    assert drawn_difference(normal_of, 4, draws=100) == drawn_difference(
        normal_of, 4, level=0.95, draws=100, seed=0
    )
    assert drawn_difference(normal_of, 4, draws=100) != drawn_difference(normal_of, 4, draws=100, seed=1)


def test_a_set_is_made_of_as_many_whole_groups_as_there_are():
    drawn = []

    def note(rows):
        drawn.append(rows.tolist())
        return 0.0

    drawn_difference(note, 6, [7, 3, 7, 3, 3, 9], draws=50)
    groups = {0: [0, 2], 1: [1, 3, 4], 2: [5]}
    assert drawn[0] == list(range(6)) and len(drawn) == 51
    possible = [groups[a] + groups[b] + groups[c] for a in range(3) for b in range(3) for c in range(3)]
    assert all(rows in possible for rows in drawn[1:]) and len(set(map(tuple, drawn[1:]))) > 15


def test_forty_sets_have_an_interval_and_39_have_none():
    assert drawn_difference(normal_of, 4, draws=40).reliable
    few = drawn_difference(normal_of, 4, draws=39)
    assert (few.lo, few.hi, few.n, few.n_eff, few.reliable) == (-math.inf, math.inf, 4, 4, False)
    assert "4 independent samples, 39 sets" in few.note
    none = drawn_difference(lambda rows: math.nan, 0)
    assert (none.n, none.n_eff, none.reliable) == (0, 0, False)


def test_drawing_ends_once_the_time_is_over(monkeypatch):
    calls = []
    monkeypatch.setattr(shares, "time", SimpleNamespace(monotonic=lambda: float(len(calls))))
    drawn_difference(lambda rows: calls.append(0) or 0.0, 4, draws=500, most_s=60)
    assert len(calls) == 62  # all samples, 60 sets within the time and the one that goes beyond
