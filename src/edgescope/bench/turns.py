"""One side of an alternation, in its worker: it takes a turn when it is told to and is idle in between.

Before it says that a turn is over it waits until its engine's threads are asleep: an OpenMP or ONNX Runtime thread
spins for some tens of milliseconds after its work, and would take a core from the other side. A switch that stops the
spinning would measure an engine that nobody runs. Whether they sleep is told from their states: the processor time of a
thread on another core is counted at the kernel's ticks, 4 or 10 ms apart.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from dataclasses import asdict

import numpy as np

from edgescope import registry
from edgescope.clock import MonotonicClock
from edgescope.process import Line, Pipe
from edgescope.records import QUERY_OK, Queries, Trial, Turn
from edgescope.scenarios.closed import typical_s
from edgescope.scenarios.query_log import Log, closed
from edgescope.scenarios.stop_rule import Latencies, Plan
from edgescope.workloads.base import Work

DROPPED_S = 0.005
"""What does not count once the other side has had a turn: the caches hold its data."""
WARM_S, WARM_QUERIES = 0.2, 3
"""A warm-up that has not settled ends after so long, once so many queries are done."""
STEP_S, LOOKS, ASLEEP_S = 0.001, 2, 0.3
"""Threads are asleep once none runs in so many looks, a step apart; waited for at most so long."""


class Stretch(Plan):
    """Warms up as any plan does, but not for long; measures until `check_ns`, and at least one query."""

    def until(self, t_ns: int) -> Stretch:
        """Enter a measured phase that ends at `t_ns`."""
        self._measured, self.end_ns = True, t_ns
        return self

    def begin(self, row: int, now_ns: int) -> None:
        """Note the first row; the end of a turn is already known."""
        super().begin(row, now_ns)
        if self._measured:
            self.check_ns = self.end_ns

    def goes_on(self, now_ns: int, rows: int, latencies: Latencies) -> bool:
        """Return whether the phase continues; a turn does not."""
        return not self._measured and super().goes_on(now_ns, rows, latencies)

    def _warm_up_more(self, now_ns: int, latencies: Latencies) -> bool:
        if now_ns - self._start_ns >= WARM_S * 1e9 and len(latencies(self._first)) >= WARM_QUERIES:
            return False
        return super()._warm_up_more(now_ns, latencies)


class Side:
    """Obeys a leader's orders `warm`, `turn` and `rows`; `queries` holds every row, those that count last."""

    def __init__(self, trial: Trial, work: Work, pipe: Pipe) -> None:
        self.trial, self.work, self.pipe, self.clock = trial, work, pipe, MonotonicClock()
        self.log, self.plan = Log(trial.in_flight, self.clock), Stretch(trial)
        self.kept: list[tuple[int, int]] = []
        """First and last row (exclusive) that count, of each turn."""
        self.rested = (time.monotonic_ns(), time.process_time_ns())
        """When its last turn ended, and the processor time that it had taken by then."""

    def serve(self) -> None:
        """Do what the leader orders until it asks for the rows."""
        gc.collect()
        gc.freeze()
        while (order := self.pipe.receive())["do"] != "rows":
            self.pipe.send(**(self._warm() if order["do"] == "warm" else self._turn(order)))

    def _warm(self) -> Line:
        closed(self.log, self.work, self.clock, self.plan.warming(), self.trial.batch)
        settled, typical = self.plan.settled, typical_s(self.log)
        self._rest()
        return {"event": "warmed", "settled": settled, "typical_s": typical}

    def _turn(self, order: Line) -> Line:
        begun_ns, spent_ns = self.rested
        idle_ns = time.monotonic_ns() - begun_ns
        idle_cpu_ns = time.process_time_ns() - spent_ns
        if not order["again"]:
            self._stretch(DROPPED_S)
        first = len(self.log)
        self._stretch(float(order["seconds"]))
        self.kept.append((first, len(self.log)))
        turn = self._told(int(order["block"]), first)
        awake_s = self._rest()
        return {"event": "turned", **asdict(turn)} | {
            "idle_ns": idle_ns,
            "idle_cpu_ns": idle_cpu_ns,
            "awake_s": awake_s,
        }

    def _stretch(self, seconds: float) -> None:
        """Ask one query after the other for so long."""
        plan = self.plan.until(self.clock.now() + round(seconds * 1e9))
        closed(self.log, self.work, self.clock, plan, self.trial.batch)

    def _told(self, block: int, first: int) -> Turn:
        rows = np.frombuffer(self.log.issued[first:], dtype=np.int64)
        done = np.frombuffer(self.log.finished[first:], dtype=np.int64)
        ok = np.frombuffer(self.log.status[first:], dtype=np.int8) == QUERY_OK
        start, stop = int(rows.min()), int(done.max())
        right = int(np.count_nonzero(ok))
        if not right:
            typical = 0.0
        elif registry.scenario(self.trial.scenario).timed:
            typical = float(np.median((done - rows)[ok])) * 1e-9
        else:
            typical = (stop - start) * 1e-9 / (right * self.trial.batch)
        return Turn(block, start, stop, len(rows), typical)

    def _rest(self) -> float:
        """Wait until this process's threads are asleep; return how many seconds that took."""
        waited = until_asleep(os.getpid())
        self.rested = (time.monotonic_ns(), time.process_time_ns())
        return waited

    @property
    def queries(self) -> Queries:
        """Return every query, those that count last."""
        found = self.log.queries(self.trial.batch)
        counts = np.zeros(len(found), dtype=bool)
        for first, stop in self.kept:
            counts[first:stop] = True
        order = np.argsort(counts, kind="stable")
        return Queries({name: column[order] for name, column in found.columns.items()})

    @property
    def counted(self) -> int:
        """Return how many queries count."""
        return sum(stop - first for first, stop in self.kept)


def awake(pid: int) -> bool:
    """Return whether a thread of a process runs or waits for a core, the calling one left out.

    False where /proc does not tell.
    """
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            if int(task) == threading.get_native_id():
                continue
            with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/stat", "rb") as file:
                if file.read().rpartition(b")")[2].split()[0] == b"R":
                    return True
    return False


def until_asleep(pid: int) -> float:
    """Wait until a process's threads are asleep, ASLEEP_S at most; return the seconds that it took."""
    begun, quiet = time.monotonic(), 0
    while (waited := time.monotonic() - begun) < ASLEEP_S and quiet < LOOKS:
        time.sleep(STEP_S)
        quiet = 0 if awake(pid) else quiet + 1
    return waited
