"""What engines write of themselves: OpenVINO's counters, trtexec's JSON files, ONNX Runtime's profile.

OpenVINO's counters (benchmark_app's reports, CSV or JSON, and the same rows that a request returns) and trtexec's
--exportProfile say how long each layer took, but not when. The layers are laid end to end in the order of the report,
so totals and shares hold and times of day do not. Names of trtexec's columns changed once (foreign.py). A loop of runs
that append to one file leaves several arrays in it; all are read. ONNX Runtime's profile
(SessionOptions.enable_profiling) has one event per node and per run of the session.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.foreign import TRTEXEC_COLUMNS
from edgescope.records import SPAN_KINDS, Json, Trace
from edgescope.wings.trace.imported import (
    ImportedFile,
    Importer,
    Salvage,
    Table,
    clean,
    empty,
    exact_ns,
    examples,
    indexed,
)

COUNTED = ("layerName", "execStatus")
#: Unit in a heading -> nanoseconds. Without a unit it is milliseconds, as always.
UNITS = {
    "ms": 1_000_000,
    "us": 1000,
    "\N{MICRO SIGN}s": 1000,
    "\N{GREEK SMALL LETTER MU}s": 1000,
    "ns": 1,
    "s": 10**9,
}
MS = UNITS["ms"]
Counter = tuple[str, str, str, int | None]
"""A layer's name, type and status, and its nanoseconds; None if they cannot be read."""


def _knows_openvino(path: Path, head: bytes) -> bool:
    """Return whether the file is a report of counters."""
    return all(h.encode() in head for h in COUNTED) or _is_counters_json(head)


def _is_counters_json(head: bytes) -> bool:
    bare = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return bare[:1] == b"{" and b'"nodes"' in head and b'"node_type"' in head


def read_openvino(path: Path) -> Trace:
    """Return one `op` per executed layer of each report in the file."""
    found = ImportedFile("OpenVINO performance counters")
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    rows = _of_json(text, path, found) if text.lstrip()[:1] == "{" else _of_csv(text, path)
    layers = [
        (f"{kind} {name}".strip(), ns) for name, kind, status, ns in rows if "EXECUTED" in status.upper()
    ]
    if rows and not layers:
        raise empty(
            path,
            f"none of its {len(rows):,} layers was executed",
            "benchmark_app -report_type detailed_counters",
        )
    found.lose(
        "W-PROF-16",
        "layers have no time that can be read",
        sum(ns is None for _, ns in layers),
        evidence=examples(name for name, ns in layers if ns is None),
        effect="They are left out, and the shares of the others are too high",
    )
    found.note(
        "I-PROF-8",
        "OpenVINO's counters are means over all inferences since the model was compiled, the first included",
        effect="A layer whose first run was slow has too large a share",
        fix="benchmark_app -t 60: among many inferences the first weighs little",
    )
    return laid_out(path, found, [(name, ns) for name, ns in layers if ns is not None], "op")


def _of_csv(text: str, path: Path) -> list[Counter]:
    """Return the counters of a CSV report, without its sums."""
    lines = [line for line in text.splitlines() if line.strip()]
    head = next(i for i, line in enumerate(lines) if COUNTED[0] in line)
    delimiter = next((d for d in ";\t" if d in lines[head]), ",")
    rows = list(
        csv.DictReader(
            (line for i, line in enumerate(lines[head:]) if not i or COUNTED[0] not in line),
            delimiter=delimiter,
        )
    )
    time, unit_ns = _time_column(path, list(rows[0]) if rows else [])
    return [
        (
            row["layerName"],
            row.get("layerType") or "",
            str(row.get("execStatus", "")),
            _reported_ns(row.get(time), unit_ns),
        )
        for row in rows
        if row.get("layerName") != "Total"
    ]


