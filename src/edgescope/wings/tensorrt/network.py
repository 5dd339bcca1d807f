"""An ONNX file as a TensorRT network: what its parser refuses, by node, and the types that the network computes in.

From 11 on networks are strongly typed: TensorRT keeps the types of the file, so what the heavy layers take in the
parsed network is what their kernels take in the engine. A layer behind a dequantise layer counts as int8.
"""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgescope import cache
from edgescope.errors import UnsupportedError
from edgescope.wings.tensorrt import api_types as types
from edgescope.wings.tensorrt import library
from edgescope.wings.tensorrt.api_types import Log
from edgescope.wings.tensorrt.library import trt

#: Names of trt.LayerType.
HEAVY = ("CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY", "ATTENTION_INPUT", "EINSUM")
PRECISIONS = {"FLOAT": "fp32", "HALF": "fp16", "BF16": "bf16", "FP8": "fp8", "INT8": "int8"}


def parse(network: Any, path: Path, log: Log) -> None:
    """Parse the ONNX file with its external weights; UnsupportedError names the nodes that TensorRT does not know."""
    parser = trt.OnnxParser(network, log)
    if parser.parse_from_file(str(path)):
        return
    errors = [parser.get_error(index) for index in range(parser.num_errors)]
    nodes = _nodes(path)
    complaints = [_complaint(error, nodes) for error in errors[:3]]
    raise UnsupportedError(
        "E-TRT-2",
        f"TensorRT {library.FULL_VERSION} cannot read {complaints[0] if complaints else path.name}",
        evidence="; ".join([*complaints[1:], log.last_errors()])[:400],
        effect=f"{path.name} is {_opset(path)}, and no engine can be built from it",
        fix="--backend onnxruntime, or replace the operator in the model",
    )


def _complaint(error: types.ParserError, nodes: list[tuple[str, str]]) -> str:
    """Return `node /a/b (NonZero): reason`; versions before 8.6 give only the node's number."""
    index = error.node()
    name, kind = nodes[index] if 0 <= index < len(nodes) else ("", "")
    name = str(getattr(error, "node_name", lambda: "")()) or name or f"number {index}"
    kind = str(getattr(error, "node_operator", lambda: "")()) or kind or "operator not named"
    return f"node {name} ({kind}): {' '.join(error.desc().split())[:200]}"


def _nodes(path: Path) -> list[tuple[str, str]]:
    """Return name and operator of every node, or [] if the onnx package is not on this board or cannot read it."""
    model = _read(path)
    return [(node.name, node.op_type) for node in model.graph.node] if model else []


def _opset(path: Path) -> str:
    """Return `opset 13`, from the file's stored facts, else from the file."""
    known = cache.notes(path).get("opset")
    if known is None and (model := _read(path)):
        known = next((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), None)
    return f"opset {known}" if known is not None else "of an unknown opset"


def _read(path: Path) -> Any:
    """Return the file's ModelProto without its external weights; None without the onnx package, or if it is none."""
    if find_spec("onnx") is None:
        return None
    import onnx
    from google.protobuf.message import DecodeError

    try:
        return onnx.load(str(path), load_external_data=False)
    except DecodeError:
        return None


def heavy_types(network: types.Network) -> dict[str, int]:
    """Return {precision: heavy layers}, by the first input of each; {} before 11, where the builder chooses."""
    if library.API < library.STRONGLY_TYPED:
        return {}
    layers: list[Any] = [network.get_layer(index) for index in range(network.num_layers)]
    quantised = {
        layer.get_output(0).name for layer in layers if _kind(layer) == "DEQUANTIZE" and layer.num_outputs
    }
    found: Counter[str] = Counter()
    for layer in layers:
        if _kind(layer) in HEAVY:
            tensor = layer.get_input(0)
            kind = PRECISIONS.get(tensor.dtype.name, tensor.dtype.name.lower())
            found["int8" if tensor.name in quantised else kind] += 1
    return dict(found)


def _kind(layer: Any) -> str:
    return str(layer.type.name)
