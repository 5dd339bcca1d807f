"""One worker process: it opens a trial's workload on an order and drives its scenario from an agreed start to a stop.

python -m edgescope.bench.worker LEADER_PID

It runs one trial after another. Between trials it holds no session and frees what memory it can. It reports every
failure to the leader as a status and a reason, and ends with its leader.

As one side of an alternation it takes a turn when it is told to and is idle in between. Before it says that a turn is
over it waits until its engine's threads are asleep: an OpenMP or ONNX Runtime thread spins for some tens of
milliseconds after its work, and would take a core from the other side. A switch that stops the spinning would measure
an engine that nobody runs. Whether they sleep is told from their states: the processor time of a thread on another core
is counted at the kernel's ticks, 4 or 10 ms apart.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from edgescope import registry
from edgescope.analysis.run import workers as joint
from edgescope.bench.child import leave
from edgescope.bench.drivers import drive
from edgescope.bench.outcome import status_of
from edgescope.bench.parts import open_work, program_of, recorded, scenario_of
from edgescope.bench.watch import peak_rss
from edgescope.clock import MonotonicClock
from edgescope.errors import UnsupportedError
from edgescope.isolate.notes import modules
from edgescope.isolate.worker import Agreed, Counter, Span
from edgescope.process import Line, Pipe, die_with_parent
from edgescope.records import QUERY_OK, Machine, Measured, Queries, Trial, Turn, codec
from edgescope.scenarios.closed import typical_s
from edgescope.scenarios.query_log import Log, closed
from edgescope.scenarios.stop_rule import Latencies, Plan
from edgescope.workloads.base import OpenWorkload, Work

DROPPED_S = 0.005
"""What does not count once the other side has had a turn: the caches hold its data."""
WARM_S, WARM_QUERIES = 0.2, 3
"""A warm-up that has not settled ends after so long, once so many queries are done."""
STEP_S, LOOKS, ASLEEP_S = 0.001, 2, 0.3
"""Threads are asleep once none runs in so many looks, a step apart; waited for at most so long."""


class Abandoned(Exception):
    """Raised when the leader gives this trial up."""


class WorkerRun:
    """One trial in this worker."""

    def __init__(self, pipe: Pipe, order: Line) -> None:
        self.pipe, self.number = pipe, int(order["number"])
        self.trial = Trial.from_json(order["trial"])
        self.folder, self.workers = Path(order["folder"]), int(order["workers"])
        self.plan = Agreed(self.trial, self._meet)
        if self.workers > 1:  # cameras know nothing of each other
            self.plan.phase = float(np.random.default_rng(abs(self.trial.seed)).random())

    def work(self) -> None:
        """Open, drive and verify as the leader says; the session is closed when this returns."""
        if program_of(self.trial) is not None:
            raise _not_drivable(self.trial.backend)
        if registry.scenario(self.trial.scenario).alone:
            raise _not_drivable(self.trial.scenario)
        scenario = scenario_of(self.trial, self.plan)
        with open_work(self.trial) as opened:
            self.plan.already(opened.warmed)
            self._send_opened(opened)
            if self.trial.turn_s is not None:
                self._take_turns(opened)
                return
            self._receive("drive")
            with Counter(self.folder / "counter", self.workers) as counter:
                work = counter.counted(opened.work, self.number)
                with recorded(self.trial):
                    queries = drive(scenario, work, MonotonicClock())
                measured = joint.Rows(queries.columns, self.plan.window.first, self.plan.window.stop)
                self._send_driven(measured, opened)
                self._after(opened, measured)

    def _take_turns(self, opened: OpenWorkload) -> None:
        side = Side(self.trial, opened.work, self.pipe)
        side.serve()
        queries = side.queries
        measured = joint.Rows(queries.columns, len(queries) - side.counted, len(queries))
        self._send_driven(measured, opened)
        self._after(opened, measured)

    def _receive(self, what: str) -> Line:
        order = self.pipe.receive()
        if order["do"] != what:
            raise Abandoned
        return order

    def _meet(self) -> Span:
        self.pipe.send(event="ready", settled=self.plan.settled)
        order = self._receive("start")
        return Span(int(order["start_ns"]), int(order["stop_ns"]))

    def _send_opened(self, opened: OpenWorkload) -> None:
        self.pipe.send(
            event="opened",
            effective=asdict(opened.effective()),
            facts={name: codec.field_to_json(value) for name, value in opened.facts.items()},
            artifact=dict(opened.artifact),
            model=asdict(opened.model),
        )

    def _send_driven(self, measured: joint.Rows, opened: OpenWorkload) -> None:
        path = self.folder / f"rows-{self.number}.npz"
        np.savez(path, **dict[str, Any](measured.columns))
        self.pipe.send(
            event="driven",
            rows=str(path),
            first=measured.first,
            stop=measured.stop,
            stopped_by=self.plan.stopped_by,
            failure=opened.failure(),
        )

    def _after(self, opened: OpenWorkload, measured: joint.Rows) -> None:
        """Carry out the leader's orders on the open session until `close`."""
        while (order := self.pipe.receive())["do"] != "close":
            if order["do"] == "verify":
                check = opened.verify(Machine(**order["machine"]))
                self.pipe.send(
                    event="verified",
                    verification=codec.judged_to_json(check),
                )
            elif order["do"] == "metrics":
                found = opened.metrics(*measured.within(order["start_ns"], order["stop_ns"]))
                self.pipe.send(
                    event="metrics", metrics={name: codec.field_to_json(f) for name, f in found.items()}
                )
            elif order["do"] == "answer":
                self._send_answer(opened)
            elif order["do"] == "modules":
                self.pipe.send(event="modules", names=modules())
            else:
                raise Abandoned

    def _send_answer(self, opened: OpenWorkload) -> None:
        """Send the outputs for one input, to be compared with the other workers', and the batch's size in bytes."""
        found, path = opened.sample_output(), self.folder / f"answer-{self.number}.npz"
        np.savez(path, *found.outputs)
        made = sum(array.nbytes for array in found.outputs)
        self.pipe.send(event="answer", outputs=str(path), input_bytes=found.input_bytes, output_bytes=made)


