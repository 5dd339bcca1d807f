"""From the name of an operator in an engine's profile to the path of the module that it was exported from.

PyTorch's exporter writes each node's module path into the file; a node without one is known by the name of its weights,
else by its own name. Engines fuse operators and call the result after the last one (ONNX Runtime) or list them all
(OpenVINO, TensorRT): `of` walks back from there to the operator that the engine says it runs.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import onnx

SCOPES = "pkg.torch.onnx.name_scopes"
SUFFIXES = ("_nchwc", "_quant", "_token_0", "_fused")


class ModulePaths:
    """The nodes of one ONNX file by their own names and those of their outputs."""

    def __init__(self, path: Path) -> None:
        graph = onnx.load(str(path), load_external_data=False).graph
        self._weights = {tensor.name for tensor in graph.initializer}
        self._nodes: dict[str, Any] = {}
        for node in graph.node:
            for name in (node.name, *node.output):
                self._nodes.setdefault(name, node)
        self._makers = {name: node for node in graph.node for name in node.output}

    def of(self, name: str, kind: str = "") -> str:
        """Return the module path of the operator called `name`; of the one of type `kind` that it was fused with."""
        node = self._nodes.get(name) or self._nodes.get(_bare(name))
        if node is None:
            return name
        seen = node
        while kind and seen is not None and seen.op_type != kind:
            seen = next((self._makers[i] for i in seen.input if i in self._makers), None)
        return self._path(seen or node)

    def _path(self, node: Any) -> str:
        for entry in node.metadata_props:
            if entry.key == SCOPES:
                scopes = ast.literal_eval(entry.value)
                return str(scopes[-2]) if len(scopes) > 1 and scopes[-2] else str(scopes[-1])
        weight = next((name for name in node.input if name in self._weights and "." in name), "")
        return weight.rpartition(".")[0] or str(node.name)


def _bare(name: str) -> str:
    """Return a name without what ONNX Runtime's optimiser puts after it."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    return name