def _of_json(text: str, path: Path, found: ImportedFile) -> list[Counter]:
    """Return the counters of a JSON report (-json_stats), whose times are milliseconds.

    Of averages benchmark_app writes the first layer only (2026.4), which is an input and executes nothing.
    """
    words = (
        (r.get(k) for k in ("name", "node_type", "status", "real_time")) for r in _nodes(text, path, found)
    )
    return [
        (f"{name}", f"{kind or ''}", f"{status}", _reported_ns(time, MS))
        for name, kind, status, time in words
    ]


def _nodes(text: str, path: Path, found: ImportedFile) -> list[Json]:
    """Return the layers of all requests; of a damaged file those that can be read."""
    try:
        report = json.loads(text, parse_float=str)
        requests = report.get("detailed_performance") or [report["avg_performance"]]
        return [row for request in requests for row in request["nodes"] if isinstance(row, dict)]
    except (ValueError, KeyError, TypeError, AttributeError):
        array = Salvage(text, ("node_type",), ("exec_type",))
        rows = list(array.rows(text.find("[", text.find('"nodes"')) + 1))
        found.salvaged(array, path, "layers", ended=text.rstrip().endswith("}"))
        return rows


def _time_column(path: Path, heads: Sequence[str]) -> tuple[str, int]:
    """Return the column of the time and its unit in nanoseconds; UsageError if the unit is none of time."""
    time = next((h for h in heads if h and ("real" in h.lower() or "time" in h.lower())), "")
    unit = re.search(r"\(([^)]*)\)|\[([^\]]*)\]", time)
    word = (unit[1] or unit[2] or "").strip().lower() if unit else "ms"
    if word not in UNITS:
        raise empty(path, f"its times are headed {time!r}, and the unit {word!r} is not known")
    return time, UNITS[word]


def laid_out(path: Path, found: ImportedFile, rows: Sequence[tuple[str, int]], kind: str) -> Trace:
    """Return rows (name, nanoseconds) as spans end to end from 0, with a note that says so."""
    names, index = indexed([name for name, _ in rows])
    end = np.cumsum(np.array([ns for _, ns in rows], "int64"))
    start = np.concatenate((np.zeros(1, "int64"), end[:-1])) if len(end) else end
    found.tables.append(
        Table(
            np.full(len(end), SPAN_KINDS.index(kind), "int8"),
            {"name": index, "start_ns": start, "end_ns": end},
            names,
        )
    )
    found.facts["averaged"] = True
    found.note(
        "I-PROF-2",
        "the file says how long, not when",
        evidence=found.source,
        effect="The rows are laid end to end: totals and shares hold, starts and gaps mean nothing",
    )
    return found.trace(path, timed=False)


def _reported_ns(text: object, unit_ns: int) -> int | None:
    """Return a time of a report: `1.25` in the unit of its heading, or `0:00:00.001250`; None if it is no time."""
    word = str(text or "").strip()
    if ":" not in word:
        return exact_ns(word.replace(",", "."), unit_ns)
    parts = [exact_ns(part, factor) for part, factor in zip(word.split(":"), OF_A_DAY, strict=False)]
    return (
        sum(p for p in parts if p is not None)
        if len(parts) == word.count(":") + 1 and None not in parts
        else None
    )


#: Nanoseconds of the parts of a time of day.
OF_A_DAY = (3600 * 10**9, 60 * 10**9, 10**9)


OPENVINO = Importer(_knows_openvino, read_openvino)


ORT_RUN, US = "model_run", 1000


def _knows_ort(path: Path, head: bytes) -> bool:
    """Return whether the file is an array of events of a session."""
    return head.lstrip()[:1] == b"[" and b'"cat"' in head and b'"Session"' in head


