"""Who drives a trial, what is asked of the engine, and the order of what happens around the window."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from edgescope.bench import drivers
from edgescope.bench.drivers import InProcess, drive, require
from edgescope.bench.watch import Watch
from edgescope.errors import RanElsewhereError
from edgescope.records import Effective, Machine, Measured, Spans, Trial, Verification
from edgescope.workloads.base import OpenWorkload
from fake_time import MS, FakeClock, FakeWork
from making import result

TRIAL = Trial(model="null", backend="null", warmup=0, min_s=0.01, max_s=0.01)


@pytest.mark.parametrize(
    ("asked", "ran", "code"),
    [
        ({}, Effective("cpu", "fp32"), ""),
        ({}, Effective("cuda", "fp32"), "E-RAN-1"),
        ({}, Effective("cpu", "fp16"), "E-RAN-2"),
        ({"precision": "as_is"}, Effective("cpu", "int8"), ""),
        ({"options": {"threads": 2}}, Effective("cpu", "fp32", 2), ""),
        ({"options": {"threads": 2}}, Effective("cpu", "fp32", 3), "E-RAN-3"),
        ({"options": {"threads": 2}}, Effective("cpu", "fp32", None), ""),
        ({"options": {"threads": 0}}, Effective("cpu", "fp32", 4), "E-RAN-3"),
        ({}, Effective("cpu", "fp32", 4), ""),
    ],
)
def test_an_engine_must_have_done_what_was_asked(asked, ran, code):
    trial = replace(TRIAL, **asked)
    if not code:
        require(trial, ran)
        return
    with pytest.raises(RanElsewhereError) as raised:
        require(trial, ran)
    assert raised.value.code == code


@pytest.mark.parametrize(
    ("model", "change", "as_is"),
    [
        ("net.onnx", {"precision": "fp16"}, True),
        ("NET.ONNX#1", {"precision": "fp16"}, True),
        ("net", {"precision": "fp16"}, False),
        ("net.onnx", {"device": "cuda"}, False),
    ],
)
def test_a_file_of_another_precision_may_run_under_its_own_name(model, change, as_is):
    with pytest.raises(RanElsewhereError) as raised:
        require(replace(TRIAL, model=model, **change), Effective("cpu", "fp32"))
    assert ("as_is" in raised.value.fix) is as_is


def test_garbage_is_out_of_the_way_while_a_scenario_drives(monkeypatch):
    log, does = [], ("collect", "freeze", "unfreeze")
    collector = SimpleNamespace(**{name: lambda name=name: log.append(name) for name in does})
    monkeypatch.setattr(drivers, "gc", collector)

    class Scenario:
        def drive(self, work, clock):
            log.append("drive")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        drive(Scenario(), None, None)
    assert log == ["collect", "freeze", "drive", "unfreeze"]


@pytest.fixture
def driven(monkeypatch):
    """Measure a trial in fake time; return the run and what happened in which order."""
    log = []

    @contextmanager
    def noted(self, *given):
        log.append("begin")
        yield
        log.append("end")

    monkeypatch.setattr(Watch, "watching", noted)
    monkeypatch.setattr(Watch, "mark", lambda self: log.append("mark"))
    monkeypatch.setattr(drivers, "peak_rss", lambda: log.append("peak") or Measured(5.0, "bytes"))
    monkeypatch.setattr(drivers, "interpreter_wait", lambda work, trial, clock: Measured(0.5, "s"))

    def run(trial=TRIAL, spans=None, **keys):
        clock = FakeClock()

        @contextmanager
        def open_work(trial):
            yield OpenWorkload(
                work=FakeWork(clock, lambda query: MS),
                model=result().model,
                effective=lambda: Effective("cpu", "fp32"),
                verify=lambda machine: log.append("verify") or Verification(True, "m", {}, 0.0, ""),
                breakdown=lambda: spans or Spans.none(),
                metrics=lambda rows, window: log.append(len(rows)) or {"own_s": Measured(1.0, "s")},
                failure=lambda: "the first",
            )

        monkeypatch.setattr(drivers, "open_work", open_work)
        wait = lambda: log.append("wait")  # noqa: E731
        begun = replace(result(trial), machine=Machine({}, {"cpu": {"memory_available_bytes": 900}}))
        return InProcess(clock, wait=wait, **keys).measure(begun, Watch({}, 0)), log

    return run


def test_a_trial_is_loaded_watched_read_and_verified_in_this_order(driven):
    run, log = driven()
    assert log == ["wait", "begin", "mark", "mark", "end", "peak", 11, "verify"]
    assert len(run.queries) == 11 and run.metrics["own_s"] == Measured(1.0, "s")
    assert run.metrics["peak_rss_bytes"] == Measured(5.0, "bytes") and run.failure == "the first"
    assert run.verification.passed and run.spans is None and run.driver == "edgescope" and run.warmed
    assert "interpreter_wait_s" not in run.metrics


def test_a_trial_that_is_only_looked_at_is_not_verified(driven):
    run, log = driven(judged=False)
    assert run.verification is None and "verify" not in log


def test_the_spans_of_a_breakdown_are_kept_with_their_metrics(driven):
    spans = Spans.of("phase", [("unit", 0, 0, 2000), ("unit", 1, 2000, 6000)], ["unit"])
    run, _ = driven(spans=spans)
    assert run.spans is spans and run.metrics["phased_latency_s"].value == pytest.approx(3e-6)


@pytest.mark.parametrize(
    ("keys", "waited"),
    [
        ({"in_flight": 1}, False),
        ({"in_flight": 2}, True),
        ({"in_flight": 2, "scenario": "fixed_rate", "rate": 1000.0}, False),
    ],
)
def test_threads_are_waited_for_only_where_several_queries_are_always_in_flight(driven, keys, waited):
    run, _ = driven(replace(TRIAL, **keys))
    assert ("interpreter_wait_s" in run.metrics) is waited
