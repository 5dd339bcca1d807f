"""int8 by NVIDIA Model Optimizer (nvidia-modelopt, Apache-2.0), instead of onnxruntime's quantiser.

Its ONNX path places Q/DQ pairs where TensorRT fuses them. The settings are int8 with ranges by maximum, found on the
CPU, and fp32 wherever it does not quantise; its file is then checked to be in the form that TensorRT reads. Version
0.47 writes opset 19 even if an earlier one is requested, so its files need TensorRT 10 or later.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import onnx
from modelopt.onnx import quantization
from onnx import numpy_helper

from edgescope.artifacts import int8_onnxruntime, onnx_write
from edgescope.artifacts.onnx_export import size_of
from edgescope.cache import external_data
from edgescope.errors import UnsupportedError
from edgescope.models.base import Samples
from edgescope.records import Json


def quantize(
    source: Path, calibration: Samples, path: Path, *, keep_float: int, qdq: str = "s8s8"
) -> dict[str, Json]:
    """Write the int8 file to `path` and return how it was made; UnsupportedError if it cannot be made.

    `keep_float` is left to the tool, which knows which layers TensorRT runs in int8; `qdq` is always s8s8.
    """
    begin = time.perf_counter()
    with int8_onnxruntime.refusing("nvidia-modelopt"):
        quantization.quantize(
            onnx_path=str(source),
            quantize_mode="int8",
            calibration_data={name: array[:] for name, array in calibration.arrays.items()},
            calibration_method="max",
            calibration_eps=["cpu"],
            high_precision_dtype="fp32",
            opset=int8_onnxruntime.opset_of(onnx_write.unweighted(source)),
            use_external_data_format=external_data(source).exists(),
            output_path=str(path),
            log_level="ERROR",
        )
        model = onnx.load(str(path))
        _check(model)
    pairs = sum(node.op_type == "QuantizeLinear" for node in model.graph.node)
    return {
        "build_s": round(time.perf_counter() - begin, 3),
        "method": "static QDQ by NVIDIA Model Optimizer, symmetric int8, ranges by maximum",
        "pairs": pairs,
        "opset": int8_onnxruntime.opset_of(model),
        **size_of(path),
    }


def _check(model: Any) -> None:
    """Raise UnsupportedError if nothing was quantised or a zero point is not 0, which TensorRT refuses."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = [node for node in model.graph.node if node.op_type == "QuantizeLinear"]
    points = [stored[node.input[2]] for node in nodes if len(node.input) > 2 and node.input[2] in stored]
    if not nodes or any(numpy_helper.to_array(point).any() for point in points):
        raise UnsupportedError(
            "E-INT8-3",
            "NVIDIA Model Optimizer wrote no int8 file that TensorRT reads",
            evidence="no QuantizeLinear in it" if not nodes else "a zero point is not 0",
            fix="--option quantizer=onnxruntime",
        )
