"""ONNX Runtime on its CPU execution provider.

fp32 runs the exported file; int8 runs the QDQ file, whose quantise/dequantise pairs the runtime fuses into integer
kernels. fp16 and bf16 files are refused: on a CPU this runtime casts them back to fp32, so the label would lie.
What really runs is read from the graph the runtime optimised, once, when the artifact is prepared.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, cast

import onnxruntime as ort
from numpy.typing import NDArray

from edgescope import cache, export
from edgescope.backends.base import Artifact, Spec, checked, counted, precision_of, threads_of
from edgescope.backends.onnx_file import onnx_file, refuse
from edgescope.errors import ModelError
from edgescope.models.base import Batch, Model
from edgescope.records import Effective, Json

INTEGER = {"QLinearConv", "QLinearMatMul", "QGemm", "ConvInteger", "MatMulInteger", "MatMulIntegerToFloat"}
FLOATING = {"Conv", "FusedConv", "Gemm", "FusedGemm", "MatMul", "FusedMatMul"}


class OrtSession:
    """One InferenceSession; inputs and outputs are numpy arrays on the host."""

    def __init__(self, session: Any, artifact: Artifact) -> None:
        self.session, self.artifact = session, artifact
        self.run = session.run

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return the outputs in the file's order."""
        return cast(Sequence[NDArray[Any]], self.run(None, batch))

    def effective(self) -> Effective:
        """Return the provider in use and the precision of the heavy operators in the optimised graph."""
        providers = self.session.get_providers()
        ops: Counter[str] = Counter(self.artifact.notes.get("executed_ops", {}))
        kinds = {"int8": sum(ops[o] for o in INTEGER), "fp32": sum(ops[o] for o in FLOATING)}
        kinds = {kind: n for kind, n in kinds.items() if n} or {"fp32": 0}
        threads = (
            self.session.get_session_options().intra_op_num_threads or None
        )  # 0: its own choice, not told
        device = "cpu" if providers[0] == "CPUExecutionProvider" else str(providers[0])
        evidence = f"{providers[0]}; optimised graph: {counted(kinds)} heavy operators"
        return Effective(device, precision_of(kinds), threads, evidence)

    def close(self) -> None:
        """Drop the session; the runtime frees its arena."""
        del self.run, self.session


class OnnxRuntime:
    """onnxruntime: fp32 and int8 on the CPU provider."""

    OPTIONS: ClassVar[dict[str, str]] = {"threads": "intra-op threads (all cores of the affinity mask)"}

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return the ONNX file for the precision and the operators the runtime will execute."""
        checked("onnxruntime", spec, self.OPTIONS)
        threads_of(spec)
        if spec.precision not in ("fp32", "int8"):
            raise refuse("onnxruntime", spec.precision, "its CPU kernels cast 16-bit floats to fp32")
        path = onnx_file(model, spec.precision, folder)
        made, digest = export.about(path), cache.content(path)
        ops = _remembered(path, digest)
        notes = {"executed_ops": ops, "made": made}
        return Artifact(model, spec, path, digest, made.get("build_s"), notes)

    def load(self, artifact: Artifact) -> OrtSession:
        """Return a session with the batch axis fixed."""
        options = _options(artifact.spec)
        return OrtSession(_open(artifact.path, options), artifact)


def _options(spec: Spec) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads_of(spec) or 0
    options.add_free_dimension_override_by_name("N", spec.batch)
    options.log_severity_level = 3
    return options


def _open(path: Path | None, options: Any) -> Any:
    try:
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime's exceptions share no base class
        raise ModelError(
            "E-ONNX-1",
            f"ONNX Runtime cannot load {path}",
            evidence=str(error).splitlines()[0][:300],
            fix=f"python -m onnx.checker {path}",
        ) from error


def _remembered(path: Path, digest: str) -> Json:
    """Return `_executed(path)`, asked of the runtime once per file and version."""
    note = cache.folder("ort") / f"{digest}-{ort.__version__}.json"
    if not note.is_file():
        cache.write_json(note, _executed(path))
    return json.loads(note.read_text())


def _executed(path: Path) -> Json:
    """Return {operator: count} of the graph after the runtime's own optimisation."""
    import onnx

    target = cache.folder("ort") / f"optimised-{os.getpid()}.onnx"
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(target)
    options.log_severity_level = 4
    try:
        _open(path, options)
        graph = onnx.load(str(target), load_external_data=False).graph
        return dict(Counter(node.op_type for node in graph.node))
    finally:
        for leftover in (target, Path(f"{target}.data")):
            leftover.unlink(missing_ok=True)
