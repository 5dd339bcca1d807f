"""Samples counted in shared memory: a second count of the window, independent of the workers' rows.

After each query, each worker writes the number of samples it has completed; no worker waits for another, so
counting costs a fraction of a microsecond. The leader reads all of them at the start and at the stop. It cannot read
at an exact nanosecond, so it notes the time before and after reading, and the rows must agree for some moment in
between.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from edgescope.records import QUERY_END, Marks
from edgescope.workloads.base import Done, TakesTurns, Work

_STRIDE = 8
"""Distance between two workers' counters, in counters: a cache line, or each would slow the others down."""


@dataclass(frozen=True)
class Look:
    """The counters' values at some moment between two times (monotonic nanoseconds)."""

    before_ns: int
    counts: tuple[int, ...]
    after_ns: int


class Counter:
    """One 64-bit number for each worker, in a file that all of them map."""

    def __init__(self, path: Path, workers: int) -> None:
        self.workers = workers
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            size = max(8 * _STRIDE * workers, mmap.PAGESIZE)
            if os.fstat(handle).st_size < size:
                os.ftruncate(handle, size)
            self._map = mmap.mmap(handle, size)
        finally:
            os.close(handle)
        self._cells = memoryview(self._map).cast("q")

    def __enter__(self) -> Counter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file."""
        self._cells.release()
        self._map.close()

    def look(self) -> Look:
        """Return all counts with the times between which they were read."""
        before = time.monotonic_ns()
        counts = tuple(self._cells[: self.workers * _STRIDE : _STRIDE])
        return Look(before, counts, time.monotonic_ns())

    def counted(self, work: Work, worker: int) -> Counted:
        """Return `work` with every completed sample counted for `worker`."""
        return Counted(work, self._cells, worker * _STRIDE)


class Counted:
    """A Work that counts the samples it completes; it calls `done` first, so counting adds to no latency."""

    def __init__(self, work: Work, cells: memoryview, cell: int) -> None:
        self.work, self._cells, self._cell = work, cells, cell
        self.streams = work.streams if isinstance(work, TakesTurns) else 1
        self._lock, self._total = threading.Lock(), 0
        self._known: tuple[Done, int] | None = None
        self._counted: Done | None = None
        cells[cell] = 0

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Issue the query; count its samples once it is done."""
        if self._counted is None or self._known != (done, samples):
            self._known, self._counted = (done, samples), self._counting(done, samples)
        self.work.issue(query_id, samples, self._counted)

    def _counting(self, done: Done, samples: int) -> Done:
        cells, cell, lock = self._cells, self._cell, self._lock

        def counted(
            query_id: int, state: int, held: int = 0, source_ns: int = -1, marks: Marks | None = None
        ) -> None:
            done(query_id, state, held, source_ns, marks)
            if state == QUERY_END:
                return
            with lock:
                self._total += held or samples
                cells[cell] = self._total

        return counted

    def flush(self) -> None:
        """Flush the work."""
        self.work.flush()
