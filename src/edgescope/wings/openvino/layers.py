"""The time of every executed node of an OpenVINO graph, from its counters; its work is that of the file's nodes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from math import prod
from typing import Any

from edgescope.analysis.layers import Layer
from edgescope.artifacts.onnx_names import ModulePaths
from edgescope.wings.openvino import counters, precision

ROUNDS = 5
"""Times the graph is compiled anew: the counters are means since then, so only that gives several times."""


def read(compiled: Callable[[], Any], inputs: Any, paths: ModulePaths, runs: int) -> list[Layer]:
    """Return the nodes that a request executes, with the median of ROUNDS times, each the mean of `runs` inferences.

    `compiled` compiles the graph anew, with counters.
    """
    times: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        graph = compiled()
        for name, seconds in counters.times(graph.create_infer_request(), inputs, runs).items():
            times.setdefault(name, []).append(seconds)
    nodes = {node.get_friendly_name(): node for node in graph.get_runtime_model().get_ordered_ops()}
    return [_layer(nodes[name], name, seen, paths) for name, seen in times.items() if name in nodes]


def _layer(node: Any, name: str, seen: list[float], paths: ModulePaths) -> Layer:
    info = node.get_rt_info()
    names = [part for part in precision.text(info, "originalLayersNames").split(",") if part] or [name]
    parts = list(dict.fromkeys(paths.of(part) for part in names))  # a node may stand there twice
    first = next((part for part in parts if part.flops), parts[0])
    moved = sum(prod(_shape(port)) * _width(port) for port in (*node.inputs(), *node.outputs()))
    return Layer(
        first.path,
        precision.text(info, "layerType"),
        statistics.median(seen),
        flops=sum(part.flops for part in parts),
        bytes=round(moved),
        precision=precision.of(info),
        grouped=first.depthwise,
        times=tuple(seen),
    )


def _shape(port: Any) -> list[int]:
    shape = port.get_partial_shape()
    return list(shape.to_shape()) if shape.is_static else [0]


def _width(port: Any) -> float:
    return float(port.get_element_type().bitwidth) / 8
