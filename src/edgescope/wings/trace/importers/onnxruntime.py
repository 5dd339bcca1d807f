"""ONNX Runtime's profile (SessionOptions.enable_profiling): one event per node and per run of the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from edgescope.records import SPAN_KINDS, Trace
from edgescope.tracing.importer import ImportedFile, Importer, Table, clean, exact_ns, examples, indexed
from edgescope.tracing.salvage import Salvage

RUN, US = "model_run", 1000


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is an array of events of a session."""
    return head.lstrip()[:1] == b"[" and b'"cat"' in head and b'"Session"' in head


def read(path: Path) -> Trace:
    """Return the nodes as `op` and each run of the session as `range`; kernels of a GPU provider as `kernel`."""
    found = ImportedFile("ONNX Runtime profile")
    events = _events(path, found)
    rows = _timed([e for e in events if e.get("ph") == "X"], found)
    names, index = indexed([_name(e) for e in rows])
    kinds = np.array([SPAN_KINDS.index(_kind(e)) for e in rows], "int8")
    start, length = (np.array([exact_ns(e[k], US) for e in rows], "int64") for k in ("ts", "dur"))
    columns: dict[str, Any] = {
        "name": index,
        "start_ns": start,
        "end_ns": start + length,
        "process": np.array([clean(e.get("pid")) for e in rows], "int64"),
        "thread": np.array([clean(e.get("tid")) for e in rows], "int64") & 0x7FFFFFFF,
        "bytes": np.array([clean(_args(e).get("output_size")) for e in rows], "int64"),
    }
    ran = kinds != SPAN_KINDS.index("phase")
    columns = {k: v[ran] for k, v in columns.items()}
    found.tables.append(Table(kinds[ran], columns, names))
    providers = sorted({str(_args(e)["provider"]) for e in rows if _args(e).get("provider")})
    found.facts |= {"providers": providers} if providers else {}
    found.note(
        "I-PROF-1",
        "ONNX Runtime counts in whole microseconds",
        effect="An operator below 1 us is 0 long",
    )
    return found.trace(path)


def _events(path: Path, found: ImportedFile) -> list[dict[str, Any]]:
    """Return the events; of a file that was damaged or cut, those that can be read."""
    array = Salvage(path.read_text(encoding="utf-8-sig", errors="replace"), ("ph",), ("cat", "name", "ts"))
    events = list(array.rows(array.text.find("[") + 1))
    fix = "InferenceSession.end_profiling(), which writes the rest"
    found.salvaged(array, path, "events", fix, ended=array.ended)
    return events


def _timed(events: list[dict[str, Any]], found: ImportedFile) -> list[dict[str, Any]]:
    """Return the events that have a start and a length; say how many have not."""
    whole = [e for e in events if None not in (exact_ns(e.get("ts"), US), exact_ns(e.get("dur"), US))]
    left = [e for e in events if None in (exact_ns(e.get("ts"), US), exact_ns(e.get("dur"), US))]
    found.lose(
        "W-PROF-16",
        "events have no start or no duration that can be read",
        len(left),
        evidence=examples(str(e.get("name", "")) for e in left),
        effect="They are left out: the times and counts of these names are too low",
    )
    return whole


def _args(event: dict[str, Any]) -> dict[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}


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
    operator = _args(event).get("op_name")
    return f"{operator} {name}" if operator else name


IMPORTER = Importer(knows, read)
