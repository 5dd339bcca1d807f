"""Summaries without times of day: the CSVs of `nsys stats`, and Nsight Compute's CSV of metrics per kernel."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.records import SPAN_KINDS, Channel, Readings, Trace
from edgescope.tracing.importers.base import Collected, Importer, Table, empty, indexed, kind_of_call

STATS = b"Total Time (ns)"
NCU, LAYOUTS = b'"Kernel Name"', (b'"Metric Name"', b"gpu__time_duration", b'"Grid Size"')
"""What is in every heading, and what tells its layout: a row a metric, a column a metric, the raw page."""
NO_COUNTERS = ("device__attribute_", "profiler__")
"""What `--page raw` writes about the device and about the tool itself, the same for every kernel."""
#: Most rows of one name that a summary is spread over.
MOST = 1_000_000
DURATIONS = ("gpu__time_duration.sum", "Duration", "gpu__time_duration.avg")
UNITS = {
    "nsecond": 1.0,
    "ns": 1.0,
    "usecond": 1e3,
    "us": 1e3,
    "msecond": 1e6,
    "ms": 1e6,
    "second": 1e9,
    "s": 1e9,
}


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is one of them; Nsight Compute writes lines of its own before the heading."""
    return STATS in head or (NCU in head and any(word in head for word in LAYOUTS))


def read(path: Path) -> Trace:
    """Return what the file holds."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    lines = text.splitlines()
    head = next((i for i, line in enumerate(lines) if STATS.decode() in line or "Kernel Name" in line), -1)
    rows = list(csv.DictReader(lines[head:])) if head >= 0 else []
    if not rows:
        raise empty(path, "no rows below its heading")
    return _ncu(path, rows) if "Kernel Name" in rows[0] else _stats(path, rows)


def _stats(path: Path, rows: Sequence[Mapping[str, str]]) -> Trace:
    """Return as many equal spans of a name as the summary counts, laid end to end: mean and total hold."""
    column = next((c for c in ("Name", "Range", "Operation") if c in rows[0]), "")
    kind = "range" if column == "Range" else "copy" if column == "Operation" else ""
    found = Collected("nsys stats summary")
    names, index = indexed([str(r.get(column, "")).removeprefix(":") for r in rows])
    counts = np.array(
        [min(_number(r.get("Instances") or r.get("Num Calls") or r.get("Count")), MOST) for r in rows]
    )
    totals = np.array([_number(r.get("Total Time (ns)")) for r in rows])
    kinds = [kind or _kind(name, rows[0]) for name in names]
    length = np.repeat(totals / np.maximum(counts, 1), counts.astype("int64"))
    end = np.rint(np.cumsum(length)).astype("int64")
    start = np.concatenate((np.zeros(1, "int64"), end[:-1])) if len(end) else end
    name = np.repeat(index, counts.astype("int64"))
    kind_numbers = np.array([SPAN_KINDS.index(k) for k in kinds], "int8")[name]
    gpu = np.isin(kind_numbers, [SPAN_KINDS.index(k) for k in ("kernel", "copy")])
    columns: dict[str, NDArray[Any] | int] = {"name": name, "start_ns": start, "end_ns": end}
    found.tables.append(Table(kind_numbers, {**columns, "device": np.where(gpu, 0, -1)}, names))
    found.note(
        "I-PROF-2",
        "a summary says how often and how long, not when",
        effect="Each name has its mean length; totals hold, order, gaps and quantiles mean nothing",
        fix="nsys export --type sqlite FILE.nsys-rep",
    )
    return found.trace(path, timed=False)


def _kind(name: str, row: Mapping[str, str]) -> str:
    if "Instances" in row:
        return "kernel"
    return kind_of_call(name) if re.match(r"(cuda|cu|hip)[A-Z]", name) else "call"


def _ncu(path: Path, rows: Sequence[Mapping[str, str]]) -> Trace:
    """Return one kernel per launch, end to end, and its metrics as samples at its start."""
    wide = "Metric Name" not in rows[0]
    units: Mapping[str, str] = rows[0] if wide and not rows[0].get("Kernel Name") else {}
    launches: dict[str, dict[str, tuple[float, str]]] = {}
    names: dict[str, str] = {}
    for i, row in enumerate(rows):
        ident = row.get("ID") or str(i)
        if not row.get("Kernel Name"):
            continue
        names[ident] = str(row["Kernel Name"])
        metrics = launches.setdefault(ident, {})
        if wide:
            counters = [k for k in row if k and "__" in k and not k.startswith(NO_COUNTERS)]
            pairs = [(k, row[k], units.get(k, "")) for k in counters]
        else:
            pairs = [(row["Metric Name"], row["Metric Value"], row.get("Metric Unit", ""))]
        metrics |= {k: (_number(v), u) for k, v, u in pairs if _is_number(v)}
    found = Collected("Nsight Compute")
    length = np.array([_duration(m) for m in launches.values()], "int64")
    end = np.cumsum(length)
    start = end - length
    different, index = indexed([names[i] for i in launches])
    found.tables.append(
        Table("kernel", {"name": index, "start_ns": start, "end_ns": end, "device": 0}, different)
    )
    found.note(
        "I-PROF-4",
        "Nsight Compute runs each kernel alone and several times",
        effect="Its counters are exact, its times are not those of the program; kernels are laid end to end",
    )
    return found.trace(path, timed=False, samples=_samples(list(launches.values()), start))


def _duration(metrics: Mapping[str, tuple[float, str]]) -> int:
    value, unit = next((metrics[k] for k in DURATIONS if k in metrics), (0.0, "ns"))
    return round(value * UNITS.get(unit, 1.0))


def _samples(
    launches: Sequence[Mapping[str, tuple[float, str]]], start: NDArray[np.int64]
) -> Readings | None:
    known = list(dict.fromkeys(k for m in launches for k in m))
    if not known:
        return None
    channels = tuple(
        Channel(k, next(m[k][1] for m in launches if k in m), "gpu_board", "gauge", "ncu") for k in known
    )
    rows = [(i, known.index(k), m[k][0]) for i, m in enumerate(launches) for k in m]
    at, channel, value = zip(*rows, strict=True)
    return Readings(channels, start[list(at)], np.array(channel, "int16"), np.array(value, "float64"))


def _is_number(text: str | None) -> bool:
    return bool(re.fullmatch(r"\s*-?[\d.,]+(e[+-]?\d+)?\s*", text or ""))


def _number(text: str | None) -> float:
    """Return a number that may have commas between its thousands; 0 if it is none."""
    try:
        return float((text or "0").replace(",", ""))
    except ValueError:
        return 0.0


IMPORTER = Importer(knows, read)
