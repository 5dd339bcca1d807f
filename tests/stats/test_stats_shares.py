"""Shares of samples that come in scenes: they count for fewer, and the interval holds all the same."""

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from edgescope.stats import bursty_share, clustered_share, wilson
from edgescope.stats.shares import worth

SCENES = np.arange(370) // 20


def chain(rng, runs, share, correlation):
    """Agreement on 370 frames, (runs, 370): neighbours answer alike with this correlation."""
    chance = rng.random((runs, 370))
    found = np.empty((runs, 370), dtype=bool)
    found[:, 0] = chance[:, 0] < share
    for i in range(1, 370):
        found[:, i] = chance[:, i] < share * (1 - correlation) + correlation * found[:, i - 1]
    return found


@pytest.mark.parametrize("share", [0.8, 0.94, 0.97])
def test_frames_that_answer_alike_are_covered_as_promised(share):
    """Wilson's interval of all frames holds in 60 % here."""
    drawn = chain(np.random.default_rng(3), 300, share, 0.7)
    held = [(found := clustered_share(hits, SCENES)).lo <= share <= found.hi for hits in drawn]
    assert np.mean(held) >= 0.93


def test_independent_frames_keep_most_of_what_they_say():
    worth = [clustered_share(hits, SCENES).n_eff for hits in chain(np.random.default_rng(4), 50, 0.94, 0.0)]
    assert np.median(worth) > 370 / 2


def test_without_groups_every_sample_counts():
    assert clustered_share([True] * 90 + [False] * 10) == wilson(90, 100)


def test_one_group_is_one_opinion():
    assert clustered_share([True] * 400, [7] * 400).n_eff == 1


def test_a_variant_that_agrees_everywhere_can_pass_a_floor_of_95_percent():
    assert clustered_share([True] * 300, np.arange(300) // 20).lo > 0.95


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=1, max_size=60))
@pytest.mark.slow
def test_whatever_the_scenes_the_share_lies_in_its_interval(samples):
    hits, groups = zip(*samples, strict=True)
    found = clustered_share(hits, groups)
    assert 0 <= found.lo <= found.value + 1e-12 and found.value <= found.hi + 1e-12 <= 1 + 2e-12
    assert 0 < found.n_eff <= len(hits)


def test_the_rarer_answer_says_how_many_scenes_were_heard():
    """30 scenes of ten frames, 12 of them with six wrong frames: Student's t of 14 degrees of freedom."""
    groups = np.repeat(np.arange(30), 10)
    hit = np.ones(300, dtype=bool)
    hit[: 12 * 10] = np.tile(np.arange(10) >= 6, 12)
    share, size = hit.mean(), 10.0
    rest = np.add.reduceat(hit.astype(float), np.arange(0, 300, 10)) - share * size
    rest /= 1 - size / 300
    alone = share * (1 - share) / 300
    spread = rest @ rest * 30 / 29 / 300**2
    assert spread / alone > 2
    worth = 300 / max(1.0, spread / alone) * (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, 14)) ** 2
    assert clustered_share(hit, groups).n_eff == pytest.approx(worth, rel=1e-6)


def test_a_share_of_nothing_has_no_trials():
    none = wilson(0, 0)
    assert (none.lo, none.hi, none.n, none.n_eff, none.reliable) == (0.0, 1.0, 0, 0, False)
    assert wilson(3, 10, 0.5).lo < 0.3 < wilson(3, 10, 0.5).hi


def bursts(rng, n, share, length):
    """Hits in bursts of a mean length: the states of a two-state chain, (n,)."""
    if length == 1:
        return rng.random(n) < share
    leave, enter = 1 / length, share / length / (1 - share)
    found, hit = np.empty(n, dtype=bool), rng.random() < share
    for i, chance in enumerate(rng.random(n)):
        found[i] = hit
        hit = chance >= leave if hit else chance < enter
    return found


@pytest.mark.parametrize(
    ("n", "share", "length"), [(2000, 0.02, 1), (2000, 0.02, 5), (3000, 0.02, 10), (1000, 0.2, 10)]
)
def test_misses_in_bursts_are_covered_where_the_run_meets_five_bursts(n, share, length):
    rng, held, all_of_them = np.random.default_rng(5), [], []
    for _ in range(150):
        hits = bursts(rng, n, share, length)
        late = np.where(hits, rng.exponential(1, n), -rng.random(n))
        found, plain = bursty_share(hits, late), wilson(int(hits.sum()), n)
        assert found.value == plain.value and found.n == n
        held.append(found.lo <= share <= found.hi)
        all_of_them.append(plain.lo <= share <= plain.hi)
    assert np.mean(held) >= 0.92
    if length == 10:
        assert np.mean(all_of_them) < 0.75  # Wilson's interval of all queries


def test_no_hit_bounds_the_share_as_wilson_does():
    rng = np.random.default_rng(6)
    found = bursty_share(np.zeros(500, bool), rng.random(500))
    assert found.lo == 0.0 and 0.9 * wilson(0, 500).hi < found.hi < 2 * wilson(0, 500).hi
    assert not bursty_share([]).reliable


@pytest.mark.parametrize(
    ("scenes", "telling", "degrees"),
    [(2, 0, 1), (4, 1, 3), (4, 4, 3), (5, 4, 4), (9, 0, 3), (9, 2, 4), (9, 4, 6)],
)
def test_students_degrees_are_those_of_the_telling_scenes_but_fewer_than_all(scenes, telling, degrees):
    """Every scene answers alike, so that Student's t alone makes the samples count for fewer."""
    values, of = np.tile([0.0, 1.0], 5 * scenes), np.repeat(np.arange(scenes), 10)
    worn = (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, degrees)) ** 2
    assert worth(values, of, telling) == pytest.approx(10 * scenes * worn, rel=1e-6)


def test_one_scene_is_worth_one_sample_and_nobody_is_worth_more_than_all():
    assert worth([0.0, 1.0], np.zeros(2, int), 1) == 1.0
    spread = np.tile([0.0, 1.0], 500)
    assert worth(spread, np.arange(1000) // 2, 500) == pytest.approx(
        1000 * (scipy.stats.norm.ppf(0.975) / scipy.stats.t.ppf(0.975, 499)) ** 2, rel=1e-6
    )
