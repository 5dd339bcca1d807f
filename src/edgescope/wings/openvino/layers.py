"""The time of every executed node of an OpenVINO graph and what it computes in; its work is that of the file's nodes.

A counter's `real_time` is the mean over every inference since the model was compiled, in whole microseconds and over
all requests. The first inference, which lays out memory, stays in it for ever. Two readings tell what lies between:
(n * mean after n - w * mean after w) / (n - w).

`runtimePrecision` is the type of a node's first tensor: an int8 tensor may go into a kernel of fp32, and 16-bit
quantisation is dropped when the graph is compiled. The last part of `primitiveType` (`brgconv_avx512_f32`) is what the
kernel multiplies.
"""

from __future__ import annotations

import csv
import statistics
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from edgescope.analysis.layers import Layer
from edgescope.artifacts.onnx_names import ModulePaths

KERNELS = {"f32": "fp32", "bf16": "bf16", "f16": "fp16", "i8": "int8", "u8": "int8"}
WEIGHTS = {"i4": "int4", "u4": "int4", "nf4": "int4", "f4e2m1": "fp4", "u2": "int2"}
"""Types that weights have in memory alone: the kernel, named after the type of its products, unpacks them."""


WARM = 2
"""Inferences before the first reading."""


ROUNDS = 5
"""Times the graph is compiled anew: the counters are means since then, so only that gives several times."""


def read(compiled: Callable[[], Any], inputs: Any, paths: ModulePaths, runs: int) -> list[Layer]:
    """Return the nodes that a request executes, with the median of ROUNDS times, each the mean of `runs` inferences.

    `compiled` compiles the graph anew, with counters.
    """
    times: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        graph = compiled()
        for name, seconds in means(graph.create_infer_request(), inputs, runs).items():
            times.setdefault(name, []).append(seconds)
    nodes = {node.get_friendly_name(): node for node in graph.get_runtime_model().get_ordered_ops()}
    return [_layer(nodes[name], name, seen, paths) for name, seen in times.items() if name in nodes]


def _layer(node: Any, name: str, seen: list[float], paths: ModulePaths) -> Layer:
    info = node.get_rt_info()
    names = [part for part in text(info, "originalLayersNames").split(",") if part] or [name]
    parts = list(dict.fromkeys(paths.of(part) for part in names))  # a node may stand there twice
    first = next((part for part in parts if part.flops), parts[0])
    moved = sum(prod(_shape(port)) * _width(port) for port in (*node.inputs(), *node.outputs()))
    return Layer(
        first.path,
        text(info, "layerType"),
        statistics.median(seen),
        flops=sum(part.flops for part in parts),
        bytes=round(moved),
        precision=precision_of(info),
        grouped=first.depthwise,
        times=tuple(seen),
    )


def _shape(port: Any) -> list[int]:
    shape = port.get_partial_shape()
    return list(shape.to_shape()) if shape.is_static else [0]


def _width(port: Any) -> float:
    return float(port.get_element_type().bitwidth) / 8


def precision_of(info: Any) -> str:
    """Return the precision of a node, by the information that the runtime model holds about it."""
    if (packed := WEIGHTS.get(text(info, "runtimePrecision"))) and text(
        info, "layerType"
    ) == "FullyConnected":
        return packed
    kernel = text(info, "primitiveType").rpartition("_")[2].lower()
    return KERNELS.get(kernel, kernel or "unknown")


def text(info: Any, key: str) -> str:
    """Return one entry of a node's information as text, '' if it has none."""
    value = info[key] if key in info else ""  # noqa: SIM401  (an RTMap has no get)
    return str(getattr(value, "value", value))


def executed(rows: Sequence[Any]) -> dict[str, float]:
    """Return the mean time in seconds of every executed node in a request's profile."""
    return {r.node_name: r.real_time.total_seconds() for r in rows if str(r.status).endswith("EXECUTED")}


def between(before: Mapping[str, float], w: int, after: Mapping[str, float], n: int) -> dict[str, float]:
    """Return each node's mean over the inferences after the w-th up to the n-th; never below 0 (means are rounded)."""
    return {name: max(0.0, (n * mean - w * before.get(name, 0.0)) / (n - w)) for name, mean in after.items()}


class Profile:
    """The counters of a session: what its first WARM inferences left in the means is taken out of them."""

    def __init__(self) -> None:
        self.n, self.warm = 0, dict[str, float]()

    def note(self, request: Any) -> None:
        """Count an inference that has just ended; after the WARM-th read the means."""
        self.n += 1
        if self.n == WARM:
            self.warm = executed(request.get_profiling_info())

    def write(self, request: Any, path: Path) -> None:
        """Write each layer's mean time over the inferences after the first ones, in benchmark_app's format."""
        rows = request.get_profiling_info()
        found = executed(rows)
        if self.n > WARM:
            found = between(self.warm, WARM, found, self.n)
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter=";")
            writer.writerow(("layerName", "execStatus", "layerType", "execType", "realTime (ms)"))
            for row in rows:
                time = found.get(row.node_name, 0.0) * 1e3
                writer.writerow((row.node_name, str(row.status), row.node_type, row.exec_type, time))


def means(request: Any, inputs: Any, runs: int) -> dict[str, float]:
    """Return each executed node's mean over `runs` inferences of a request on a model compiled just before."""
    for _ in range(WARM):
        request.infer(inputs)
    warm = executed(request.get_profiling_info())
    for _ in range(runs):
        request.infer(inputs)
    return between(warm, WARM, executed(request.get_profiling_info()), WARM + runs)
