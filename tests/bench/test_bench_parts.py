"""Small parts of a run: its mode, phases of a query, a program's own loop, the pairs behind a noise floor."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.analysis.run import breakdown
from edgescope.backends.base import Phases
from edgescope.bench import drivers, mode
from edgescope.bench.parts import HERE, program_of
from edgescope.errors import Message, SettingError, UnsupportedError, UsageError
from edgescope.records import (
    UNIT,
    Absent,
    Alternation,
    Effective,
    Status,
    Trial,
    Trust,
    Turn,
    Verdict,
)
from edgescope.runner import noise
from edgescope.workloads import inference
from edgescope.workloads.inference import Loaded, phase_spans
from making import result


@pytest.fixture
def a_mode(monkeypatch):
    """A mode whose problem can be chosen."""
    made = SimpleNamespace(words="")
    made.problem, made.evidence = (lambda: made.words), (lambda: "governor performance")
    made.features = lambda: {"cpu_hz": 2e9}
    monkeypatch.setattr(mode.catalog, "find", lambda name, devices: made)
    return made


FAST = Trial(model="null", backend="null", mode="fast")
IN_EFFECT = {"asked": "fast", "evidence": "governor performance", "features": {"cpu_hz": 2e9}}


def test_a_mode_is_required_before_and_told_with_its_evidence(a_mode):
    assert mode.require(FAST, {}) == IN_EFFECT
    a_mode.words = "governor powersave"
    with pytest.raises(SettingError, match=r"E-MODE-2: mode fast is not in effect .*\(governor powersave\)"):
        mode.require(FAST, {})
    assert mode.require(Trial(model="null", backend="null"), {}) == {}


def test_a_result_whose_mode_was_lost_on_the_way_has_failed(a_mode):
    fine = result(FAST)
    assert mode.rechecked(fine, {}) is fine
    a_mode.words = "governor powersave"
    lost = mode.rechecked(fine, {})
    assert lost.status is Status.FAILED and str(lost.reason).startswith(
        "E-MODE-2: mode fast was not in effect any more"
    )
    assert lost.verdict.trust is Trust.UNKNOWN and lost.verdict.evidence[0] == str(lost.reason)
    dirty = mode.rechecked(result(FAST, verdict=Verdict(Trust.DISTURBED, ("e",)), status=Status.UNSTABLE), {})
    assert dirty.verdict == Verdict(Trust.DISTURBED, ("e",)) and dirty.status is Status.FAILED
    full, first = Message("E-OOM-1", "no room"), Message("W-A-1", "said before")
    dead = mode.rechecked(result(FAST, status=Status.OOM, reason=full, verdict=None, warnings=(first,)), {})
    assert (dead.status, dead.reason, dead.verdict) == (Status.OOM, full, None)
    assert dead.warnings[0] == first and [w.code for w in dead.warnings[1:]] == ["E-MODE-2"]
    plain = result(Trial(model="null", backend="null"))
    assert mode.rechecked(plain, {}) is plain


def test_a_mode_that_cannot_be_read_any_more_counts_as_lost(monkeypatch):
    def gone(name, devices):
        raise UsageError("E-MODE-1", "no such mode")

    monkeypatch.setattr(mode.catalog, "find", gone)
    assert "no such mode" in str(mode.rechecked(result(FAST), {}).reason)


def test_the_mode_stands_among_the_machines_facts_and_the_engines_evidence():
    told = mode.noted(result(FAST), IN_EFFECT)
    assert told.machine.state["mode"] == IN_EFFECT
    assert told.effective.evidence == "says so; mode fast: governor performance"
    bare = mode.noted(result(FAST, effective=Effective("cpu", "fp32")), IN_EFFECT)
    assert bare.effective.evidence == "mode fast: governor performance"
    assert mode.noted(result(FAST, effective=None), IN_EFFECT).effective is None
    plain = result(FAST)
    assert mode.noted(plain, {}) is plain


class Timed:
    """A session whose queries tell their phases, and take `each_s` of a clock that stands still otherwise."""

    def __init__(self, now, each_s):
        self.now, self.each_s, self.rows = (
            now,
            each_s,
            iter(Phases(1000 + k, 10, None, 500, 70) for k in range(999)),
        )

    def phases(self, batch):
        self.now[0] += self.each_s
        return next(self.rows)


def ready(session):
    return Loaded(session, [{}], len, {}, {})


@pytest.mark.parametrize(("each_s", "n"), [(1e-4, 199), (0.042, 23), (0.5, 9), (5.0, 9)])
def test_phases_come_from_as_many_queries_as_a_second_has_10_to_200(monkeypatch, each_s, n):
    now = [50.0]
    clock = SimpleNamespace(monotonic=lambda: now[0], monotonic_ns=lambda: round(now[0] * 1e9))
    monkeypatch.setattr(inference, "time", clock)
    spans = inference._breakdown(ready(Timed(now, each_s)))
    found = breakdown.metrics(spans)
    assert found["phased_latency_s"].n == n  # the first query warms the events up
    assert found["phased_latency_s"].value == pytest.approx((1000 + (n + 1) / 2) * 1e-9)
    assert found["enqueue_s"].value == pytest.approx(10e-9)
    assert found["h2d_s"] == Absent(breakdown.UNTOLD)
    assert (found["gpu_compute_s"].value, found["d2h_s"].value) == (pytest.approx(5e-7), pytest.approx(7e-8))


def test_on_the_device_there_are_no_copies_and_without_events_no_phases():
    session = Timed([0.0], 1.0)
    assert inference._absent_copies(ready(session), "device") == dict.fromkeys(
        ("h2d_s", "d2h_s"), Absent("io device leaves the copies out")
    )
    assert inference._absent_copies(ready(session), "host") == {}
    assert inference._absent_copies(ready(len), "device") == {}
    assert (
        len(inference._breakdown(ready(len))) == 0
        and breakdown.metrics(inference._breakdown(ready(len))) == {}
    )


def test_phases_are_spans_of_one_query_after_another():
    spans = phase_spans([Phases(1000, 10, 20, 500, 70), Phases(2000, None, 20, 600, 80)])
    assert spans.durations_ns(UNIT).tolist() == [1000, 2000] and spans.durations_ns("enqueue").tolist() == [
        10
    ]
    start = spans.columns["start_ns"]
    assert start[spans.columns["query_id"] == 1].min() == start.min() + 1000


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

    def accuracy(self, exam):
        self.asked.append(exam)

    def notes(self):
        return {"program": {"version": 5}}

    def warnings(self):
        return (Message("W-P-1", "the program's own"),)


def test_what_another_program_says_stands_beside_the_result(monkeypatch):
    """A scenario whose load another program makes asks the work's exam, where it has one."""
    from contextlib import contextmanager

    from edgescope.bench.parts import open_work, scenario_of
    from edgescope.bench.watch import Watch
    from edgescope.devices.null import NullDevice

    plain = Trial(model="null", backend="null", max_s=0.05, min_s=0.05)
    trial = replace(plain, scenario="mlperf_single_stream")
    program = Program()

    def scenario(trial, plan):
        program.drive = scenario_of(plain, plan).drive
        return program

    @contextmanager
    def work(trial):
        with open_work(trial) as opened:
            yield opened if bare else SimpleNamespace(**vars(opened) | {"exam": lambda: "an exam"})

    monkeypatch.setattr(drivers, "scenario_of", scenario)
    monkeypatch.setattr(drivers, "open_work", work)
    for bare in (True, False):
        run = drivers.InProcess(drivers.MonotonicClock()).measure(
            result(trial), Watch({"null": NullDevice()}, 0)
        )
        assert run.driver == "external" and run.warnings == program.warnings()
        assert run.artifact["program"] == {"version": 5}
        assert program.asked == ([] if bare else ["an exam"])


@pytest.mark.parametrize(("reference", "asked"), [("onnxruntime", True), ("null", False), ("none", False)])
def test_there_is_an_exam_only_where_something_is_computed(monkeypatch, reference, asked):
    import numpy as np

    arrays = {"x": np.arange(3.0)[:, None]}
    monkeypatch.setattr(inference.judge, "gate_samples", lambda model: SimpleNamespace(arrays=arrays))
    monkeypatch.setattr(inference.judge, "outputs", lambda answer, samples, rows: answer(samples.arrays))
    found = inference.exam(SimpleNamespace(reference=reference), 2, lambda batch: [batch["x"] * 2])
    assert (found is not None) is asked
    if asked:
        assert found.size == 3
        assert [array.tolist() for (array,) in found.answers([2, 0])] == [[4.0], [0.0]]


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
