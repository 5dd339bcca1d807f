"""benchmarks/alternation.py holds: what it makes of published runs whose error is known; nothing is measured."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import alternation

WAS = 0.005


def page(*runs):
    """Return a page whose long-run ratio is 8; a run: its ratio, its half interval (log), what else it says."""
    found = []
    for value, half, keys in runs:
        said = {"value": value, "lo": value * math.exp(-half), "hi": value * math.exp(half), "n": 10}
        found.append({"pick": "int8", "seldom": False, "speedup": said, **keys})
    whole = {"value": 8.0, "whole": {"value": 6.0}, "ratios": [5.0, 8.0], "core_to_core_s": [2.2e-7, 3e-8]}
    return {"long_run": {"int8": whole}, "runs": found}


@pytest.fixture
def shown(monkeypatch):
    """Have the published pages be these."""

    def pages(**found):
        monkeypatch.setattr(alternation, "published", found.get)
        return dict.fromkeys(found, WAS)

    return pages


def test_what_no_pair_shows_is_taken_off_and_put_on():
    (said,) = (run["speedup"] for run in page((8.0, 0.05, {}))["runs"])
    log = math.log(8.0)
    assert alternation.half_without(said, 0.0) == pytest.approx(0.05)
    assert alternation.half_without(said, WAS) == pytest.approx(
        math.sqrt(0.05**2 - (1.96 * WAS * log) ** 2), 1e-3
    )
    assert alternation.half_without(said, 0.5) == 0.0
    assert alternation.half_with(said, alternation.UNSEEN) == pytest.approx(0.05)
    assert alternation.half_with(said, WAS) > 0.05


def test_runs_that_their_intervals_explain_differ_by_nothing_unseen_and_others_by_what_they_do(shown):
    rng = np.random.default_rng(2)
    off = rng.normal(0.0, 0.01 * math.log(8), 4000)
    spread = page(*((8.0 * math.exp(each), 0.03, {}) for each in off))
    wide = page(*((8.0 * math.exp(each), 0.3, {}) for each in off))
    found = alternation.between_runs(shown(spread=spread))
    own = alternation.half_without(spread["runs"][0]["speedup"], WAS) / 2.262 / math.log(8)
    assert found["runs"] == 4000 and found["sd"] == pytest.approx(math.sqrt(0.01**2 - own**2), rel=0.05)
    assert alternation.between_runs(shown(wide=wide))["sd"] == 0.0


def test_runs_that_say_that_they_saw_no_full_speed_do_not_count_for_it(shown):
    told = page((8.1, 0.03, {}), (6.0, 0.03, {"seldom": True}), (5.0, 0.03, {"apart": "220"}))
    assert alternation.between_runs(shown(told=told))["runs"] == 1
    assert alternation.today(shown(told=told)) == {"of": 3, "narrow": 3, "held": 3}


def test_a_run_is_held_to_what_it_says_of_its_machine_and_one_without_an_interval_only_counts(shown):
    missed = page((8.0, 0.03, {"seldom": True}), (8.0, 0.03, {"apart": "220"}), (8.0, 0.06, {}))
    missed["runs"].append({"pick": "int8", "seldom": False, "speedup": {"value": 8.0}})
    assert alternation.today(shown(missed=missed)) == {"of": 4, "narrow": 2, "held": 1}


def test_machines_are_pooled_by_their_runs():
    found = alternation.of_all({"a": {"runs": 3, "sd": 0.002}, "b": {"runs": 1, "sd": 0.01}})
    assert found["all"] == {"runs": 4, "sd": pytest.approx(math.sqrt((3 * 4e-6 + 1e-4) / 4))}
    assert found["a"]["runs"] == 3