def read_ort(path: Path) -> Trace:
    """Return the nodes as `op` and each run of the session as `range`; kernels of a GPU provider as `kernel`."""
    found = ImportedFile("ONNX Runtime profile")
    events = _ort_events(path, found)
    rows = _whole([e for e in events if e.get("ph") == "X"], found)
    names, index = indexed([_ort_name(e) for e in rows])
    kinds = np.array([SPAN_KINDS.index(_ort_kind(e)) for e in rows], "int8")
    start, length = (np.array([exact_ns(e[k], US) for e in rows], "int64") for k in ("ts", "dur"))
    columns: dict[str, Any] = {
        "name": index,
        "start_ns": start,
        "end_ns": start + length,
        "process": np.array([clean(e.get("pid")) for e in rows], "int64"),
        "thread": np.array([clean(e.get("tid")) for e in rows], "int64") & 0x7FFFFFFF,
        "bytes": np.array([clean(_ort_args(e).get("output_size")) for e in rows], "int64"),
    }
    ran = kinds != SPAN_KINDS.index("phase")
    columns = {k: v[ran] for k, v in columns.items()}
    found.tables.append(Table(kinds[ran], columns, names))
    providers = sorted({str(_ort_args(e)["provider"]) for e in rows if _ort_args(e).get("provider")})
    found.facts |= {"providers": providers} if providers else {}
    found.note(
        "I-PROF-1",
        "ONNX Runtime counts in whole microseconds",
        effect="An operator below 1 us is 0 long",
    )
    return found.trace(path)


def _ort_events(path: Path, found: ImportedFile) -> list[dict[str, Any]]:
    """Return the events; of a file that was damaged or cut, those that can be read."""
    array = Salvage(path.read_text(encoding="utf-8-sig", errors="replace"), ("ph",), ("cat", "name", "ts"))
    events = list(array.rows(array.text.find("[") + 1))
    fix = "InferenceSession.end_profiling(), which writes the rest"
    found.salvaged(array, path, "events", fix, ended=array.ended)
    return events


def _whole(events: list[dict[str, Any]], found: ImportedFile) -> list[dict[str, Any]]:
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


def _ort_args(event: dict[str, Any]) -> dict[str, Any]:
    found = event.get("args")
    return found if isinstance(found, dict) else {}


def _ort_kind(event: dict[str, Any]) -> str:
    name, category = str(event.get("name", "")), event.get("cat")
    if category == "Kernel":
        return "kernel"
    if category == "Node":
        return "op" if name.endswith("_kernel_time") else "phase"
    return "range" if name == ORT_RUN else "phase"


def _ort_name(event: dict[str, Any]) -> str:
    """Return `Conv /layer1/conv1`: the operator and the node, as they stand in the model."""
    name = str(event.get("name", "")).removesuffix("_kernel_time")
    operator = _ort_args(event).get("op_name")
    return f"{operator} {name}" if operator else name


ONNXRUNTIME = Importer(_knows_ort, read_ort)


#: Name and kind of a span, and the part of an inference that it is in TRTEXEC_COLUMNS.
TRTEXEC_PARTS = (
    ("enqueue", "api", "enq"),
    ("H2D", "copy", "h2d"),
    ("compute", "graph", "compute"),
    ("D2H", "copy", "d2h"),
)
TRTEXEC_ROWS = ("startEnqMs", "startComputeMs"), ("averageMs", "timeMs", "count")
"""Keys of which a row of the times has one, and a row of the layers."""
Times = NDArray[np.int64]


def _knows_trtexec(path: Path, head: bytes) -> bool:
    """Return whether the file is one of the two."""
    bare = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return bare[:1] == b"[" and any(
        f'"{key}"'.encode() in head for keys in TRTEXEC_ROWS for key in keys if key != "count"
    )


