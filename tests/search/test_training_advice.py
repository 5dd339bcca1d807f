"""Which settings of a training run are considered, tried and named first."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.records import Trial
from edgescope.search import training_advice as advice
from edgescope.search.training_advice import ALIKE, WORTH, Change
from loading_facts import WAITS

TRIAL = Trial(model="lenet5", workload="training", device="cpu", batch=8)
LOADS = replace(WAITS, workers=1, persistent=True, step=0.04)
"""One worker loads at half the speed of the step."""


def knobs(facts, draft=None, fits=False, trial=TRIAL):
    return [(c.knob, c.value) for c in advice.of_loader(trial, facts, draft=draft, fits=fits)]


def test_more_workers_are_considered_and_the_fewest_of_equals_come_first():
    assert knobs(WAITS) == [("num_workers", n) for n in (1, 2, 4)]
    assert [
        change.value for change in advice.ranked(advice.of_loader(TRIAL, WAITS, draft=None, fits=False))
    ] == [2, 4, 1]
    assert knobs(replace(WAITS, workers=4, step=0.03)) == [("persistent_workers", True)]


def test_workers_are_kept_only_where_they_are_not_kept_yet():
    assert ("persistent_workers", True) in knobs(replace(LOADS, persistent=False))
    assert all(knob != "persistent_workers" for knob, _ in knobs(LOADS))
    more = next(c for c in advice.of_loader(TRIAL, LOADS, draft=None, fits=False) if c.knob == "num_workers")
    assert more.trial.workload_options["persistent_workers"] is True


def test_a_longer_queue_is_considered_where_the_parts_do_not_explain_the_step():
    assert ("prefetch_factor", 8) not in knobs(LOADS)
    assert ("prefetch_factor", 8) in knobs(replace(LOADS, step=0.05))


def test_files_are_held_if_they_fit_and_decoded_smaller_if_they_can_be():
    assert ("preload", True) in knobs(WAITS, fits=True) and ("preload", True) not in knobs(WAITS)
    assert ("decode", "draft") in knobs(WAITS, draft=0.3)
    small = replace(TRIAL, workload_options={"decode": "draft"})
    assert ("decode", "draft") not in knobs(WAITS, draft=0.3, trial=small)


def tried(facts, best=1.0, trial=TRIAL):
    return [(probe.knob, probe.value) for probe in advice.probes(trial, facts, best)]


def test_the_device_is_tried_only_where_a_faster_one_could_gain_the_most():
    assert ("batch", 32) in tried(WAITS)
    assert not tried(WAITS, best=1.6)  # the loader's 40 ms remain: 1.5 at most
    assert not tried(LOADS)  # the worker is the slower one, whatever the device does
    assert tried(replace(LOADS, work={"read": 0.005}, step=0.0204))


def test_arithmetic_is_tried_only_where_the_step_computes():
    assert {"threads", "layout", "precision"} <= {knob for knob, _ in tried(WAITS)}
    sleeps = replace(WAITS, device_cpu=0.001)
    assert tried(sleeps) == [("batch", 32)]
    crowded = replace(TRIAL, options={"threads": 16})
    assert ("threads", 2) in tried(sleeps, trial=crowded)


def change(gain, caution=""):
    return Change(f"{gain}{caution}", 1, TRIAL, gain, "", caution)


@pytest.mark.parametrize(
    ("gains", "first"),
    [
        ([(1.5, ""), (2.0, "")], 2.0),
        ([(1.8, ""), (2.0, "tune the rate")], 1.8),  # alike: the one that changes nothing else
        ([(1.5, ""), (2.0, "tune the rate")], 2.0),
        ([(1.0, ""), (1.1, "tune the rate")], 1.1),  # alike, but worth nothing
        ([(1.9, "tune the rate"), (2.0, "held in memory")], 2.0),
    ],
)
def test_of_gains_that_are_alike_the_change_without_a_caution_comes_first(gains, first):
    assert advice.ranked(change(*each) for each in gains)[0].gain == first


@given(st.lists(st.tuples(st.floats(0.1, 10), st.sampled_from(["", "caution"])), max_size=8))
def test_the_first_change_is_never_far_from_the_best(gains):
    ranked = advice.ranked(change(*each) for each in gains)
    assert sorted(c.gain for c in ranked) == sorted(gain for gain, _ in gains)
    if gains:
        best = max(gain for gain, _ in gains)
        assert ranked[0].gain >= best / ALIKE
        assert ranked[0].gain == best or (ranked[0].gain >= WORTH and not ranked[0].caution)
