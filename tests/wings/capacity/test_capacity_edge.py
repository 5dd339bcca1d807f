"""Which number of clients is tried next, against edges anywhere, with and without noise."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgescope.wings.capacity.search import Edge, Tried, edge, following

COUNTS = st.integers(0, 300)


@settings(max_examples=200, deadline=None)
@given(true=COUNTS, estimate=st.integers(1, 400), most=st.integers(1, 500))
@pytest.mark.slow
def test_the_edge_is_found_wherever_it_is(true, estimate, most):
    tried = []
    while (n := following(tried, estimate, most)) is not None:
        assert 1 <= n <= most and n not in {t.clients for t in tried}
        tried.append(Tried(n, n <= true))
    assert edge(tried).fits == min(true, most)
    assert len(tried) <= 20 + 2 * abs(estimate - true) // max(1, round(estimate / 20)) ** 0.5


@settings(max_examples=100, deadline=None)
@given(true=st.integers(1, 60), estimate=st.integers(1, 60), seed=st.integers(0, 10**6))
def test_noise_ends_too_and_near_the_edge(true, estimate, seed):
    rng, tried = random.Random(seed), []
    while (n := following(tried, estimate, 200)) is not None:
        near = abs(n - true) <= 1
        tried.append(Tried(n, rng.random() < 0.5 if near else n <= true, not near))
        assert len(tried) < 60
    assert abs(edge(tried).fits - true) <= 2


def test_a_close_miss_beside_the_edge_is_looked_at_again():
    tried = [Tried(7, True), Tried(8, False, clear=False)]
    assert following(tried, 7, 99) == 8
    assert following([*tried, Tried(8, False, clear=False)], 7, 99) is None
    assert following([*tried, Tried(8, True)], 7, 99) > 8
    assert edge(tried) == Edge(7, 8, open=True)


def test_one_client_is_the_least_and_most_is_the_most():
    assert following([Tried(1, False)], 1, 9) is None
    assert following([Tried(9, True)], 9, 9) is None
    assert following([], 50, 9) == 9
