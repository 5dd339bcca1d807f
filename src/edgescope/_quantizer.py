"""The half of quantize.py that needs onnx and onnxruntime: find ranges, round, correct the biases."""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import numpy_helper
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from edgescope import cache
from edgescope.errors import UnsupportedError
from edgescope.models.base import Samples
from edgescope.records import Json

CPU = "CPUExecutionProvider"
WEIGHTED = ("Conv", "Gemm")


def quantize(source: Path, calibration: Samples, path: Path, *, keep_float: int) -> dict[str, Json]:
    """Write the int8 file to `path`, whole or not at all, and return how it was made."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch, cache.writing(path) as temporary:
        prepared = Path(scratch) / "prepared.onnx"
        try:
            with _quiet():
                quant_pre_process(str(source), str(prepared), skip_symbolic_shape=True)
                _give_biases(prepared)
                kept = _first_convolutions(prepared, keep_float)
                _round(prepared, temporary, calibration, kept)
                corrected = correct_biases(prepared, temporary, calibration)
        except Exception as error:
            raise UnsupportedError(
                "E-INT8-3",
                "this network cannot be quantised to int8",
                evidence=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
                fix="another precision, or give an .onnx file that holds QDQ pairs already",
            ) from error
        seconds = time.perf_counter() - begin
        size = temporary.stat().st_size
    return {
        "build_s": round(seconds, 3),
        "bytes": size,
        "sha256": cache.content(path),
        "kept_float": kept,
        "biases_corrected": corrected,
    }


class _Reader(quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime carries no types
    """Hands calibration inputs to onnxruntime one by one."""

    def __init__(self, samples: Samples) -> None:
        self._rows = _rows(samples)

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self._rows, None)


def _rows(samples: Samples) -> Iterator[dict[str, NDArray[Any]]]:
    for i in range(len(samples)):
        yield {name: np.ascontiguousarray(array[i : i + 1]) for name, array in samples.arrays.items()}


def _give_biases(path: Path) -> None:
    """Give every convolution a bias, 0 where it had none, so that there is one to correct afterwards."""
    model = onnx.load(str(path))
    known = {tensor.name: tensor.dims for tensor in model.graph.initializer}
    for index, node in enumerate(model.graph.node):
        if node.op_type == "Conv" and len(node.input) == 2 and node.input[1] in known:
            name = f"edgescope_bias_{index}"
            zeros = np.zeros(known[node.input[1]][0], dtype=np.float32)
            model.graph.initializer.append(numpy_helper.from_array(zeros, name))
            node.input.append(name)
    onnx.save(model, str(path))


def _first_convolutions(path: Path, count: int) -> list[str]:
    """Return the names of the first `count` convolutions, when there are others after them."""
    names = [node.name for node in onnx.load(str(path)).graph.node if node.op_type == "Conv"]
    return names[:count] if len(names) > 2 * count else []


def _round(source: Path, target: Path, calibration: Samples, kept: list[str]) -> None:
    quantization.quantize_static(
        str(source),
        str(target),
        _Reader(calibration),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QUInt8,
        weight_type=quantization.QuantType.QInt8,
        calibrate_method=quantization.CalibrationMethod.MinMax,
        nodes_to_exclude=kept,
    )


def correct_biases(source: Path, target: Path, calibration: Samples) -> int:
    """Take the mean error of rounded weights out of the biases of `target`; return how many changed.

    The error in output channel o is the sum over inputs of (rounded - exact weight) x mean input, the
    means those of the fp32 network on the calibration inputs.
    """
    exact, rounded = onnx.load(str(source)), onnx.load(str(target))
    nodes = {node.name: node for node in exact.graph.node if node.op_type in WEIGHTED}
    means = _input_means(exact, sorted({node.input[0] for node in nodes.values()}), calibration)
    weights, values = _tensors(exact), {tensor.name: tensor for tensor in rounded.graph.initializer}
    producers = {output: node for node in rounded.graph.node for output in node.output}
    count = 0
    for node in rounded.graph.node:
        twin = nodes.get(node.name)
        dequantise = producers.get(node.input[1]) if twin else None
        if twin is None or dequantise is None or len(node.input) < 3 or twin.input[1] not in weights:
            continue
        exact_weight = weights[twin.input[1]]
        error = _dequantised(dequantise, values, exact_weight, node) - exact_weight
        shift = _mean_shift(error, means[twin.input[0]], node)
        count += _move_bias(node.input[2], shift, values, producers)
    onnx.save(rounded, str(target))
    return count


def _input_means(graph: Any, names: list[str], calibration: Samples) -> dict[str, NDArray[np.float64]]:
    """Return the mean over inputs and positions of each named tensor, per channel (axis 1)."""
    given = {tensor.name for tensor in graph.graph.input}
    extended = onnx.ModelProto()
    extended.CopyFrom(graph)
    del extended.graph.output[:]
    inner = [name for name in names if name not in given]
    extended.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in inner)
    session = onnxruntime.InferenceSession(extended.SerializeToString(), providers=[CPU])
    sums: dict[str, Any] = dict.fromkeys(names, 0.0)
    for row in _rows(calibration):
        found = dict(zip(inner, session.run(inner, row), strict=True)) | row
        for name in names:
            array = found[name].astype(np.float64)
            sums[name] = sums[name] + array.mean(axis=tuple(i for i in range(array.ndim) if i != 1))
    return {name: total / len(calibration) for name, total in sums.items()}


def _tensors(graph: Any) -> dict[str, NDArray[np.float64]]:
    wanted = {node.input[1] for node in graph.graph.node if node.op_type in WEIGHTED}
    return {
        tensor.name: numpy_helper.to_array(tensor).astype(np.float64)
        for tensor in graph.graph.initializer
        if tensor.name in wanted
    }


def _dequantised(node: Any, values: dict[str, Any], like: NDArray[Any], user: Any) -> NDArray[np.float64]:
    """Return the weight that a DequantizeLinear node yields; per-channel along its own axis attribute."""
    integers, scale, zero = (numpy_helper.to_array(values[name]).astype(np.float64) for name in node.input)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    shape = [1] * like.ndim
    if scale.ndim and scale.size > 1:
        shape[axis] = scale.size
    return np.asarray(
        (integers - zero.reshape(shape if zero.size > 1 else [1] * like.ndim)) * scale.reshape(shape)
    )


def _mean_shift(error: NDArray[Any], mean: NDArray[Any], node: Any) -> NDArray[np.float64]:
    """Return the mean change of each output channel that a weight error causes, given the mean input."""
    attributes = {a.name: a.i for a in node.attribute}
    if node.op_type == "Gemm":
        return np.asarray((error if attributes.get("transB") else error.T) @ mean)
    groups = attributes.get("group", 1)
    per_tap = error.reshape(*error.shape[:2], -1).sum(axis=2)
    own = np.repeat(mean.reshape(groups, -1), len(error) // groups, axis=0)
    return np.asarray((per_tap * own).sum(axis=1))


def _move_bias(name: str, shift: NDArray[Any], values: dict[str, Any], producers: dict[str, Any]) -> bool:
    """Subtract `shift` from a bias, kept as float or as int32 with a scale; False where it is neither."""
    if name in values:
        moved = numpy_helper.to_array(values[name]) - shift
        values[name].CopyFrom(numpy_helper.from_array(moved.astype(np.float32), name))
        return True
    node = producers.get(name)
    if node is None or node.op_type != "DequantizeLinear":
        return False
    tensor, scale = values[node.input[0]], numpy_helper.to_array(values[node.input[1]]).astype(np.float64)
    limits = np.iinfo(np.int32)
    moved = np.clip(np.round(numpy_helper.to_array(tensor) - shift / scale), limits.min + 1, limits.max)
    tensor.CopyFrom(numpy_helper.from_array(moved.astype(np.int32), tensor.name))
    return True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the quantiser's advice, which this module already follows, off the terminal."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(level)
