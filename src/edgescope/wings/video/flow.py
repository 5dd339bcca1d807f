"""What drives the stages of a pipeline: one after the other in the caller's thread, or each in threads of its own.

Both take units from the load generator and say when each is done, so a pipeline is measured like any other work.
Between two threaded stages stands a queue with a bound. A full queue makes the stage before it wait (`block`, so that
no frame of a file is lost) or drops a unit: the oldest one that waits, or the newest (GStreamer's leaky queues).
"""

from __future__ import annotations

import sys
import threading
import time
from abc import ABC, abstractmethod
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from edgescope.frames import Item, joined, parted
from edgescope.records import QUERY_DROPPED, QUERY_END, QUERY_ERROR, QUERY_OK

POLICIES = ("block", "drop_oldest", "drop_newest")
"""What a full queue does: it makes the stage before it wait, or drops a unit."""
Done = Callable[..., None]
SWITCH_S = 2e-4
"""How long a stage may keep Python's interpreter while one on a GPU waits for it. Python's own 5 ms is as long as a
fast GPU needs for a batch, and a stage asks for the interpreter again after each operation that it launches."""

BRIEF_NS = 20_000
"""The clock of CPU time is read after calls longer than this: reading it costs as much as all else that a flow does."""


class EndOfFilm(Exception):
    """Raised by the first stage when no frame is left."""


@dataclass(frozen=True)
class Stage:
    """One step of a pipeline: a function that takes a unit on, by name."""

    name: str
    run: Callable[[Item], None]
    threads: int = 1
    """Threads that run it, where the pipeline is threaded; more than one may change the order of the units."""
    place: str = "cpu"
    """Where it computes: cpu or gpu."""
    wait: Callable[[], None] | None = None
    """For a stage that computes on a device: returns when the device is done, for timing a stage by itself."""
    batch: int = 0
    """Frames that one call takes at most: in threads, units that wait are joined for it. 0: those of a unit."""
    device_ns: Callable[[Item], int] | None = None
    """Does the stage once more and returns how long the device took, by its own events; None if it has none."""


@dataclass
class Counts:
    """What became of the units and frames; every frame that was read is in one of the three."""

    units: int = 0
    done: int = 0
    """Frames whose results came out."""
    dropped: int = 0
    """Frames that a full queue dropped."""
    skipped: int = 0
    """Frames that a stage failed on, where the pipeline skips such frames."""
    first_error: str = ""
    last_error: str = ""
    busy_ns: dict[str, int] = field(default_factory=dict)
    """The time that each stage took, all its threads together."""
    cpu_ns: dict[str, int] = field(default_factory=dict)
    """The part of it on a CPU: of the whole process where stages go one by one, else of the stage's own threads."""


@dataclass(frozen=True)
class Calls:
    """Calls of one stage that ended in a stretch of time."""

    units: int
    """Units that they took on, one that several calls tried counted for each."""
    busy_ns: int
    cpu_ns: int


class Ledger:
    """When each call of a stage ended and each unit was lost, so that any stretch of a run can be told from the rest.

    For runs of bounded length: a call takes 40 bytes.
    """

    def __init__(self) -> None:
        self._calls, self._lost = array("q"), array("q")

    def call(self, stage: int, end_ns: int, units: int, busy_ns: int, cpu_ns: int) -> None:
        """Note a call of a stage, by its place in the pipeline."""
        self._calls.extend((stage, end_ns, units, busy_ns, cpu_ns))

    def lose(self, frames: int, *, skipped: bool) -> None:
        """Note frames that are lost now: skipped, or else dropped."""
        self._lost.extend((time.monotonic_ns(), frames, skipped))

    def calls(self, stage: int, start_ns: int, stop_ns: int) -> Calls:
        """Return the calls of a stage that ended between two moments."""
        place, end, *sums = np.array(self._calls, dtype=np.int64).reshape(-1, 5).T
        inside = (place == stage) & (end >= start_ns) & (end <= stop_ns)
        return Calls(*(int(column[inside].sum()) for column in sums))

    def lost(self, start_ns: int, stop_ns: int) -> tuple[int, int]:
        """Return how many frames were dropped, and how many skipped, between two moments."""
        when, frames, skipped = np.array(self._lost, dtype=np.int64).reshape(-1, 3).T
        inside = (when >= start_ns) & (when <= stop_ns)
        return int(frames[inside & (skipped == 0)].sum()), int(frames[inside & (skipped == 1)].sum())


