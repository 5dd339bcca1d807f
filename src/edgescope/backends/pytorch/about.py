"""Facts about the three PyTorch backends that need no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Script, Tried, tried
from edgescope.backends.pytorch import run_script
from edgescope.records import Scalar, Trial

_LAST: Mapping[str, Scalar] = {"layout": "channels_last"}
_GRAPH: Mapping[str, Scalar] = {"graph": True}
#: Fold batch norms and use cuDNN's fused convolutions.
_FOLD: Mapping[str, Scalar] = {**_LAST, **_GRAPH, "fold": True}
#: Inductor times its kernels for minutes at the first start.
_TUNED: Mapping[str, Scalar] = {"tune": "max-autotune"}


class AboutEager(About):
    """torch_eager."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {
        "cpu": ("fp32", "bf16"),
        "cuda": ("fp32", "tf32", "fp16", "bf16"),
    }
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": (*tried("fp32"), *tried("fp32 bf16", _LAST)),
        "cuda": (*tried("fp32"), *tried("fp32 fp16", _GRAPH), *tried("tf32 fp16", _FOLD)),
    }
    READS: ClassVar[frozenset[str]] = frozenset({"network"})
    BUILDS: ClassVar[bool] = False
    BASELINE: ClassVar[bool] = True
    COMPILES: ClassVar[bool] = False
    TRAINS: ClassVar[bool] = True
    TRACER: ClassVar[str] = "kineto"
    PACKAGES: ClassVar[Sequence[str]] = ("torch",)

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that load the exported program and call it."""
        return run_script.script(trial, file, "import torch")


class AboutCompile(AboutEager):
    """torch_compile."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {
        "cpu": tried("fp32 bf16", _LAST, {**_LAST, **_TUNED}),
        "cuda": (
            *tried("fp32 tf32 fp16", {**_LAST, **_GRAPH}),
            *tried("tf32 fp16", {**_LAST, **_GRAPH, **_TUNED}),
        ),
    }
    BASELINE: ClassVar[bool] = False
    COMPILES: ClassVar[bool] = True
    SLOW_OPTIONS: ClassVar[Mapping[str, Scalar]] = _TUNED
    SLOW_START: ClassVar[bool] = True

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that load the exported program, compile it and call it."""
        return run_script.script(trial, file, "import torch\nimport torch._inductor.config", compiled=True)


class AboutTensorrt(About):
    """torch_tensorrt."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cuda": tried("fp32 tf32 fp16")}
    SLOW_START: ClassVar[bool] = True
    READS: ClassVar[frozenset[str]] = frozenset({"network"})
    PACKAGES: ClassVar[Sequence[str]] = ("torch", "torch-tensorrt", "tensorrt")

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that load the compiled program and call it."""
        imports = "import torch\nimport torch_tensorrt"
        return run_script.without_graph(trial, file, imports, "PyTorch with Torch-TensorRT")
