"""Arrival patterns: when each query is offered, and how many may be outstanding.

A scenario knows nothing of models or accuracy; it offers queries to a Work and writes down four times for each.
Closed loops (single_stream, offline) wait for a free slot before the next query; the open loop (fixed_rate) has a
schedule, and latency then runs from the *scheduled* time, so a stall is charged to every query it delayed (no
coordinated omission). Names and meanings follow MLPerf LoadGen.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgescope.clock import Clock
from edgescope.errors import UsageError
from edgescope.plan import Plan
from edgescope.records import QUERY_DTYPES, Queries, Trial
from edgescope.workloads.base import Done, Work


class Scenario(Protocol):
    """Offers queries to a Work until its plan says stop."""

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Return every query offered, warm-up first, as columns."""


class _Log:
    """Growing columns; constants cost nothing. 17 bytes a query in a closed loop."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self.issued, self.finished, self.status = array("q"), array("q"), array("b")
        self.schedule: tuple[int, NDArray[np.int64]] | None = None
        """First scheduled row and the times from there on; None in a closed loop."""
        self.free: SimpleQueue[None] = SimpleQueue()
        self.slots = slots
        for _ in range(slots):
            self.free.put(None)
        self.done = self._recorder(clock.now)

    def _recorder(self, now: Callable[[], int]) -> Done:
        finished, status, release = self.finished, self.status, self.free.put

        def done(query_id: int, state: int) -> None:
            finished[query_id] = now()
            if state:
                status[query_id] = state
            release(None)

        return done

    def drain(self, work: Work) -> None:
        """Return when every query issued so far is done; the slots are free again."""
        work.flush()
        for _ in range(self.slots):
            self.free.get()
        for _ in range(self.slots):
            self.free.put(None)

    def latencies(self, first: int) -> NDArray[np.int64]:
        """Return service times (issued to done, ns) of the finished queries from row `first` on."""
        issued = np.array(self.issued[first:], dtype=np.int64)
        finished = np.array(self.finished[first:], dtype=np.int64)[: len(issued)]
        issued = issued[: len(finished)]
        return np.asarray((finished - issued)[finished >= 0])

    def queries(self, samples: int) -> Queries:
        """Freeze into columns; constant columns are stride-0 views."""
        n = len(self.issued)
        scheduled: NDArray[np.int64] = np.broadcast_to(np.int64(-1), n)
        if self.schedule is not None:
            first, times = self.schedule
            scheduled = np.full(n, -1, dtype=np.int64)
            scheduled[first : first + len(times)] = times
        columns: dict[str, NDArray[Any]] = {
            "query_id": np.arange(n, dtype=np.int64),
            "scheduled_ns": scheduled,
            "issued_ns": np.frombuffer(self.issued, dtype=np.int64),
            "done_ns": np.frombuffer(self.finished, dtype=np.int64),
            "samples": np.broadcast_to(np.int32(samples), n),
            "status": np.frombuffer(self.status, dtype=np.int8),
        }
        for name in ("worker", "stream"):
            columns[name] = np.broadcast_to(np.int16(0), n)
        columns["source_ns"] = np.broadcast_to(np.int64(-1), n)
        return Queries({name: columns[name] for name in QUERY_DTYPES})


def _closed(log: _Log, work: Work, clock: Clock, plan: Plan, samples: int) -> None:
    """Offer the next query whenever a slot is free, until the plan moves on from its present phase."""
    now, issue, done, acquire = clock.now, work.issue, log.done, log.free.get
    issued, finished, status = log.issued.append, log.finished.append, log.status.append
    query_id = len(log.issued)
    plan.begin(query_id, now())
    going = True
    while going:
        check_ns, limit = plan.check_ns, plan.limit
        t = 0
        while t < check_ns and query_id < limit:
            acquire()
            finished(-1)
            status(0)
            t = now()
            issued(t)
            issue(query_id, samples, done)
            query_id += 1
        going = plan.goes_on(now(), query_id, log.latencies)
    log.drain(work)


class SingleStream:
    """Closed loop: the next query is offered when one ends; `in_flight` of them at once."""

    def __init__(self, trial: Trial, plan: Plan) -> None:
        self.trial, self.plan = trial, plan

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up, then measure until the plan is content."""
        log = _Log(self.trial.in_flight, clock)
        _closed(log, work, clock, self.plan.warming(), self.trial.batch)
        _closed(log, work, clock, self.plan.measuring(), self.trial.batch)
        self.plan.end(len(log.issued), clock.now())
        return log.queries(self.trial.batch)


class Offline:
    """Everything has arrived at the start; only throughput counts.

    The amount of work is fixed beforehand: what the warm-up's speed says will last `min_s` (or `max_queries`).
    """

    def __init__(self, trial: Trial, plan: Plan) -> None:
        self.trial, self.plan = trial, plan

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up in a closed loop, then work the pile off."""
        log = _Log(self.trial.in_flight, clock)
        _closed(log, work, clock, self.plan.warming(), self.trial.batch)
        first = len(log.issued)
        pile = self.trial.max_queries or self._pile(log)
        self.plan.pile = pile
        t0 = clock.now()
        _closed(log, work, clock, self.plan.measuring(), self.trial.batch)
        log.schedule = (first, np.full(len(log.issued) - first, t0, dtype=np.int64))
        self.plan.end(len(log.issued), clock.now())
        return log.queries(self.trial.batch)

    def _pile(self, log: _Log) -> int:
        recent = log.latencies(len(log.issued) // 2)
        service_s = float(np.median(recent)) / 1e9 if len(recent) else 1e-3
        return max(1, round(self.trial.in_flight * max(self.trial.min_s, 1e-3) / max(service_s, 1e-7)))


class FixedRate:
    """Open loop: query k is due at k / rate, ready or not; latency runs from when it was due."""

    def __init__(self, trial: Trial, plan: Plan) -> None:
        if trial.rate is None:
            raise UsageError("E-SCEN-1", "fixed_rate needs a rate in queries/s", fix="--rate 30")
        self.trial, self.plan, self.rate = trial, plan, trial.rate

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up in a closed loop, then offer queries on schedule for the time the plan allows."""
        log = _Log(self.trial.in_flight, clock)
        _closed(log, work, clock, self.plan.warming(), self.trial.batch)
        first, plan = len(log.issued), self.plan.measuring()
        due = array("q")
        t0 = clock.now()
        plan.begin(first, t0)
        query_id, going = first, True

        def latencies(row: int) -> NDArray[np.int64]:
            finished = np.array(log.finished[first:], dtype=np.int64)
            return np.asarray((finished - np.array(due, dtype=np.int64))[finished >= 0])

        while going:
            t = t0 + round((query_id - first) * 1e9 / self.rate)
            if t > plan.deadline_ns and query_id > first:
                break
            clock.sleep_until(t)
            log.free.get()
            due.append(t)
            log.finished.append(-1)
            log.status.append(0)
            log.issued.append(clock.now())
            work.issue(query_id, self.trial.batch, log.done)
            query_id += 1
            if clock.now() >= plan.check_ns or query_id >= plan.limit:
                going = plan.goes_on(clock.now(), query_id, latencies)
        log.drain(work)
        log.schedule = (first, np.array(due, dtype=np.int64))
        plan.end(query_id, clock.now())
        return log.queries(self.trial.batch)
