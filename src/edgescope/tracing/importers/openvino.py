"""OpenVINO's performance counters: benchmark_app's CSV reports, and the same rows that a request returns.

They say how long each layer took, but not when. The layers are laid end to end in the order of the report, so totals
and shares hold and times of day do not.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgescope.records import SPAN_KINDS, Trace
from edgescope.tracing.importers.base import Collected, Importer, Table, indexed

HEADS = ("layerName", "execStatus")


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is a CSV of counters."""
    return all(h.encode() in head for h in HEADS)


def read(path: Path) -> Trace:
    """Return one `op` per executed layer of each report in the file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    head = next(i for i, line in enumerate(lines) if HEADS[0] in line)
    delimiter = ";" if ";" in lines[head] else ","
    rows = list(csv.DictReader(lines[head:], delimiter=delimiter))
    time = next((h for h in rows[0] if "real" in h.lower() or "time" in h.lower()), "") if rows else ""
    found = [
        (f"{row.get('layerType') or ''} {row['layerName']}".strip(), _us(row.get(time)) * 1e-6)
        for row in rows
        if "EXECUTED" in str(row.get("execStatus", "")).upper() and row.get("layerName") != "Total"
    ]
    return laid_out(path, Collected("OpenVINO performance counters"), found, "op")


def laid_out(path: Path, found: Collected, rows: Sequence[tuple[str, float]], kind: str) -> Trace:
    """Return rows (name, seconds) as spans end to end from 0, with a note that says so."""
    names, index = indexed([name for name, _ in rows])
    end = np.cumsum(np.array([round(s * 1e9) for _, s in rows], "int64"))
    start = np.concatenate((np.zeros(1, "int64"), end[:-1])) if len(end) else end
    found.tables.append(
        Table(
            np.full(len(end), SPAN_KINDS.index(kind), "int8"),
            {"name": index, "start_ns": start, "end_ns": end},
            names,
        )
    )
    found.note(
        "I-PROF-2",
        f"the {found.source} says how long, not when",
        effect="The rows are laid end to end: totals and shares hold, starts and gaps mean nothing",
    )
    return found.trace(path, timed=False)


def _us(text: object) -> float:
    """Return a time of a report in microseconds: `1.25`, `0:00:00.001250`, or milliseconds under (ms)."""
    word = str(text or "0")
    try:
        if ":" in word:
            hours, minutes, seconds = word.split(":")
            return (float(hours) * 3600 + float(minutes) * 60 + float(seconds)) * 1e6
        return float(word) * 1e3
    except ValueError:
        return 0.0


IMPORTER = Importer(knows, read)
