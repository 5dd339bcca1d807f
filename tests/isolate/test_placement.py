"""Who sits where, and what each worker answers."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgescope.errors import UsageError
from edgescope.isolate import placement
from edgescope.isolate import pool as pooling
from edgescope.isolate.pool import Prestart, WorkerPools, alike
from edgescope.isolate.worker import Placement
from edgescope.process import Launch
from edgescope.records import Trial
from edgescope.study.grid import grid

TRIAL = Trial(model="null", backend="null", processes=3, seed=40, colocated="a+b")


@given(st.sets(st.integers(0, 200), min_size=1, max_size=40), st.integers(1, 60))
@pytest.mark.slow
def test_cpus_are_dealt_out_whole_evenly_and_side_by_side(cpus, workers):
    ordered = sorted(cpus)
    parts = placement.split(ordered, workers)
    assert len(parts) == workers
    if workers <= len(cpus):
        assert [c for part in parts for c in part] == ordered
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert list(map(len, parts)) == sorted(map(len, parts), reverse=True)
    else:
        assert all(len(part) == 1 for part in parts)
        assert [part[0] for part in parts] == [ordered[k % len(ordered)] for k in range(workers)]


def test_only_pinned_workers_have_cpus_of_their_own():
    assert placement.placements(TRIAL) == [Placement()] * 5
    pinned = placement.placements(replace(TRIAL, sharing="pinned", colocated=""), allowed=[7, 2, 3, 5, 9])
    assert [place.cpus for place in pinned] == [(2, 3), (5, 7), (9,)]
    assert [place.launch.prefix[-2] for place in pinned] == ["2-3", "5,7", "9"]


@pytest.mark.parametrize(("cpus", "warned"), [(4, True), (5, False), (6, False)])
def test_pinned_workers_that_must_share_are_warned_of(cpus, warned):
    pinned = replace(TRIAL, sharing="pinned")
    assert bool(placement.oversubscribed(pinned, cpus)) is warned
    assert not placement.oversubscribed(TRIAL, cpus)
    if warned:
        assert re.search(r"\b5 workers .* 4 CPUs", str(placement.oversubscribed(pinned, cpus)))


def test_every_worker_answers_a_trial_of_one_process_with_a_seed_of_its_own():
    found = placement.trials(
        replace(TRIAL, sharing="pinned", mode="fast", shapes={"x": (1,)}, min_agreement=0.5)
    )
    assert [t.seed for t in found] == [40, 41, 42, 43, 44]
    assert [t.model for t in found] == ["null", "null", "null", "a", "b"]
    assert {(t.processes, t.sharing, t.colocated, t.mode) for t in found} == {
        (1, "time_slicing", "", "as_is")
    }
    assert [dict(t.shapes) for t in found] == [{"x": (1,)}] * 3 + [{}, {}]
    assert [t.min_agreement for t in found] == [0.5] * 3 + [None, None]
    assert placement.others(Trial(model="null")) == ()


def test_what_runs_beside_says_what_is_its_own():
    """All as the trial but for the words behind the model; words that are no field are its workload's options."""
    trial = Trial(
        model="null",
        backend="null",
        device="cpu",
        batch=4,
        options={"delay_us": 9},
        workload_options={"lr": 1},
        colocated="a + lenet5 workload=training backend=torch_eager batch=32 learning_rate=0.1 optimizer=sgd",
    )
    plain, other = placement.colocated(trial)
    assert (plain.model, plain.batch, plain.backend) == ("a", 4, "null")
    assert plain.options == {"delay_us": 9} and plain.workload_options == {"lr": 1}
    assert (other.model, other.workload, other.batch) == ("lenet5", "training", 32)
    assert (other.backend, other.device, other.options) == ("torch_eager", "cpu", {})
    assert other.workload_options == {"learning_rate": 0.1, "optimizer": "sgd"}
    assert placement.others(trial) == ("a", "lenet5")


