"""The precision in which an ONNX file is written: what its products and convolutions are asked to multiply.

A float file is a network that engines may lower and quantise. A file that is quantised already (QDQ pairs, integer
operators, packed weights) or whose weights have 16 bits no longer holds the fp32 network. What an engine makes of it is
another question: it may compute in fp32 between the pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx

from edgescope.onnx_operators import FLOATING, INTEGER, PACKED

ROUNDS = frozenset({"DequantizeLinear", "DequantizeBFP"})
MOVES = frozenset(
    {"Transpose", "Reshape", "Identity", "Squeeze", "Unsqueeze", "Flatten", "MaxPool", "Relu", "Clip"}
)
"""Operators that pass on what was rounded: between a QDQ pair and the operator that multiplies."""
TYPES = {
    **{"INT8": "int8", "UINT8": "int8", "INT16": "int16", "UINT16": "int16", "INT4": "int4", "UINT4": "int4"},
    **{"INT2": "int2", "UINT2": "int2", "FLOAT4E2M1": "fp4"},
    **{"FLOAT16": "fp16", "BFLOAT16": "bf16", "FLOAT": "fp32", "DOUBLE": "fp64"},
}


def kinds(model: Any) -> dict[str, int]:
    """Return how many of a file's products and convolutions are written in which precision; {} if it has none.

    A product of rounded weights and float activations counts as `int8 weights`.
    """
    found: Counter[str] = Counter()
    for graph in _graphs(model):
        found += _Graph(graph).kinds()
    return dict(found)


def _graphs(model: Any) -> Iterator[Any]:
    todo = [model.graph, *model.functions]
    while todo:
        graph = todo.pop()
        yield graph
        for attribute in (a for node in graph.node for a in node.attribute):
            todo += [inner for inner in (attribute.g, *attribute.graphs) if inner.node]


class _Graph:
    """One graph: who makes a tensor, and the types of those that are stored or declared."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self.makers = {name: node for node in graph.node for name in node.output}
        stored = getattr(graph, "initializer", ())
        self.types = {v.name: v.type.tensor_type.elem_type for v in (*_values(graph), *graph.value_info)}
        self.types |= {name: tensor.data_type for name, tensor in _constants(graph)}
        self.types |= {t.name: t.data_type for t in stored}

    def kinds(self) -> Counter[str]:
        heavy = (node for node in self.graph.node if node.op_type in FLOATING | INTEGER | set(PACKED))
        return Counter(kind for node in heavy if (kind := self._kind(node)))

    def _kind(self, node: Any) -> str:
        if node.op_type in PACKED:
            bits = next((a.i for a in node.attribute if a.name == "bits"), 0)
            return f"int{bits or PACKED[node.op_type]}"
        if node.op_type in INTEGER:
            return "int8"
        rounded = [self._rounded(name) for name in node.input[:2]]
        if all(rounded) and len(rounded) == 2:
            return max(rounded, key=_bits)  # weights of 8 bits do not make 16-bit activations int8
        if any(rounded):
            return f"{next(filter(None, rounded))} weights"
        return next((kind for name in node.input[:2] if (kind := self._float(name))), "fp32")

    def _rounded(self, name: str) -> str:
        """Return the type that an input was rounded to, '' for none."""
        node = self._maker(name)
        if node is None or node.op_type not in ROUNDS:
            return ""
        return self._integer(node)

    def _maker(self, name: str) -> Any:
        node = self.makers.get(name)
        while node is not None and node.op_type in MOVES and node.input:
            node = self.makers.get(node.input[0])
        return node

    def _integer(self, node: Any) -> str:
        """Return the type of the integers that a DequantizeLinear reads: stored, noted, or made by its partner."""
        source = self.makers.get(node.input[0])
        partner = source.input[2:3] if source is not None and source.op_type == "QuantizeLinear" else []
        for name in (*node.input[2:3], node.input[0], *partner):
            if kind := TYPES.get(_name(self.types.get(name, 0)), ""):
                return kind
        made = [a.i for a in getattr(source, "attribute", ()) if a.name == "output_dtype"]
        return TYPES.get(_name(made[0] if made else onnx.TensorProto.UINT8), "int8")

    def unsigned(self, node: Any) -> bool:
        """Return whether a node of a QDQ pair writes or reads unsigned integers."""
        kind = self.types.get(node.input[2], 0) if len(node.input) > 2 else 0
        kind = kind or next((a.i for a in node.attribute if a.name == "output_dtype"), 0)
        if node.op_type == "DequantizeLinear":
            source = self.makers.get(node.input[0])
            if source is not None and source.op_type == "QuantizeLinear":
                return False  # it is told of its partner
            kind = kind or self.types.get(node.input[0], 0)
        return _name(kind or onnx.TensorProto.UINT8).startswith("UINT")

    def _float(self, name: str) -> str:
        """Return the precision of a tensor that is stored or declared; '' for another or an unknown one."""
        return TYPES.get(_name(self.types.get(name, 0)), "")


def _values(graph: Any) -> Iterator[Any]:
    """Yield the declared inputs and outputs; those of a function are names alone."""
    return (value for value in (*graph.input, *graph.output) if not isinstance(value, str))


def _name(kind: int) -> str:
    return str(onnx.TensorProto.DataType.Name(kind)) if kind in onnx.TensorProto.DataType.values() else ""


def _bits(kind: str) -> int:
    return int("".join(letter for letter in kind if letter.isdigit()) or 0)


def asymmetric(path: Path) -> str:
    """Return which quantisations of a file are unsigned or have a zero point that is not 0; '' if none."""
    model = onnx.load(str(path))
    unsigned, shifted = list[str](), list[str]()
    nodes = 0
    for graph in _graphs(model):
        inside = _Graph(graph)
        stored = {t.name: t for t in getattr(graph, "initializer", ())} | dict(_constants(graph))
        for node in (n for n in graph.node if n.op_type in ("QuantizeLinear", "DequantizeLinear")):
            nodes += 1
            name = node.name or "making " + node.output[0]
            zero = stored.get(node.input[2]) if len(node.input) > 2 else None
            if zero is not None and onnx.numpy_helper.to_array(zero).astype("float64").any():
                shifted.append(name)
            elif inside.unsigned(node):
                unsigned.append(name)
    words = ((unsigned, "unsigned integers"), (shifted, "a zero point that is not 0"))
    told = [f"{len(found)} of {nodes} with {what}, first {found[0]!r}" for found, what in words if found]
    return "; ".join(told)


def _constants(graph: Any) -> Iterator[tuple[str, Any]]:
    for node in graph.node:
        if node.op_type == "Constant":
            yield from ((node.output[0], a.t) for a in node.attribute if a.name == "value")
