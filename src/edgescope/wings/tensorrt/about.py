"""Facts about TensorRT, in process or through trtexec, that need no TensorRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Script, Tried, tried
from edgescope.records import Trial

LINES = """
runner = TrtRunner(EngineFromBytes((HERE / "{file}").read_bytes()))
runner.activate()


def run(batch):
    return list(runner.infer(dict(batch)).values())
"""


class AboutTensorRt(About):
    """tensorrt and trtexec; the available precisions depend on the GPU and the version."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cuda": tried("fp32 tf32 fp16 int8")}
    CAPTURES: ClassVar[bool] = True
    PACKAGES: ClassVar[Sequence[str]] = ("tensorrt",)

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that open the engine; they use no CUDA graph."""
        imports = "from polygraphy.backend.trt import EngineFromBytes, TrtRunner"
        left = ("graph",) if trial.options.get("graph") else ()
        return Script("TensorRT (through polygraphy)", imports, LINES.format(file=file), left)
