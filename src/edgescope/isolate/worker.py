"""The leader's side of a trial's worker processes: it starts each, orders, reads, detects death and hangs.

Workers open the trial, warm up by themselves, report when their latencies have settled, and wait (`Agreed`). The leader
then names a start a little in the future and a stop, on the clock that all processes of a machine share, and collects
their results.

The leader computes nothing itself and imports no engine. While it waits it listens to every worker: a worker that dies
ends the trial at once, one that hangs ends it after a limit. Both errors name the worker and its last output.

Samples are counted in shared memory, too: a second count of the window, independent of the workers' rows. After each
query, each worker writes the number of samples it has completed; no worker waits for another, so counting costs a
fraction of a microsecond. The leader reads all of them at the start and at the stop. It cannot read at an exact
nanosecond, so it notes the time before and after reading, and the rows must agree for some moment in between.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from edgescope import registry
from edgescope.clock import wait_until
from edgescope.devices.cpu.limits import control_groups
from edgescope.errors import Message
from edgescope.process import Launch, Line, Process
from edgescope.records import QUERY_END, Json, Marks, Status, Trial
from edgescope.scenarios.stop_rule import FOREVER, Latencies, Plan
from edgescope.workloads.base import Done, TakesTurns, Work

TAIL_CHARACTERS = 600


class WorkerError(Exception):
    """A worker died, hung or failed; the trial ends with this status and reason."""

    def __init__(self, status: Status, reason: Message) -> None:
        self.status, self.reason = status, reason
        super().__init__(str(reason))


@dataclass(frozen=True)
class Placement:
    """Where a worker runs: how it is started, and the CPUs it has to itself."""

    launch: Launch = Launch()
    cpus: tuple[int, ...] = ()


class WorkerProcess(Process):
    """A process that waits for trials; its messages are {"event": ...}, its orders {"do": ...}."""

    def __init__(self, number: int, placement: Placement) -> None:
        super().__init__([sys.executable, "-m", registry.WORKER_PROGRAM, str(os.getpid())], placement.launch)
        self.number, self.placement, self.used, self.loaded = number, placement, False, False
        """Whether it has answered a trial before, and whether its engine is loaded."""
        self.kills = oom_kills()
        """How many processes the kernel's OOM killer had ended when this worker's trial began."""

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when the worker sends something."""
        return self.pipe.fileno()

    def order(self, do: str, **what: Json) -> None:
        """Send an order; `listen` finds out if the worker is gone."""
        with contextlib.suppress(OSError, ValueError):
            self.pipe.send(do=do, **what)

    def listen(self) -> None:
        """Read its new messages; raise WorkerError if it has ended."""
        try:
            if self.pipe.ready():
                self.pipe.fill()
        except EOFError:
            raise self.lost() from None

    def events(self) -> Iterator[Line]:
        """Yield its unread messages; note its process id, which only the worker itself knows under a profiler."""
        for event in self.pipe.received():
            if event["event"] == "here":
                self.pid = int(event["pid"])
            yield event

    def lost(self) -> WorkerError:
        """Return the error for a worker whose pipe is closed: how it ended."""
        killed = oom_kills() - self.kills if self.wait(5) == -signal.SIGKILL else 0
        how = self.ending()
        if killed > 0:
            how = f"died of SIGKILL (out of memory: the kernel's OOM killer ended {killed} of this group's processes)"
        return WorkerError(
            Status.OOM if killed > 0 else Status.CRASHED,
            Message(
                "E-WORKER-2",
                f"worker {self.number} {how}",
                evidence=self.stderr_tail() or "it wrote nothing to stderr",
                effect="The other workers then had fewer neighbours, so there is no number for this cell",
            ),
        )

    def silent(self, what: str, seconds: float) -> WorkerError:
        """Return the error for a worker that was not `what` within the time limit."""
        return WorkerError(
            Status.TIMEOUT,
            Message(
                "E-WORKER-3",
                f"worker {self.number} hangs: it was not {what} after {seconds:.2g} s",
                evidence="; ".join(
                    filter(None, (f"process {self.pid} is {self.state()}", self.stderr_tail()))
                ),
                effect="There is no number for this cell",
                fix="--timeout SECONDS if it only needs longer",
            ),
        )

    def state(self) -> str:
        """Return the kernel's state of the process: R (running), T (stopped) ..."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            return next(line.removeprefix("State:").strip() for line in lines if line.startswith("State:"))
        except (OSError, StopIteration):
            return "gone"

    def stderr_tail(self) -> str:
        """Return the end of what it wrote to stderr, as one line."""
        return " | ".join(self.tail())[-TAIL_CHARACTERS:]


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the OOM killer has ended, in this control group or else on this machine.

    Return 0 if neither is known; only differences mean something.
    """
    files = [folder / "memory.events" for folder in control_groups(root, "")][:1]
    for path in (*files, root / "proc/vmstat"):
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split() for line in path.read_text().splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return 0


