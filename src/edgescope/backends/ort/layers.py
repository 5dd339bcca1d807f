"""The time of every operator of an ONNX Runtime session, from a profiled run; its work is that of the file's nodes.

`node_index` is unique within one graph only: the bodies of Loop, If and Scan have numbers of their own, and their
events lie within the event of the operator that runs them. An operator is therefore known by its index, name and kind
and by the operators around it. Its time in a query is the sum over its executions; that of a Loop is its own, without
its body's.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from edgescope.analysis.roofline import Layer
from edgescope.artifacts.onnx_names import ModulePaths, NodeWork
from edgescope.onnx_operators import computes_in
from edgescope.records import Json

KERNEL = "_kernel_time"
QUERY = "model_run"
WIDTHS = {
    **{"float": 4, "float16": 2, "bfloat16": 2, "double": 8},
    **{"int64": 8, "uint64": 8, "int32": 4, "uint32": 4, "int16": 2, "uint16": 2},
    **{"int8": 1, "uint8": 1, "bool": 1, "int4": 0.5, "uint4": 0.5},
}
Event = Mapping[str, Json]
Key = tuple[str, ...]
"""Index, name and kind of an operator, after those of the operators around it."""


@dataclass(frozen=True)
class _Operator:
    """One operator of the optimised graph: its first event, its own microseconds and its executions by query."""

    first: Event
    own: dict[int, float]
    executions: dict[int, int]


def read(profile: Path, paths: ModulePaths) -> list[Layer]:
    """Return the operators in a profile of several queries, the times of each; the first query allocates."""
    events = json.loads(profile.read_text())
    queries = sorted(e["ts"] for e in events if e.get("name") == QUERY)
    found: dict[Key, _Operator] = {}
    for event, around in _nested(e for e in events if _is_kernel(e)):
        _add(found, event, around, _query(queries, event["ts"]))
    count = max((max(operator.own) for operator in found.values()), default=0) + 1
    measured = range(min(1, count - 1), count)
    return [_layer(operator, measured, paths) for operator in found.values()]


def _is_kernel(event: Event) -> bool:
    return event.get("cat") == "Node" and str(event.get("name", "")).endswith(KERNEL)


def _nested(events: Iterator[Event]) -> Iterator[tuple[Event, tuple[Event, ...]]]:
    """Yield each event with those around it, the outermost first: what began before it and ends after it."""
    stack: list[Event] = []
    for event in sorted(events, key=lambda e: (e["ts"], -e["dur"], not _is_control(e))):
        while stack and not _holds(stack[-1], event):
            stack.pop()
        yield event, tuple(stack)
        if _is_control(event):
            stack.append(event)


CONTROL = frozenset({"Loop", "If", "Scan", "SequenceMap"})
"""Operators that run graphs of their own; any other two events that overlap ran beside each other."""


def _is_control(event: Event) -> bool:
    return event["args"].get("op_name") in CONTROL


def _holds(outer: Event, inner: Event) -> bool:
    """Return whether one event lies within another; both ends are cut to microseconds."""
    end = outer["ts"] + outer["dur"]
    return bool(inner["ts"] < end and inner["ts"] + inner["dur"] <= end + 1)


def _query(starts: Sequence[float], ts: float) -> int:
    """Return the number of the query that began last before `ts`; 0 where the profile marks none."""
    return max(0, sum(start <= ts for start in starts) - 1)


def _add(found: dict[Key, _Operator], event: Event, around: tuple[Event, ...], query: int) -> None:
    key = tuple(part for each in (*around, event) for part in _identity(each))
    operator = found.setdefault(key, _Operator(event, {}, {}))
    operator.own[query] = operator.own.get(query, 0.0) + event["dur"]
    operator.executions[query] = operator.executions.get(query, 0) + 1
    if around:  # the whole of a body's operator is no own time of the nearest operator around it
        outer = found[tuple(part for each in around for part in _identity(each))]
        outer.own[query] = outer.own.get(query, 0.0) - event["dur"]


def _identity(event: Event) -> Key:
    index = str(event["args"].get("node_index", ""))
    return index, str(event["name"]).removesuffix(KERNEL), str(event["args"]["op_name"])


def _layer(operator: _Operator, queries: range, paths: ModulePaths) -> Layer:
    first = operator.first
    arguments, (index, name, kind) = first["args"], _identity(first)
    times = tuple(max(0.0, operator.own.get(query, 0.0)) * 1e-6 for query in queries)
    executions = round(statistics.median(operator.executions.get(query, 0) for query in queries))
    work: NodeWork = paths.of(name, kind)
    given, made = (_bytes(arguments.get(key, ())) for key in ("input_type_shape", "output_type_shape"))
    element, width = _element(arguments.get("input_type_shape", ()))
    moved = given[0] + work.weights * width if work.weights and given else sum(given)
    return Layer(
        work.path or name or f"{kind} {index}".strip(),
        kind,
        statistics.median(times),
        (work.flops or _product(kind, arguments)) * executions,
        round((moved + sum(made)) * executions),
        computes_in(kind, element, work.bits),
        work.depthwise,
        times,
        executions,
    )


PRODUCTS = frozenset(
    {
        "MatMul",
        "FusedMatMulActivation",
        "MatMulNBits",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "DynamicQuantizeMatMul",
    }
)
"""Operators whose first input ends in the axis that is summed over."""


def _product(kind: str, arguments: Mapping[str, Any]) -> int:
    """Return the FLOPs of a matrix product by the shapes that ran: the file's are not known behind a loop."""
    summed, out = (_first(arguments.get(key)) for key in ("input_type_shape", "output_type_shape"))
    return 2 * prod(out) * summed[-1] if kind in PRODUCTS and summed and out else 0


def _first(shapes: Any) -> list[int]:
    """Return the shape of the first tensor of a list in the profile, [] if there is none."""
    return next((list(shape) for entry in shapes or () for shape in entry.values()), [])


def _bytes(shapes: Any) -> list[float]:
    return [WIDTHS.get(kind, 4) * prod(shape) for entry in shapes for kind, shape in entry.items()]


def _element(shapes: Any) -> tuple[str, float]:
    kind = next((kind for entry in shapes for kind in entry), "float")
    return kind, WIDTHS.get(kind, 4)
