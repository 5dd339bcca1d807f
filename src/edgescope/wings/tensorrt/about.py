"""What the backends of TensorRT share and that needs no TensorRT: facts about it, what it takes, and a trial's options.

Of files that are quantised already it takes signed int8 with every zero point 0. It reads the zero points of uint8 as
if they were those of int8: TensorRT-RTX takes uint8 with zero point 0, which NNCF writes by default, for int8 and cuts
off everything above 127, without a word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from edgescope.artifacts.for_precision import as_written, int8_options, refuse
from edgescope.backends.base import About, Script, Spec, Tried, tried
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models.base import Model, written
from edgescope.records import Trial
from edgescope.registry import need
from edgescope.wings.tensorrt import run_lines


class AboutTensorRt(About):
    """tensorrt and trtexec; the available precisions depend on the GPU and the version."""

    CANDIDATES: ClassVar[Mapping[str, Sequence[Tried]]] = {"cuda": tried("fp32 tf32 fp16 int8")}
    CAPTURES: ClassVar[bool] = True
    PACKAGES: ClassVar[Sequence[str]] = ("tensorrt", "tensorrt-rtx-cu13")

    @staticmethod
    def run_script(trial: Trial, file: str) -> Script:
        """Return the lines that open the engine; they use no CUDA graph."""
        left = ("graph",) if trial.options.get("graph") else ()
        text = run_lines.lines(file, trial.precision, trial.options.get("dla"))
        return Script(
            "TensorRT (the full one or TensorRT-RTX) and the CUDA runtime", run_lines.IMPORTS, text, left
        )


#: First compute capability whose tensor cores take them (Ampere, Orin).
LEAST = {"tf32": (8, 0), "bf16": (8, 0)}
#: Compute capabilities of boards that have no fast int8 (Nano, TX1, TX2): support matrices of TensorRT 8.2 and 8.5.
WITHOUT_INT8 = ("5.3", "6.2")


def require(engine: str, precision: str, capability: str, board: str) -> None:
    """Raise UnsupportedError E-PREC-1 if a GPU of this compute capability does not compute in the precision.

    TensorRT accepts the flag anyway and runs fp32, and its layers look the same.
    """
    least = LEAST.get(precision)
    if least is None or not capability or tuple(int(part) for part in capability.split(".")) >= least:
        return
    why = f"{precision} begins at compute capability {least[0]}.{least[1]}, this GPU has {capability}"
    raise refuse(engine, precision, why, where=board or "this GPU")


def require_unasked(engine: str, precision: str, capability: str, board: str) -> None:
    """Raise as `require`, for an engine whose library cannot be asked which precisions the GPU is fast in."""
    if precision == "int8" and capability in WITHOUT_INT8:
        why = f"a GPU of compute capability {capability} has no fast int8"
        raise refuse(engine, precision, why, where=board or "this GPU", fix="--precision fp16")
    require(engine, precision, capability, board)


def for_tensorrt(model: Model, spec: Spec, folder: Path) -> Spec:
    """Return the spec with `as_is` resolved; UnsupportedError for a quantised file that TensorRT would misread."""
    if written(model):
        _refuse(model.onnx(folder))
    return replace(spec, precision=as_written(model, spec.precision))


def _refuse(path: Path) -> None:
    reader = "edgescope.models.user.onnx_reader:asymmetric"
    found: str = need(reader, "the ONNX reader", "pip install 'edgescope[onnx]'")(path)
    if found:
        raise UnsupportedError(
            "E-QDQ-1",
            f"{path.name} is quantised in a form that TensorRT misreads",
            evidence=found,
            effect="Activations would be cut off at 127, or the parser would refuse it",
            fix="--backend onnxruntime or openvino; or quantise it again with int8 activations and zero point 0",
        )


def int8_recipe(model: Model, spec: Spec) -> dict[str, Any]:
    """Return how an int8 file for TensorRT is made, as onnx_file() takes it; nothing is made of a quantised one."""
    usual = {} if written(model) else {"qdq": "s8s8"}
    return usual | int8_options(spec.options, spec.precision)


def whole(spec: Spec, name: str, least: int) -> int | None:
    """Return a whole number among the options, None if it is not given; UsageError if it is none or below `least`."""
    value = spec.options.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise UsageError("E-OPT-2", f"{name} must be a whole number of at least {least}, not {value!r}")
    return value


def switch(spec: Spec, name: str, usual: bool = False) -> bool:
    """Return an option that is on or off; UsageError if it is neither."""
    value = spec.options.get(name, usual)
    if not isinstance(value, bool):
        raise UsageError("E-OPT-2", f"{name} must be true or false, not {value!r}")
    return value
