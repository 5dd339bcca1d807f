"""The scripts about pairs, on pairs whose times are known: first blocks, forked pairs, length of turns."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import pairs

from edgescope.isolate.worker import WorkerProcess
from edgescope.records import Alternation, Trial, Turn

TRIAL = Trial(model="null", backend="null")


def side(*times_s):
    """Return what a script reads of a side that had a turn of a second every other second."""
    turns = tuple(
        Turn(n // 2, n * 2 * 10**9, (n * 2 + 1) * 10**9, 1, time_s) for n, time_s in enumerate(times_s)
    )
    return SimpleNamespace(
        trial=TRIAL, alternation=Alternation("other", "baseline", "confirming", turns, 0.0)
    )


def test_a_first_block_is_told_from_the_others():
    found = side(0.02, 0.08, 0.01, 0.01, 0.03, 0.03)
    assert pairs.time_of(found, first=True) == pytest.approx(0.04)
    assert pairs.time_of(found, first=False) == pytest.approx(0.0003**0.5)


def test_the_ratio_is_of_the_forked_to_the_started_side_wherever_the_forked_one_is():
    asked = []

    def pair(number, forked):
        asked.append(forked)
        return tuple(side(0.03 if n in forked else 0.02, 0.03 if n in forked else 0.02) for n in (0, 1))

    found = pairs.ratio_of(4, pair)
    assert asked == [(0,), (1,), (0,), (1,)]
    assert found["value"] == pytest.approx(1.5) and found["pairs"] == 4


@pytest.mark.process
def test_only_the_chosen_side_is_forked(monkeypatch):
    monkeypatch.setattr(pairs.Forks, "worker", lambda *asked: "forked")
    source = pairs.Chosen()
    source.forked = (1,)
    started = source.worker(0, TRIAL)
    assert isinstance(started, WorkerProcess) and source.worker(1, TRIAL) == "forked"
    started.end()


def test_the_error_of_a_turn_length_is_that_of_the_mean_after_one_second():
    """Ratios 1, 1, e and e over fifteen seconds: a deviation of 0.577 and four blocks."""
    slow = (0.01,) * 4 + (0.01 * 2.718281828,) * 4
    rate = pairs.error_rate((side(*slow), side(*(0.01,) * 8)))
    assert rate == pytest.approx(0.57735 / 2 * 15**0.5, rel=1e-4)