@pytest.mark.parametrize(("workload", "asked"), [("training", False), ("null", True), ("inference", True)])
def test_only_queries_are_asked_for_at_the_trials_rate(workload, asked):
    """A step of training follows the last."""
    trial = replace(
        TRIAL, scenario="poisson", rate=9.0, colocated=f"a workload={workload} backend=null device=cuda"
    )
    (other,) = placement.colocated(replace(trial, scenario_options={"x": 1}, workload_options={"y": 2}))
    found = (other.scenario, other.rate, dict(other.scenario_options))
    assert found == (("poisson", 9.0, {"x": 1}) if asked else (Trial.scenario, None, {}))
    assert (other.workload, other.device) == (workload, "cuda")
    assert other.workload_options == ({"y": 2} if workload == "inference" else {})


def test_a_word_that_says_nothing_is_refused_before_anything_runs():
    with pytest.raises(UsageError, match=r"E-TRIAL-3: 'fast' after a is not KEY=VALUE"):
        grid({"model": "null", "backend": "null", "colocated": "a fast"})


def test_the_present_trial_may_take_nine_tenths_of_the_limit_less_what_has_passed(monkeypatch):
    now = [1000.0]
    monkeypatch.setattr("edgescope.isolate.pool.time.monotonic", lambda: now[0])
    monkeypatch.setenv("EDGESCOPE_TIMEOUT", "100")
    pools = WorkerPools()
    assert pools.limit_s == 90.0
    now[0] += 30
    assert pools.limit_s == 60.0
    now[0] += 1000
    assert pools.limit_s == 1.0
    pools.begin({"A": "1"}, Prestart(4))
    assert pools.limit_s == 90.0 and pools.launch.env == {"A": "1"} and pools.prestart.workers == 4
    monkeypatch.delenv("EDGESCOPE_TIMEOUT")
    assert pools.limit_s == 540.0


class FakePool:
    def __init__(self, *, grace_s):
        self.grace_s, self.dismissed, self.closed, self.workers = grace_s, 0, 0, [1, 2, 3, 4]

    def dismiss(self):
        self.dismissed += 1

    def close(self, patience_s):
        assert patience_s == 0  # nobody is under a tracer
        self.closed += 1


def test_workers_are_kept_for_what_they_loaded_and_crews_for_their_sharing(monkeypatch):
    monkeypatch.setattr("edgescope.isolate.pool.WorkerPool", FakePool)
    one = Trial(model="null", backend="null", processes=2)
    with WorkerPools(Launch(env={"E": "1"}), grace_s=2.0) as pools:
        first = pools.of(one)
        assert first.grace_s == 2.0 and pools.of(replace(one, processes=4, batch=8, seed=3)) is first
        assert first.dismissed == 0 and pools.idle(one) == 2 and pools.idle(replace(one, processes=6)) == 0
        assert pools.of(replace(one, precision="fp16")) is first and first.dismissed == 1
        other = pools.of(replace(one, sharing="pinned"))
        assert other is not first and pools.idle(one) == 6
        assert [dict(p.launch.env) for p in pools.placements(one)] == [{"E": "1"}] * 2
    assert (first.closed, other.closed) == (1, 1) and pools.idle(one) == 0


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"batch": 4}, True),
        ({"processes": 5}, True),
        ({"seed": 5}, True),
        ({"replicate": 5}, True),
        ({"model": "other"}, False),
        ({"backend": "openvino"}, False),
        ({"precision": "int8"}, False),
        ({"device": "cuda"}, False),
        ({"sharing": "pinned"}, False),
        ({"colocated": "x"}, False),
        ({"mode": "fast"}, False),
        ({"options": {"threads": 2}}, False),
    ],
)
def test_what_one_process_may_answer_after_another_trial(change, same):
    one = Trial(model="null", backend="null", processes=2)
    assert (alike(replace(one, **change)) == alike(one)) is same


class FakeMemory:
    def __enter__(self):
        return self

    def __exit__(self, *exc):
        pass

    def available(self):
        return 1000


def test_more_workers_are_started_as_long_as_the_floor_is_left_alone(monkeypatch):
    monkeypatch.setattr(pooling, "Memory", FakeMemory)
    monkeypatch.setattr(pooling, "floor_of", lambda asked, memory: 400 if asked is None else asked)
    assert pooling.available() == 1000
    assert Prestart(9).fits(3, 200.0) and not Prestart(9).fits(3, 200.1)
    assert Prestart(9, 100).fits(9, 100.0) and not Prestart(9, 100).fits(10, 100.0)
