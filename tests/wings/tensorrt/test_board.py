"""The backend on a real TensorRT, where there is one; nothing here is a fake."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from edgescope import cache, registry
from edgescope.backends.base import Spec
from edgescope.errors import UnavailableError, UnsupportedError

pytestmark = pytest.mark.gpu

#: precision, relative L2 allowed against ONNX Runtime fp32
ROWS = [("fp32", 1e-4), ("tf32", 1e-2), ("fp16", 1e-2), ("int8", 0.2)]


@pytest.mark.parametrize("io", ["host", "pinned", "device"])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize(("precision", "tolerance"), ROWS)
def test_outputs_are_those_of_fp32_and_the_precision_is_read_back(network, precision, tolerance, graph, io):
    model = network()
    batch = {"image": np.random.default_rng(0).normal(0, 1, (2, 3, 12, 12)).astype("float32")}
    reference = onnxruntime.InferenceSession(
        str(model.onnx(Path("unused"))), providers=["CPUExecutionProvider"]
    )
    truth = reference.run(None, batch)[0]
    spec = Spec(precision, 2, io=io, options={"graph": graph}, device="cuda")
    try:
        backend = registry.load(registry.BACKENDS, "tensorrt", "backend")()
        session = backend.load(backend.prepare(model, spec, cache.folder("artifacts")))
    except (UnavailableError, UnsupportedError) as error:
        pytest.skip(f"this machine lacks it: {error}")
    for _ in range(3):
        outputs = session.fetch(session(session.stage(batch)))
    assert np.linalg.norm(outputs[0] - truth) / np.linalg.norm(truth) <= tolerance
    effective = session.effective()
    assert (effective.device, effective.precision) == ("cuda", precision), effective.evidence
    phases = session.phases(session.stage(batch))
    assert 0 < phases.compute_ns <= phases.latency_ns
    session.close()