class Flow(ABC):
    """What both ways of driving share: what becomes of a unit."""

    def __init__(self, stages: Sequence[Stage], *, skip: bool = False) -> None:
        """`skip`: a unit that a stage fails on is counted and left out; otherwise it is an error."""
        self.stages, self.skip = tuple(stages), skip
        names = [stage.name for stage in stages]
        self.marked = tuple((f"{name}_begin", f"{name}_end") for name in names)
        """The marks of a unit in each stage."""
        self.counts = Counts(busy_ns=dict.fromkeys(names, 0), cpu_ns=dict.fromkeys(names, 0))
        self.seen: Callable[[Item], None] = lambda item: None
        """Called with each finished unit."""
        self.ledger: Ledger | None = None
        """What happened when, where somebody asks for it."""

    @abstractmethod
    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Take on one unit and call `done` once when it is through; EndOfFilm if no frame is left."""

    @abstractmethod
    def close(self) -> None:
        """Finish what is under way and end the threads."""

    def called(self, number: int, end_ns: int, units: int, busy_ns: int, cpu_ns: int) -> None:
        """Count a call of stage `number`."""
        name = self.stages[number].name
        self.counts.busy_ns[name] += busy_ns
        self.counts.cpu_ns[name] += cpu_ns
        if self.ledger is not None:
            self.ledger.call(number, end_ns, units, busy_ns, cpu_ns)

    def mark(self, number: int, item: Item, begin_ns: int, end_ns: int) -> None:
        """Note when stage `number` began and ended with a unit."""
        begin, end = self.marked[number]
        item.marks[begin], item.marks[end] = begin_ns, end_ns

    def finished(self, item: Item, done: Done) -> None:
        """Count a unit that passed every stage, and report it."""
        self.counts.units += 1
        self.counts.done += len(item.frames)
        self.seen(item)
        created = item.frames[0].created_ns if item.frames else -1
        done(item.query_id, QUERY_OK, len(item.frames), created, item.marks)

    def dropped(self, item: Item, done: Done) -> None:
        """Count a unit that a full queue dropped, and report it."""
        self.counts.dropped += len(item.frames)
        if self.ledger is not None:
            self.ledger.lose(len(item.frames), skipped=False)
        done(item.query_id, QUERY_DROPPED, len(item.frames), item.frames[0].created_ns if item.frames else -1)

    def failed(self, item: Item, error: Exception, done: Done) -> None:
        """Count a unit that a stage failed on, and report it as the pipeline's policy says."""
        self.counts.last_error = f"{type(error).__name__}: {error}"
        self.counts.first_error = self.counts.first_error or self.counts.last_error
        if self.skip:
            lost = max(1, len(item.frames))
            self.counts.skipped += lost
            if self.ledger is not None:
                self.ledger.lose(lost, skipped=True)
            done(item.query_id, QUERY_DROPPED, len(item.frames))
        else:
            done(item.query_id, QUERY_ERROR)


@runtime_checkable
class FlowWork(Protocol):
    """Work that is done by a flow."""

    flow: Flow


