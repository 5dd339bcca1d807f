"""OpenVINO's performance counters: benchmark_app's CSV reports, and the same rows that a request returns.

They say how long each layer took, but not when. The layers are laid end to end in the order of the report, so totals
and shares hold and times of day do not.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from edgescope.records import SPAN_KINDS, Trace
from edgescope.tracing.importers.base import Collected, Importer, Table, empty, exact_ns, examples, indexed

HEADS = ("layerName", "execStatus")
#: Unit in a heading, or in that of a JSON report none -> nanoseconds. Without a unit it is milliseconds, as always.
UNITS = {
    "ms": 1_000_000,
    "us": 1000,
    "\N{MICRO SIGN}s": 1000,
    "\N{GREEK SMALL LETTER MU}s": 1000,
    "ns": 1,
    "s": 10**9,
}
MS = UNITS["ms"]


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is a CSV of counters."""
    return all(h.encode() in head for h in HEADS)


def read(path: Path) -> Trace:
    """Return one `op` per executed layer of each report in the file."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    lines = [line for line in text.splitlines() if line.strip()]
    head = next(i for i, line in enumerate(lines) if HEADS[0] in line)
    delimiter = next((d for d in ";\t" if d in lines[head]), ",")
    rows = list(
        csv.DictReader(
            (line for i, line in enumerate(lines[head:]) if not i or HEADS[0] not in line),
            delimiter=delimiter,
        )
    )
    found = Collected("OpenVINO performance counters")
    time, unit_ns = _time(path, list(rows[0]) if rows else [])
    layers = [
        (f"{row.get('layerType') or ''} {row['layerName']}".strip(), _ns(row.get(time), unit_ns))
        for row in rows
        if "EXECUTED" in str(row.get("execStatus", "")).upper() and row.get("layerName") != "Total"
    ]
    found.lose(
        "W-PROF-16",
        "layers have no time that can be read",
        sum(ns is None for _, ns in layers),
        evidence=examples(name for name, ns in layers if ns is None),
        effect="They are left out, and the shares of the others are too high",
    )
    return laid_out(path, found, [(name, ns) for name, ns in layers if ns is not None], "op")


def _time(path: Path, heads: Sequence[str]) -> tuple[str, int]:
    """Return the column of the time and its unit in nanoseconds; UsageError if the unit is none of time."""
    time = next((h for h in heads if h and ("real" in h.lower() or "time" in h.lower())), "")
    unit = re.search(r"\(([^)]*)\)|\[([^\]]*)\]", time)
    word = (unit[1] or unit[2] or "").strip().lower() if unit else "ms"
    if word not in UNITS:
        raise empty(path, f"its times are headed {time!r}, and the unit {word!r} is not known")
    return time, UNITS[word]


def laid_out(path: Path, found: Collected, rows: Sequence[tuple[str, int]], kind: str) -> Trace:
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
        f"the {found.source} says how long, not when",
        effect="The rows are laid end to end: totals and shares hold, starts and gaps mean nothing",
    )
    return found.trace(path, timed=False)


def _ns(text: object, unit_ns: int) -> int | None:
    """Return a time of a report: `1.25` in the unit of its heading, or `0:00:00.001250`; None if it is no time."""
    word = str(text or "").strip()
    if ":" not in word:
        return exact_ns(word.replace(",", "."), unit_ns) if word.count(",") + word.count(".") < 2 else None
    parts = [exact_ns(part, factor) for part, factor in zip(word.split(":"), CLOCK, strict=False)]
    return (
        sum(p for p in parts if p is not None)
        if len(parts) == word.count(":") + 1 and None not in parts
        else None
    )


#: Nanoseconds of the parts of a time of day.
CLOCK = (3600 * 10**9, 60 * 10**9, 10**9)


IMPORTER = Importer(knows, read)
