"""Bounds of a fresh process: coverage on drawn processes, what replicated cells teach single ones."""

import math

import numpy as np
import pytest

from edgescope.stats import Judgement
from edgescope.wings.recommend.candidates import PRIOR_DOF, Spread, compared, fresh, moderated, pooled


@pytest.mark.parametrize("k", [1, 3])
def test_a_fresh_process_stays_below_as_often_as_promised(k):
    rng = np.random.default_rng(k)
    held = []
    for _ in range(400):
        others = [np.exp(rng.normal(rng.normal(), 0.05, 3)) for _ in range(12)]
        drawn = np.exp(rng.normal(0, 0.05, k + 1))
        ends = fresh(list(drawn[:k]), pooled([list(drawn[:k]), *map(list, others)]))
        held.append((drawn[-1] <= ends[1], drawn[-1] >= ends[0]))
    assert np.mean([h[0] for h in held]) >= 0.93
    assert np.mean([h[1] for h in held]) >= 0.93


def test_the_pooled_spread_is_that_within_cells():
    assert pooled([[1.0, math.e], [100.0, 100.0]]) == Spread(pytest.approx(0.5), 2)
    assert pooled([[5.0], [7.0]]) is None


def test_other_cells_count_for_a_few_degrees_of_freedom_only():
    assert moderated([3.0], Spread(0.1, 500)) == Spread(0.1, pytest.approx(PRIOR_DOF, rel=0.01))
    assert moderated([3.0], Spread(0.1, 2)).dof < 2, (
        "two cells may differ, and two degrees of freedom know little"
    )
    own = moderated(
        [1.0, 1.0, 1.0], Spread(0.1, 500)
    )  # that of all cells, its own 2 degrees of freedom included
    assert own.dof == pytest.approx(PRIOR_DOF + 2, rel=0.01) and own.sd < 0.1
    assert moderated([3.0], None) is None and fresh([3.0], None) is None


def test_cells_apart():
    tight = Spread(0.01, 20)
    assert compared([100, 101], [110, 111], tight) is Judgement.FASTER
    assert compared([100, 101], [101, 102], tight) is Judgement.AMBIGUOUS, (
        "what is not apart is not yet the same"
    )
    assert compared([99.8, 100, 100.2], [99.9, 100, 100.2], Spread(0.002, 20)) is Judgement.SAME
    assert compared([100], [200], None) is None


def test_the_same_ends_where_its_interval_leaves_two_per_cent():
    tight = Spread(1e-6, 500)
    assert compared([100] * 3, [101.9] * 3, Spread(0.02, 500)) is Judgement.AMBIGUOUS
    assert compared([100] * 3, [101.9] * 3, tight) is Judgement.FASTER
    assert compared([1.0], [1.0], tight) is Judgement.SAME


def held(k, mine, others, runs=500):
    """How often a further process stays below its bound: a cell of k whose spread is `mine`, others of 3 each."""
    rng, below = np.random.default_rng(7), []
    for _ in range(runs):
        drawn = rng.normal(0, mine, k + 1)
        groups = [np.exp(rng.normal(0, s, 3)).tolist() for s in others]
        cell = np.exp(drawn[:k]).tolist()
        below.append(math.exp(drawn[k]) <= fresh(cell, pooled([cell, *groups]))[1])
    return float(np.mean(below))


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_cell_that_alone_is_replicated_counts_once(k):
    assert held(k, 0.03, []) >= 0.92
    assert moderated([1.0, 1.1], pooled([[1.0, 1.1]])) == pooled([[1.0, 1.1]])


@pytest.mark.parametrize("k", [2, 3])
def test_what_other_cells_spread_by_never_narrows_a_cell_that_spreads_by_more(k):
    assert held(k, 0.15, [0.03] * 5) >= 0.92


def test_cells_that_spread_differently_keep_the_promise_together():
    rng = np.random.default_rng(3)
    found = [
        held(1, s, (0.03 * np.exp(rng.uniform(0, math.log(5), 5))).tolist(), 60)
        for s in 0.03 * np.exp(rng.uniform(0, math.log(5), 12))
    ]
    assert np.mean(found) >= 0.92
