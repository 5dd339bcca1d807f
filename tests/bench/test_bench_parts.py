"""Small parts of a run: its mode, phases of a query, a program's own loop, the pairs behind a noise floor."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.bench import drivers, outcome
from edgescope.bench.parts import HERE, program_of
from edgescope.clock import MonotonicClock
from edgescope.errors import Message, SettingError, UnsupportedError, UsageError
from edgescope.modes import catalog
from edgescope.records import (
    Alternation,
    Effective,
    Status,
    Trial,
    Trust,
    Turn,
    Verdict,
)
from edgescope.wings.doctor import noise
from making import result


@pytest.fixture
def a_mode(monkeypatch):
    """A mode whose problem can be chosen."""
    made = SimpleNamespace(words="")
    made.problem, made.evidence = (lambda: made.words), (lambda: "governor performance")
    made.features = lambda: {"cpu_hz": 2e9}
    monkeypatch.setattr(catalog, "find", lambda name, devices: made)
    return made


FAST = Trial(model="null", backend="null", mode="fast")
IN_EFFECT = {"asked": "fast", "evidence": "governor performance", "features": {"cpu_hz": 2e9}}


def test_a_mode_is_required_before_and_told_with_its_evidence(a_mode):
    assert outcome.require_mode(FAST, {}) == IN_EFFECT
    a_mode.words = "governor powersave"
    with pytest.raises(SettingError, match=r"E-MODE-2: mode fast .*\(governor powersave\)"):
        outcome.require_mode(FAST, {})
    assert outcome.require_mode(Trial(model="null", backend="null"), {}) == {}


def test_a_result_whose_mode_was_lost_on_the_way_has_failed(a_mode):
    fine = result(FAST)
    assert outcome.mode_rechecked(fine, {}) is fine
    a_mode.words = "governor powersave"
    lost = outcome.mode_rechecked(fine, {})
    assert lost.status is Status.FAILED and str(lost.reason).startswith("E-MODE-2: mode fast was ")
    assert lost.verdict.trust is Trust.UNKNOWN and lost.verdict.evidence[0] == str(lost.reason)
    dirty = outcome.mode_rechecked(
        result(FAST, verdict=Verdict(Trust.DISTURBED, ("e",)), status=Status.UNSTABLE), {}
    )
    assert dirty.verdict == Verdict(Trust.DISTURBED, ("e",)) and dirty.status is Status.FAILED
    full, first = Message("E-OOM-1", "no room"), Message("W-A-1", "said before")
    dead = outcome.mode_rechecked(
        result(FAST, status=Status.OOM, reason=full, verdict=None, warnings=(first,)), {}
    )
    assert (dead.status, dead.reason, dead.verdict) == (Status.OOM, full, None)
    assert dead.warnings[0] == first and [w.code for w in dead.warnings[1:]] == ["E-MODE-2"]
    plain = result(Trial(model="null", backend="null"))
    assert outcome.mode_rechecked(plain, {}) is plain


def test_a_mode_that_cannot_be_read_any_more_counts_as_lost(monkeypatch):
    def gone(name, devices):
        raise UsageError("E-MODE-1", "no such mode")

    monkeypatch.setattr(catalog, "find", gone)
    assert "no such mode" in str(outcome.mode_rechecked(result(FAST), {}).reason)


def test_the_mode_stands_among_the_machines_facts_and_the_engines_evidence():
    told = outcome.mode_noted(result(FAST), IN_EFFECT)
    assert told.machine.state["mode"] == IN_EFFECT
    assert told.effective.evidence == "says so; mode fast: governor performance"
    bare = outcome.mode_noted(result(FAST, effective=Effective("cpu", "fp32")), IN_EFFECT)
    assert bare.effective.evidence == "mode fast: governor performance"
    assert outcome.mode_noted(result(FAST, effective=None), IN_EFFECT).effective is None
    plain = result(FAST)
    assert outcome.mode_noted(plain, {}) is plain


@pytest.mark.parametrize(
    ("scenario", "taken"), [("single_stream", True), ("offline", True), ("multi_stream", False)]
)
def test_a_program_with_its_own_loop_offers_two_scenarios(monkeypatch, scenario, taken):
    class Owner:
        """An engine that owns its loop."""

        OPTIONS = {}  # noqa: RUF012

        def prepare(self, model, spec, folder):
            return SimpleNamespace(path=None, digest="", notes={})

        def load(self, artifact):
            raise NotImplementedError

        def drive(self, artifact, trial):
            return trial

    monkeypatch.setattr(type(HERE), "backend", lambda self, name: Owner())
    trial = Trial(model="null", backend="trtexec", scenario=scenario)
    if not taken:
        with pytest.raises(UsageError, match="E-SCEN-9"):
            program_of(trial)
        return
    program = program_of(trial)
    assert program.drive() is trial and program.model.name == "null"


class Program:
    """Another program that drove."""

    def __init__(self):
        self.asked = []

    def accuracy(self, reference_set):
        self.asked.append(reference_set)

    def notes(self):
        return {"program": {"version": 5}}

    def warnings(self):
        return (Message("W-P-1", "the program's own"),)


def test_what_another_program_says_stands_beside_the_result(monkeypatch):
    """A scenario whose load another program makes asks for the reference set, where the work has one."""
    from contextlib import contextmanager

    from edgescope.bench.parts import open_work, scenario_of
    from edgescope.bench.watch import Watch
    from edgescope.devices.base import NullDevice

    plain = Trial(model="null", backend="null", max_s=0.05, min_s=0.05)
    trial = replace(plain, scenario="mlperf_single_stream")
    program = Program()

    def scenario(trial, plan):
        program.drive = scenario_of(plain, plan).drive
        return program

    @contextmanager
    def work(trial):
        with open_work(trial) as opened:
            yield opened if bare else SimpleNamespace(**vars(opened) | {"reference_set": lambda: "a set"})

    monkeypatch.setattr(drivers, "scenario_of", scenario)
    monkeypatch.setattr(drivers, "open_work", work)
    for bare in (True, False):
        run = drivers.InProcess(MonotonicClock()).measure(result(trial), Watch({"null": NullDevice()}, 0))
        assert run.driver == "external" and run.warnings == program.warnings()
        assert run.artifact["program"] == {"version": 5}
        assert program.asked == ([] if bare else ["a set"])


def in_turns(*times_s):
    """The alternation of a side with one turn in each block."""
    turns = tuple(Turn(block, 0, 1, 1, time_s) for block, time_s in enumerate(times_s))
    return Alternation("other", "baseline", "confirming", turns, 0.0)


def test_pairs_are_measured_until_another_would_not_fit(monkeypatch):
    """Pairs of 10 s in 65 s: six fit, a seventh would not; five are measured however long they take."""
    now = [100.0]

    def pair(leader, trials, purpose):
        assert trials[0] == trials[1]
        now[0] += each[0]
        ran.append(trials[0].replicate)
        return tuple(result(t, alternation=in_turns(0.01 + 0.001 * side)) for side, t in enumerate(trials))

    monkeypatch.setattr(noise.fresh, "prepare", lambda trial: None)
    monkeypatch.setattr(noise.PersistentChild, "pair", pair)
    monkeypatch.setattr(noise.time, "monotonic", lambda: now[0])
    for took, pairs in ((10.0, 6), (30.0, 5), (64.0, 5)):
        ran, told, each = [], [], [took]
        found = noise.measure(65.0, workloads=[Trial(model="null", backend="null")], tell=told.append)
        assert found.pairs == pairs == len(told) and ran == list(range(pairs))
        assert sum(found.verdicts.values()) == 2 * pairs and found.workload.startswith("null ")
        assert found.p50_s[0] == (pytest.approx(0.010), pytest.approx(0.011))


def test_a_run_without_a_latency_ends_the_noise(monkeypatch):
    for taken in (None, in_turns(), in_turns(0.0)):
        with pytest.raises(UnsupportedError, match="E-NOISE-3"):
            noise._typical_s(result(alternation=taken, reason="E-R-1: r."))


def test_the_first_workload_that_can_be_prepared_is_taken(monkeypatch):
    tried = []

    def prepare(trial):
        tried.append(trial.model)
        return None if trial.model == "b" else result(reason=f"E-X-1: no {trial.model}.")

    monkeypatch.setattr(noise.fresh, "prepare", prepare)
    trials = [Trial(model=m, backend="null") for m in "abc"]
    assert noise._prepared(trials).model == "b" and tried == ["a", "b"]
    with pytest.raises(UnsupportedError, match=r"E-NOISE-2.*\(E-X-1: no a\.; E-X-1: no c\.\)"):
        noise._prepared([trials[0], trials[2]])


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_noise_needs_a_time(seconds):
    with pytest.raises(UsageError, match="E-NOISE-1"):
        noise.measure(seconds)
