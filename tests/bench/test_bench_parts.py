"""Small parts of a run: its mode, phases of a query, a program's own loop, the pairs behind a noise floor."""

from types import SimpleNamespace

import pytest

from edgescope.backends.base import Phases
from edgescope.bench import external, mode, phases
from edgescope.errors import SettingError, UnsupportedError, UsageError
from edgescope.records import Absent, Effective, Measured, Status, Trial, Trust, Verdict
from edgescope.sweep import noise
from making import result


@pytest.fixture
def a_mode(monkeypatch):
    """A mode whose problem can be chosen."""
    made = SimpleNamespace(words="")
    made.problem, made.evidence = (lambda: made.words), (lambda: "governor performance")
    monkeypatch.setattr(mode.catalog, "find", lambda name, devices: made)
    return made


FAST = Trial(model="null", backend="null", mode="fast")


def test_a_mode_is_required_before_and_told_with_its_evidence(a_mode):
    assert mode.require(FAST, {}) == "governor performance"
    a_mode.words = "governor powersave"
    with pytest.raises(SettingError, match=r"E-MODE-2: mode fast is not in effect .*\(governor powersave\)"):
        mode.require(FAST, {})
    assert mode.require(Trial(model="null", backend="null"), {}) == ""


def test_a_result_whose_mode_was_lost_on_the_way_has_failed(a_mode):
    fine = result(FAST)
    assert mode.kept(fine, {}) is fine
    a_mode.words = "governor powersave"
    lost = mode.kept(fine, {})
    assert lost.status is Status.FAILED and lost.reason.startswith(
        "E-MODE-2: mode fast was not in effect any more"
    )
    assert lost.verdict.trust is Trust.UNKNOWN and lost.verdict.evidence[0] == lost.reason
    dirty = mode.kept(result(FAST, verdict=Verdict(Trust.DISTURBED, ("e",)), status=Status.UNSTABLE), {})
    assert dirty.verdict == Verdict(Trust.DISTURBED, ("e",)) and dirty.status is Status.FAILED
    dead = mode.kept(result(FAST, status=Status.OOM, reason="E-OOM-1", verdict=None, warnings=("W-1",)), {})
    assert (dead.status, dead.reason, dead.verdict) == (Status.OOM, "E-OOM-1", None)
    assert dead.warnings[0] == "W-1" and dead.warnings[1].startswith("E-MODE-2")
    plain = result(Trial(model="null", backend="null"))
    assert mode.kept(plain, {}) is plain


def test_a_mode_that_cannot_be_read_any_more_counts_as_lost(monkeypatch):
    def gone(name, devices):
        raise UsageError("E-MODE-1", "no such mode")

    monkeypatch.setattr(mode.catalog, "find", gone)
    assert "no such mode" in mode.kept(result(FAST), {}).reason


def test_the_mode_stands_among_the_machines_facts_and_the_engines_evidence():
    told = mode.noted(result(FAST), "governor performance")
    assert told.machine.state["mode"] == {"asked": "fast", "evidence": "governor performance"}
    assert told.effective.evidence == "says so; mode fast: governor performance"
    assert (
        mode.noted(result(FAST, effective=Effective("cpu", "fp32")), "x").effective.evidence == "mode fast: x"
    )
    assert mode.noted(result(FAST, effective=None), "x").effective is None
    plain = result(FAST)
    assert mode.noted(plain, "") is plain


@pytest.mark.parametrize(("each_s", "n"), [(1e-4, 199), (0.042, 23), (0.5, 9), (5.0, 9)])
def test_phases_come_from_as_many_queries_as_a_second_has_10_to_200(monkeypatch, each_s, n):
    now, rows = [50.0], iter(Phases(1000 + k, 10, None, 500, 70) for k in range(999))

    def query():
        now[0] += each_s
        return next(rows)

    monkeypatch.setattr(phases, "time", SimpleNamespace(monotonic=lambda: now[0]))
    found = phases.metrics(SimpleNamespace(phases=query), "pageable")
    assert found["phased_latency_s"].n == n  # the first query warms the events up
    assert found["phased_latency_s"].value == pytest.approx((1000 + (n + 1) / 2) * 1e-9)
    assert found["enqueue_s"].value == pytest.approx(10e-9) and isinstance(found["h2d_s"], Absent)
    assert (found["gpu_compute_s"].value, found["d2h_s"].value) == (pytest.approx(5e-7), pytest.approx(7e-8))


