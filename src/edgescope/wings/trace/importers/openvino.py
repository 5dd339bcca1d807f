"""OpenVINO's performance counters: benchmark_app's reports, CSV or JSON, and the same rows that a request returns.

They say how long each layer took, but not when. The layers are laid end to end in the order of the report, so totals
and shares hold and times of day do not.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgescope.records import SPAN_KINDS, Json, Trace
from edgescope.tracing.importer import ImportedFile, Importer, Table, empty, exact_ns, examples, indexed
from edgescope.tracing.salvage import Salvage

HEADS = ("layerName", "execStatus")
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


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is a report of counters."""
    return all(h.encode() in head for h in HEADS) or _is_json(head)


def _is_json(head: bytes) -> bool:
    bare = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return bare[:1] == b"{" and b'"nodes"' in head and b'"node_type"' in head


def read(path: Path) -> Trace:
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
    head = next(i for i, line in enumerate(lines) if HEADS[0] in line)
    delimiter = next((d for d in ";\t" if d in lines[head]), ",")
    rows = list(
        csv.DictReader(
            (line for i, line in enumerate(lines[head:]) if not i or HEADS[0] not in line),
            delimiter=delimiter,
        )
    )
    time, unit_ns = _time(path, list(rows[0]) if rows else [])
    return [
        (
            row["layerName"],
            row.get("layerType") or "",
            str(row.get("execStatus", "")),
            _ns(row.get(time), unit_ns),
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
    return [(f"{name}", f"{kind or ''}", f"{status}", _ns(time, MS)) for name, kind, status, time in words]


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


def _time(path: Path, heads: Sequence[str]) -> tuple[str, int]:
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


def _ns(text: object, unit_ns: int) -> int | None:
    """Return a time of a report: `1.25` in the unit of its heading, or `0:00:00.001250`; None if it is no time."""
    word = str(text or "").strip()
    if ":" not in word:
        return exact_ns(word.replace(",", "."), unit_ns)
    parts = [exact_ns(part, factor) for part, factor in zip(word.split(":"), CLOCK, strict=False)]
    return (
        sum(p for p in parts if p is not None)
        if len(parts) == word.count(":") + 1 and None not in parts
        else None
    )


#: Nanoseconds of the parts of a time of day.
CLOCK = (3600 * 10**9, 60 * 10**9, 10**9)


IMPORTER = Importer(knows, read)
