"""The checks of engines and profilers: one real engine, and results that others gave."""

import dataclasses

import numpy as np
import pytest

from edgescope.errors import Message
from edgescope.models import zoo
from edgescope.records import (
    SPAN_DTYPES,
    SPAN_KINDS,
    Absent,
    Effective,
    Measured,
    Meter,
    Spans,
    Status,
    Trial,
)
from edgescope.verify import judge
from edgescope.verify.measures import centred_l2
from edgescope.wings.verify_board import check
from edgescope.wings.verify_board.check import Check
from edgescope.wings.verify_board.checks import engines, profilers
from edgescope.wings.verify_board.site import Here
from making import result

TRIAL = Trial(model="m", backend="tensorrt", device="cuda")


class Site:
    """A board whose trials end with given results, by precision."""

    reached = "here"

    def __init__(self, *, gpu=True, reached="here", **results):
        self.gpu, self.results, self.reached, self.asked = gpu, results, reached, []

    def has_gpu(self):
        return self.gpu

    def find(self, program):
        return f"/usr/bin/{program}"

    def trial(self, trial):
        self.asked.append(trial)
        return dataclasses.replace(self.results[trial.precision], trial=trial)


@pytest.fixture(autouse=True)
def a_name(monkeypatch):
    monkeypatch.setattr(engines, "find_spec", lambda name: True)


def ended(status=Status.OK, **keys):
    return result(dataclasses.replace(TRIAL), status=status, **keys)


def refused(why):
    return result(TRIAL, status=Status.UNSUPPORTED, reason=f"E-TRT-1: {why}")


def told(device="cuda", precision="fp32"):
    return Effective(device, precision)


def test_an_engine_holds_where_every_precision_is_verified_on_the_gpu():
    site = Site(fp32=ended(effective=told()), fp16=ended(effective=told(precision="fp16")))
    found = engines.engine(site, "tensorrt", ("fp32", "fp16"))
    assert found.status is check.Status.HOLDS, found.says
    assert "on cuda: fp32" in found.says and "outputs verified" in found.says
    assert {t.device for t in site.asked} == {"cuda"}
    assert found.evidence["fp16"]["verified"]["passed"]


@pytest.mark.network
def test_the_network_answers_in_fp16_as_in_fp32():
    """An untrained MobileNetV2's answers lie below fp16's least number: the check could hold on no board."""
    torch = pytest.importorskip("torch")
    model = zoo.get(engines.NETWORK)
    batch = np.random.default_rng(0).normal(size=(2, 3, 96, 96)).astype(np.float32)
    with torch.inference_mode():
        right, half = (
            model.module().to(dtype)(torch.from_numpy(batch).to(dtype)).float().numpy()
            for dtype in (torch.float32, torch.float16)
        )
    assert centred_l2([half], [right]) < judge.L2_CEILING / 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"effective": told("cpu")}, "it ran on cpu in fp32"),
        ({"effective": told(precision="tf32")}, "it ran on cuda in tf32"),
        ({"verification": None}, "not verified"),
        ({"status": Status.CRASHED, "reason": "E-RUN-2: it died"}, "E-RUN-2"),
    ],
)
def test_an_engine_does_not_hold_where_one_precision_is_wrong(wrong, says):
    site = Site(fp32=ended(**{"effective": told(), **wrong}), fp16=ended(effective=told(precision="fp16")))
    found = engines.engine(site, "tensorrt", ("fp32", "fp16"))
    assert found.status is check.Status.FAILS and says in found.says


def test_what_is_unsupported_in_all_precisions_is_and_in_one_is_said():
    both = Site(fp32=refused("no TensorRT"), fp16=refused("no TensorRT"))
    found = engines.engine(both, "tensorrt", ("fp32", "fp16"))
    assert found.status is check.Status.UNSUPPORTED and "no TensorRT" in found.says
    one = Site(fp32=ended(effective=told()), fp16=refused("no fp16"))
    found = engines.engine(one, "tensorrt", ("fp32", "fp16"))
    assert found.status is check.Status.HOLDS and found.says.endswith("not supported: fp16")


