"""The time of every operator of an ONNX Runtime session, from a profiled run; its work is that of the file's nodes."""

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
WIDTHS = {"float": 4, "float16": 2, "double": 8, "int64": 8, "int32": 4, "int8": 1, "uint8": 1, "bool": 1}
PRECISIONS = {"float": "fp32", "float16": "fp16", "int8": "int8", "uint8": "int8"}


def read(profile: Path, paths: ModulePaths) -> list[Layer]:
    """Return the operators in a profile of several runs, with the median of their times; the first run allocates."""
    events = [e for e in json.loads(profile.read_text()) if e.get("cat") == "Node" and KERNEL in e["name"]]
    by_index: dict[str, list[Mapping[str, Json]]] = {}
    for event in events:
        by_index.setdefault(str(event["args"].get("node_index", event["name"])), []).append(event)
    return [_layer(found, paths) for found in by_index.values()]


def _layer(events: Sequence[Mapping[str, Json]], paths: ModulePaths) -> Layer:
    first = events[0]
    name, kind = str(first["name"]).removesuffix(KERNEL), str(first["args"]["op_name"])
    seconds = statistics.median(e["dur"] for e in events[1:] or events) * 1e-6
    given, made = (_bytes(first["args"].get(key, ())) for key in ("input_type_shape", "output_type_shape"))
    work, (element, width) = paths.of(name, kind), _element(first["args"].get("input_type_shape", ()))
    moved = given[0] + work.weights * width if work.weights and given else sum(given)
    return Layer(
        work.path,
        kind,
        seconds,
        work.flops,
        moved + sum(made),
        PRECISIONS.get(element, "fp32"),
        work.depthwise,
    )


def _bytes(shapes: Any) -> list[int]:
    return [WIDTHS.get(kind, 4) * prod(shape) for entry in shapes for kind, shape in entry.items()]


def _element(shapes: Any) -> tuple[str, int]:
    kind = next((kind for entry in shapes for kind in entry), "float")
    return kind, WIDTHS.get(kind, 4)
