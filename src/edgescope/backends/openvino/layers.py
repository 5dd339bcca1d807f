"""The time of every executed node of an OpenVINO graph, from its counters, with FLOPs and bytes by shape."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from edgescope.analysis.predict.layers import Layer
from edgescope.artifacts.onnx_names import ModulePaths

PRECISIONS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8"}
BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}
CONVOLUTIONS = ("Convolution", "GroupConvolution", "Deconvolution")
MATRIX = ("FullyConnected", "MatMul")


def read(compiled: Any, request: Any, inputs: Any, file: Path | None, runs: int) -> list[Layer]:
    """Return the nodes that a request executes, with the median of their times over `runs` inferences."""
    times: dict[str, list[float]] = {}
    for _ in range(runs + 1):
        request.infer(inputs)
        for row in request.get_profiling_info():
            if row.real_time.total_seconds() > 0 or str(row.status).endswith("EXECUTED"):
                times.setdefault(row.node_name, []).append(row.real_time.total_seconds())
    nodes = {node.get_friendly_name(): node for node in compiled.get_runtime_model().get_ordered_ops()}
    paths = ModulePaths(file) if file is not None else None
    return [
        _layer(nodes[name], name, statistics.median(seen[1:] or seen), paths)
        for name, seen in times.items()
        if name in nodes
    ]


def _layer(node: Any, name: str, seconds: float, paths: ModulePaths | None) -> Layer:
    info = {
        key: _text(node.get_rt_info(), key)
        for key in ("layerType", "runtimePrecision", "originalLayersNames")
    }
    kind, precision = info["layerType"], PRECISIONS.get(info["runtimePrecision"], "fp32")
    first = info["originalLayersNames"].partition(",")[0] or name
    given = [_shape(port) for port in node.inputs()]
    made = [_shape(port) for port in node.outputs()]
    width = BYTES.get(precision, 4)
    return Layer(
        paths.of(first) if paths else first,
        kind,
        seconds,
        _flops(kind, given, made),
        width * sum(prod(shape) for shape in (*given, *made)),
        precision,
        kind == "GroupConvolution" and len(given) > 1 and len(given[1]) > 2 and given[1][2] == 1,
    )


def _shape(port: Any) -> list[int]:
    shape = port.get_partial_shape()
    return list(shape.to_shape()) if shape.is_static else [0]


def _flops(kind: str, given: list[list[int]], made: list[list[int]]) -> int:
    if not made or len(given) < 2 or not given[1]:
        return 0
    if kind in CONVOLUTIONS:
        weights = given[1][2:] if kind == "GroupConvolution" else given[1][1:]
        return 2 * prod(made[0]) * prod(weights)
    if kind in MATRIX and given[0]:
        return 2 * prod(made[0]) * given[0][-1]
    return 0


def _text(info: Mapping[str, Any], key: str) -> str:
    value = info[key] if key in info else ""  # noqa: SIM401  (an RTMap has no get)
    return str(getattr(value, "value", value))
