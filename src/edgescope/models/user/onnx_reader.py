"""The half of files.py that needs onnx: check a file, read its inputs and the places of its weights, and mend it.

It also finds the node at which an engine or the checker failed: its name, operator, domain and opset.

Engines name the operator, or the node, somewhere in a long text, each in its own way. The name is looked up in the
file, so that every message states the same four facts.

A mended file is a copy that every engine can be fed, where the file itself leaves no way: scalars and sizes of 0. An
input without any axis (a threshold of NonMaxSuppression) has no batch, and no two samples differ in it: it becomes
a constant of the usual value, and the model says which. A size of 0 is how some exporters write an open axis; engines
take it for what it says.

`kinds` tells in which precision a file is written: what its products and convolutions are asked to multiply. A float
file is a network that engines may lower and quantise. A file that is quantised already (QDQ pairs, integer operators,
packed weights) or whose weights have 16 bits no longer holds the fp32 network. What an engine makes of it is another
question: it may compute in fp32 between the pairs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from edgescope import cache
from edgescope.errors import ModelError
from edgescope.models.user import files
from edgescope.onnx_operators import FLOATING, INTEGER, PACKED
from edgescope.records import Json
from edgescope.records.lazy import np

PLUGIN = "edgescope.plugin"
"""The domain by which the checker is told that an operator is no standard one."""


def describe(path: Path) -> dict[str, Json]:
    """Return {"inputs": [{name, dims, dtype}], "params", "constants", "mended", "kinds"}; ModelError if malformed.

    An open axis is its name. Some exporters write it as a size below 1 (-1, 0), which no axis has. `constants` stand
    for inputs without any axis; `mended`: whether engines need a copy (`mended`).
    """
    model = _load(path)
    _check(path, model)
    constants = scalar_constants(model.graph)
    stored = {tensor.name for tensor in model.graph.initializer} | constants.keys()
    inputs = [_input(path, given) for given in model.graph.input if given.name not in stored]
    if not inputs:
        raise ModelError(
            "E-ONNX-5", f"{path.name} takes no input", fix="export it with its input as an argument"
        )
    return {
        "inputs": inputs,
        "params": sum(_count(tensor.dims) for tensor in model.graph.initializer),
        "constants": constants,
        "kinds": kinds(model),
        "mended": bool(constants) or hollow(model.graph),
    }


def external(path: Path) -> list[str]:
    """Return the files with its weights, relative to the ONNX file; ModelError for one in another folder."""
    model = _load(path, weights=False)
    graphs = [model.graph, *model.functions]
    entries = (entry for graph in graphs for tensor in _tensors(graph) for entry in tensor.external_data)
    places = sorted({entry.value for entry in entries if entry.key == "location"})
    for place in places:
        if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts:
            raise ModelError(
                "E-ONNX-8",
                f"{path.name} refers to weights outside its own folder",
                evidence=place,
                effect="No engine would read them",
                fix="put the external data file next to the .onnx file and save it again",
            )
    return places


def _tensors(graph: Any) -> Iterator[Any]:
    """Yield every tensor stored in a graph or function: initialisers, constants, and those of subgraphs."""
    yield from getattr(graph, "initializer", ())
    for sparse in getattr(graph, "sparse_initializer", ()):
        yield from (sparse.values, sparse.indices)
    for attribute in (a for node in graph.node for a in node.attribute):
        yield from (attribute.t, *attribute.tensors)
        for inner in (attribute.g, *attribute.graphs):
            yield from _tensors(inner)


def _load(path: Path, *, weights: bool = True) -> Any:
    try:
        model = onnx.load(str(path), load_external_data=weights)
    except DecodeError as error:
        raise _foreign(path, str(error)) from error
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(
            "E-ONNX-2",
            f"{path.name} refers to weights that cannot be read",
            evidence=" ".join(str(error).split())[:200],
            fix="put the external data file back next to it",
        ) from error
    if not model.ir_version or not model.graph.node:
        raise _foreign(path, "no graph in it")
    return model


def _foreign(path: Path, why: str) -> ModelError:
    kind, size = files.said(path), path.stat().st_size
    return ModelError(
        "E-ONNX-3",
        f"{path.name} is not a whole ONNX file",
        evidence=f"it is {kind}" if kind else f"{size} bytes, {why}",
        effect="Nothing was measured",
        fix="export or copy it again; it is truncated or of another format",
    )


def _check(path: Path, model: Any) -> None:
    """Raise ModelError if the file is malformed; which operators and types an engine takes, it says itself."""
    changed = _sorted(_with_plugins(model) if _plugins(model) else model)
    try:
        onnx.checker.check_model(str(path) if changed is model else changed)
    except Exception as error:  # the checker raises classes without a common base
        text = " ".join(str(error).split())
        where = named_in(path, text) or f"opsets {opsets(path)}"
        raise ModelError(
            "E-ONNX-6",
            f"{path.name} fails the ONNX checker",
            evidence=f"{where}: {text[:300]}",
            fix="export it again with a newer exporter",
        ) from error


def _sorted(model: Any) -> Any:
    """Return the model, or a copy whose nodes follow those that they read: engines sort, the checker insists on it.

    ONNX Runtime's own fp16 converter appends the casts of the inputs at the end.
    """
    nodes, later = list(model.graph.node), {name for node in model.graph.node for name in node.output}
    if _in_order(nodes, later):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    placed, waiting, before = list[Any](), nodes, -1
    while waiting and len(waiting) != before:
        before, nodes, waiting = len(waiting), waiting, []
        for node in nodes:
            ready = not later & set(node.input)
            (placed if ready else waiting).append(node)
            later -= set(node.output) if ready else set()
    del copy.graph.node[:]
    copy.graph.node.extend([*placed, *waiting])
    return copy


def _in_order(nodes: list[Any], made: set[str]) -> bool:
    """Return whether every node reads only what the nodes before it make, of all that nodes make."""
    known: set[str] = set()
    for node in nodes:
        if (set(node.input) & made) - known:
            return False
        known |= set(node.output)
    return True


def _plugins(model: Any) -> list[Any]:
    """Return the nodes of the standard domain that no standard has: plugins of TensorRT are often written so."""
    standard = (node for node in every(model.graph) if node.domain in STANDARD)
    return [node for node in standard if not onnx.defs.has(node.op_type)]


def _with_plugins(model: Any) -> Any:
    """Return a copy in which the plugins have a domain of their own, so that the checker passes over them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in _plugins(copy):
        node.domain = PLUGIN
    copy.opset_import.append(onnx.helper.make_opsetid(PLUGIN, 1))
    return copy


