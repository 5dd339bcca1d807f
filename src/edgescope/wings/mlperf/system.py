"""Our side of LoadGen: the system that it tests, and the start of a test.

LoadGen calls from its own threads and identifies samples by an id and an index into a library. An error must not pass
through its frames: it would end the process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import mlperf_loadgen as lg
import numpy as np

from edgescope.clock import Clock
from edgescope.records import QUERY_END, Marks, Queries
from edgescope.scenarios.query_log import Log
from edgescope.workloads.base import Done, EndOfInput, Work

Samples = Sequence[tuple[int, int]]
"""LoadGen's id of each sample and the sample's index in the library."""


class System:
    """Takes LoadGen's samples in its thread, gives them to the Work in batches, and reports when each is done.

    A closed loop's query is issued in LoadGen's own thread. Arrivals (server, offline) go through a queue after `open`
    has been called, so that a busy engine never delays LoadGen's schedule.
    """

    def __init__(
        self, batch: int, log: Log, work: Work, clock: Clock, *, on_first_query: Callable[[int], None]
    ) -> None:
        self.batch, self.log, self.work, self.clock = batch, log, work, clock
        self.on_first_query: Callable[[int], None] | None = on_first_query
        """Called at the first query: what LoadGen does before that is not part of the window."""
        self.arrived: list[int] = []
        self.sizes: list[int] = []
        self.waiting: SimpleQueue[tuple[int, Samples] | None] = SimpleQueue()
        self.thread: threading.Thread | None = None
        self.ended = False
        """Whether the input ended before LoadGen had sent all its queries."""

    def open(self) -> None:
        """Let queries wait in a queue from now on."""
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def issue(self, samples: Samples) -> None:
        """Take one query from LoadGen; each of its batches becomes a row."""
        now = self.clock.now()
        if self.on_first_query:
            self.on_first_query(now)
            self.on_first_query = None
        for start in range(0, len(samples), self.batch):
            part = samples[start : start + self.batch]
            if self.thread is None:
                self._row(now, part)
            else:
                self.waiting.put((now, part))

    def _serve(self) -> None:
        while (item := self.waiting.get()) is not None:
            self._row(*item)

    def _row(self, arrived_ns: int, samples: Samples) -> None:
        self.log.free.get()
        self.arrived.append(arrived_ns)
        self.sizes.append(len(samples))
        with suppress(EndOfInput):  # the work has called done, too
            self.work.issue(self.log.add(self.clock.now()), self.batch, self._done(samples))

    def _done(self, samples: Samples) -> Done:
        def done(
            query_id: int, status: int, held: int = 0, source_ns: int = -1, marks: Marks | None = None
        ) -> None:
            self.log.done(query_id, status, held, source_ns, marks)
            self.ended = self.ended or status == QUERY_END
            complete([sample for sample, _ in samples])

        return done

    def close(self) -> None:
        """End the thread that issues queued queries."""
        if self.thread is not None:
            self.waiting.put(None)
            self.thread.join()

    def counted(self, queries: Queries, first: int) -> Queries:
        """Return the rows with the number of samples that LoadGen requested in each: its last batch may be smaller."""
        samples = np.array(queries.columns["samples"])
        samples[first:] = self.sizes
        return Queries({**queries.columns, "samples": samples})


def complete(samples: Sequence[int], outputs: Sequence[bytes] = ()) -> None:
    """Report samples as done to LoadGen; it copies `outputs` before this returns."""
    held = [np.frombuffer(data, np.uint8) for data in outputs]
    data = [(array.ctypes.data, array.nbytes) for array in held] or [(0, 0)] * len(samples)
    lg.QuerySamplesComplete(
        [lg.QuerySampleResponse(sample, *where) for sample, where in zip(samples, data, strict=True)]
    )


def settings(scenario: str, mode: str) -> Any:
    """Return LoadGen's settings for a scenario (`SingleStream`) in a mode (`PerformanceOnly`)."""
    made = lg.TestSettings()
    made.scenario, made.mode = getattr(lg.TestScenario, scenario), getattr(lg.TestMode, mode)
    return made


def run_test(issue: Callable[[Samples], None], settings: Any, n: int, folder: Path) -> None:
    """Run one LoadGen test over a library of `n` samples; its logs go into `folder`."""
    log = lg.LogSettings()
    log.log_output.outdir = str(folder)
    log.log_output.copy_summary_to_stdout = log.log_output.copy_detail_to_stdout = False
    log.enable_trace = False
    qsl = lg.ConstructQSL(n, n, lambda indices: None, lambda indices: None)
    sut = lg.ConstructSUT(lambda query: issue([(s.id, s.index) for s in query]), lambda: None)
    try:
        lg.StartTestWithLogSettings(sut, qsl, settings, log, str(folder / "no audit.config"))
    finally:
        lg.DestroySUT(sut)
        lg.DestroyQSL(qsl)
