"""Curves and areas against their definitions, sample by sample."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.wings.anomaly.evaluation import Ranked, area, curve

SCORES, POSITIVES, NEGATIVES = [0.2, 0.9, 0.5, 0.9, 0.1], [0, 2, 1, 1, 1], [3, 0, 2, 1, 2]
"""Five rows, two of one score: 0.9 has 3 of 5 positives and 1 of 8 negatives."""

rows = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=12
).filter(lambda rows: any(p for _, p, _ in rows) and any(n for _, _, n in rows))


def test_the_counts_at_each_threshold_are_those_of_all_rows_from_there_on():
    found = curve(SCORES, POSITIVES, NEGATIVES)
    assert found.thresholds.tolist() == [0.9, 0.5, 0.2, 0.1]
    assert found.true.tolist() == [3, 4, 4, 5] and found.false.tolist() == [1, 3, 6, 8]
    assert found.tpr == pytest.approx([0, 0.6, 0.8, 0.8, 1]) and found.fpr == pytest.approx(
        [0, 1 / 8, 3 / 8, 6 / 8, 1]
    )
    assert found.precision == pytest.approx([1, 3 / 4, 4 / 7, 4 / 10, 5 / 13])
    assert found.youden == 0.9


@given(rows)
@pytest.mark.slow
def test_the_area_under_roc_is_the_chance_that_a_positive_has_the_higher_score(rows):
    pairs = [(p * n, 1.0 if s > t else 0.5 if s == t else 0.0) for s, p, _ in rows for t, _, n in rows]
    chance = sum(weight * won for weight, won in pairs) / sum(weight for weight, _ in pairs)
    assert curve(*zip(*rows, strict=True)).roc_auc == pytest.approx(chance)


def test_the_area_under_precision_and_recall_is_by_trapezoids_from_precision_1():
    found = curve(SCORES, POSITIVES, NEGATIVES)
    first, second, third = 0.6 * (1 + 3 / 4) / 2, 0.2 * (3 / 4 + 4 / 7) / 2, 0.2 * (4 / 10 + 5 / 13) / 2
    assert found.pr_auc == pytest.approx(first + second + third)
    assert area([0, 1, 3], [2, 4, 0]) == pytest.approx(3 + 4)


def test_the_threshold_is_where_finding_most_exceeds_mistaking_most():
    """At 3 it finds 1 of 4 and mistakes none, at 2 all but one of 4 and 1 of 4, at 1 everything."""
    assert curve([3, 2, 1], [1, 2, 1], [0, 1, 3]).youden == 2
    assert curve([3, 2, 1], [2, 1, 1], [0, 1, 3]).youden == 3  # the highest of equals


def test_without_either_there_is_no_rate_and_a_row_of_nothing_takes_nothing_for_positive():
    none = curve([2.0, 1.0], [0, 0], [1, 1])
    assert np.isnan(none.tpr).all() and none.fpr.tolist() == [0, 0.5, 1] and math.isnan(none.roc_auc)
    assert curve([2.0, 1.0], [0, 1], [0, 0]).precision.tolist() == [1, 1, 1]
    empty = curve([], [], [])
    assert len(empty.thresholds) == 0 and np.isnan(empty.tpr).all() and empty.precision.tolist() == [1]


def test_scores_sorted_once_serve_many_counts_and_must_be_numbers():
    ranked = Ranked(np.array(SCORES))
    for weight in (1.0, 3.0):
        found = ranked.curve(weight * np.array(POSITIVES), np.array(NEGATIVES))
        assert found.true.tolist() == [3 * weight, 4 * weight, 4 * weight, 5 * weight]
    for bad in (math.nan, math.inf):
        with pytest.raises(ValueError, match="no number"):
            Ranked(np.array([1.0, bad]))