def _input(path: Path, given: Any) -> dict[str, Json]:
    tensor = given.type.tensor_type
    kind = given.type.WhichOneof("value") or "of no type"
    if kind != "tensor_type" or tensor.elem_type == onnx.TensorProto.STRING:
        raise ModelError(
            "E-ONNX-10",
            f"input {given.name!r} of {path.name} is no tensor of numbers",
            evidence="it is text" if kind == "tensor_type" else f"it is a {kind.removesuffix('_type')}",
            effect="There is no input to run it with",
            fix="export it without the step that reads it, so that its inputs are tensors of numbers",
        )
    dims = [
        d.dim_value if d.dim_value >= 1 else d.dim_param or ("N" if i == 0 else f"axis{i}")
        for i, d in enumerate(tensor.shape.dim)
    ]
    if not dims:
        raise ModelError(
            "E-ONNX-7",
            f"input {given.name!r} of {path.name} has no batch axis",
            evidence="its shape is not stated",
            fix="export it with the shape of its inputs",
        )
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    return {"name": given.name, "dims": dims, "dtype": str(dtype)}


def _count(dims: Any) -> int:
    total = 1
    for size in dims:
        total *= size
    return total


STANDARD = ("", "ai.onnx")
MOST = 3


def described(node: Any, model: Any) -> str:
    """Return `node 'n7' (Frobnicate of domain com.acme, opset 1)`."""
    domain = "ai.onnx" if node.domain in STANDARD else node.domain
    versions = {
        "ai.onnx" if entry.domain in STANDARD else entry.domain: entry.version for entry in model.opset_import
    }
    name = node.name or "making " + ", ".join(node.output)
    return f"node {name!r} ({node.op_type} of domain {domain}, opset {versions.get(domain, 'not stated')})"


