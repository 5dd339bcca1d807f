"""Which settings of a training run are considered, tried and named first."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.records import Absent, Measured, Status, Trial, Trust, Verdict
from edgescope.wings.training import advise as advice
from edgescope.wings.training.advise import ALIKE, WORTH, Change
from loading_facts import WAITS
from making import result

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


def of_loader(facts, knob, **keys):
    """The changes of one knob."""
    every = advice.of_loader(TRIAL, facts, **{"draft": None, "fits": False} | keys)
    return [c for c in every if c.knob == knob]


def test_each_number_of_workers_gains_what_loading_beside_the_step_saves():
    """40 ms of loading and 20 ms of computing a step; handing over takes 0.4 ms."""
    found = of_loader(replace(WAITS, cores=8), "num_workers")
    gains = [pytest.approx(gain) for gain in (0.06 / 0.04, 0.06 / 0.0204, 0.06 / 0.0204, 0.06 / 0.0204)]
    assert [(c.value, c.gain) for c in found] == list(zip((1, 2, 4, 8), gains, strict=True))
    assert all(c.trial == advice.changed(TRIAL, num_workers=c.value, persistent_workers=True) for c in found)
    assert "40 ms" in found[0].why and "20 ms" in found[0].why and found[0].caution == ""
    two = of_loader(replace(WAITS, workers=2, cores=1), "num_workers")
    assert [c.value for c in two] == [4] and two[0].trial.workload_options["persistent_workers"] is False
    assert of_loader(replace(WAITS, work={}), "num_workers") == []


def test_workers_that_stay_save_the_edges_of_an_epoch():
    ends = replace(LOADS, persistent=False, workers=2, step=0.0304)
    (kept,) = of_loader(ends, "persistent_workers")
    assert kept.gain == pytest.approx(0.0304 / 0.0204) and "10 steps: 100 ms" in kept.why
    assert kept.trial == advice.changed(TRIAL, persistent_workers=True)
    assert of_loader(replace(ends, steps=0), "persistent_workers") == []
    assert of_loader(replace(ends, workers=0), "persistent_workers") == []


@pytest.mark.parametrize(("over", "longer"), [(1.16, True), (1.15, False), (1.0, False)])
def test_a_queue_four_times_as_long_takes_the_bursts(over, longer):
    bursts = replace(LOADS, step=over * LOADS.seconds())
    found = of_loader(bursts, "prefetch_factor")
    assert len(found) == longer and of_loader(replace(bursts, workers=0), "prefetch_factor") == []
    for change in found:
        assert change.value == 8 and change.gain == pytest.approx(over)
        assert change.trial.workload_options == {"prefetch_factor": 8}


def test_smaller_decoding_and_held_files_save_their_part():
    (draft,) = of_loader(WAITS, "decode", draft=0.25)
    assert draft.gain == pytest.approx(0.06 / 0.0525) and "10 ms" in draft.why and "25%" in draft.why
    assert draft.caution and draft.trial.workload_options == {"decode": "draft"}
    (none,) = of_loader(replace(WAITS, work={"read": 0.03}), "decode", draft=0.25)
    assert "takes 0 ms" in none.why
    (held,) = of_loader(WAITS, "preload", fits=True)
    assert held.gain == pytest.approx(2.0) and "30 ms" in held.why and held.caution
    assert held.trial.workload_options == {"preload": True} and held.value is True
    assert of_loader(replace(WAITS, work={"decode": 0.01}), "preload", fits=True) == []
    mine = replace(TRIAL, workload_options={"preload": True})
    assert not [c for c in advice.of_loader(mine, WAITS, draft=None, fits=True) if c.knob == "preload"]


@pytest.mark.parametrize(
    ("knob", "value", "typed"),
    [
        ("batch", 32, "--batch 32"),
        ("precision", "bf16", "--precision bf16"),
        ("io", "pinned", "--io pinned"),
        ("threads", 2, "--option threads=2"),
        ("layout", "channels_last", "--option layout=channels_last"),
        ("num_workers", 4, "--workload-option num_workers=4"),
        ("preload", True, "--workload-option preload=true"),
    ],
)
def test_a_change_reads_as_it_is_typed(knob, value, typed):
    assert Change(knob, value, TRIAL, 2.0, "").setting == typed


CPU = [("batch", 32), ("threads", 1), ("threads", 2), ("layout", "channels_last"), ("precision", "bf16")]


@pytest.mark.parametrize(
    ("keys", "found"),
    [
        ({}, CPU),
        ({"options": {"threads": 1}}, [c for c in CPU if c != ("threads", 1)]),
        ({"options": {"layout": "channels_last"}}, [c for c in CPU if c[0] != "layout"]),
        ({"precision": "bf16"}, CPU[:-1]),
        ({"device": "cuda"}, [CPU[0], ("io", "pinned"), *CPU[3:]]),
        ({"device": "cuda", "io": "pinned"}, [CPU[0], *CPU[3:]]),
    ],
)
def test_what_a_device_has_to_try(keys, found):
    trial = replace(TRIAL, **keys)
    assert tried(WAITS, trial=trial) == found
    for probe in advice.probes(trial, WAITS, 1.0):
        held, changed = advice.held_of(trial), {}
        if probe.knob in ("threads", "layout"):
            changed = {"options": {**trial.options, probe.knob: probe.value}}
        assert probe.trial == replace(held, **changed or {probe.knob: probe.value})
        assert bool(probe.caution) is (probe.knob in ("batch", "precision"))
        assert 0 < probe.trial.warmup < probe.trial.min_s < probe.trial.max_s < 2
        assert probe.trial.workload_options == {"held": True}


@pytest.mark.parametrize(
    ("device_cpu", "threads", "more"),
    [(0.010, 1, True), (0.0099, 1, False), (0.0099, 2, False), (0.0099, 3, True)],
)
def test_a_step_computes_from_half_of_its_time_on_or_its_threads_crowd(device_cpu, threads, more):
    trial = replace(TRIAL, options={"threads": threads})
    found = tried(replace(WAITS, device_cpu=device_cpu), trial=trial)
    assert (len(found) > 1) is more and found[0] == ("batch", 32)


def test_no_device_is_tried_where_the_fastest_would_gain_no_more_than_is_known():
    """The loader's 40 ms of 60 ms remain: half more at most."""
    most = advice.model_of.gain(WAITS, replace(WAITS, device=1e-9, device_cpu=0.0))
    assert most == pytest.approx(1.5)
    assert not tried(WAITS, best=most) and tried(WAITS, best=most - 1e-9)
    little = replace(WAITS, device=0.0012, step=0.0412)
    assert not tried(little) and tried(replace(WAITS, device=0.0013, step=0.0413))


