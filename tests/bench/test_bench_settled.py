"""What a finished run's own numbers make of its status, and what an exception does."""

import re
from dataclasses import replace

import pytest

from edgescope.bench.outcome import guarded, settled, status_of
from edgescope.errors import (
    DeviceError,
    Message,
    ModelError,
    SafetyError,
    UnavailableError,
    UnsupportedError,
    WrongOutputError,
)
from edgescope.records import Absent, Machine, Measured, Status, Trial, Trust, Verdict, Verification
from edgescope.registry import REPLAYED
from making import result


def moved(value, lo, hi, *, scenario="single_stream", warnings=(), **metrics):
    metrics = {"drift": Measured(value, "1", lo, hi, 100)} | metrics
    rate = {"rate": 5.0} if scenario == "fixed_rate" else {}
    trial = Trial(model="null", backend="null", scenario=scenario, **rate)
    return settled(result(trial, metrics=metrics, warnings=warnings))


@pytest.mark.parametrize(
    ("drift", "status"),
    [
        ((0.25, 0.2, 0.3), Status.OK),  # a quarter is still allowed
        ((0.26, 0.2, 0.3), Status.UNSTABLE),
        ((-0.26, -0.3, -0.2), Status.UNSTABLE),
        ((0.4, 0.0, 0.8), Status.OK),  # touching none is not excluding it
        ((-0.4, -0.8, 0.0), Status.OK),
        ((0.4, None, None), Status.OK),
        ((0.4, 0.1, None), Status.OK),
        ((0.4, None, 0.8), Status.OK),
    ],
)
def test_a_latency_that_moved_surely_and_far_is_unstable(drift, status):
    found = moved(*drift)
    assert found.status is status
    assert str(found.reason).startswith("E-STAT-1: ") is (status is Status.UNSTABLE)


def test_an_open_loop_is_unstable_only_where_something_must_be_said_of_it_too():
    assert moved(0.4, 0.3, 0.5, scenario="fixed_rate").status is Status.OK
    assert moved(0.4, 0.3, 0.5, scenario="fixed_rate", warnings=("W-STAT-4: x.",)).status is Status.UNSTABLE
    assert moved(0.4, 0.3, 0.5, scenario="fixed_rate", warnings=("W-STAT-3: x.",)).status is Status.OK
    loaded = moved(0.4, 0.3, 0.5, scenario="fixed_rate", warnings=("W-LOAD-1: x.",))
    assert loaded.status is Status.UNSTABLE and re.match(r"E-STAT-2: .* \+40%", str(loaded.reason))
    both = moved(0.4, 0.3, 0.5, scenario="fixed_rate", warnings=("W-STAT-4: x.", "W-LOAD-1: x."))
    assert str(both.reason).startswith("E-STAT-2")


def test_where_burst_and_sustained_are_told_apart_a_drift_is_no_fault():
    assert moved(0.4, 0.3, 0.5, settled_s=Measured(60.0, "s")).status is Status.OK
    assert moved(0.4, 0.3, 0.5, settled_s=Absent("too short")).status is Status.UNSTABLE


def test_wrong_outputs_outrank_failed_queries_and_those_a_drift():
    wrong = Verification(False, "top1_agreement", {}, 0.95, "agreement 0.5")
    drift, failed = Measured(0.4, "1", 0.3, 0.5, 9), Measured(3.0, "queries", n=9)
    found = settled(result(verification=wrong, metrics={"drift": drift, "errors": failed}))
    assert (found.status, str(found.reason)) == (
        Status.WRONG_OUTPUT,
        "E-OUT-2: wrong outputs: agreement 0.5.",
    )
    found = settled(result(metrics={"drift": drift, "errors": failed}), failure="ValueError: no")
    assert found.status is Status.FAILED
    assert re.fullmatch(r"E-RUN-3: 3 of 9 .* \(ValueError: no\)\.", str(found.reason))
    none = settled(result(verification=None, metrics={"errors": Measured(0.0, "queries", n=9)}))
    assert (none.status, none.reason) == (Status.OK, None)


def test_a_warm_up_that_was_cut_off_is_said_beside_what_was_warned_of_before():
    from edgescope.bench.drivers import Run
    from edgescope.bench.outcome import concluded
    from edgescope.bench.watch import Watch

    begun = result()
    keys = {
        name: getattr(begun, name)
        for name in ("model", "artifact", "effective", "verification", "queries", "window")
    }
    for warmed, codes in ((False, ["W-TEST-1", "W-WARM-1"]), (True, ["W-TEST-1"])):
        run = Run(**keys, metrics={}, warnings=begun.warnings, warmed=warmed)
        found = [w.code for w in concluded(begun, Watch({}, 0), run).warnings]
        assert [code for code in found if code in ("W-TEST-1", "W-WARM-1")] == codes


@pytest.mark.parametrize(
    ("kind", "device", "far"), [("yes", "cpu", True), ("no", "cpu", False), ("yes", "cuda", False)]
)
def test_cpus_that_a_hypervisor_has_apart_disturb_what_runs_on_them(kind, device, far):
    from edgescope.bench.drivers import Run
    from edgescope.bench.outcome import concluded
    from edgescope.bench.watch import Watch
    from edgescope.records import Machine

    begun = replace(result(), machine=Machine({"cpu": {"virtualised": kind}}, {}))
    keys = {name: getattr(begun, name) for name in ("model", "artifact", "verification", "queries", "window")}
    watch = Watch({}, 0)
    watch.core_to_core = 207e-9
    run = Run(**keys, effective=replace(begun.effective, device=device), metrics={})
    found = concluded(begun, watch, run)
    assert found.metrics["core_to_core_s"] == Measured(207e-9, "s")
    assert any("CPUs 207 ns" in text for text in found.verdict.evidence) is far
    assert (found.verdict.trust is Trust.DISTURBED) is far