class Sequential(Flow):
    """Takes each unit through all stages in the caller's thread."""

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Do one unit, then call `done`; EndOfFilm if no frame is left."""
        item, clock, used = Item(query_id), time.monotonic_ns, time.process_time_ns
        before, used_before = clock(), used()  # of the process: a stage's helper threads count as its own
        try:
            for number, stage in enumerate(self.stages):
                stage.run(item)
                now = clock()
                used_now = used() if now - before > BRIEF_NS else used_before
                self.called(number, now, 1, now - before, used_now - used_before)
                self.mark(number, item, before, now)
                before, used_before = clock(), used_now
        except EndOfFilm:
            done(query_id, QUERY_END)
            raise
        except Exception as error:  # a stage may raise anything
            self.failed(item, error, done)
        else:
            self.finished(item, done)

    def close(self) -> None:
        """Do nothing: there are no threads."""


Passed = tuple[Item, Done]


class Queue:
    """A queue between two stages, with a bound and a rule for when it is full."""

    def __init__(self, bound: int | None, full: str, dropped: Callable[[Item, Done], None]) -> None:
        """`bound` None: no bound; it then never blocks or drops."""
        self.bound, self.full, self.dropped = bound, full, dropped
        self.items: deque[Passed] = deque()
        lock = threading.Lock()
        self.filled, self.emptied = threading.Condition(lock), threading.Condition(lock)
        self.closed = False

    def put(self, passed: Passed) -> None:
        """Add a unit; if the queue is full, wait, or drop one."""
        lost: Passed | None = None
        with self.filled:
            if self.bound is not None and len(self.items) >= self.bound and not self.closed:
                if self.full == "block":
                    while len(self.items) >= self.bound and not self.closed:
                        self.emptied.wait()
                else:
                    lost = self.items.popleft() if self.full == "drop_oldest" else passed
            if lost is not passed:
                self.items.append(passed)
                self.filled.notify()
        if lost is not None:
            self.dropped(*lost)

    def get(self, frames: int = 0) -> list[Passed]:
        """Return the unit that waited longest, waiting for one, and those behind it that make up to `frames` frames.

        Nothing once the queue is closed and empty.
        """
        with self.filled:
            while not self.items:
                if self.closed:
                    return []
                self.filled.wait()
            some = [self.items.popleft()]
            if frames:
                held = len(some[0][0].frames)
                while self.items and (held := held + len(self.items[0][0].frames)) <= frames:
                    some.append(self.items.popleft())
            if self.bound is not None:
                self.emptied.notify(len(some))
            return some

    def close(self) -> None:
        """Let every waiting thread go; what is still queued can be taken."""
        with self.filled:
            self.closed = True
            self.filled.notify_all()
            self.emptied.notify_all()


class Threaded(Flow):
    """Runs each stage in its own threads, so that stages work on different units at the same time."""

    def __init__(
        self, stages: Sequence[Stage], *, bound: int = 4, full: str = "block", skip: bool = False
    ) -> None:
        """`bound` and `full` hold for every queue after the first stage; the load generator bounds the first."""
        super().__init__(stages, skip=skip)
        self.lock, self.ended, self.interval_s = threading.Lock(), False, sys.getswitchinterval()
        if any(stage.place == "gpu" for stage in stages):
            sys.setswitchinterval(min(SWITCH_S, self.interval_s))
        self.queues = [
            Queue(max(bound, stage.batch) if number else None, full if number else "block", self._dropped)
            for number, stage in enumerate(stages)
        ]
        self.threads = [
            threading.Thread(target=self._serve, args=(number,), name=f"stage {stage.name}", daemon=True)
            for number, stage in enumerate(stages)
            for _ in range(stage.threads)
        ]
        for thread in self.threads:
            thread.start()

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Hand a unit to the first stage; EndOfFilm once that has met the end of the film."""
        if self.ended:
            done(query_id, QUERY_END)
            raise EndOfFilm
        self.queues[0].put((Item(query_id), done))

    def close(self, *, wait_s: float = 30.0) -> None:
        """Let the stages finish what is queued, first to last, and end their threads; wait `wait_s` at most."""
        end = time.monotonic() + wait_s
        first = 0
        for queue, stage in zip(self.queues, self.stages, strict=True):
            queue.close()
            for thread in self.threads[first : first + stage.threads]:
                thread.join(max(0.0, end - time.monotonic()))
            first += stage.threads
        sys.setswitchinterval(self.interval_s)

    def _serve(self, number: int) -> None:
        stage, queue, clock, used = (
            self.stages[number],
            self.queues[number],
            time.monotonic_ns,
            time.thread_time_ns,
        )
        used_before = used()
        following = self.queues[number + 1] if number + 1 < len(self.queues) else None
        while some := queue.get(stage.batch):
            before = clock()
            passed = self._run(stage, some)
            spent = clock() - before
            for item, _ in passed:
                self.mark(number, item, before, before + spent)
            used_now = used() if spent > BRIEF_NS else used_before
            with self.lock:
                if passed or not self.ended:  # to find that no frame is left is not a unit's time
                    self.called(number, before + spent, len(some), spent, used_now - used_before)
                used_before = used_now
                if following is None:
                    for item, done in passed:
                        self.finished(item, done)
            if following is not None:
                for each in passed:
                    following.put(each)

    def _run(self, stage: Stage, some: list[Passed]) -> list[Passed]:
        """Take units through a stage, in one call; return those that passed. If the call fails, each goes by itself."""
        whole = some[0][0] if len(some) == 1 else joined([item for item, _ in some])
        try:
            stage.run(whole)
        except EndOfFilm:
            self.ended = True
            some[0][1](whole.query_id, QUERY_END)
            return []
        except Exception as error:  # a stage may raise anything
            if len(some) > 1:
                return [passed for each in some for passed in self._run(stage, [each])]
            with self.lock:
                self.failed(whole, error, some[0][1])
            return []
        if len(some) > 1:
            parted(whole, [item for item, _ in some])
        return some

    def _dropped(self, item: Item, done: Done) -> None:
        with self.lock:
            self.dropped(item, done)