#: Nanoseconds from naming the start to the start: every worker must have read the line and gone to sleep by then.
LEAD_NS = 100_000_000
#: Seconds a worker may need after the stop for its last query, in addition to twice the first query's time.
GRACE_S = 10.0
PATIENCE_S = 600.0

#: On a busy machine time.sleep may overshoot by this many nanoseconds; a shared start is worth the spinning.
SPIN_NS = 1_000_000
AT_STOP = "the agreed stop"
_STRIDE = 8
"""Distance between two workers' counters, in counters: a cache line, or each would slow the others down."""

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Span:
    """The measured phase that all workers share: monotonic nanoseconds."""

    start_ns: int
    stop_ns: int


Meet = Callable[[], Span]
"""Reports that this worker is ready; returns the span once the leader has named it."""


class Agreed(Plan):
    """Warms up as any plan does; measures from the agreed start to the agreed stop."""

    def __init__(self, trial: Trial, meet: Meet) -> None:
        super().__init__(trial)
        self._meet = meet
        self.span = Span(0, FOREVER)

    def measuring(self) -> Plan:
        """Meet the others, sleep until the start, spin through its last millisecond."""
        self.span = self._meet()
        wait_until(self.span.start_ns, SPIN_NS)
        return super().measuring()

    def begin(self, row: int, now_ns: int) -> None:
        """Note the first row and time of the phase; the end of the measured phase is already known."""
        super().begin(row, now_ns)
        if self._measured:
            self.check_ns = self.span.stop_ns

    @property
    def deadline_ns(self) -> int:
        """Return the agreed stop."""
        return self.span.stop_ns

    def goes_on(self, now_ns: int, rows: int, latencies: Latencies) -> bool:
        """Return whether the phase continues; the measured phase ends at the stop or after the last query."""
        if not self._measured:
            return super().goes_on(now_ns, rows, latencies)
        if rows >= self.limit:
            self.stopped_by = "all queries done"
            return False
        if now_ns >= self.span.stop_ns:
            self.stopped_by = AT_STOP
            return False
        self.check_ns = self.span.stop_ns
        return True


@dataclass(frozen=True)
class LeaderRun(Generic[Seen]):
    """One run: the agreed span, the counters at its ends, each worker's messages, and what `at_stop` returned."""

    span: Span
    looks: tuple[Look, Look]
    ready: list[Line]
    done: list[Line]
    seen: Seen


