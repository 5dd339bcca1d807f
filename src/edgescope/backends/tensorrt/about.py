"""What is known of TensorRT without TensorRT, in process or through trtexec."""

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
    """tensorrt and trtexec; which precisions there are is the GPU's and the version's to say."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cuda": tried("fp32 tf32 fp16 int8")}
    PACKAGES: ClassVar[Sequence[str]] = ("tensorrt",)

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that open the engine; they do without a graph."""
        imports = "from polygraphy.backend.trt import EngineFromBytes, TrtRunner"
        left = ("graph",) if trial.options.get("graph") else ()
        return Script("TensorRT (through polygraphy)", imports, LINES.format(file=file), left)
