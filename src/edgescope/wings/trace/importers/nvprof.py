"""What nvprof prints with `--csv`: every kernel and copy of a GPU, and every call of CUDA's interfaces.

nvprof --print-gpu-trace --print-api-trace --csv PROGRAM 2> trace.csv
nvprof -i FILE.nvprof --print-gpu-trace --csv 2> trace.csv      # of a recording, also one of the Visual Profiler

A JetPack 4 has nvprof. Lines of its own begin with `==`. Below the heading stands a row of units, which it chooses anew
for every file, and fields that a row lacks are empty. Its kilobyte has 1,024 bytes: `1.003906` KB of a fill are 1,028.
A second table of the same file begins with a heading of its own; all have one zero of time.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgescope.records import SPAN_KINDS, Trace
from edgescope.wings.trace.imported import (
    ImportedFile,
    Importer,
    Table,
    clean,
    empty,
    exact_ns,
    gpu_facts,
    indexed,
    kind_of_call,
)

HEADING = b'"Start","Duration"'
TIMES = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
SIZES = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
COPY = re.compile(r"\[CUDA (?:memcpy (?P<way>\w+)|(?P<fill>memset))\]")
#: The number behind a kernel's name, which joins it to its launch where no column does.
NUMBERED = re.compile(r" \[(\d+)\]$")
DEVICE = re.compile(r"(?P<name>.*\S) \((?P<number>\d+)\)")
WHERE = ("device", "context", "stream", "correlation", "bytes")
"""Columns of a span besides its name, kind and times."""


class Row(NamedTuple):
    """One row, its times in nanoseconds."""

    name: str
    kind: str
    start_ns: int
    end_ns: int
    device: int
    context: int
    stream: int
    correlation: int
    bytes: int


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is a trace of nvprof."""
    return HEADING in head and b'"Name"' in head


def read(path: Path) -> Trace:
    """Return the kernels, copies and calls; UsageError if there are none."""
    found, gpus, odd = ImportedFile("nvprof"), dict[int, dict[str, Any]](), 0
    rows: list[Row] = []
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as lines:
        for fields, units in _tables(lines):
            row = _row(fields, units)
            if row is None:
                odd += 1
                continue
            rows.append(row)
            if told := DEVICE.fullmatch(fields.get("Device") or ""):
                gpus.setdefault(int(told["number"]), {"name": told["name"]})
    if not rows:
        raise empty(path, "no row has a time, a length and a name")
    effect = "They are left out: the times and counts of their names are too low"
    found.lose("W-PROF-16", "rows have no time, no length or no name that can be read", odd, effect=effect)
    names, index = indexed([row.name for row in rows])
    kinds = np.array([SPAN_KINDS.index(row.kind) for row in rows], "int8")
    columns = {name: np.array([getattr(row, name) for row in rows], "int64") for name in WHERE}
    times = {name: np.array([getattr(row, name) for row in rows], "int64") for name in ("start_ns", "end_ns")}
    found.tables.append(Table(kinds, {"name": index, **times, **columns}, names))
    found.facts |= gpu_facts(gpus)
    return found.trace(path)


def _tables(lines: Iterable[str]) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    """Yield each row below a heading by its columns, with the units of that table."""
    heading, units = list[str](), dict[str, str]()
    for fields in csv.reader(line for line in lines if line.strip() and not line.startswith("==")):
        if fields[:2] == ["Start", "Duration"]:
            heading, units = fields, {}
        elif heading and not units:
            units = dict(zip(heading, fields, strict=False))
        elif heading:
            yield dict(zip(heading, fields, strict=False)), units


def _row(fields: Mapping[str, str], units: Mapping[str, str]) -> Row | None:
    """Return a row; None if it lacks what every row has."""
    start, length = (_time(fields, units, name) for name in ("Start", "Duration"))
    name, number = fields.get("Name", ""), clean(fields.get("Correlation_ID"))
    if start is None or length is None or length < 0 or not name:
        return None
    if (copied := COPY.fullmatch(NUMBERED.sub("", name))) is not None:
        kind, told = "copy", "memset" if copied["fill"] else copied["way"].replace("to", "2")
    elif fields.get("Device"):
        kind, told = "kernel", NUMBERED.sub("", name)
    else:
        kind, told = kind_of_call(name), name
    if number < 0 and (numbered := NUMBERED.search(name)) is not None:
        number = int(numbered[1])
    device = DEVICE.fullmatch(fields.get("Device") or "")
    return Row(
        name=told,
        kind=kind,
        start_ns=start,
        end_ns=start + length,
        device=int(device["number"]) if device else 0 if fields.get("Device") else -1,
        context=clean(fields.get("Context")),
        stream=clean(fields.get("Stream")),
        correlation=number,
        bytes=_size(fields, units) if kind == "copy" else -1,
    )


def _time(fields: Mapping[str, str], units: Mapping[str, str], name: str) -> int | None:
    unit = TIMES.get(units.get(name, "").strip())
    return exact_ns(fields.get(name), unit) if unit else None


def _size(fields: Mapping[str, str], units: Mapping[str, str]) -> int:
    """Return the bytes of a copy, -1 if they are not known."""
    unit = SIZES.get(units.get("Size", "").strip())
    found = exact_ns(fields.get("Size"), unit) if unit else None
    return -1 if found is None else found


IMPORTER = Importer(knows, read)
