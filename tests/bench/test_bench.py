"""run(trial) whole: in fake time on the null members, and on a real engine with its parts made to fail."""

import pytest

from edgescope import bench
from edgescope.bench.drivers import require
from edgescope.bench.outcome import settled
from edgescope.devices.base import NullDevice
from edgescope.errors import RanElsewhereError
from edgescope.records import Absent, Effective, Measured, Status, Trial, Trust
from fake_time import FakeClock

QUICK = {"warmup": 0.05, "min_s": 0.2, "max_s": 0.2}


def null(**keys) -> Trial:
    return Trial(**({"model": "null", "backend": "null", "options": {"delay_us": 300}} | QUICK | keys))


@pytest.mark.slow
def test_a_run_has_every_part():
    result = bench.run(null())
    assert result.status in (Status.OK, Status.UNSTABLE)
    assert result.verification.passed
    assert result.metrics["latency_p50_s"].value >= 0.0003
    assert result.metrics["load_s"].unit == "s"
    assert isinstance(result.metrics["build_s"], Absent)
    assert result.metrics["sampler_cpu_share"].value < 0.2
    assert len(result.readings.t_ns) > 3
    assert result.machine.stable
    assert result.window.stop == len(result.queries)
    power = result.metrics["power_w"]
    assert isinstance(power, Measured) or power.reason


@pytest.mark.process
def test_without_devices_and_sampler_nothing_is_claimed():
    result = bench.run(null(), hz=0, devices={"null": NullDevice()})
    assert result.status in (Status.OK, Status.UNSTABLE)
    assert result.verdict.trust in (Trust.UNKNOWN, Trust.DISTURBED)
    assert isinstance(result.metrics["power_w"], Absent)
    assert isinstance(result.metrics["sampler_cpu_share"], Absent)


@pytest.mark.slow
def test_a_whole_benchmark_in_fake_time():
    trial = null(options={}, min_s=1, max_s=1, warmup=0.5)
    result = bench.run(trial, clock=FakeClock(look_ns=1_000), hz=0, devices={"null": NullDevice()})
    assert result.window.stop_ns - result.window.start_ns == pytest.approx(1e9, rel=1e-3)
    assert set(result.queries.latency_ns()) == {1_000}
    assert result.metrics["throughput_sps"].value == pytest.approx(500_000, rel=0.01)


@pytest.mark.slow
def test_the_null_workload_measures_the_harness_alone():
    result = bench.run(null(workload="null", options={}))
    assert result.metrics["latency_p50_s"].value < 1e-4


@pytest.mark.parametrize(
    ("effective", "code"),
    [
        (Effective("cpu", "bf16", 2, "graph: 5 of 5 convolutions bf16"), "E-RAN-2"),
        (Effective("gpu.0", "fp32"), "E-RAN-1"),
    ],
)
def test_running_elsewhere_than_asked_is_an_error_with_its_own_exit_code(effective, code):
    with pytest.raises(RanElsewhereError, match=code) as caught:
        require(null(), effective)
    assert caught.value.exit_code == 6


@pytest.mark.process
def test_a_backend_that_lies_about_precision_fails_the_trial(monkeypatch):
    from edgescope.backends.base import NullSession
    from edgescope.commandline.context import exit_code

    monkeypatch.setattr(NullSession, "effective", lambda self: Effective("cpu", "bf16", 1, "it says so"))
    result = bench.run(null())
    assert result.status is Status.FAILED
    assert "E-RAN-2" in str(result.reason)
    assert result.metrics == {}
    assert exit_code(result) == 6


@pytest.mark.process
def test_a_session_is_closed_when_the_run_fails(monkeypatch):
    from edgescope.backends.base import NullSession

    closed = []
    monkeypatch.setattr(NullSession, "close", lambda self: closed.append(1))
    monkeypatch.setattr(NullSession, "effective", lambda self: 1 / 0)
    assert "ZeroDivisionError" in str(bench.run(null()).reason)
    assert closed == [1]


def test_drift_makes_a_run_unstable_only_when_it_is_large_and_certain():
    from making import result

    for lo, hi, value, status in (
        (0.2, 0.6, 0.4, Status.UNSTABLE),
        (-0.1, 0.9, 0.4, Status.OK),
        (0.01, 0.03, 0.02, Status.OK),
    ):
        drifting = result(metrics={"drift": Measured(value, "1", lo, hi, 100)})
        assert settled(drifting).status is status


