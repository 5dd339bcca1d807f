"""The ratio of two variants in turns: of latencies, or of seconds a sample where their loads differ."""

import math
from types import SimpleNamespace

import pytest

from edgescope.analysis.cells import alternation
from edgescope.records import Status, Trial, Turn


def side(turns, **keys):
    taken = [Turn(block, 0, stop, queries, time_s) for block, stop, queries, time_s in turns]
    about = SimpleNamespace(turns=taken, partner="partner")
    return SimpleNamespace(trial=Trial(model="null", **keys), alternation=about, status=Status.OK)


def ratio(mine, theirs):
    return math.exp(alternation.blocks(mine, theirs).mean)


def test_latencies_are_compared_where_both_have_one_load():
    base, fast = side([(0, 10**9, 10, 0.1)]), side([(0, 10**9, 12, 0.05)])
    assert ratio(fast, base) == pytest.approx(2.0)


def test_seconds_a_sample_are_compared_where_loads_differ():
    """Four queries in flight wait for one another: each takes twice as long, and twice as many are done."""
    base, overlapped = side([(0, 10**9, 10, 0.1)]), side([(0, 10**9, 20, 0.2)], in_flight=4)
    assert ratio(overlapped, base) == pytest.approx(2.0)
    batched = side([(0, 10**9, 5, 0.2)], batch=8)
    assert ratio(batched, base) == pytest.approx(4.0)


def test_a_turn_without_a_right_answer_leaves_its_block_out():
    base, wrong = side([(0, 10**9, 10, 0.1)]), side([(0, 10**9, 20, 0.0)], in_flight=4)
    assert not alternation.blocks(wrong, base).logs
