"""The time of every operator of an ONNX Runtime session, from a profiled run, with FLOPs and bytes by shape."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from edgescope.analysis.predict.layers import Layer
from edgescope.artifacts.onnx_names import ModulePaths
from edgescope.records import Json

KERNEL = "_kernel_time"
BYTES = {"float": 4, "float16": 2, "double": 8, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}
PRECISIONS = {"float": "fp32", "float16": "fp16", "int8": "int8", "uint8": "int8"}
MULTIPLY = ("Conv", "QLinearConv", "ConvInteger", "NhwcFusedConv", "FusedConv")
MATRIX = ("Gemm", "MatMul", "FusedMatMul", "FusedGemm", "QLinearMatMul", "QGemm", "MatMulInteger")


def read(profile: Path, file: Path | None, runs: int) -> list[Layer]:
    """Return the operators in a profile of several runs of `file`, with the median of their times.

    The first run is left out: it allocates.
    """
    events = [e for e in json.loads(profile.read_text()) if e.get("cat") == "Node" and KERNEL in e["name"]]
    by_index: dict[str, list[Mapping[str, Json]]] = {}
    for event in events:
        by_index.setdefault(str(event["args"].get("node_index", event["name"])), []).append(event)
    paths = ModulePaths(file) if file is not None else None
    return [_layer(found, paths, runs) for found in by_index.values()]


def _layer(events: Sequence[Mapping[str, Json]], paths: ModulePaths | None, runs: int) -> Layer:
    first = events[0]
    name, kind = str(first["name"]).removesuffix(KERNEL), str(first["args"]["op_name"])
    later = events[1:] if len(events) >= runs > 1 else events
    seconds = statistics.median(e["dur"] for e in later) * 1e-6
    given, made = (_shapes(first["args"].get(key, ())) for key in ("input_type_shape", "output_type_shape"))
    return Layer(
        paths.of(name, kind) if paths else name,
        kind,
        seconds,
        _flops(kind, given, made),
        sum(BYTES.get(t, 4) * prod(shape) for t, shape in (*given, *made)),
        PRECISIONS.get(given[0][0], "fp32") if given else "fp32",
        kind in MULTIPLY and len(given) > 1 and len(given[1][1]) > 1 and given[1][1][1] == 1 < given[1][1][0],
    )


Shapes = list[tuple[str, list[int]]]


def _shapes(found: Any) -> Shapes:
    return [(kind, list(shape)) for entry in found for kind, shape in entry.items()]


def _flops(kind: str, given: Shapes, made: Shapes) -> int:
    if not made:
        return 0
    out = prod(made[0][1])
    if kind in MULTIPLY:
        weights = next((shape for _, shape in given[1:] if len(shape) >= 3), [])
        return 2 * out * prod(weights[1:]) if weights else 0
    if kind in MATRIX and given and given[0][1]:
        return 2 * out * given[0][1][-1]
    return 0
