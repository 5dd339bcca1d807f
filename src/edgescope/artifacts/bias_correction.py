"""Bias correction: subtract from each bias the mean error that rounding the weights adds to its output channel.

Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, ICCV 2019, arXiv 1906.04721;
here with the means measured on calibration inputs. It changes numbers only, never the graph, so it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from edgescope.artifacts import onnx_write
from edgescope.models.base import Samples

WEIGHTED = ("Conv", "Gemm")
Means = Mapping[str, NDArray[np.float64]]


def correct(exact: Any, rounded: Any, means: Means) -> int:
    """Subtract the mean error of rounded weights from the biases of `rounded`; return how many changed.

    Both are onnx.ModelProto. The error in output channel o is the sum over inputs of (rounded - exact weight) x
    mean input, the means those of the fp32 network `exact` on the calibration inputs.
    """
    nodes = weighted(exact)
    weights, values = _tensors(exact), {tensor.name: tensor for tensor in rounded.graph.initializer}
    producers = {output: node for node in rounded.graph.node for output in node.output}
    count = 0
    for node in rounded.graph.node:
        twin = nodes.get(node.name)
        dequantise = producers.get(node.input[1]) if twin else None
        if twin is None or dequantise is None or len(node.input) < 3 or twin.input[1] not in weights:
            continue
        exact_weight = weights[twin.input[1]]
        error = _dequantised(dequantise, values, producers, exact_weight) - exact_weight
        shift = _mean_shift(error, means[twin.input[0]], node)
        count += _move_bias(node.input[2], shift, values, producers)
    return count


def weighted(model: Any) -> dict[str, Any]:
    """Return the nodes with weights by name."""
    return {node.name: node for node in model.graph.node if node.op_type in WEIGHTED}


def input_means(path: Path, calibration: Samples) -> Means:
    """Return the mean input of each node with weights, over samples and positions, per channel (axis 1)."""
    model = onnx_write.unweighted(path)
    names = sorted({node.input[0] for node in weighted(model).values()})
    sums: dict[str, Any] = dict.fromkeys(names, 0.0)
    for found in tapped(path, names, calibration):
        for name in names:
            array = found[name].astype(np.float64)
            sums[name] = sums[name] + array.mean(axis=tuple(i for i in range(array.ndim) if i != 1))
    return {name: total / len(calibration) for name, total in sums.items()}


def tapped(path: Path, names: Sequence[str], inputs: Samples) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield, for each sample in turn, the named tensors of the ONNX file, including its inputs and outputs."""
    model = onnx_write.unweighted(path)
    known = {value.name for value in (*model.graph.input, *model.graph.output)}
    fed = {value.name for value in model.graph.input}
    extra = [name for name in dict.fromkeys(names) if name not in known]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in extra)
    probe = path.with_name(f"tapped-{path.name}")  # next to it, because its weights may be in that folder
    onnx.save(model, str(probe))
    session = onnx_write.session(probe)
    wanted = [name for name in dict.fromkeys(names) if name not in fed]
    for row in rows(inputs):
        answers = session.run(wanted, row) if wanted else []  # asked for nothing, it returns every output
        yield dict(zip(wanted, answers, strict=True)) | row
    probe.unlink()


def rows(samples: Samples) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield one batch of one per sample."""
    for i in range(len(samples)):
        yield {name: np.ascontiguousarray(array[i : i + 1]) for name, array in samples.arrays.items()}


def _tensors(graph: Any) -> dict[str, NDArray[np.float64]]:
    wanted = {node.input[1] for node in graph.graph.node if node.op_type in WEIGHTED}
    return {
        tensor.name: numpy_helper.to_array(tensor).astype(np.float64)
        for tensor in graph.graph.initializer
        if tensor.name in wanted
    }


def _dequantised(
    node: Any, values: dict[str, Any], producers: dict[str, Any], exact: NDArray[Any]
) -> NDArray[np.float64]:
    """Return the weight that a DequantizeLinear node yields, from stored integers or from a float behind a Q node."""
    scale, zero = (numpy_helper.to_array(values[name]).astype(np.float64) for name in node.input[1:3])
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    shape = [1] * exact.ndim
    if scale.ndim and scale.size > 1:
        shape[axis] = scale.size
    step, shift = scale.reshape(shape), zero.reshape(shape if zero.size > 1 else [1] * exact.ndim)
    quantise = producers.get(node.input[0])
    if quantise is None:
        return np.asarray((numpy_helper.to_array(values[node.input[0]]).astype(np.float64) - shift) * step)
    given = numpy_helper.to_array(values[quantise.input[0]]).astype(np.float64)
    limits = np.iinfo(numpy_helper.to_array(values[quantise.input[2]]).dtype)
    return np.asarray((np.clip(np.round(given / step) + shift, limits.min, limits.max) - shift) * step)


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
    """Subtract `shift` from a bias, stored as float or as int32 with a scale; return False if it is neither."""
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
