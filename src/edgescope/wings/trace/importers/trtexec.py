"""trtexec's JSON files: --exportProfile (layers) and --exportTimes (each inference), of all versions.

Names of columns changed once (foreign.py). A loop of runs that append to one file leaves several
arrays in it; all are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.foreign import TRTEXEC_COLUMNS
from edgescope.records import Json, Trace
from edgescope.tracing.importer import ImportedFile, Importer, Table, exact_ns
from edgescope.tracing.salvage import Salvage
from edgescope.wings.trace.importers.openvino import laid_out

MS = 1_000_000
#: Name and kind of a span, and the part of an inference that it is in TRTEXEC_COLUMNS.
PARTS = (
    ("enqueue", "api", "enq"),
    ("H2D", "copy", "h2d"),
    ("compute", "graph", "compute"),
    ("D2H", "copy", "d2h"),
)
ROWS = ("startEnqMs", "startComputeMs"), ("averageMs", "timeMs", "count")
"""Keys of which a row of the times has one, and a row of the layers."""
Times = NDArray[np.int64]


def knows(path: Path, head: bytes) -> bool:
    """Return whether the file is one of the two."""
    bare = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    return bare[:1] == b"[" and any(
        f'"{key}"'.encode() in head for keys in ROWS for key in keys if key != "count"
    )


def read(path: Path) -> Trace:
    """Return layers as `op`, or inferences with their copies and computation."""
    text = path.read_text(encoding="utf-8-sig", errors="replace")
    is_times = any(f'"{key}"' in text for key in ROWS[0])
    array = Salvage(text, ROWS[0] if is_times else ROWS[1])
    rows = list(array.rows(text.find("[") + 1))
    found = ImportedFile("trtexec times" if is_times else "trtexec layer profile")
    found.salvaged(array, path, "rows", ended=array.ended)
    runs = [run for run in array.runs if run < len(rows)]
    return _times(path, found, rows, runs) if is_times else _layers(path, found, rows)


def _layers(path: Path, found: ImportedFile, rows: Sequence[Json]) -> Trace:
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


def _times(path: Path, found: ImportedFile, rows: Sequence[Json], runs: Sequence[int]) -> Trace:
    """Return the spans of each inference; the computation is one launch of the whole engine."""
    known = {
        name: _column(rows, names)
        for name, names in TRTEXEC_COLUMNS.items()
        if name.startswith(("start", "end"))
    }
    shift = _moved(known, runs)
    for name, kind, part in PARTS:
        _add(found, name, kind, known[f"start_{part}"] + shift, known[f"end_{part}"] + shift)
    _add(found, "inference", "unit", known["start_h2d"] + shift, known["end_d2h"] + shift)
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


def _add(found: ImportedFile, name: str, kind: str, start: Times, end: Times) -> None:
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


IMPORTER = Importer(knows, read)