def test_on_the_device_there_are_no_copies_and_without_events_no_phases():
    row = Phases(1000, 10, 20, 500, 70)
    found = phases.metrics(SimpleNamespace(phases=lambda: row), "device")
    assert found["h2d_s"] == found["d2h_s"] == Absent("io device leaves the copies out")
    assert isinstance(found["enqueue_s"], Measured)
    assert phases.metrics(SimpleNamespace(phases=None), "device") == {}


@pytest.mark.parametrize(
    ("scenario", "taken"), [("single_stream", True), ("offline", True), ("multi_stream", False)]
)
def test_a_program_with_its_own_loop_offers_two_scenarios(scenario, taken):
    bare = result(Trial(model="null", backend="trtexec", scenario=scenario))
    with pytest.raises(AssertionError if taken else UsageError, match=None if taken else "E-SCEN-9"):
        external.measure(bare, None, object(), None)  # what is no backend is a mistake of ours


class Program:
    """Another program that drove."""

    def __init__(self):
        self.asked = []

    def accuracy(self, answer, model):
        self.asked.append((answer, model.reference))

    def notes(self):
        return {"program": {"version": 5}}

    def warnings(self):
        return ("W-P-1",)


@pytest.mark.parametrize(
    ("reference", "answer", "asked"),
    [("onnxruntime", len, True), ("onnxruntime", None, False), ("null", len, False), ("none", len, False)],
)
def test_only_another_program_checks_answers_and_only_where_there_are_some(reference, answer, asked):
    program, opened = Program(), SimpleNamespace(answer=answer)
    external.examine(program, opened, SimpleNamespace(reference=reference))
    assert program.asked == ([(answer, reference)] if asked else [])
    external.examine(object(), opened, SimpleNamespace(reference=reference))


def test_what_another_program_says_stands_beside_the_result():
    plain = result(warnings=("W-A-1",), artifact={"path": None})
    assert external.noted(plain, object()) is plain
    told = external.noted(plain, Program())
    assert told.driver == "external" and told.warnings == ("W-A-1", "W-P-1")
    assert told.artifact == {"path": None, "program": {"version": 5}}


def test_pairs_are_measured_until_another_would_not_fit(monkeypatch):
    """Pairs of 10 s in 65 s: six fit, a seventh would not; five are measured however long they take."""
    now = [100.0]

    def run(trial):
        now[0] += each[0] / 2
        ran.append(trial.replicate)
        return result(trial, metrics={"latency_p50_s": Measured(0.01 + 0.001 * len(ran), "s")})

    monkeypatch.setattr(noise.fresh, "prepare", lambda trial: None)
    monkeypatch.setattr(noise.fresh, "run", run)
    monkeypatch.setattr(noise.time, "monotonic", lambda: now[0])
    for took, pairs in ((10.0, 6), (30.0, 5), (64.0, 5)):
        ran, told, each = [], [], [took]
        found = noise.measure(65.0, workloads=[Trial(model="null", backend="null")], tell=told.append)
        assert found.pairs == pairs == len(told) and ran == [k for k in range(pairs) for _ in "ab"]
        assert sum(found.verdicts.values()) == 2 * pairs and found.workload.startswith("null ")
    firsts = {a < b for a, b in found.p50_s}
    assert firsts == {True, False}  # which of the two runs first is drawn


def test_a_run_without_a_latency_ends_the_noise(monkeypatch):
    for metrics in ({}, {"latency_p50_s": Absent("x")}, {"latency_p50_s": Measured(0.0, "s")}):
        with pytest.raises(UnsupportedError, match="E-NOISE-3"):
            noise._p50(result(metrics=metrics, reason="r"))


def test_the_first_workload_that_can_be_prepared_is_taken(monkeypatch):
    tried = []

    def prepare(trial):
        tried.append(trial.model)
        return None if trial.model == "b" else result(reason=f"no {trial.model}")

    monkeypatch.setattr(noise.fresh, "prepare", prepare)
    trials = [Trial(model=m, backend="null") for m in "abc"]
    assert noise._prepared(trials).model == "b" and tried == ["a", "b"]
    with pytest.raises(UnsupportedError, match=r"E-NOISE-2.*\(no a; no c\)"):
        noise._prepared([trials[0], trials[2]])


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_noise_needs_a_time(seconds):
    with pytest.raises(UsageError, match="E-NOISE-1"):
        noise.measure(seconds)