def test_without_a_gpu_an_engine_runs_on_the_cpu():
    site = Site(gpu=False, fp32=ended(effective=told("cpu")))
    assert engines.engine(site, "onnxruntime").status is check.Status.HOLDS
    assert site.asked[0].device == "cpu"


def loaded(watts, rest, **keys):
    """A result with power at rest and under load."""
    given = {"power_w": watts, "idle_power_w": rest}
    metrics = {k: Measured(v, "W", n=9) if isinstance(v, float) else Absent(str(v)) for k, v in given.items()}
    return ended(metrics=metrics, meter=Meter("vdd_in", "module", "trapezoid"), **keys)


@pytest.mark.parametrize(
    ("one", "status"),
    [
        (loaded(14.0, 5.0), check.Status.HOLDS),
        (loaded(5.0, 5.0), check.Status.FAILS),
        (loaded("no rail", 5.0), check.Status.UNSUPPORTED),
        (loaded(14.0, "not idle"), check.Status.UNSUPPORTED),
        (refused("no engine"), check.Status.UNSUPPORTED),
    ],
)
def test_the_gpus_meter_must_rise_with_its_load(one, status):
    site = Site(fp32=one)
    assert engines.energy_gpu(site).status is status
    assert len(site.asked) == (len(engines.LOADS) if one.status is Status.UNSUPPORTED else 1)
    assert site.asked[0].idle_s > 0


@pytest.mark.slow
def test_a_real_engine_is_verified_with_a_network_as_a_file(monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    monkeypatch.setattr(engines, "SECONDS", 0.3)
    found = engines.engine(Here(), "onnxruntime")
    assert found.status in (check.Status.HOLDS, check.Status.UNSUPPORTED), found.says
    assert found.evidence["fp32"]["model"].startswith("small.onnx")
    assert found.status is check.Status.HOLDS or "CUDA" in found.says


def spans(kinds, lasting=1000):
    columns = {name: np.zeros(len(kinds), kind) for name, kind in SPAN_DTYPES.items()}
    columns["kind"] = np.array([SPAN_KINDS.index(k) for k in kinds], np.int8)
    columns["end_ns"] = np.full(len(kinds), lasting, np.int64)
    return Spans(("x",), columns)


@pytest.mark.parametrize(
    ("found", "status"),
    [
        (spans(["api", "kernel"]), check.Status.HOLDS),
        (spans(["api", "copy"]), check.Status.FAILS),
        (spans(["kernel"], lasting=0), check.Status.FAILS),
        (None, check.Status.FAILS),
    ],
)
def test_a_profiler_holds_where_its_trace_has_kernels_that_last(found, status):
    site = Site(fp32=ended(spans=found))
    outcome = profilers.profiler(site, "cupti")
    assert outcome.status is status
    assert site.asked[0].tracer == "cupti" and site.asked[0].device == "cuda"


def test_a_profiler_that_is_not_installed_is_unsupported():
    assert profilers.profiler(Site(fp32=refused("no cupti")), "cupti").status is check.Status.UNSUPPORTED
    crashed = Site(fp32=result(TRIAL, status=Status.FAILED, reason="E-PROF-1: it broke"))
    assert "E-PROF-1" in profilers.profiler(crashed, "cupti").says


@pytest.mark.parametrize(
    ("needs", "site", "why"),
    [
        ({}, Site(reached="recording"), "a recording"),
        ({"gpu": True}, Site(gpu=False), "no NVIDIA GPU"),
        ({"here": True}, Site(reached="ssh"), "ssh"),
    ],
)
def test_a_check_is_not_begun_where_the_site_lacks_what_it_needs(needs, site, why):
    found = Check("x", "p", 1.0, "no:function", **needs).run(site)
    assert found.status is check.Status.UNSUPPORTED and why in found.says


def test_a_reason_is_said_whole():
    message = Message("E-X-1", "what", "why", "effect", "fix")
    one = Site(fp32=result(TRIAL, status=Status.FAILED, reason=message))
    assert str(message) in engines.engine(one, "tensorrt").says
