"""Means of few processes and of a table's ratios, against the textbook."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.cells.replicates import log_mean, plain_mean, spread
from edgescope.records import Absent, Measured
from edgescope.stats import paired_log_ratio


def test_the_spread_of_processes_is_students_interval():
    x = [1.0, 1.2, 1.1, 1.4]
    found = spread([*x, None], "s")
    lo, hi = scipy.stats.t.interval(0.95, 3, np.mean(x), scipy.stats.sem(x))
    assert (found.value, found.lo, found.hi, found.n) == pytest.approx((np.mean(x), lo, hi, 4))


def test_the_spread_reaches_to_the_mean_of_the_meters_bounds():
    found = spread([1.0, 1.01, 0.99], "J", [(0.8, 1.1), (0.6, 1.3), None])
    assert (found.lo, found.hi) == pytest.approx((0.7, 1.2))
    assert spread([1.0, 1.2, 1.1], "J", [(1.09, 1.11)]) == spread([1.0, 1.2, 1.1], "J")


def test_two_processes_have_no_interval_and_none_no_value():
    assert spread([1.0, 2.0], "s") == Measured(1.5, "s", n=2)
    assert isinstance(spread([None], "s"), Absent)


def test_one_ratio_keeps_its_own_interval():
    one = paired_log_ratio([2.0, 2.2, 2.1], [1.0, 1.0, 1.05]).measured("1")
    for mean in (log_mean([one]), plain_mean([one])):
        assert mean.value == pytest.approx(one.value)
        assert (mean.lo, mean.hi) == pytest.approx((one.lo, one.hi))


def test_a_ratio_without_an_interval_leaves_the_mean_without_one():
    assert log_mean([Measured(2.0, "1", 1.9, 2.1, 5), Measured(8.0, "1", n=1)]) == Measured(4.0, "1", n=2)
    assert isinstance(log_mean([Absent("x")]), Absent) and isinstance(plain_mean([]), Absent)


def test_a_ratio_of_one_by_definition_adds_no_doubt():
    sure = Measured(1.0, "1", n=5)
    mean = log_mean([sure, Measured(4.0, "1", 3.8, 4.0 * 4.0 / 3.8, 5)])
    assert mean.value == pytest.approx(2.0)
    assert math.log(mean.hi / mean.lo) == pytest.approx(math.log(4.0 * 4.0 / 3.8 / 3.8) / 2)


def test_the_interval_of_the_geometric_mean_covers_as_often_as_it_says():
    rng, hits, runs = np.random.default_rng(3), 0, 400
    truth = np.array([2.0, 5.0, 9.0])
    for _ in range(runs):
        ratios = []
        for t in truth:
            before = t * np.exp(rng.normal(0, 0.03, 5))
            ratios.append(paired_log_ratio(before, np.ones(5)).measured("1"))
        mean = log_mean(ratios)
        hits += mean.lo <= np.prod(truth) ** (1 / 3) <= mean.hi
    assert 0.91 <= hits / runs <= 0.985


@given(st.lists(st.floats(0.1, 50), min_size=1, max_size=11))
@pytest.mark.slow
def test_the_geometric_mean_never_exceeds_the_arithmetic(values):
    fields = [Measured(v, "1") for v in values]
    assert log_mean(fields).value <= plain_mean(fields).value * (1 + 1e-9)
