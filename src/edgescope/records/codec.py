"""Results to and from JSON, field by field; raw rows are stored separately (store/results.py).

A measured field is {value, lo, hi, n, unit}, a missing one {absent: reason}. The schema that `bench --json` and
`result.json` follow is made from the records and tested against what is written.

Results of schema 1 are read as today's. It called `colocated` beside, `min_agreement` gate and `time_slicing` shared,
and kept the options of four scenarios in one text, `arrivals`. A message was one line of text, and codes of workers
began with E-CREW. Whether workers were reused from the trial before was one of the machine's facts.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

from edgescope import registry
from edgescope.errors import Message, StoreError, UsageError
from edgescope.records import (
    SCHEMA_VERSION,
    Absent,
    Channel,
    Field,
    GateOutcome,
    Json,
    Measured,
    Result,
    Trial,
    Verification,
    Worker,
    plain_json,
)
from edgescope.records.trial import IO_KINDS, PRECISIONS


def field_to_json(value: Field) -> dict[str, Json]:
    """Return {value, lo, hi, n, unit} or {absent: reason}."""
    return {"absent": value.reason} if isinstance(value, Absent) else dataclasses.asdict(value)


def field_from_json(data: Mapping[str, Json]) -> Field:
    """Return the field that the JSON holds; ValueError if it holds none."""
    return plain_json.field(data, "field")


def _fields(values: Mapping[str, Field]) -> dict[str, Json]:
    return {name: field_to_json(value) for name, value in values.items()}


def verification_to_json(check: Verification) -> dict[str, Json]:
    """Return a Verification as plain JSON values."""
    return dataclasses.asdict(check) | {"fields": _fields(check.fields)}


def verification_from_json(data: Mapping[str, Json]) -> Verification:
    """Return the Verification that the JSON holds."""
    return plain_json.record(Verification, data, "verification")


def judged_to_json(found: GateOutcome | None) -> dict[str, Json] | None:
    """Return what the gate said as plain JSON values: a Verification, or {unjudged: why}."""
    if isinstance(found, Message):
        return {"unjudged": dataclasses.asdict(found)}
    return verification_to_json(found) if found is not None else None


def judged_from_json(data: Mapping[str, Json] | None) -> GateOutcome | None:
    """Return what the gate said."""
    if data is not None and "unjudged" in data:
        return Message(**data["unjudged"])
    return verification_from_json(data) if data is not None else None


def _worker_to_json(worker: Worker) -> dict[str, Json]:
    plain = {f.name: getattr(worker, f.name) for f in dataclasses.fields(worker)}
    return {k: field_to_json(v) if isinstance(v, Measured | Absent) else v for k, v in plain.items()} | {
        "cpus": list(worker.cpus)
    }


def _described(artifact: Mapping[str, Json]) -> dict[str, Json]:
    """Return the facts of the artifact, with only the names of files kept next to the result."""
    files = artifact.get("files")
    return {**artifact, **({"files": sorted(files)} if files is not None else {})}


def to_json(result: Result) -> dict[str, Json]:
    """Return everything but the raw rows as plain JSON values."""
    check = result.verification
    return {
        "schema_version": SCHEMA_VERSION,
        "id": result.id,
        "trial_id": result.trial.id,
        "cell_id": result.trial.cell,
        "trial": result.trial.to_json(),
        "status": result.status.value,
        "reason": dataclasses.asdict(result.reason) if result.reason else None,
        "verdict": {"trust": result.verdict.trust.value, "evidence": list(result.verdict.evidence)},
        "started_at": result.started_at,
        "driver": result.driver,
        "process": result.process,
        "model": dataclasses.asdict(result.model) if result.model else None,
        "artifact": _described(result.artifact),
        "effective": dataclasses.asdict(result.effective) if result.effective else None,
        "verification": verification_to_json(check) if check else None,
        "unverified": dataclasses.asdict(result.unverified) if result.unverified else None,
        "window": dataclasses.asdict(result.window) if result.window else None,
        "workers": [_worker_to_json(w) for w in result.workers],
        "alternation": dataclasses.asdict(result.alternation) if result.alternation else None,
        "idle": [dataclasses.asdict(i) for i in result.idle],
        "meter": dataclasses.asdict(result.meter) if result.meter else None,
        "metrics": _fields(result.metrics),
        "warnings": [dataclasses.asdict(w) for w in result.warnings],
        "channels": [dataclasses.asdict(c) for c in result.readings.channels] if result.readings else [],
        "span_names": list(result.spans.names) if result.spans else [],
        "machine_id": result.machine.id,
        "machine": {"stable": dict(result.machine.stable), "state": dict(result.machine.state)},
    }


def from_json(data: Mapping[str, Json]) -> Result:
    """Return the result that the JSON holds, without its raw rows; StoreError for a newer schema."""
    version = data.get("schema_version")
    if not isinstance(version, int) or version > SCHEMA_VERSION:
        raise StoreError(
            "E-STORE-3",
            "a result was written by a newer edgescope",
            evidence=f"schema_version={version}, this one reads up to {SCHEMA_VERSION}",
            effect="It is left alone",
            fix="pip install --upgrade edgescope",
        )
    try:
        return _read(migrated(data))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, UsageError) as error:
        said = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise StoreError("E-STORE-4", "a result is not complete", evidence=said) from error


def _read(data: Mapping[str, Json]) -> Result:
    """Return the result; the keys that results of schema 1 may lack have defaults."""
    names = [f.name for f in dataclasses.fields(Result) if f.name not in ("queries", "readings", "spans")]
    older = {"process", "workers", "alternation", "idle", "meter", "unverified"}
    given = {name: data[name] for name in names if name in data or name not in older}
    return plain_json.record(Result, given)


def channels(data: Mapping[str, Json]) -> tuple[Channel, ...]:
    """Return the telemetry channels in a result's JSON; ValueError if they are not valid."""
    found: tuple[Channel, ...] = plain_json.value(tuple[Channel, ...], data.get("channels"), "channels")
    return found


