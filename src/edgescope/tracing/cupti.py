"""CUPTI's activity records as a tracer, through cupti-python: calls, kernels, copies and graphs of any engine.

It records less than torch.profiler (no operators) and costs less. The records come in buffers to a callback; what is
needed of each is kept, and written as one file when the window ends.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.process import Launch
from edgescope.records import SPAN_DTYPES, SPAN_KINDS, Spans
from edgescope.registry import need
from edgescope.tracing.importers.base import clean, indexed, kind_of_call

FILE, NAMES = "cupti.npz", "cupti-names.txt"
BUFFER_BYTES, ANY_NUMBER = 8 * 1024 * 1024, 0
FIX = "pip install cupti-python"
COPIES = {1: "H2D", 2: "D2H", 8: "D2D", 9: "H2H", 10: "P2P"}
KINDS = ("CONCURRENT_KERNEL", "RUNTIME", "DRIVER", "MEMCPY", "MEMSET", "SYNCHRONIZATION", "GRAPH_TRACE")
Row = tuple[Any, ...]
"""Kind, name, then FIELDS."""
FIELDS = ("start_ns", "end_ns", "thread", "device", "context", "stream", "correlation", "graph", "bytes")


class Recorder:
    """The rows of the records that CUPTI delivers."""

    def __init__(self, cupti: Any) -> None:
        self.cupti, self.rows = cupti, list[Row]()
        self.calls: dict[tuple[int, int], str] = {}

    def requested(self) -> tuple[int, int]:
        """Return the size of a buffer and how many records it may hold."""
        return BUFFER_BYTES, ANY_NUMBER

    def completed(self, activities: Sequence[Any]) -> None:
        """Keep what is needed of each record."""
        for one in activities:
            kind = getattr(one.kind, "name", None) or self.cupti.ActivityKind(one.kind).name
            if kind in ("CONCURRENT_KERNEL", "KERNEL"):
                self._keep("kernel", str(one.name), one)
            elif kind in ("RUNTIME", "DRIVER"):
                name = self._call(kind, int(one.cbid))
                self._keep(kind_of_call(name), name, one)
            elif kind == "MEMCPY":
                self._keep("copy", COPIES.get(int(one.copy_kind), f"copy of kind {int(one.copy_kind)}"), one)
            elif kind == "MEMSET":
                self._keep("copy", "memset", one)
            elif kind == "GRAPH_TRACE":
                self._keep("graph", "CUDA graph", one)

    def _call(self, kind: str, cbid: int) -> str:
        domain = (
            3 if kind == "RUNTIME" else 2
        )  # CUpti_CallbackDomain: RUNTIME_API = 2, DRIVER_API = 1 before 12
        domains = getattr(self.cupti, "CallbackDomain", None)
        if domains is not None:
            domain = int(getattr(domains, f"{kind}_API"))
        if (domain, cbid) not in self.calls:
            self.calls[domain, cbid] = str(self.cupti.get_callback_name(domain, cbid))
        return self.calls[domain, cbid]

    def _keep(self, kind: str, name: str, one: Any) -> None:
        numbers = [
            clean(getattr(one, word, -1))
            for word in ("thread_id", "device_id", "context_id", "stream_id", "correlation_id")
        ]
        graph = clean(getattr(one, "graph_node_id", 0)) or clean(getattr(one, "graph_id", 0)) or -1
        row = (int(one.start), int(one.end), *numbers, graph, clean(getattr(one, "bytes", -1)))
        self.rows.append((kind, name, *row))

    def spans(self, shift: int) -> Spans:
        """Return the rows as spans of this process, with `shift` added to every time."""
        rows = [row for row in self.rows if row[2] > 0 and row[3] >= row[2]]
        names, index = indexed([row[1] for row in rows])
        columns: dict[str, Any] = {
            field: np.array([row[2 + i] for row in rows], "int64") for i, field in enumerate(FIELDS)
        }
        names = [demangled(name) for name in names]
        columns |= {"name": index, "process": os.getpid()}
        columns["kind"] = np.array([SPAN_KINDS.index(row[0]) for row in rows], "int8")
        columns["thread"] = columns["thread"] & 0x7FFFFFFF
        columns["stream"] = np.where(columns["stream"] >= 2**31, -1, columns["stream"])
        return Spans.from_columns(names, columns).moved(shift)


class CuptiTracer:
    """Records from inside the process."""

    def launch(self, folder: Path) -> Launch:
        """Return an empty launch: nothing is needed before the process starts."""
        return Launch()

    @contextmanager
    def window(self, folder: Path) -> Iterator[None]:
        """Record within the block, then write the rows."""
        cupti = _cupti()
        recorder = Recorder(cupti)
        cupti.activity_register_callbacks(recorder.requested, recorder.completed)
        kinds = [getattr(cupti.ActivityKind, name) for name in KINDS if hasattr(cupti.ActivityKind, name)]
        before = _shift(cupti)
        for kind in kinds:
            cupti.activity_enable(kind)
        try:
            yield
        finally:
            cupti.activity_flush_all(1)
            after = _shift(cupti)
            for kind in kinds:
                cupti.activity_disable(kind)
        spans = recorder.spans((before + after) // 2)
        np.savez(folder / FILE, **dict[str, Any](spans.columns))
        (folder / NAMES).write_text("\0".join(spans.names))

    def spans(self, folder: Path) -> Spans:
        """Return the spans on the queries' clock."""
        with np.load(folder / FILE) as stored:
            columns = {name: stored[name] for name in SPAN_DTYPES}
        return Spans(tuple((folder / NAMES).read_text().split("\0")), columns)


def _cupti() -> Any:
    """Return cupti-python's module; UnavailableError if it is not installed."""
    need("cupti.cupti:activity_enable", "tracer cupti", FIX)
    return importlib.import_module("cupti.cupti")


def demangled(name: str) -> str:
    """Return the C++ name behind a symbol, as CUPTI names kernels by symbols; other names stay as they are."""
    if not name.startswith("_Z"):
        return name
    try:
        library = ctypes.CDLL("libstdc++.so.6")
    except OSError:
        return name
    convert = library.__cxa_demangle
    convert.restype, status = ctypes.c_void_p, ctypes.c_int(-1)
    found = convert(name.encode(), None, None, ctypes.byref(status))
    if not found or status.value:
        return name
    text = ctypes.string_at(found).decode("utf-8", "replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


def _shift(cupti: Any) -> int:
    """Return what to add to CUPTI's clock to get the queries': the tightest of several readings of both."""
    best = None
    for _ in range(20):
        before, theirs, after = time.monotonic_ns(), int(cupti.get_timestamp()), time.monotonic_ns()
        if best is None or after - before < best[0]:
            best = after - before, (before + after) // 2 - theirs
    assert best is not None
    return best[1]
