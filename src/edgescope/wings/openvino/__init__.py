"""OpenVINO as an engine: here the facts that need no OpenVINO.

OpenVINO reports nothing: its package tells its maker of every import, through a thread that starts a process. Both
would run in the process that is measured. Without the package that does it, OpenVINO has nothing to tell with.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Script, Tried, tried
from edgescope.records import Trial

sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]

#: Precision -> the plugins' name for it; int8 is in the file.
HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16", "int8": "f32", "as_is": "f32"}
LINES = """
core = ov.Core()
graph = core.read_model(HERE / "{file}")
graph.reshape({{name: [BATCH, *shape] for name, shape in INPUTS.items()}})  # an open size would cost speed
settings = {settings}
request = core.compile_model(graph, "{name}", settings).create_infer_request()


def run(batch):
    return list(request.infer(batch, share_inputs=True).values())
"""


class AboutOpenVino(About):
    """openvino."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {
        "cpu": ("fp32", "bf16", "int8"),
        "intel_gpu": ("fp32", "fp16", "int8"),
        "intel_npu": ("fp16", "int8"),
    }
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": (*tried("fp32 bf16 int8"), *tried("int8", {"qdq": "s8s8"})),
        "intel_gpu": tried("fp32 fp16 int8"),
        "intel_npu": tried("fp16 int8"),
    }
    TRACER: ClassVar[str] = "engine"
    PACKAGES: ClassVar[Sequence[str]] = ("openvino",)

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that compile the ONNX file for the trial's place."""
        settings = {
            "INFERENCE_PRECISION_HINT": HINTS.get(trial.precision, "f32"),
            "NUM_STREAMS": str(trial.options.get("streams", 1)),
        }
        if "threads" in trial.options:
            settings["INFERENCE_NUM_THREADS"] = str(trial.options["threads"])
        lines = LINES.format(file=file, settings=settings, name=trial.place.called("openvino"))
        return Script("OpenVINO", "import openvino as ov", lines)
