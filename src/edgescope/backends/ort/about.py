"""Facts about the two ONNX Runtime backends that need no ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Script, Tried, tried
from edgescope.backends.ort import run_script
from edgescope.errors import UnsupportedError
from edgescope.records import Scalar, Trial

_GRAPH: Mapping[str, Scalar] = {"graph": True}


class AboutOrt(About):
    """onnxruntime."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {
        "cpu": ("fp32", "int8"),
        "cuda": ("fp32", "tf32", "fp16"),
    }
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": tried("fp32 int8"),
        "cuda": (
            *tried("fp32 tf32 fp16", _GRAPH),
            *tried("fp16", {"layout": "channels_last", **_GRAPH}),
        ),
    }
    TRACER: ClassVar[str] = "engine"
    PACKAGES: ClassVar[Sequence[str]] = (
        *("onnxruntime", "onnxruntime-gpu"),
        *("onnxruntime-ep-openvino", "onnxruntime-ep-webgpu", "onnxruntime-ep-nv-tensorrt-rtx"),
    )

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that open the ONNX file on the trial's provider."""
        if trial.options.get("provider"):
            raise UnsupportedError("E-DEPLOY-2", "there is no run.py for a plug-in provider yet")
        return run_script.script(trial, file)


class AboutOrtTensorrt(About):
    """ort_tensorrt."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {"cuda": ("fp32", "tf32", "fp16", "bf16", "int8")}
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cuda": tried("fp32 tf32 fp16 int8")}
    PACKAGES: ClassVar[Sequence[str]] = ("onnxruntime", "onnxruntime-gpu", "tensorrt")

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that open the ONNX file on the TensorRT provider."""
        return run_script.script(trial, file, tensorrt=True)
