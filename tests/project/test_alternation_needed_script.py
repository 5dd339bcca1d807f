"""benchmarks/alternation.py needed: what it makes of hours whose turns are known; nothing is measured."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import alternation

from two_speeds import abba


def hour(pairs, spread, slowed=0.0):
    """Return pairs whose ratio is 8 times a factor that differs by `spread`; so large a share of them is slowed."""
    rng = np.random.default_rng(1)
    found = []
    for number in range(pairs):
        longer = 0.5 if number < slowed * pairs else 0.0
        base = math.log(8) + longer + spread * rng.standard_normal()
        found.append(abba([base] * 4, [longer] * 4))
    return found


def test_stretches_of_a_quiet_hour_are_narrow_and_hold_its_ratio():
    found = alternation.stretches(hour(20, 0.001), 9)
    assert len(found) == 12 and all(each.half <= 0.03 and each.held for each in found)
    assert {each.slowed for each in found} == {0.0}


def test_a_stretch_is_slowed_by_what_the_whole_hour_reached():
    found = alternation.stretches(hour(40, 0.001, slowed=0.5), 9)
    assert [found[0].slowed, found[-1].slowed] == [1.0, 0.0]


@pytest.mark.slow
def test_the_reach_ends_before_the_first_share_that_is_too_wide():
    quiet, wide = hour(20, 0.001), hour(40, 0.3)
    assert alternation.by_share([quiet], 9)["reach"] == alternation.SHARES[1]
    found = alternation.by_share([wide], 9)
    assert found["reach"] == 0.0 and all(each["narrow"] < 0.9 for each in found["shares"].values())


def test_a_long_pair_is_cut_into_whole_pieces_in_order():
    pair = abba([float(n) for n in range(10)], [float(-n) for n in range(10)])
    found = alternation.pieces(pair, 8)
    assert [len(piece) for piece in found] == [8, 8]
    assert [*found[0].logs, *found[1].logs] == list(pair.logs[:16])
    assert alternation.usual([pair, *found]) == 8


def test_runs_count_by_what_they_say_of_their_own_turns_as_wide_as_they_would_be_today():
    def run(half, *notes, value=1.0):
        return {
            "notes": notes,
            "speedup": {"value": value, "lo": value / (1 + half), "hi": value * (1 + half)},
        }

    def slowed(share):
        said = (
            f"W-PAIR-3: something slowed the machine in {share}% of the turns of openvino int8 b1 (so much)."
        )
        return "torch_eager: 1 of 3 replicates unstable; they count", said

    runs = [run(0.03, *slowed(45)), run(0.06, *slowed(49)), run(0.0499, *slowed(50)), run(0.01, *slowed(100))]
    runs += [run(0.04), run(0.04, value=8.0), run(0.049, value=8.0)]  # of a ratio of 8 more is unseen now
    found = alternation.runs_by_share([*runs, {"notes": []}])  # the last has no interval
    assert found["0.4 to 0.5"] == {"runs": 2, "narrow": 1} and found["0.5 to 0.6"] == {"runs": 1, "narrow": 1}
    assert found["0.8 to 1"] == {"runs": 1, "narrow": 1} and found["0 to 0.4"] == {"runs": 4, "narrow": 2}


def test_what_is_told_counts_narrow_and_held():
    some = [
        alternation.Stretch(0.0, half, held) for half, held in ((0.04, True), (0.06, True), (0.05, False))
    ]
    told = alternation.needed_told(some)
    assert told["stretches"] == 3 and told["narrow"] == told["held"] == pytest.approx(2 / 3)