def caused(error, cause):
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (SafetyError("E-X-1", "the machine ran short"), Status.OOM),
        (UnsupportedError("E-X-1", "not here"), Status.UNSUPPORTED),
        (UnavailableError("E-X-1", "not installed"), Status.UNSUPPORTED),
        (WrongOutputError("E-X-1", "other answers"), Status.WRONG_OUTPUT),
        (ModelError("E-X-1", "cannot open"), Status.FAILED),
        (DeviceError("E-X-1", "gone"), Status.FAILED),
        (caused(ModelError("E-X-1", "cannot open"), MemoryError()), Status.OOM),
        (caused(ModelError("E-X-1", "cannot open"), ValueError("shape")), Status.FAILED),
        (MemoryError(), Status.OOM),
        (RuntimeError("CUDNN_STATUS_ALLOC_FAILED"), Status.OOM),
        (RuntimeError("an illegal memory access"), Status.FAILED),
        (type("OutOfMemoryError", (RuntimeError,), {})("2 GiB"), Status.OOM),
    ],
)
def test_an_exception_becomes_a_status(error, status, capfd):
    try:
        raise error
    except Exception as raised:
        assert status_of(raised)[0] is status
    ours = getattr(error, "code", "") == "E-X-1"
    assert ("Traceback" in capfd.readouterr().err) is not ours


def test_what_a_model_raised_is_told_in_one_line_with_its_place():
    def deep():
        raise ValueError("a\n  long\n" + "x" * 400)

    try:
        deep()
    except ValueError as error:
        reason = str(status_of(error)[1])
    assert re.match(r"E-RUN-1: [^(]*\(ValueError: a long xxx", reason)
    assert "; test_bench_settled.py:" in reason and " in deep)" in reason and "x" * 293 in reason
    assert "x" * 294 not in reason and "\n" not in reason


@pytest.mark.parametrize(
    ("trust", "becomes"),
    [(trust, Trust.UNKNOWN) for trust in Trust],
)
def test_a_recording_is_no_verdict_on_the_times_of_this_machine(trust, becomes):
    mark = {REPLAYED: {"board": "orin", "made": "typed"}}
    played = result(
        machine=Machine({}, mark), verdict=Verdict(trust, ("e",)), warnings=("W-A-1: said before.",)
    )
    found = guarded(played, lambda begun: begun)
    assert found.verdict == Verdict(becomes, ("the sensors are a recording", "e"))
    assert [w.code for w in found.warnings] == ["W-A-1", "W-REC-1"]
    assert found.metrics["latency_p50_s"] == played.metrics["latency_p50_s"]
    real = result(verdict=Verdict(trust, ("e",)))
    assert guarded(real, lambda begun: begun) is real


@pytest.mark.parametrize(
    ("processes", "pools", "led"), [(2, None, True), (1, object(), True), (1, None, False)]
)
def test_several_processes_or_kept_workers_are_led_and_one_alone_is_not(processes, pools, led):
    from edgescope.bench import driver
    from edgescope.bench.drivers import InProcess
    from edgescope.bench.workers import Workers
    from edgescope.clock import MonotonicClock

    trial = Trial(model="null", backend="null", processes=processes)
    found = driver(trial, MonotonicClock(), pools)
    assert isinstance(found, Workers if led else InProcess)
    if led:
        assert found.pools is pools


def test_a_worker_that_died_says_what_became_of_the_trial():
    from edgescope.isolate.worker import WorkerError

    assert status_of(WorkerError(Status.CRASHED, "E-WORKER-2: gone")) == (Status.CRASHED, "E-WORKER-2: gone")


@pytest.mark.parametrize(
    ("check", "kept", "unjudged", "warned"),
    [
        (Verification(True, "m", {}, 0.0, ""), True, False, False),
        (Verification(True, "m", {}, 0.0, "", doubt="top1 0.1%"), True, False, True),
        (Message("W-GATE-2", "it answers nothing"), False, True, False),
        (None, False, False, False),
    ],
)
def test_what_the_gate_said_is_kept_where_it_belongs(check, kept, unjudged, warned):
    from edgescope.bench.drivers import Run
    from edgescope.bench.outcome import concluded
    from edgescope.bench.watch import Watch

    begun = result()
    keys = {name: getattr(begun, name) for name in ("model", "artifact", "effective", "queries", "window")}
    found = concluded(
        begun, Watch({}, 0), Run(**keys, verification=check, metrics={}), {"asked": "m", "evidence": "e"}
    )
    assert (found.verification, found.unverified) == (check if kept else None, check if unjudged else None)
    assert ("W-LABEL-1" in [w.code for w in found.warnings]) is warned
    assert found.machine.state["mode"] == {"asked": "m", "evidence": "e"}


def test_whatever_is_raised_becomes_a_reason(capfd):
    begun = result()
    found = guarded(begun, lambda started: 1 / 0)
    assert (found.status, found.reason.code, found.id) == (Status.FAILED, "E-RUN-1", begun.id)
