"""The JSON schema of result.json, made from the records: their fields' types, with docstrings as descriptions."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Mapping
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from edgescope import registry
from edgescope.records import SCHEMA_VERSION, Absent, Channel, Json, Measured, Result
from edgescope.records.trial import IO_KINDS, PRECISIONS

Schema = dict[str, Json]

RAW = ("queries", "readings", "spans")
"""Fields of a Result that are parquet files of their own."""
HASH = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
BESIDE: Mapping[str, Schema] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "trial_id": HASH | {"description": "hash of the trial"},
    "cell_id": HASH | {"description": "hash of the trial without its replicate number"},
    "machine_id": {"type": "string", "description": "hash of the machine's stable facts"},
}
"""Keys of result.json besides the fields of a Result."""
WORDS = {"device": registry.PLACES, "precision": PRECISIONS, "io": IO_KINDS}
"""Fields of a Trial that take one of a set of values."""
SCALARS: Mapping[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    type(None): {"type": "null"},
    Any: {},
}


def result_schema() -> Schema:
    """Return the schema that every result.json follows."""
    whole = _record(Result, but=RAW)
    rows = {"channels": _of(tuple[Channel, ...]), "span_names": _of(tuple[str, ...])}
    properties: Schema = {**whole["properties"], **BESIDE, **rows}
    properties["trial"]["properties"] |= {name: {"enum": list(words)} for name, words in WORDS.items()}
    absent = {"absent": {"type": "string", "minLength": 1, "description": "why there is no value"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A result of edgescope",
        "description": "What `edgescope bench --json` prints and result.json holds; raw rows lie beside it.",
        "$defs": {"field": {"oneOf": [_record(Measured), _object(absent)]}},
        **_object(properties),
    }


def _of(kind: Any) -> Schema:
    """Return the schema of a type that records' fields have."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in SCALARS:
        return dict(SCALARS[kind])
    if origin is tuple:
        return {"type": "array", "items": _of(args[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _of(args[1])}
    if Absent in args:
        return {"$ref": "#/$defs/field"}
    if origin is not None:
        return {"anyOf": [_of(arg) for arg in args]}
    return {"enum": [e.value for e in kind]} if issubclass(kind, Enum) else _record(kind)


def _record(kind: type, but: tuple[str, ...] = ()) -> Schema:
    words, hints = _described(kind), get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind) if f.name not in but]
    properties = {name: _of(hints[name]) | _description(words.get(name)) for name in names}
    return _description(inspect.getdoc(kind)) | _object(properties)


def _object(properties: Schema) -> Schema:
    """Return the schema of an object with exactly these keys."""
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _description(text: str | None) -> Schema:
    return {"description": " ".join(text.split())} if text else {}


def _described(kind: type) -> dict[str, str]:
    """Return the string below each field of a class that has one."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: below.value.value
        for field, below in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(below.value.value, str)
    }