def span_names(data: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the names to which a result's span numbers refer; ValueError if they are not valid."""
    found: tuple[str, ...] = plain_json.value(tuple[str, ...], data.get("span_names"), "span_names")
    return found


def to_plain(value: Json) -> Json:
    """Return records, enums, mappings and sequences as plain JSON values; fields in their published form."""
    if isinstance(value, Measured | Absent):
        value = field_to_json(value)
    elif isinstance(value, Trial):
        value = value.to_json()
    elif isinstance(value, Enum):
        value = value.value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [to_plain(item) for item in value]
    return value


# -- results that an earlier edgescope stored: new field names, the same figures ---------------------------------

RENAMED_FIELDS = {"beside": "colocated", "gate": "min_agreement"}
RENAMED_METRICS = {
    "beside_throughput_sps": "colocated_throughput_sps",
    "beside_latency_p99_s": "colocated_latency_p99_s",
}
USUAL_GAPS = "0,10,33,100,1000,10000"


def migrated(data: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return a stored result's JSON in today's schema; KeyError or ValueError if it is incomplete."""
    return _from_1(data) if data["schema_version"] == 1 else data


def _from_1(data: Mapping[str, Json]) -> Mapping[str, Json]:
    trial = {RENAMED_FIELDS.get(name, name): value for name, value in data["trial"].items()}
    if trial.get("sharing") == "shared":
        trial["sharing"] = "time_slicing"
    arrivals = str(trial.pop("arrivals", ""))
    options = _OPTIONS.get(trial.get("scenario", ""))
    trial["scenario_options"] = options(arrivals) if arrivals and options else {}
    metrics = {RENAMED_METRICS.get(name, name): value for name, value in data["metrics"].items()}
    state = dict(data["machine"]["state"])
    reused = state.pop("warm", False) is True
    return {
        **data,
        "trial": trial,
        "metrics": metrics,
        "reason": vars(message(data["reason"])) if data.get("reason") else None,
        "warnings": [vars(message(text)) for text in data["warnings"]],
        "process": "reused" if reused else "fresh",
        "machine": {**data["machine"], "state": state},
    }


OLD_MESSAGE = re.compile(
    r"(?P<code>[EWI]-[A-Z]+(?:-\d+)?): (?P<what>.*?)(?: \((?P<evidence>.*)\))?\.(?: (?P<effect>.*)\.)?",
    re.DOTALL,
)


def message(text: str) -> Message:
    """Return a stored line as a Message that reads the same; a line without a code gets E-OLD-1."""
    body, _, fix = text.partition(" Try: ")
    if (found := OLD_MESSAGE.fullmatch(body)) is not None:
        parts = {name: part or "" for name, part in found.groupdict().items()}
        code = parts.pop("code").replace("-CREW-", "-WORKER-")
        return Message(code, fix=fix, **parts)
    return Message("E-OLD-1", text)


def _old_trace(text: str) -> dict[str, Json]:
    looped = text.startswith("loop:")
    return {"trace": text.removeprefix("loop:")} | ({"loop": True} if looped else {})


_OPTIONS: Mapping[str, Callable[[str], dict[str, Json]]] = {
    "burst": lambda text: {"burst_size": int(text)},
    "trace": _old_trace,
    "idle_gap": lambda text: {} if text == USUAL_GAPS else {"gaps_ms": text},
    "mlperf_server": lambda text: {"target_latency_ms": float(text.removesuffix("ms"))},
}
"""Scenario -> the option that `arrivals` stood for."""


# -- the JSON schema of result.json: the types of the records' fields, with docstrings as descriptions ------------

Schema = dict[str, Json]

RAW_ROWS = ("queries", "readings", "spans")
"""Fields of a Result that are parquet files of their own."""
HASH = {"type": "string", "pattern": "^[0-9a-f]{16}$"}
BESIDE_RESULT: Mapping[str, Schema] = {
    "schema_version": {"const": SCHEMA_VERSION},
    "trial_id": HASH | {"description": "hash of the trial"},
    "cell_id": HASH | {"description": "hash of the trial without its replicate number"},
    "machine_id": {"type": "string", "description": "hash of the machine's stable facts"},
}
"""Keys of result.json besides the fields of a Result."""
ENUMS = {"device": registry.PLACES, "precision": PRECISIONS, "io": IO_KINDS}
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
    whole = _record_schema(Result, but=RAW_ROWS)
    rows = {"channels": _schema_of(tuple[Channel, ...]), "span_names": _schema_of(tuple[str, ...])}
    properties: Schema = {**whole["properties"], **BESIDE_RESULT, **rows}
    properties["trial"]["properties"] |= {name: {"enum": list(words)} for name, words in ENUMS.items()}
    absent = {"absent": {"type": "string", "minLength": 1, "description": "why there is no value"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A result of edgescope",
        "description": "What `edgescope bench --json` prints and result.json holds; raw rows lie beside it.",
        "$defs": {"field": {"oneOf": [_record_schema(Measured), _object_schema(absent)]}},
        **_object_schema(properties),
    }


def _schema_of(kind: Any) -> Schema:
    """Return the schema of a type that records' fields have."""
    origin, args = get_origin(kind), get_args(kind)
    if kind in SCALARS:
        return dict(SCALARS[kind])
    if origin is tuple:
        return {"type": "array", "items": _schema_of(args[0])}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _schema_of(args[1])}
    if Absent in args:
        return {"$ref": "#/$defs/field"}
    if origin is not None:
        return {"anyOf": [_schema_of(arg) for arg in args]}
    return {"enum": [e.value for e in kind]} if issubclass(kind, Enum) else _record_schema(kind)


def _record_schema(kind: type, but: tuple[str, ...] = ()) -> Schema:
    words, hints = _field_docs(kind), get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind) if f.name not in but]
    properties = {name: _schema_of(hints[name]) | _description(words.get(name)) for name in names}
    return _description(inspect.getdoc(kind)) | _object_schema(properties)


def _object_schema(properties: Schema) -> Schema:
    """Return the schema of an object with exactly these keys."""
    required = list(properties)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _description(text: str | None) -> Schema:
    return {"description": " ".join(text.split())} if text else {}


@functools.cache  # of each record once: to find a class in its file parses the file
def _field_docs(kind: type) -> Mapping[str, str]:
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
