"""A copy of an ONNX file that every engine can be fed, where the file itself leaves no way: scalars and sizes of 0.

An input without any axis (a threshold of NonMaxSuppression) has no batch, and no two samples differ in it: it becomes
a constant of the usual value, and the model says which. A size of 0 is how some exporters write an open axis; engines
take it for what it says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from edgescope import cache
from edgescope.records.lazy import np

VERSION = 1  # raise this when the copies change
SHARE, COUNT = 0.5, 100
"""What stands for a scalar that nobody gives: a threshold, or the most boxes of a class."""
LARGE = 2**30
"""Bytes from which weights lie beside the copy: one file of protobuf holds 2 GiB."""


def constants(graph: Any) -> dict[str, float | int | bool]:
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
    target = folder / f"{cache.safe(path.stem)}-{content}-mended{VERSION}.onnx"
    if not target.exists():
        model = onnx.load(str(path))
        _fix(model.graph)
        _open(model.graph)
        _write(model, target)
    return target


def _fix(graph: Any) -> None:
    values = constants(graph)
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
    return {"f": SHARE, "b": False}.get(_dtype(given).kind, COUNT)


def _dtype(given: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = onnx.helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
    return found


def _is_zero(axis: Any) -> bool:
    return bool(axis.HasField("dim_value") and axis.dim_value == 0)