class WorkerRun:
    """One trial, open in several workers."""

    def __init__(
        self,
        workers: Sequence[WorkerProcess],
        folder: Path,
        limit_s: float,
        grace_s: float = GRACE_S,
    ) -> None:
        self.workers, self.folder = workers, folder
        self.started, self.limit_s, self.grace_s = time.monotonic(), limit_s, grace_s
        self.opened: list[Line] = []

    def open(self, trials: Sequence[Trial]) -> None:
        """Have every worker open its trial."""
        for worker, trial in zip(self.workers, trials, strict=True):
            worker.kills = oom_kills()
            worker.order(
                "open",
                trial=trial.to_json(),
                number=worker.number,
                workers=len(self.workers),
                folder=str(self.folder),
                again=worker.used,
            )
        self.opened = self.gather("opened", "open")

    def order(self, do: str, **what: Json) -> None:
        """Give every worker the same order."""
        for worker in self.workers:
            worker.order(do, **what)

    def gather(
        self,
        event: str,
        done: str,
        *,
        limit_s: float | None = None,
        of: Sequence[WorkerProcess] | None = None,
        until_ns: int | None = None,
        before: Sequence[Line | None] = (),
        failing: bool = True,
    ) -> list[Line]:
        """Return every worker's event of that name.

        Raises WorkerError if a worker fails, dies, or is not `done` within `limit_s` (default: the time the run has
        left). With `until_ns` it returns at that time, with an empty event for each worker that has sent none.
        """
        workers = list(self.workers if of is None else of)
        found: dict[int, Line] = {w.number: event for w, event in zip(workers, before, strict=False) if event}
        by_handle = {worker.fileno(): worker for worker in workers}
        ears = select.poll()
        for handle in by_handle:
            ears.register(handle, select.POLLIN)
        started = time.monotonic_ns()
        left_s = max(0.0, self.limit_s - (time.monotonic() - self.started))
        wait_s = left_s if limit_s is None else min(limit_s, left_s)
        end = started + round(wait_s * 1e9) if until_ns is None else until_ns
        while len(found) < len(workers):
            left_ms = (end - time.monotonic_ns()) / 1e6
            if left_ms <= 0:
                if until_ns is not None:
                    break
                late = next(w for w in workers if w.number not in found)
                raise late.silent(done, wait_s)
            for handle, _ in ears.poll(left_ms):
                by_handle[handle].listen()
            self._sort(workers, event, found, failing)
        return [found.get(w.number, {}) for w in workers]

    def _sort(
        self, workers: Sequence[WorkerProcess], name: str, found: dict[int, Line], failing: bool
    ) -> None:
        """Read the workers' messages, put events called `name` into `found`; if `failing`, raise WorkerError."""
        for worker in workers:
            for event in worker.events():
                if failing and event["event"] == "failed":
                    reason = Message(**event["reason"])
                    if len(self.workers) > 1:
                        reason = replace(reason, what=f"worker {worker.number}: {reason.what}")
                    raise WorkerError(Status(event["status"]), reason)
                if event["event"] == name:
                    found[worker.number] = event

    def drive(
        self,
        seconds: float,
        at_stop: Callable[[Sequence[int]], Seen],
        *,
        patience_s: float = 0.0,
        edge: Callable[[], object] = int,
    ) -> LeaderRun[Seen]:
        """Have all workers warm up and measure from an agreed start for `seconds`; return what they sent.

        `edge` is called at the start and at the stop, `at_stop(pids)` after the stop. The scenario may take
        `patience_s` after the stop to serve the queries that wait.
        """
        with Counter(self.folder / "counter", len(self.workers)) as counter:
            self.order("drive")
            ready = self.gather("ready", "ready")
            first = counter.look()
            start = time.monotonic_ns() + LEAD_NS
            span = Span(start, start + round(seconds * 1e9))
            self.order("start", start_ns=span.start_ns, stop_ns=span.stop_ns)
            time.sleep(max(0, span.start_ns - time.monotonic_ns()) / 1e9)
            edge()
            early = self.gather("driven", "done", until_ns=span.stop_ns)
            last = counter.look()
            edge()
        seen = at_stop([worker.pid for worker in self.workers])
        done = self.gather("driven", "done", limit_s=self._grace_s() + patience_s, before=early)
        return LeaderRun(span, (first, last), ready, done, seen)

    def _grace_s(self) -> float:
        first = max((e["facts"].get("first_s", {}).get("value", 0.0) for e in self.opened), default=0.0)
        return self.grace_s + 2 * len(self.workers) * float(first)

    def ask(self, do: str, event: str, of: Sequence[WorkerProcess], **what: Json) -> list[Line]:
        """Have some workers do one thing with the open session; return their answers."""
        for worker in of:
            worker.order(do, **what)
        return self.gather(event, f"done with '{do}'", of=of)

    def abandon(self) -> bool:
        """Have all workers give the trial up; return whether each has closed its session."""
        self.order("abandon")
        try:
            self.gather("closed", "closed", limit_s=self.grace_s, failing=False)
        except WorkerError:
            return False
        return True


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