@pytest.mark.process
def test_a_mode_that_this_machine_has_not_is_refused():
    result = bench.run(null(mode="no such mode"))
    assert result.status is Status.FAILED
    assert "E-MODE-1" in str(result.reason)
    assert len(result.queries or ()) == 0


def test_threads_other_than_asked_are_an_error():
    with pytest.raises(RanElsewhereError, match="E-RAN-3"):
        require(null(options={"threads": 1}), Effective("cpu", "fp32", 2))
    require(null(options={"threads": 1}), Effective("cpu", "fp32", None))


@pytest.mark.process
def test_a_session_without_memory_of_its_own_refuses_pinned_inputs():
    result = bench.run(null(io="pinned"))
    assert result.status is Status.UNSUPPORTED
    assert str(result.reason).startswith("E-IO-1")


@pytest.mark.slow
def test_inputs_are_staged_once_and_answers_fetched(monkeypatch):
    from edgescope.backends.base import NullSession

    staged, fetched, seen = [], [], set()

    def stage(self, batch):
        staged.append(batch)
        return {"staged": len(staged)}

    call = NullSession.__call__

    def answer(self, batch):
        seen.add(type(batch["staged"]))
        return call(self, batch)

    monkeypatch.setattr(NullSession, "stage", stage, raising=False)
    monkeypatch.setattr(NullSession, "fetch", lambda self, outputs: fetched.append(outputs), raising=False)
    monkeypatch.setattr(NullSession, "__call__", answer)
    result = bench.run(null(io="device"))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert len(staged) == 8 < len(result.queries)  # the pool of inputs, once; the queries take turns
    assert seen == {int}


@pytest.mark.process
def test_phases_are_medians_of_queries_of_their_own(monkeypatch):
    from edgescope.backends.base import NullSession, Phases

    rows = iter(Phases(9_000 + i, 1_000, 2_000, 3_000 + 10 * i, 500) for i in range(10_000))
    monkeypatch.setattr(NullSession, "phases", lambda self, batch: next(rows), raising=False)
    result = bench.run(null())
    found = result.metrics
    assert found["h2d_s"].value == pytest.approx(2e-6)
    assert found["enqueue_s"].value == pytest.approx(1e-6)
    assert found["d2h_s"].value == pytest.approx(5e-7)
    assert found["gpu_compute_s"].value == pytest.approx(3e-6 + 1e-8 * 100, rel=0.02)  # 199 of 200 rows count
    assert found["gpu_compute_s"].n == 199
    assert found["phased_latency_s"].value > found["gpu_compute_s"].value


@pytest.mark.process
@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("BFCArena: Failed to allocate memory for requested buffer of size 1"),
    ],
)
def test_running_out_of_either_memory_is_oom(error, monkeypatch):
    from edgescope.backends.base import NullSession

    def fail(self, batch):
        raise error

    monkeypatch.setattr(NullSession, "__call__", fail)
    assert bench.run(null()).status is Status.OOM


@pytest.mark.process
def test_another_failure_is_not_oom(monkeypatch):
    from edgescope.backends.base import NullSession

    def fail(self, batch):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    monkeypatch.setattr(NullSession, "__call__", fail)
    assert bench.run(null()).status is Status.FAILED


@pytest.mark.parametrize(
    ("visible", "name"),
    [(None, "gpu0"), ("", "gpu0"), ("2", "gpu2"), ("1,0", "gpu1"), ("GPU-e65b10e7", "")],
)
def test_the_board_is_the_one_cuda_calls_first(visible, name):
    from edgescope.bench.watch import board

    assert board({} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}) == name


@pytest.mark.process
def test_an_error_caused_by_full_memory_is_oom(monkeypatch):
    from edgescope.backends.base import NullBackend
    from edgescope.errors import ModelError

    def load(self, artifact):
        try:
            raise RuntimeError("CUDNN_STATUS_ALLOC_FAILED when calling cudnnCreate")
        except RuntimeError as error:
            raise ModelError("E-ORT-1", "cannot open") from error

    monkeypatch.setattr(NullBackend, "load", load)
    assert bench.run(null()).status is Status.OOM


@pytest.mark.process
def test_a_session_whose_first_answer_fails_is_closed(monkeypatch):
    from edgescope.backends.base import NullSession

    closed = []
    monkeypatch.setattr(NullSession, "close", lambda self: closed.append(1))
    monkeypatch.setattr(NullSession, "__call__", lambda self, batch: 1 / 0)
    assert "ZeroDivisionError" in str(bench.run(null()).reason)
    assert closed == [1]
