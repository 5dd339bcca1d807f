"""The Pareto front against its definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.analysis.cells.objective import pareto

costs = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=25)


def first(row):
    return row[0]


def second(row):
    return row[1]


def dominated(p, rows):
    return any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in rows)


@given(costs)
@pytest.mark.slow
def test_front_is_exactly_what_nothing_dominates(rows):
    assert sorted(pareto(rows, first, second)) == sorted(p for p in rows if not dominated(p, rows))


def test_rows_without_a_value_are_left_out():
    assert pareto([(1, None), (2, 3), (None, 1)], first, second) == [(2, 3)]
