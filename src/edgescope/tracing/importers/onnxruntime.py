"""ONNX Runtime's profile (SessionOptions.enable_profiling): one event per node and per run of the session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.records import SPAN_KINDS, Trace
from edgescope.tracing.importers.base import Collected, Importer, Table, clean, indexed

RUN = "model_run"


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is an array of events of a session."""
    return head.lstrip()[:1] == b"[" and b'"cat"' in head and b'"Session"' in head


def read(path: Path) -> Trace:
    """Return the nodes as `op` and each run of the session as `range`; kernels of a GPU provider as `kernel`."""
    found = Collected("ONNX Runtime profile")
    events = _events(path, found)
    rows = [e for e in events if e.get("ph") == "X" and "dur" in e]
    names, index = indexed([_name(e) for e in rows])
    kinds = np.array([SPAN_KINDS.index(_kind(e)) for e in rows], "int8")
    start = np.array([clean(e.get("ts"), 0) * 1000 for e in rows], "int64")
    columns: dict[str, Any] = {
        "name": index,
        "start_ns": start,
        "end_ns": start + np.array([clean(e.get("dur"), 0) * 1000 for e in rows], "int64"),
        "process": np.array([clean(e.get("pid")) for e in rows], "int64"),
        "thread": np.array([clean(e.get("tid")) for e in rows], "int64") & 0x7FFFFFFF,
        "bytes": np.array([clean(e.get("args", {}).get("output_size")) for e in rows], "int64"),
    }
    ran = kinds != SPAN_KINDS.index("phase")
    columns = {k: v[ran] for k, v in columns.items()}
    found.tables.append(Table(kinds[ran], columns, names))
    providers = sorted({str(e["args"]["provider"]) for e in rows if e.get("args", {}).get("provider")})
    found.facts |= {"providers": providers} if providers else {}
    found.note(
        "I-PROF-1",
        "ONNX Runtime counts in whole microseconds",
        effect="An operator below 1 us is 0 long",
    )
    return found.trace(path)


def _events(path: Path, found: Collected) -> list[dict[str, Any]]:
    """Return the events; of a file that was cut, those before the cut."""
    text = path.read_text(encoding="utf-8", errors="replace")
    try:
        loaded = json.loads(text)
    except ValueError as error:
        found.note("W-PROF-3", f"{path.name} can be read in part only", evidence=str(error))
        try:
            loaded = json.loads(text[: text.rfind("},") + 1] + "]")
        except ValueError:
            return []
    return [e for e in loaded if isinstance(e, dict)]


def _kind(event: dict[str, Any]) -> str:
    name, category = str(event.get("name", "")), event.get("cat")
    if category == "Kernel":
        return "kernel"
    if category == "Node":
        return "op" if name.endswith("_kernel_time") else "phase"
    return "range" if name == RUN else "phase"


def _name(event: dict[str, Any]) -> str:
    """Return `Conv /layer1/conv1`: the operator and the node, as they stand in the model."""
    name = str(event.get("name", "")).removesuffix("_kernel_time")
    operator = event.get("args", {}).get("op_name")
    return f"{operator} {name}" if operator else name


IMPORTER = Importer(knows, read)
