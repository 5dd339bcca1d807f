"""trtexec's JSON files: --exportProfile (layers) and --exportTimes (each inference)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.records import Trace
from edgescope.tracing.importers.base import Collected, Importer, Table, empty
from edgescope.tracing.importers.openvino import laid_out

#: Key of a time -> name and kind of its span.
TIMES = (
    ("Enq", "enqueue", "api"),
    ("H2d", "H2D", "copy"),
    ("Compute", "compute", "graph"),
    ("D2h", "D2H", "copy"),
)


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is one of the two."""
    return head.lstrip()[:1] == b"[" and (b'"averageMs"' in head or b'"startEnqMs"' in head)


def read(path: Path) -> Trace:
    """Return layers as `op`, or inferences with their copies and computation."""
    try:
        rows = [
            r for r in json.loads(path.read_text(encoding="utf-8", errors="replace")) if isinstance(r, dict)
        ]
    except ValueError as error:
        raise empty(path, f"JSON: {error}") from error
    if any("startEnqMs" in r for r in rows):
        return _times(path, [r for r in rows if "startEnqMs" in r])
    count = next((int(r["count"]) for r in rows if "count" in r), 1)
    layers = [(str(r["name"]), float(r["averageMs"]) * 1e-3) for r in rows if "averageMs" in r]
    found = Collected("trtexec layer profile", facts={"inferences": count})
    return laid_out(path, found, layers, "op")


def _times(path: Path, rows: list[dict[str, Any]]) -> Trace:
    """Return the spans of each inference; the computation is one launch of the whole engine."""
    found = Collected("trtexec times")
    for key, name, kind in TIMES:
        start, end = (_ns(rows, f"{edge}{key}Ms") for edge in ("start", "end"))
        query = np.arange(len(rows))
        columns: dict[str, Any] = {"name": 0, "start_ns": start, "end_ns": end, "query_id": query}
        columns |= {"device": 0, "process": 0, "correlation": query if kind != "copy" else -1}
        found.tables.append(Table(kind, columns, [name]))
    units = {
        "name": 0,
        "start_ns": _ns(rows, "startH2dMs"),
        "end_ns": _ns(rows, "endD2hMs"),
        "query_id": query,
    }
    found.tables.append(Table("unit", {**units, "process": 0}, ["inference"]))
    found.note(
        "I-PROF-3",
        "trtexec times an engine as a whole",
        effect="Kernels within `compute` are not separable; times have six digits",
        fix="trtexec --exportProfile=FILE for layers, nsys for kernels",
    )
    return found.trace(path)


def _ns(rows: list[dict[str, Any]], key: str) -> Any:
    return np.array([round(float(r.get(key, 0)) * 1e6) for r in rows], "int64")


IMPORTER = Importer(knows, read)
