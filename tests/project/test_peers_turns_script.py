"""benchmarks/peers.py: blocks of two processes, and what is told of their pairs."""

import math
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import peers

from edgescope.stats.alternation import BASE, OURS
from two_speeds import abba


class Side:
    pid = os.getpid()

    def __init__(self, *times):
        self.times = list(times)

    def turn(self, seconds):
        return self.times.pop(0)


def test_a_block_is_free_of_even_drift(monkeypatch):
    """The machine slows down by a tenth each turn; the pick is three times as fast as eager all the while."""
    rested = []
    monkeypatch.setattr(peers, "until_asleep", rested.append)
    slow = [1.1**k for k in range(4)]
    eager, pick = Side(3 * slow[0], 3 * slow[3]), Side(slow[1], slow[2])
    found = peers.turns([eager, pick], 1, 0.1)
    assert found.ratio == pytest.approx(math.log(3)) and rested == [os.getpid()] * 4
    assert found.sides == [BASE, OURS, OURS, BASE]


def test_the_ratio_is_of_the_pairs_and_three_are_the_least():
    pairs = [abba([0.0] * 2, [-math.log(n)] * 2) for n in (3.8, 4.0, 16 / 3.8)]
    found = peers.ratio(pairs)
    assert found["value"] == pytest.approx(4) and found["n"] == found["pairs"] == 3
    assert found["lo"] < 3.8 and found["lo"] * found["hi"] == pytest.approx(16)
    assert "2 pairs" in peers.ratio(pairs[:2])["absent"]