def read_trtexec(path: Path) -> Trace:
    """Return layers as `op`, or inferences with their copies and computation."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    is_times = any(f'"{key}"' in text for key in TRTEXEC_ROWS[0])
    array = Salvage(text, TRTEXEC_ROWS[0] if is_times else TRTEXEC_ROWS[1])
    rows = list(array.rows(text.find("[") + 1))
    found = ImportedFile("trtexec times" if is_times else "trtexec layer profile")
    found.salvaged(array, path, "rows", ended=array.ended)
    runs = [run for run in array.runs if run < len(rows)]
    return _trtexec_times(path, found, rows, runs) if is_times else _trtexec_layers(path, found, rows)


def _trtexec_layers(path: Path, found: ImportedFile, rows: Sequence[Json]) -> Trace:
    """Return one `op` a layer of each profile in the file."""
    layers = [(str(r.get("name", "")), exact_ns(r.get("averageMs"), MS)) for r in rows if "count" not in r]
    counts = [n for r in rows if "count" in r and (n := exact_ns(r["count"], 1)) is not None]
    found.facts |= {"inferences": sum(counts)} if counts else {}
    found.lose(
        "W-PROF-16",
        "layers have no time that can be read",
        sum(ns is None for _, ns in layers),
        effect="They are left out, and the shares of the others are too high",
    )
    _several(found, len(counts))
    return laid_out(path, found, [(name, ns) for name, ns in layers if ns is not None], "op")


def _several(found: ImportedFile, arrays: int) -> None:
    if arrays > 1:
        found.note(
            "I-PROF-7",
            f"the file holds {arrays} runs, one after the other",
            effect="All are read, and laid end to end: what lies between two of them means nothing",
        )


def _trtexec_times(path: Path, found: ImportedFile, rows: Sequence[Json], runs: Sequence[int]) -> Trace:
    """Return the spans of each inference; the computation is one launch of the whole engine."""
    known = {
        name: _column(rows, names)
        for name, names in TRTEXEC_COLUMNS.items()
        if name.startswith(("start", "end"))
    }
    shift = _moved(known, runs)
    for name, kind, part in TRTEXEC_PARTS:
        _add_spans(found, name, kind, known[f"start_{part}"] + shift, known[f"end_{part}"] + shift)
    _add_spans(found, "inference", "unit", known["start_h2d"] + shift, known["end_d2h"] + shift)
    _several(found, len(runs))
    found.note(
        "I-PROF-3",
        "trtexec times an engine as a whole",
        effect="Kernels within `compute` are not separable; times have six digits",
        fix="trtexec --exportProfile=FILE for layers, nsys for kernels",
    )
    return found.trace(path)


#: Stands for a time that is not in the file; so far off that no shift makes a time of it.
NO_TIME = -(2**62)


def _column(rows: Sequence[Json], names: Sequence[str]) -> Times:
    values = (next((exact_ns(r[n], MS) for n in names if n in r), None) for r in rows)
    return np.array([NO_TIME if ns is None else ns for ns in values], "int64")


def _moved(known: Mapping[str, Times], runs: Sequence[int]) -> Times:
    """Return what each row's times are moved by so that runs, each of which begins at 0, follow each other."""
    rows = len(known["start_enq"])
    shift, at = np.zeros(rows, "int64"), 0
    for first, last in pairwise((*runs, rows)):
        shift[first:last] = at
        at += max(int(c[first:last].max(initial=0)) for name, c in known.items() if name.startswith("end"))
    return shift


def _add_spans(found: ImportedFile, name: str, kind: str, start: Times, end: Times) -> None:
    """Add the spans that have both times; say how many have not."""
    there = (start > NO_TIME // 2) & (end > NO_TIME // 2)
    found.lose(
        "W-PROF-16",
        f"inferences have no times of {name}",
        int((~there).sum()),
        effect="It is left out there: how long it took is not known",
    )
    query = np.flatnonzero(there)
    columns: dict[str, Any] = {"name": 0, "start_ns": start[there], "end_ns": end[there], "query_id": query}
    if kind != "unit":
        columns |= {"device": 0, "correlation": query if kind != "copy" else -1}
    found.tables.append(Table(kind, {**columns, "process": 0}, [name]))


TRTEXEC = Importer(_knows_trtexec, read_trtexec)
