"""benchmarks/demo_runs.py answers: the long-run ratio that a run's interval should hold; nothing is measured."""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import demo_runs

from edgescope.analysis.cells import variants

NS = 1e-9
TRUTH = {
    "value": 9.5,
    "whole": {"value": 8.8},
    "core_to_core_s": [25 * NS, 210 * NS, 240 * NS, 110 * NS, None],
    "ratios": [9.5, 7.0, 8.0, 8.5, 1.0],
}
AWAY = "W-PAIR-4: the hypervisor had the CPUs apart in 9 of 10 pairs of x ({} ns from one to the other; a shared ..."


def judged(lo, hi, *notes, pick="x"):
    run = {
        "pick": pick,
        "wall_s": 80.0,
        "half_width": 0.03,
        "speedup": {"lo": lo, "hi": hi},
        "notes": list(notes),
    }
    return demo_runs.page([run], {"x": TRUTH})["runs"][0]


def test_a_run_at_full_speed_should_hold_the_ratio_there():
    assert judged(9.4, 9.6)["covers"] and not judged(8.7, 8.9)["covers"]


def test_a_run_that_was_seldom_at_full_speed_should_hold_that_of_all_turns():
    assert judged(8.7, 8.9, f"W-PAIR-3: ... {variants.SELDOM}")["covers"]


def test_a_run_whose_cpus_were_apart_should_hold_that_of_pairs_as_far_apart():
    run = judged(7.4, 7.6, AWAY.format(222))
    assert run["apart"] == "222" and run["covers"]
    assert judged(8.4, 8.6, AWAY.format(111))["covers"]
    assert not judged(7.4, 7.6, AWAY.format(111))["covers"]
    assert math.isnan(demo_runs.sought({"apart": "900", "seldom": False}, TRUTH))
    assert not judged(0.0, 99.0, AWAY.format(900))["covers"]


def test_a_pick_of_which_no_long_run_was_made_holds_nothing():
    assert (
        not judged(0.0, 99.0, pick="y")["covers"]
        and not judged(0.0, 99.0, AWAY.format(222), pick="y")["covers"]
    )