def _not_drivable(name: str) -> UnsupportedError:
    """Return the error for a backend or scenario that owns its loop: it cannot start and stop with the others."""
    return UnsupportedError(
        "E-WORKER-1",
        f"{name} owns its loop, so its processes cannot agree on a start and a stop",
        fix="--processes 1 --sharing time_slicing, or a backend and a scenario that edgescope drives",
    )


def serve(pipe: Pipe) -> None:
    """Run trials until the leader has gone."""
    pipe.send(event="here", pid=os.getpid())
    for order in pipe:
        if order["do"] == "load":
            load(Trial.from_json(order["trial"]))
            peak = peak_rss()
            pipe.send(event="loaded", peak_bytes=peak.value if isinstance(peak, Measured) else 0.0)
        if order["do"] != "open":
            continue  # the order belongs to a trial that failed here while the leader was still writing
        if order.get("again"):
            forget_peak()
        try:
            WorkerRun(pipe, order).work()
        except Abandoned:
            pass
        except EOFError:
            return
        except Exception as error:  # models and engines raise anything
            status, reason = status_of(error)
            pipe.send(event="failed", status=status.value, reason=asdict(reason))
        give_back()
        pipe.send(event="closed")


def load(trial: Trial) -> None:
    """Load the trial's model once and close it; errors are ignored, the first trial that opens it reports them.

    One-time work is done by then: importing the engine, opening the GPU, finding its libraries.
    """
    with suppress(Exception):
        if program_of(trial) is None:
            with open_work(trial):
                pass
    give_back()


def forget_peak() -> None:
    """Reset the kernel's peak resident set of this process (proc_pid_clear_refs(5)); some kernels cannot."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def give_back() -> None:
    """Free the last session's remains: unreachable objects, the engine's cache on the device, free heap pages."""
    gc.collect()
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    with suppress(AttributeError, OSError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)


def main(argv: list[str]) -> None:
    """Serve the leader until it has gone; argv[0] is its process id."""
    die_with_parent(int(argv[0]))
    serve(Pipe.own())


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


if __name__ == "__main__":
    main(sys.argv[1:])
    leave()
