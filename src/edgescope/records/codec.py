"""Results to and from JSON, field by field; raw rows are stored separately (store/results.py).

A measured field is {value, lo, hi, n, unit}, a missing one {absent: reason}. The schema that `bench --json` and
`result.json` follow is made from the records (records/schema.py) and tested against what is written.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum

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
from edgescope.records.migration import migrated


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
