"""The kinds of work on a GPU."""

import numpy as np
import pytest

from edgescope import bench
from edgescope.records import UNIT, Measured, Status, Trial
from edgescope.wings.training.epochs import PARTS

SHORT = {"device": "cuda", "backend": "torch_eager", "min_s": 0.5, "max_s": 0.5}


@pytest.mark.gpu("torch_eager")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
@pytest.mark.parametrize("model", ["lenet5", "mobilenet_v2"])
def test_a_step_of_training_on_a_gpu(model, precision):
    result = bench.run(Trial(model=model, workload="training", batch=8, precision=precision, **SHORT))
    assert result.status in (Status.OK, Status.UNSTABLE), result.reason
    assert result.effective.device == "cuda" and result.effective.precision == precision
    # Loading and its stages run beside the step, in workers, and an epoch holds many steps: only PARTS make a step up.
    units, phases = result.spans.of_kind("unit"), result.spans.of_kind("phase")
    of_steps = phases.where(phases.columns["query_id"] >= 0)  # a fetch at the end of an epoch brings no step
    parts, whole = np.array([of_steps.durations_ns(name) for name in PARTS]), units.durations_ns(UNIT)
    assert (parts >= 0).all() and (parts.sum(axis=0) <= whole).all()
    assert np.median(parts.sum(axis=0) / whole) > 0.95, "the rest is the answer's way back to the host"
    assert (np.median(parts, axis=1)[1:] > 0).all(), (
        "forward, backward and the optimiser's step take time on a GPU"
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
