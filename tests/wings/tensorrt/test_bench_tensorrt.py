"""A whole run through bench.run on a fake board: what a Result of this backend holds. Its times mean nothing."""

from pathlib import Path

import pytest

from edgescope import bench
from edgescope.devices.base import NullDevice
from edgescope.records import Absent, Measured, Status, Trial

pytestmark = pytest.mark.process

QUICK = {"warmup": 0.02, "min_s": 0.1, "max_s": 0.1}


def run(model, **keys):
    path = str(model.onnx(Path("unused")))
    trial = Trial(model=path, backend="tensorrt", device="cuda", **(QUICK | keys))
    return bench.run(trial, hz=0, devices={"null": NullDevice()})


@pytest.mark.parametrize("io", ["host", "device"])
@pytest.mark.slow
def test_a_run_has_its_four_times_its_phases_and_its_verification(board, network, io):
    here = board()
    here.trt.build_s = 0.05
    result = run(network(), io=io, options={"builder_level": 1, "graph": io == "device"})
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert result.verification.passed
    assert result.verification.method != "none"
    assert (result.effective.device, result.effective.precision) == ("cuda", "fp32")
    for name in ("build_s", "load_s", "first_s", "enqueue_s", "gpu_compute_s", "phased_latency_s"):
        assert isinstance(result.metrics[name], Measured), name
        assert result.metrics[name].value > 0
    assert result.metrics["build_s"].value >= 0.05
    copies = [result.metrics[name] for name in ("h2d_s", "d2h_s")]
    assert all(isinstance(c, Measured if io == "host" else Absent) for c in copies)
    assert result.artifact["engine"]["tensorrt"] == "10.3.0.30"
    assert result.artifact["path"].endswith(".engine")
    assert len(result.queries) > 0


def test_an_engine_in_another_precision_is_no_result(board, network):
    here = board()
    here.trt.precision_done = "Float"
    result = run(network(), precision="fp16")
    assert result.status is Status.FAILED
    assert "E-RAN-2" in str(result.reason)


def test_no_int8_on_this_board_is_unsupported(board, network):
    here = board(name="NVIDIA Tegra X1", capability="5.3")
    here.trt.fast["int8"] = False
    result = run(network(), precision="int8")
    assert result.status is Status.UNSUPPORTED
    assert "no int8 on this board (NVIDIA Tegra X1)" in str(result.reason)
