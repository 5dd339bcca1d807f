"""A backend: the reference evaluator of the onnx package, which computes each operator in numpy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from edgescope import cache
from edgescope.artifacts.for_precision import onnx_file, refuse
from edgescope.backends.base import Artifact, Spec, checked
from edgescope.models.base import Batch, Model
from edgescope.records import Effective
from edgescope_example.about import AboutReference

NAMES = {"float32": "fp32", "float64": "fp64"}


class OnnxReferenceSession:
    """One evaluator; it keeps the names of its outputs' types, to say afterwards what it computed in."""

    def __init__(self, path: Path, device: str) -> None:
        self.evaluator, self.device = ReferenceEvaluator(str(path)), device
        self.kinds: set[str] = set()

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs; numpy is done when it returns."""
        outputs: Sequence[NDArray[Any]] = self.evaluator.run(None, dict(batch))
        self.kinds.update(str(o.dtype) for o in outputs)
        return outputs

    def effective(self) -> Effective:
        """Return what the outputs were computed in: read back, not repeated from the request."""
        found = ", ".join(sorted(NAMES.get(kind, kind) for kind in self.kinds))
        return Effective(self.device, found, None, f"type of the outputs: {', '.join(sorted(self.kinds))}")

    def stage(self, batch: Batch) -> Batch:
        """Return the batch in the memory of the place: for `--io device`, so that no query copies it."""
        return {name: array.copy() for name, array in batch.items()}

    def fetch(self, outputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Return the outputs on the host."""
        return [output.copy() for output in outputs]

    def close(self) -> None:
        """Drop the evaluator."""
        del self.evaluator


class OnnxReference(AboutReference):
    """onnx_reference: fp32 on the CPU or the simulated accelerator, whatever operators the network has."""

    OPTIONS: ClassVar[dict[str, str]] = {}

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the network's ONNX file, exported once and cached under `folder`."""
        checked("onnx_reference", spec, self.OPTIONS)
        if spec.precision != "fp32":
            raise refuse("onnx_reference", spec.precision, "its operators compute in fp32")
        path = onnx_file(model, spec.precision, folder)
        return Artifact(model, spec, path, cache.content(path))

    def load(self, artifact: Artifact) -> OnnxReferenceSession:
        """Return a session ready for its first call."""
        assert artifact.path is not None
        return OnnxReferenceSession(artifact.path, artifact.spec.device)
