"""The log that a scenario writes while it drives, and the closed loop that every scenario warms up with."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any, TypeAlias

from edgescope.clock import Clock
from edgescope.records import QUERY_DROPPED, QUERY_DTYPES, QUERY_END, Marks, Queries, mark_column
from edgescope.records.lazy import NDArray, np
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.base import Done, EndOfInput, TakesTurns, Work

Ints: TypeAlias = "NDArray[np.int64]"
ROWS = 1024
"""Rows that a closed loop makes room for at once: two calls fewer in each query."""
NEVER, SERVED = array("q", [-1]) * ROWS, array("b", bytes(ROWS))


class Log:
    """Growing columns of queries; constant columns cost nothing. A closed loop takes 17 bytes per query."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self.issued, self.finished, self.status = array("q"), array("q"), array("b")
        self.schedule: tuple[int, Ints] | None = None
        """The first scheduled row and the scheduled times from there on; None in a closed loop."""
        self.streams: tuple[int, NDArray[np.int16]] | None = None
        """The first row that belongs to a stream other than 0, and the streams from there on."""
        self.turns = 1
        """Streams that take turns, row after row."""
        self.sizes: dict[int, int] = {}
        """The number of samples of each row whose number differs from the trial's batch."""
        self.sources: dict[int, int] = {}
        """When a row's input was created (ns), for the rows for which that is known."""
        self.marks: dict[str, array[int]] = {}
        """Each mark's rows and moments, in turn: numbers and no objects, 16 bytes a row."""
        self.ended: list[int] = []
        """Rows that reached the end of the input: nothing was done in them, so they do not count."""
        self.free: SimpleQueue[None] = SimpleQueue()
        self.slots = slots
        for _ in range(slots):
            self.free.put(None)
        self.done = self._recorder(clock.now)

    def __len__(self) -> int:
        return len(self.issued) - len(self.ended)

    def _recorder(self, now: Callable[[], int]) -> Done:
        finished, status, release = self.finished, self.status, self.free.put
        sizes, sources, ended, kept = self.sizes, self.sources, self.ended.append, self.marks

        def done(
            query_id: int, state: int, samples: int = 0, source_ns: int = -1, marks: Marks | None = None
        ) -> None:
            finished[query_id] = now()
            if state:
                status[query_id] = state
                if state == QUERY_END:
                    ended(query_id)
            if samples:
                sizes[query_id] = samples
            if source_ns >= 0:
                sources[query_id] = source_ns
            if marks:
                for name, at_ns in marks.items():
                    kept.setdefault(name, array("q")).extend((query_id, at_ns))
            release(None)

        return done

    def add(self, now_ns: int) -> int:
        """Begin a row that is issued now; return its number."""
        self.finished.append(-1)
        self.status.append(0)
        self.issued.append(now_ns)
        return len(self.issued) - 1

    def drop(self) -> None:
        """Add a row that fell due and was never issued."""
        self.status[self.add(-1)] = QUERY_DROPPED

    def room(self) -> int:
        """Make room for the ends of more rows; return how many rows there is room for."""
        self.finished.extend(NEVER)
        self.status.extend(SERVED)
        return len(self.finished)

    def drain(self, work: Work) -> None:
        """Wait until every query issued so far is done; all slots are then free, and no room is left over."""
        work.flush()
        self.turns = work.streams if isinstance(work, TakesTurns) else 1
        for _ in range(self.slots):
            self.free.get()
        for _ in range(self.slots):
            self.free.put(None)
        del self.finished[len(self.issued) :], self.status[len(self.issued) :]

    def latencies(self, first: int) -> Ints:
        """Return service times (issued to done, ns) of the queries from row `first` on that were served."""
        issued = np.array(self.issued[first:], dtype=np.int64)
        finished = np.array(self.finished[first:], dtype=np.int64)[: len(issued)]
        n = len(finished)
        served = (finished >= 0) & (np.array(self.status[first : first + n]) != QUERY_DROPPED)
        return np.asarray((finished - issued[:n])[served])

    def _in_turn(self, n: int) -> tuple[int, NDArray[np.int16]] | None:
        return (0, (np.arange(n) % self.turns).astype(np.int16)) if self.turns > 1 else None

    def queries(self, samples: int) -> Queries:
        """Return the log as columns; constant columns are stride-0 views."""
        n = len(self.issued)
        columns: dict[str, NDArray[Any]] = {
            "query_id": np.arange(n, dtype=np.int64),
            "worker": np.broadcast_to(np.int16(0), n),
            "stream": _from(self.streams or self._in_turn(n), n, np.int16(0)),
            "source_ns": _some(self.sources, n, np.int64(-1)),
            "scheduled_ns": _from(self.schedule, n, np.int64(-1)),
            "issued_ns": np.frombuffer(self.issued, dtype=np.int64),
            "done_ns": np.frombuffer(self.finished, dtype=np.int64),
            "samples": _some(self.sizes, n, np.int32(samples)),
            "status": np.frombuffer(self.status, dtype=np.int8),
        }
        columns = {name: columns[name] for name in QUERY_DTYPES} | {
            mark_column(name): _marked(known, n) for name, known in self.marks.items()
        }
        if self.ended:
            kept = columns["status"] != QUERY_END
            columns = {name: column[kept] for name, column in columns.items()} | {
                "query_id": np.arange(len(self), dtype=np.int64)
            }
        return Queries(columns)


def _marked(known: array[int], n: int) -> Ints:
    """Return a column of n rows with one mark's moments, and -1 in all other rows."""
    rows, moments = np.array(known, dtype=np.int64).reshape(-1, 2).T
    column = np.full(n, -1, dtype=np.int64)
    column[rows] = moments
    return column


def _some(known: Mapping[int, int], n: int, otherwise: Any) -> NDArray[Any]:
    """Return a column of n rows with the known values, and `otherwise` in all other rows."""
    column = np.broadcast_to(otherwise, n)
    if known:
        column = np.array(column)
        column[list(known)] = list(known.values())
    return column


def _from(known: tuple[int, NDArray[Any]] | None, n: int, otherwise: Any) -> NDArray[Any]:
    """Return a column of n rows that holds `otherwise` up to the first known row."""
    column = np.broadcast_to(otherwise, n)
    if known is None:
        return column
    first, values = known
    column = np.array(column)
    column[first : first + len(values)] = values
    return column


def closed(log: Log, work: Work, clock: Clock, plan: Plan, samples: int) -> None:
    """Offer the next query whenever a slot is free, until the plan ends its phase or the input ends."""
    now, issue, done, acquire = clock.now, work.issue, log.done, log.free.get
    issued, query_id = log.issued.append, len(log.issued)
    room = query_id
    plan.begin(query_id, now())
    going = True
    try:
        while going:
            check_ns, limit = plan.check_ns, plan.limit
            t = 0
            while t < check_ns and query_id < limit:
                if query_id == room:
                    room = log.room()
                acquire()
                t = now()
                issued(t)
                issue(query_id, samples, done)
                query_id += 1
            going = plan.goes_on(now(), query_id, log.latencies)
    except EndOfInput:
        plan.input_ended()
    log.drain(work)
