"""What TensorRT takes of files that are quantised already: signed int8 with every zero point 0.

It reads the zero points of uint8 as if they were those of int8: TensorRT-RTX takes uint8 with zero point 0, which NNCF
writes by default, for int8 and cuts off everything above 127, without a word.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from edgescope.artifacts.for_precision import as_written, int8_options
from edgescope.backends.base import Spec
from edgescope.errors import UnsupportedError
from edgescope.models.base import Model, written
from edgescope.registry import need

FIX = "pip install 'edgescope[onnx]'"


def for_tensorrt(model: Model, spec: Spec, folder: Path) -> Spec:
    """Return the spec with `as_is` resolved; UnsupportedError for a quantised file that TensorRT would misread."""
    if written(model):
        _refuse(model.onnx(folder))
    return replace(spec, precision=as_written(model, spec.precision))


def _refuse(path: Path) -> None:
    found: str = need("edgescope.models.user.onnx_precision:asymmetric", "the ONNX reader", FIX)(path)
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
