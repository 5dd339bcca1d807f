"""Bounds of a fresh process: coverage on drawn processes, what replicated cells teach single ones."""

import math

import numpy as np
import pytest

from edgescope.analysis.bounds import PRIOR_DOF, Spread, apart, fresh, moderated, pooled


@pytest.mark.parametrize("k", [1, 3])
def test_a_fresh_process_stays_below_as_often_as_promised(k):
    rng = np.random.default_rng(k)
    held = []
    for _ in range(400):
        others = [np.exp(rng.normal(rng.normal(), 0.05, 3)) for _ in range(12)]
        drawn = np.exp(rng.normal(0, 0.05, k + 1))
        ends = fresh(list(drawn[:k]), pooled(map(list, others)))
        held.append((drawn[-1] <= ends[1], drawn[-1] >= ends[0]))
    assert np.mean([h[0] for h in held]) == pytest.approx(0.95, abs=0.035)
    assert np.mean([h[1] for h in held]) == pytest.approx(0.95, abs=0.035)


def test_the_pooled_spread_is_that_within_cells():
    assert pooled([[1.0, math.e], [100.0, 100.0]]) == Spread(pytest.approx(0.5), 2)
    assert pooled([[5.0], [7.0]]) is None


def test_other_cells_count_for_a_few_degrees_of_freedom_only():
    assert moderated([3.0], Spread(0.1, 500)) == Spread(0.1, PRIOR_DOF)
    own = moderated([1.0, 1.0, 1.0], Spread(0.1, 500))
    assert own.dof == PRIOR_DOF + 2 and own.sd < 0.1
    assert moderated([3.0], None) is None and fresh([3.0], None) is None


def test_cells_apart():
    tight = Spread(0.01, 20)
    assert apart([100, 101], [110, 111], tight) is True
    assert apart([100, 101], [101, 102], tight) is False
    assert apart([100], [200], None) is None
