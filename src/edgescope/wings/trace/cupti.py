"""CUPTI's activity records as a tracer, through cupti-python: calls, kernels, copies and graphs of any engine.

It records less than torch.profiler (no operators) and costs less: of the calls, only those that the account needs. An
eager ResNet-50 calls cudaGetDevice and its like 4,000 times a query beside 300 launches; recorded as well, they halved
its speed. The records come in buffers to a callback; a buffer holds a whole window, so the callback runs when the
window has ended. What is needed of each is written as one file.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.process import Launch
from edgescope.records import SPAN_DTYPES, SPAN_KINDS, Spans
from edgescope.registry import need
from edgescope.wings.trace.imported import clean, kind_of_call

FILE, NAMES = "cupti.npz", "cupti-names.txt"
#: A buffer that fills up within the window is converted then, and the conversion holds the interpreter's lock: with
#: 8 MiB, 32 queries of ResNet-50 filled one, and each later query took 600 ms in place of 1. This is 1,000 queries.
MOST_BYTES, LEAST_BYTES, ANY_NUMBER = 256 * 1024 * 1024, 8 * 1024 * 1024, 0
#: A buffer's share of the machine's memory at most: small boards have little, and processes run side by side.
MEMORY_SHARE = 1 / 64
#: Seconds after which a conversion lets the program go on, should a buffer fill up all the same; Python's 5 ms is long.
SWITCH_S = 20e-6
FIX = "pip install cupti-python"
COPIES = {1: "H2D", 2: "D2H", 8: "D2D", 9: "H2H", 10: "P2P"}
#: Waits are seen as calls; SYNCHRONIZATION records tell nothing more.
KINDS = ("CONCURRENT_KERNEL", "RUNTIME", "DRIVER", "MEMCPY", "MEMSET", "GRAPH_TRACE")
#: Calls that are recorded beside those that wait: they put work on the GPU, or allocate.
KEPT_CALLS = (
    "cudaLaunch",
    "cuLaunch",
    "cudaGraphLaunch",
    "cuGraphLaunch",
    "cudaMem",
    "cuMem",
    "cudaMalloc",
    "cudaFree",
)
SKIPPED_CALLS = ("cudaMemGetInfo", "cuMemGetInfo", "cuMemGetAddressRange", "cudaMemPoolGet", "cuMemPoolGet")
FIELDS = ("start_ns", "end_ns", "thread", "device", "context", "stream", "correlation", "graph", "bytes")
"""The columns of a row, after its kind and its name."""


class Recorder:
    """The rows of the records that CUPTI delivers, as numbers one after the other: a second has a million."""

    def __init__(self, cupti: Any) -> None:
        self.cupti, self.rows = cupti, array("q")
        self.names: dict[str, int] = {}
        self.calls: dict[tuple[str, int], str] = {}

    def requested(self) -> tuple[int, int]:
        """Return the size of a buffer and how many records it may hold."""
        return buffer_bytes(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")), ANY_NUMBER

    def completed(self, activities: Sequence[Any]) -> None:
        """Keep what is needed of each record; the records themselves may not outlive this call."""
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
        if (kind, cbid) not in self.calls:
            domain = int(getattr(self.cupti.CallbackDomain, f"{kind}_API"))
            self.calls[kind, cbid] = str(self.cupti.get_callback_name(domain, cbid))
        return self.calls[kind, cbid]

    def _keep(self, kind: str, name: str, one: Any) -> None:
        numbers = [
            clean(getattr(one, word, -1))
            for word in ("thread_id", "device_id", "context_id", "stream_id", "correlation_id")
        ]
        graph = clean(getattr(one, "graph_node_id", 0)) or clean(getattr(one, "graph_id", 0)) or -1
        index = self.names.setdefault(name, len(self.names))
        row = (SPAN_KINDS.index(kind), index, int(one.start), int(one.end))
        self.rows.extend((*row, *numbers, graph, clean(getattr(one, "bytes", -1))))

    def spans(self, shift: int) -> Spans:
        """Return the rows as spans of this process, with `shift` added to every time."""
        wide = 2 + len(FIELDS)
        table = np.array(self.rows, "int64").reshape(len(self.rows) // wide, wide).T
        columns: dict[str, Any] = dict(zip(("kind", "name", *FIELDS), table, strict=True))
        ended = (columns["start_ns"] > 0) & (columns["end_ns"] >= columns["start_ns"])
        columns["thread"] = np.where(columns["thread"] < 0, -1, columns["thread"] & 0x7FFFFFFF)
        columns["stream"] = np.where(columns["stream"] >= 2**31, -1, columns["stream"])
        columns |= {"kind": columns["kind"].astype("int8"), "name": columns["name"].astype("int32")}
        names = [demangled(name) for name in self.names]
        return Spans.from_columns(names, {**columns, "process": os.getpid()}).where(ended).moved(shift)


def needed(name: str) -> bool:
    """Return whether the account needs a call: it launches, copies, allocates, or waits for the GPU."""
    kept = name.startswith(KEPT_CALLS) and not name.startswith(SKIPPED_CALLS)
    return kept or kind_of_call(name) == "sync"


def skip_calls(cupti: Any) -> None:
    """Have CUPTI record no call that the account does not need; a call that cannot be switched off is recorded."""
    for domain in ("Runtime", "Driver"):
        switch = getattr(cupti, f"activity_enable_{domain.lower()}_api", None)
        if switch is None:
            continue
        for call in getattr(cupti, f"{domain}ApiTraceCbid", ()):
            if not needed(call.name):
                with contextlib.suppress(Exception):  # members that only mark the end of the list
                    switch(int(call), 0)


def buffer_bytes(memory: int) -> int:
    """Return the size of a buffer on a machine with `memory` bytes."""
    return int(min(max(memory * MEMORY_SHARE, LEAST_BYTES), MOST_BYTES))


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
        skip_calls(cupti)
        interval = sys.getswitchinterval()
        sys.setswitchinterval(SWITCH_S)
        try:
            yield
        finally:
            sys.setswitchinterval(interval)
            after = _shift(cupti)
            cupti.activity_flush_all(1)
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
