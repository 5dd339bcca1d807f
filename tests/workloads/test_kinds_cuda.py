"""The kinds of work on a GPU."""

import pytest

from edgescope import bench
from edgescope.records import UNIT, Measured, Status, Trial

SHORT = {"device": "cuda", "backend": "torch_eager", "min_s": 0.5, "max_s": 0.5}


@pytest.mark.gpu("torch_eager")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("model", ["lenet5", "mobilenet_v2"])
def test_a_step_of_training_on_a_gpu(model, precision):
    result = bench.run(Trial(model=model, workload="training", batch=8, precision=precision, **SHORT))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert result.effective.device == "cuda" and result.effective.precision == precision
    whole = result.spans.durations_ns(UNIT).sum()
    assert sum(result.spans.durations_ns(n).sum() for n in result.spans.names if n != UNIT) == pytest.approx(
        whole, rel=0.02
    )


@pytest.mark.gpu("torch_eager")
def test_training_in_two_processes_and_beside_inference():
    result = bench.run(Trial(model="lenet5", workload="training", batch=8, processes=2, **SHORT))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    colocated = "lenet5 workload=training batch=16"
    result = bench.run(Trial(model="mobilenet_v2", colocated=colocated, **SHORT))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert [worker.model for worker in result.workers] == ["mobilenet_v2", "lenet5"]


@pytest.mark.gpu("torch_eager")
def test_phases_of_inference_are_spans():
    result = bench.run(Trial(model="mobilenet_v2", precision="fp32", options={"graph": True}, **SHORT))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert set(result.spans.names) == {UNIT, "enqueue", "h2d", "gpu_compute", "d2h"}
    assert isinstance(result.metrics["gpu_compute_s"], Measured)
