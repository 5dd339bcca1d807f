"""The half of faces.py that needs onnx: the package's file, open in its batch and closed at the size of the input."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import version_converter

from edgescope.artifacts import onnx_write
from edgescope.errors import UsageError
from edgescope.records import Json

CELL = 4
BATCH = onnx_write.NAME


def written(
    source: Path, path: Path, size: tuple[int, int], outputs: Sequence[str], opset: int | None
) -> dict[str, Json]:
    """Write the file for inputs of `size` (height, width) to `path`; return its opset.

    UsageError if `opset` is earlier than the file's own.
    """
    model = onnx.load(str(source))
    own = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    if opset is not None and opset < own:
        raise UsageError(
            "E-EXPORT-7", f"{source.name} is of opset {own} and cannot be written in opset {opset}"
        )
    graph = model.graph
    read = {name for node in graph.node for name in node.input}
    stored = [tensor for tensor in graph.initializer if tensor.name in read]
    names = {tensor.name for tensor in graph.initializer}
    given = [value for value in graph.input if value.name not in names]
    for field, kept in ((graph.initializer, stored), (graph.input, given)):
        del field[:]
        field.extend(kept)
    _rename(graph, {value.name: name for value, name in zip(graph.output, outputs, strict=True)})
    _rename(graph, {given[0].name: "input"})
    _shaped(graph.input[0], size)
    for value in graph.output:
        _shaped(value, (size[0] // CELL, size[1] // CELL))
    if opset is not None and opset != own:
        model = version_converter.convert_version(model, opset)
    onnx.checker.check_model(model, full_check=True)
    onnx_write.save(model, path)
    return {"opset": own if opset is None else opset, "source": source.name}


def _rename(graph: Any, names: dict[str, str]) -> None:
    for node in graph.node:
        for field in (node.input, node.output):
            for at, name in enumerate(field):
                field[at] = names.get(name, name)
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)


def _shaped(value: Any, size: tuple[int, int]) -> None:
    """Open the batch axis of an input or output, and close its last two axes."""
    batch, _, height, width = value.type.tensor_type.shape.dim
    batch.dim_param = BATCH
    height.dim_value, width.dim_value = size
