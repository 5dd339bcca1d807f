"""The importer seam: one format of one profiler, recognised by its content and read into a Trace.

    knows(path, head) -> bool     True if the file is of this format; head is its first 4 kB
    read(path) -> Trace           every row that can be read; notes say what cannot

A file that is damaged gives what was read so far and a note; only a file with nothing to read raises an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import Message, UsageError
from edgescope.records import SPAN_KINDS, Spans, Trace

#: Host calls that wait for the GPU. Copies without Async in their name wait until they are done.
WAITS = (
    *("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaThreadSynchronize"),
    *("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"),
    *("hipDeviceSynchronize", "hipStreamSynchronize", "hipEventSynchronize"),
)
BLOCKING_COPIES = ("cudaMemcpy", "cuMemcpy", "hipMemcpy")
WRAP = 1 << 32


@dataclass(frozen=True)
class Importer:
    """One format: how it is recognised and read. Each module of this folder has one, a plug-in adds its own."""

    knows: Callable[[Path, bytes], bool]
    read: Callable[[Path], Trace]


def kind_of_call(name: str) -> str:
    """Return `sync` for a CUDA or HIP call that waits for the GPU, else `api`."""
    bare = name.partition("_v")[0].removesuffix("_ptsz").removesuffix("_ptds")
    waits = bare in WAITS or (bare.startswith(BLOCKING_COPIES) and "Async" not in bare)
    return "sync" if waits else "api"


@dataclass
class Table:
    """Rows that an importer collects: columns of one length, an int where all rows are equal; names as indices."""

    kind: str | NDArray[Any]
    """The kind of all rows, or the number of the kind of each row."""
    columns: dict[str, NDArray[Any] | int]
    names: Sequence[str]

    def spans(self) -> Spans:
        """Return the rows as spans."""
        kind = SPAN_KINDS.index(self.kind) if isinstance(self.kind, str) else self.kind
        return Spans.from_columns(self.names, {**self.columns, "kind": kind})


@dataclass
class Collected:
    """The tables and notes of one file."""

    source: str
    tables: list[Table] = field(default_factory=list)
    notes: list[Message] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)

    def note(self, code: str, what: str, evidence: str = "", effect: str = "", fix: str = "") -> None:
        """Add a note, once."""
        message = Message(code, what, evidence, effect, fix)
        if message not in self.notes:
            self.notes.append(message)

    def trace(self, path: Path, **rest: Any) -> Trace:
        """Return the trace with its rows mended; UsageError if there are neither rows nor samples."""
        spans = Spans.joined([t.spans() for t in self.tables if len(t.columns["start_ns"])])  # type: ignore[arg-type]
        if not len(spans) and rest.get("samples") is None:
            raise empty(path, "; ".join(n.what for n in self.notes) or "it has no rows")
        return Trace(self._mended(spans), self.source, facts=self.facts, notes=tuple(self.notes), **rest)

    def _mended(self, spans: Spans) -> Spans:
        """Return the spans without rows that end before they start; durations cut to 32 bits are completed."""
        start, end = spans.columns["start_ns"], spans.columns["end_ns"]
        backward = end < start
        if not backward.any():
            return spans
        wrapped = backward & (end + WRAP > start) & (end + WRAP - start < WRAP)
        columns = {**spans.columns, "end_ns": np.where(wrapped, end + WRAP, end)}
        gone = backward & ~wrapped
        if wrapped.any():
            self.note(
                "W-PROF-1",
                f"{int(wrapped.sum()):,} spans ended before they began by what 32 bits hold",
                effect="Their ends were completed",
            )
        if gone.any():
            self.note(
                "W-PROF-2", f"{int(gone.sum()):,} spans end before they begin", effect="They are left out"
            )
        return Spans(spans.names, columns).where(~gone)


def empty(path: Path, evidence: str) -> UsageError:
    """Return the error for a file with nothing to read."""
    return UsageError(
        "E-PROF-1",
        f"{path.name} holds nothing that can be read as a trace",
        evidence=evidence,
        effect="Nothing was imported",
        fix="export it again (edgescope docs profiling)",
    )


def indexed(values: Sequence[str]) -> tuple[list[str], NDArray[np.int32]]:
    """Return the different names in order of appearance, and the index of each value among them."""
    index: dict[str, int] = {}
    rows = np.fromiter((index.setdefault(v, len(index)) for v in values), "int32", len(values))
    return list(index), rows


def clean(number: Any, default: int = -1) -> int:
    """Return a number that a file may hold as text, or `default` if it is none."""
    try:
        return int(number)
    except (TypeError, ValueError, OverflowError):
        return default


def gpu_facts(gpus: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return the fact `gpus`: number as text -> name, number of multiprocessors."""
    return {"gpus": {str(number): dict(facts) for number, facts in gpus.items()}} if gpus else {}
