"""benchmarks/alternation.py recorded: what it makes of hours whose turns are known; nothing is measured."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import alternation
from alternation import DISTANT, FULL, MIXED, NEAR, SLOWED_ALL, SPREAD, Hour, Piece, pieces_told

PAIRS = 14
FAST, SLOW, FAR = (0.0, 8.0), (0.4, 6.0), (0.3, 7.0)
"""By how much a minute's turns take longer (log), and its ratio."""


def hour(*minutes, machine="xeon", far=FAR):
    """Return an hour of minutes of PAIRS each; a pair has four turns of either side, of its minute's ratio."""
    rng = np.random.default_rng(5)
    trace = {"base": [], "ours": [], "began_s": [], "core_to_core_s": []}
    for number, minute in enumerate(minutes):
        for pair in range(PAIRS):
            longer, ratio = minute
            log = math.log(ratio) + 0.005 * rng.standard_normal()
            trace["base"].append([log + longer] * 4)
            trace["ours"].append([longer] * 4)
            trace["began_s"].append(200.0 * number + 5.0 * pair)
            trace["core_to_core_s"].append(2.2e-7 if minute == far else 3e-8)
    return Hour(machine, "an hour", trace)


def kinds(pieces, way):
    return {piece.kind for piece in pieces if piece.way == way}


def test_pieces_that_follow_each_other_lie_in_one_minute_and_the_others_all_over_the_hour(monkeypatch):
    some = hour(FAST, FAST, FAST)
    monkeypatch.setattr(Hour, "piece", lambda self, way, which: (way, list(which)))
    found = list(some.pieces())
    assert [(PAIRS - n + 1) * 3 for n in alternation.LENGTHS] == [
        sum(way == NEAR and len(which) == n for way, which in found) for n in alternation.LENGTHS
    ]
    for way, which in found:
        assert (
            which[0] // PAIRS == which[-1] // PAIRS and which == list(range(which[0], which[-1] + 1))
        ) == (way == NEAR)
        assert (max(which) - min(which) >= 2 * PAIRS) == (way == SPREAD)


def test_every_piece_of_a_quiet_hour_holds_its_ratio_and_so_it_does_that_of_the_others():
    pieces = list(hour(FAST, FAST, FAST).pieces())
    told = pieces_told(pieces)
    assert {piece.kind for piece in pieces} == {FULL}
    assert (told["held"], told["held_rest"], told["refused"], told["narrow"]) == (1.0, 1.0, 0.0, 1.0)


def test_a_minute_that_is_slowed_throughout_does_not_know_it_and_misses_and_pairs_that_are_spread_hold():
    pieces = list(hour(FAST, FAST, SLOW).pieces())
    slowed = [piece for piece in pieces if piece.kind == SLOWED_ALL]
    assert kinds(pieces, NEAR) == {FULL, SLOWED_ALL} and kinds(pieces, SPREAD) == {FULL}
    assert len(slowed) == sum(PAIRS - n + 1 for n in alternation.LENGTHS)
    assert pieces_told(slowed)["held"] == 0.0 and pieces_told(slowed)["held_as_said"] == 0.0
    assert pieces_told([piece for piece in pieces if piece.kind == FULL])["held"] == 1.0


def test_a_minute_whose_cpus_were_apart_is_held_to_the_others_that_were():
    pieces = list(hour(FAST, FAR, FAR).pieces())
    apart = pieces_told([piece for piece in pieces if piece.kind == DISTANT and piece.way == NEAR])
    assert apart["pieces"] == 2 * sum(PAIRS - n + 1 for n in alternation.LENGTHS)
    assert (apart["held"], apart["held_as_said"]) == (0.0, 1.0)


def test_a_piece_that_says_that_all_turns_count_is_held_to_the_ratio_of_all_turns():
    some = hour(FAST, SLOW, SLOW, SLOW)
    (whole,) = {piece.truth for piece in some.pieces() if piece.kind == MIXED}
    assert whole == pytest.approx(some.mixed.mean()) != pytest.approx(np.nanmean(some.full))
    assert math.exp(np.nanmean(some.full)) == pytest.approx(8.0, rel=0.01)
    assert some.facts()["slowed"] == pytest.approx(0.75)


def test_the_error_of_an_hours_ratio_is_that_of_its_minutes():
    some, logs = hour(FAST, FAST, FAST, FAST), np.repeat([2.0, 2.1, 1.9, 2.0], PAIRS)
    means = np.array([2.0, 2.1, 1.9, 2.0])
    assert some.half(logs) == pytest.approx(3.182 * means.std(ddof=1) / 2, rel=1e-3)
    gone = np.where(np.arange(4 * PAIRS) < 5, np.nan, logs)
    assert some.half(gone) > 0 and some.half(np.full(4 * PAIRS, 2.0)) == 0.0
    assert (
        some.half(np.where(np.arange(4 * PAIRS) < PAIRS, 2.0, np.nan)) == math.inf
    )  # one minute does not bound it


def piece(value=2.0, half=0.1, truth=2.0, rest=2.0, hour="a", truth_half=0.0):
    return Piece(hour, hour, NEAR, FULL, value, half, truth, truth_half, rest, truth)


def test_what_has_no_interval_is_refused_and_is_no_hit():
    told = pieces_told([piece(), piece(half=math.inf), piece(half=0.8), piece(truth=2.2, rest=2.05)])
    assert told["pieces"] == 4 and told["refused"] == 0.5
    assert told["held"] == 0.5 and told["held_rest"] == 1.0
    assert pieces_told([piece(half=math.inf)]) == {"pieces": 1, "refused": 1.0}


def test_a_miss_that_the_hours_own_error_explains_is_unsure():
    assert pieces_told([piece(truth=2.12)])["held_or_unsure"] == 0.0
    assert pieces_told([piece(truth=2.12, truth_half=0.1)])["held_or_unsure"] == 1.0


def test_what_is_fitted_to_the_others_is_told_of_the_group_that_it_was_not_fitted_to():
    shown = 0.01
    half = math.hypot(shown, 1.96 * alternation.UNSEEN * 2.0)
    near = [piece(truth=2.0 + off, half=half, hour="near") for off in (0.005, -0.005)]
    far = [piece(truth=2.0 + off, half=half, hour="far") for off in (0.2, -0.2)]
    found = alternation.left_out([*near, *far], "hour")
    assert found["far"]["unseen"] == 0.0 and found["far"]["held"] == 0.0
    assert found["far"]["median_hi_over_lo"] == pytest.approx(math.exp(2 * shown), rel=1e-3)
    assert (
        found["near"]["unseen"] == pytest.approx(0.2 / 2.0 / 1.96, abs=1e-3) and found["near"]["held"] == 1.0
    )


@pytest.mark.slow
def test_a_refinement_is_off_only_meanwhile():
    some, was = hour(FAST, FAST, FAST), alternation.alternation.UNSEEN
    off = alternation.without([some], "UNSEEN")
    assert (
        off[NEAR]["median_hi_over_lo"]
        < pieces_told([p for p in some.pieces() if p.way == NEAR])["median_hi_over_lo"]
    )
    assert was == alternation.alternation.UNSEEN and set(alternation.WITHOUT) <= set(
        vars(alternation.alternation)
    )
