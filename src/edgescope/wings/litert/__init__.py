"""LiteRT, formerly TensorFlow Lite, as an engine: here the facts that need no LiteRT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from edgescope.backends.base import About, Script, Tried, tried
from edgescope.records import Trial

LINES = """
interpreter = Interpreter(str(HERE / "{file}"), num_threads={threads} or len(os.sched_getaffinity(0)))
interpreter.allocate_tensors()
slots = [d["index"] for d in interpreter.get_input_details()]


def run(batch):
    for slot, name in zip(slots, INPUTS):
        interpreter.set_tensor(slot, batch[name])
    interpreter.invoke()
    return [interpreter.get_tensor(d["index"]) for d in interpreter.get_output_details()]
"""


class AboutLiteRt(About):
    """litert."""

    PRECISIONS: ClassVar[Mapping[str, Sequence[str]]] = {"cpu": ("fp32", "fp16", "int8")}
    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cpu": tried("fp32 int8")}
    READS: ClassVar[frozenset[str]] = frozenset({"network", "tflite"})
    PACKAGES: ClassVar[Sequence[str]] = ("ai-edge-litert",)

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that open the .tflite file."""
        lines = LINES.format(file=file, threads=trial.options.get("threads") or 0)
        return Script("LiteRT", "from ai_edge_litert.interpreter import Interpreter", lines)