def held(seconds, status=Status.OK):
    took = Measured(seconds, "s") if seconds else Absent("none")
    return result(TRIAL, status=status, metrics={"latency_p50_s": took})


@pytest.mark.parametrize(
    ("knob", "value", "now", "gain", "fields"),
    [
        ("threads", 2, 0.010, 0.06 / 0.05, {"options": {"layout": "x", "threads": 2}}),
        ("layout", "channels_last", 0.010, 0.06 / 0.05, {"options": {"layout": "channels_last"}}),
        ("precision", "bf16", 0.005, 0.06 / 0.045, {"precision": "bf16"}),
        ("io", "pinned", 0.020, 1.0, {"io": "pinned"}),
        ("batch", 32, 0.030, 4 * 0.06 / 0.19, {"batch": 32}),
    ],
)
def test_what_a_probe_took_less_on_a_held_minibatch_the_step_takes_less(knob, value, now, gain, fields):
    trial = replace(TRIAL, options={"layout": "x"})
    found = advice.of_device(trial, WAITS, advice.Probe(knob, value, trial, "c"), held(0.02), held(now))
    assert (found.knob, found.value, found.caution) == (knob, value, "c")
    assert found.gain == pytest.approx(gain) and found.trial == replace(trial, **fields)
    assert f"{now * 1e3:g} ms instead of 20 ms" in found.why
    assert ("4 times the samples" in found.why) is (knob == "batch")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (held(0.02), held(None)),
        (held(None), held(0.02)),
        (held(0.02), held(0.02, Status.CRASHED)),
        (held(0.02, Status.WRONG_OUTPUT), held(0.02)),
    ],
)
def test_a_probe_that_failed_speaks_for_nothing(before, after):
    probe = advice.Probe("io", "pinned", TRIAL)
    assert advice.of_device(TRIAL, WAITS, probe, before, after) is None
    assert advice.step_of(held(0.02, Status.UNSTABLE)) == 0.02


def test_where_no_gain_is_worth_it_the_largest_still_comes_first():
    assert advice.ranked([]) == ()
    found = advice.ranked([change(1.02), change(1.03, "c"), change(1.01)])
    assert [c.gain for c in found] == [1.03, 1.02, 1.01]
    alike = advice.ranked([change(2.0, "c"), change(1.68), change(1.66)])
    assert [c.gain for c in alike] == [1.68, 2.0, 1.66], "a sixth less is alike, more is not"


def advised(realised, *gains, trust=Trust.DISTURBED):
    changes = tuple(change(gain) for gain in gains)
    run = SimpleNamespace(verdict=Verdict(trust, ("others used the CPU",)))
    return advice.TrainingAdvice(TRIAL, WAITS, "read", 0.5, changes, realised, (run, run))


def test_a_measured_gain_has_its_pairs_its_interval_and_the_verdict_of_its_runs():
    sure = str(advised(Measured(1.8, "ratio", 1.7, 1.9, 3), 1.75, 1.2, 1.0))
    assert "1.8x [1.7, 1.9], 3 pairs" in sure and "no interval" not in sure and "DISTURBED" in sure
    assert "1.20x" in sure and "1.00x" not in sure
    assert "no interval" in str(advised(Measured(1.8, "ratio", n=1), 1.75))
    said = list(advised(Measured(1.8, "ratio", n=1), 1.75, 1.0).details())
    assert any("others used the CPU" in line for line in said) and any("1.00x" in line for line in said)


@pytest.mark.parametrize(
    ("predicted", "measured", "off"),
    [
        (1.75, Measured(1.8, "ratio", 1.7, 1.9, 3), False),
        (1.5, Measured(1.8, "ratio", 1.7, 1.9, 3), True),
        (1.5, Measured(1.8, "ratio", n=1), False),
        (1.5, Measured(1.0, "ratio", n=1), True),
        (1.5, Absent("not asked for"), False),
    ],
)
def test_a_prediction_that_the_measurement_contradicts_is_remarked(predicted, measured, off):
    found = advised(measured, predicted)
    assert found.mispredicted is off and ("prediction is off" in str(found)) is off
