"""The time of every executed node of an OpenVINO graph, from its counters; its work is that of the file's nodes."""

from __future__ import annotations

import statistics
from math import prod
from typing import Any

from edgescope.analysis.predict.layers import Layer
from edgescope.artifacts.onnx_names import ModulePaths

PRECISIONS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8"}
WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2, "int8": 1}


def read(compiled: Any, request: Any, inputs: Any, paths: ModulePaths, runs: int) -> list[Layer]:
    """Return the nodes that a request executes, with the median of their times over `runs` inferences."""
    times: dict[str, list[float]] = {}
    for _ in range(runs + 1):
        request.infer(inputs)
        for row in request.get_profiling_info():
            if str(row.status).endswith("EXECUTED"):
                times.setdefault(row.node_name, []).append(row.real_time.total_seconds())
    nodes = {node.get_friendly_name(): node for node in compiled.get_runtime_model().get_ordered_ops()}
    return [
        _layer(nodes[name], name, statistics.median(seen[1:] or seen), paths)
        for name, seen in times.items()
        if name in nodes
    ]


def _layer(node: Any, name: str, seconds: float, paths: ModulePaths) -> Layer:
    info = node.get_rt_info()
    precision = PRECISIONS.get(_text(info, "runtimePrecision"), "fp32")
    names = [part for part in _text(info, "originalLayersNames").split(",") if part] or [name]
    parts = list(dict.fromkeys(paths.of(part) for part in names))  # a node may stand there twice
    first = next((part for part in parts if part.flops), parts[0])
    moved = sum(prod(_shape(port)) for port in (*node.inputs(), *node.outputs()))
    return Layer(
        first.path,
        _text(info, "layerType"),
        seconds,
        sum(part.flops for part in parts),
        WIDTHS.get(precision, 4) * moved,
        precision,
        first.depthwise,
    )


def _shape(port: Any) -> list[int]:
    shape = port.get_partial_shape()
    return list(shape.to_shape()) if shape.is_static else [0]


def _text(info: Any, key: str) -> str:
    value = info[key] if key in info else ""  # noqa: SIM401  (an RTMap has no get)
    return str(getattr(value, "value", value))