def every(graph: Any) -> Iterator[Any]:
    """Yield every node of a graph and of the graphs inside it."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from every(inner)


def named_in(path: Path, text: str) -> str:
    """Return the nodes of an ONNX file whose name or operator occurs in a text, one per operator, or ''.

    Names of nodes come first; operators are searched for only if no node is named.
    """
    model = onnx.load(str(path), load_external_data=False)
    words = set(re.findall(r"[\w./:-]+", text)) | set(re.findall(r"\w+", text))
    nodes = list(every(model.graph))
    found = [node for node in nodes if node.name and node.name in words] or [
        node for node in nodes if node.op_type in words
    ]
    by_operator = {(node.domain, node.op_type): node for node in reversed(found)}
    return ", ".join(described(node, model) for node in list(by_operator.values())[:MOST])


def opsets(path: Path) -> str:
    """Return `ai.onnx 18, com.acme 1` of an ONNX file."""
    model = onnx.load(str(path), load_external_data=False)
    return ", ".join(f"{entry.domain or 'ai.onnx'} {entry.version}" for entry in model.opset_import)


MENDED_VERSION = 1  # raise this when the copies change
SCALAR_SHARE, SCALAR_COUNT = 0.5, 100
"""What stands for a scalar that nobody gives: a threshold, or the most boxes of a class."""
LARGE = 2**30
"""Bytes from which weights lie beside the copy: one file of protobuf holds 2 GiB."""


def scalar_constants(graph: Any) -> dict[str, float | int | bool]:
    """Return the value that each scalar input of numbers gets, by name."""
    stored = {tensor.name for tensor in graph.initializer}
    return {i.name: _usual(i) for i in graph.input if i.name not in stored and scalar(i)}


def scalar(given: Any) -> bool:
    """Return whether an input is one number: a tensor of numbers whose shape is stated and has no axis."""
    kind = given.type.tensor_type
    known = bool(given.type.HasField("tensor_type") and kind.HasField("shape"))
    return known and not kind.shape.dim and _dtype(given).kind in "biuf"


def hollow(graph: Any) -> bool:
    """Return whether an axis of an input has the size 0."""
    return any(_is_zero(axis) for i in graph.input for axis in i.type.tensor_type.shape.dim)


def mended(path: Path, content: str, folder: Path) -> Path:
    """Return the copy, made once per content of the file."""
    target = folder / f"{cache.safe(path.stem)}-{content}-mended{MENDED_VERSION}.onnx"
    if not target.exists():
        model = onnx.load(str(path))
        _fix(model.graph)
        _open(model.graph)
        _write(model, target)
    return target


def _fix(graph: Any) -> None:
    values = scalar_constants(graph)
    kept = [given for given in graph.input if given.name not in values]
    for given in graph.input:
        if given.name in values:
            value = np.array(values[given.name], _dtype(given))
            graph.initializer.append(onnx.numpy_helper.from_array(value, given.name))
    del graph.input[:]
    graph.input.extend(kept)


def _open(graph: Any) -> None:
    """Give every axis of size 0 a name; what follows from the inputs, each engine infers."""
    for value in (*graph.input, *graph.output):
        for number, axis in enumerate(value.type.tensor_type.shape.dim):
            if _is_zero(axis):
                axis.dim_param = "N" if number == 0 else f"{value.name}_axis{number}"
    if graph.value_info:
        del graph.value_info[:]


def _write(model: Any, target: Path) -> None:
    with cache.alone(target), cache.writing(target) as temporary:
        large = model.ByteSize() > LARGE
        beside = cache.external_data(target).name
        onnx.save(model, str(temporary), save_as_external_data=large, location=beside)


def _usual(given: Any) -> float | int | bool:
    return {"f": SCALAR_SHARE, "b": False}.get(_dtype(given).kind, SCALAR_COUNT)


def _dtype(given: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
    return found


def _is_zero(axis: Any) -> bool:
    return bool(axis.HasField("dim_value") and axis.dim_value == 0)


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
