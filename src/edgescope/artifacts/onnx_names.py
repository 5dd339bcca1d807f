"""From the name of an operator in an engine's profile to the module that it was exported from, and its work.

PyTorch's exporter writes each node's module path into the file; a node without one is known by the name of its weights,
else by its own name. Engines fuse operators and call the result after the last one (ONNX Runtime) or list them all
(OpenVINO, TensorRT): the node is found by walking back from there to the operator that the engine says it runs. The
work is counted from the file's shapes, because an engine pads channels and packs weights as it likes.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
from onnx import shape_inference

SCOPES = "pkg.torch.onnx.name_scopes"
AROUND = re.compile(
    r"^(?:fused |InsertedPrecisionFreeCast_)|(?:_nchwc|_quant|/WithoutBiases|_token_\d+|(?:_matmul)?_Q[48])$"
)
"""What engines and quantisers put before and behind a name."""
CONVOLUTIONS = ("Conv", "ConvTranspose", "QLinearConv", "ConvInteger")
PRODUCTS = ("Gemm", "MatMul", "QLinearMatMul", "MatMulInteger", "QGemm")
ROUNDING = ("DequantizeLinear", "QuantizeLinear", "Cast", "Identity", "Transpose")
"""Operators between a weight as it is stored and the operator that multiplies it."""


@dataclass(frozen=True)
class NodeWork:
    """One node of a file: the path of its module, its FLOPs, and the elements of its weights."""

    path: str
    flops: int = 0
    weights: int = 0
    depthwise: bool = False
    bits: int = 0
    """Of each weight, where the operator itself unpacks them (MatMulNBits); 0 for all others."""


class ModulePaths:
    """The nodes of one ONNX file, for one batch, by their own names and those of their outputs."""

    def __init__(self, path: Path, batch: int = 1) -> None:
        model = onnx.load(str(path), load_external_data=False)
        for given in model.graph.input:
            for axis in given.type.tensor_type.shape.dim:
                if axis.dim_param:
                    axis.dim_value = batch
        graphs = list(_graphs(shape_inference.infer_shapes(model).graph))
        self._weights = {tensor.name: list(tensor.dims) for graph in graphs for tensor in graph.initializer}
        known = (v for graph in graphs for v in (*graph.input, *graph.value_info, *graph.output))
        self._shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in known}
        nodes = [node for graph in graphs for node in graph.node]
        self._makers = {name: node for node in nodes for name in node.output}
        self._nodes = dict(self._makers) | {node.name: node for node in nodes if node.name}

    def of(self, name: str, kind: str = "") -> NodeWork:
        """Return the node called `name`, or the one of type `kind` fused with it; the name alone if there is none."""
        return self.known(name, kind) or NodeWork(name)

    def known(self, name: str, kind: str = "") -> NodeWork | None:
        """Return the node called `name`, or the one of type `kind` fused with it; None if there is none."""
        node, bare = self._nodes.get(name), _bare(name)
        while node is None and bare != name:
            node, name, bare = self._nodes.get(bare), bare, _bare(bare)
        if node is None:
            return None
        seen: Any = node
        while kind and seen is not None and seen.op_type != kind.removeprefix("Fused"):
            seen = next((self._makers[i] for i in seen.input if i in self._makers), None)
        return self._work(seen or node)

    def _work(self, node: Any) -> NodeWork:
        weights = [self._weights[name] for name in map(self._stored, node.input) if name in self._weights]
        out = math.prod(self._shapes.get(node.output[0], [0]))
        given = self._shapes.get(node.input[0], []) if node.input else []
        flops, heavy = 0, next((dims for dims in weights if len(dims) > 1), [])
        if node.op_type in CONVOLUTIONS and heavy:
            flops = 2 * out * math.prod(heavy[1:])
        elif node.op_type in PRODUCTS and given:
            flops = 2 * out * given[-1]
        depthwise = node.op_type in CONVOLUTIONS and bool(heavy) and heavy[1] == 1 < heavy[0]
        bits = next((a.i for a in node.attribute if a.name == "bits"), 0)
        return NodeWork(self._path(node), flops, sum(map(math.prod, weights)), depthwise, bits)

    def _stored(self, name: str) -> str:
        """Return the stored tensor that an input is made of by rounding alone, else the input itself."""
        seen = name
        while seen in self._makers and self._makers[seen].op_type in ROUNDING:
            seen = self._makers[seen].input[0]
        return seen if seen in self._weights else name

    def _path(self, node: Any) -> str:
        for entry in node.metadata_props:
            if entry.key == SCOPES:
                scopes = ast.literal_eval(entry.value)
                return str(scopes[-2]) if len(scopes) > 1 and scopes[-2] else str(scopes[-1])
        stored = map(self._stored, node.input)
        weight = next((name for name in stored if name in self._weights and "." in name), "")
        return weight.rpartition(".")[0] or str(node.name)


def _graphs(graph: Any) -> Iterator[Any]:
    """Yield a graph and every graph inside it."""
    yield graph
    for attribute in (a for node in graph.node for a in node.attribute):
        for inner in (attribute.g, *attribute.graphs):
            yield from _graphs(inner)


def _bare(name: str) -> str:
    """Return a name without the last thing that an engine or a quantiser put around it."""
    return AROUND.sub("", name, count=1)
