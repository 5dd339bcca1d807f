"""Closed loops: each query waits until an earlier one is done."""

from __future__ import annotations

from threading import Lock

from edgescope.clock import Clock
from edgescope.records import Marks, Queries
from edgescope.records.lazy import np
from edgescope.scenarios.base import CheckedScenario
from edgescope.scenarios.query_log import Log, closed
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.base import Done, Work


class SingleStream(CheckedScenario):
    """Closed loop: the next query is offered when one ends; `in_flight` queries run at once."""

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up, then measure until the plan says stop; return all queries."""
        return _looped(self.plan, work, clock, self.trial.in_flight, self.trial.batch)


class MultiStream(CheckedScenario):
    """Closed loop of large queries: one of N samples, and the next when all N are done (MLPerf's meaning).

    N = in_flight x batch: `in_flight` calls of `batch` samples go out together, and the latency runs until the last
    of them is done. So `--batch 8` serves eight cameras in one call, `--in-flight 8` in eight concurrent calls.
    """

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up, then measure until the plan says stop; return all queries."""
        parts = self.trial.in_flight
        return _looped(self.plan, Split(work, parts), clock, 1, self.trial.batch * parts)


def _looped(plan: Plan, work: Work, clock: Clock, slots: int, samples: int) -> Queries:
    log = Log(slots, clock)
    closed(log, work, clock, plan.warming(), samples)
    closed(log, work, clock, plan.measuring(), samples)
    plan.end(len(log), clock.now())
    return log.queries(samples)


class Split:
    """A Work that splits each query into `parts` queries of another; done with the last part, with the worst status."""

    def __init__(self, work: Work, parts: int) -> None:
        self.work, self.parts, self.flush = work, parts, work.flush

    def issue(self, query_id: int, samples: int, done: Done) -> None:
        """Start every part."""
        part = _Countdown(query_id, self.parts, samples // self.parts, done).part
        first = query_id * self.parts
        for number in range(first, first + self.parts):
            self.work.issue(number, samples // self.parts, part)


class _Countdown:
    """Calls `done` once, when every part is done; parts end in any thread."""

    def __init__(self, query_id: int, parts: int, usual: int, done: Done) -> None:
        """`usual`: the samples of a part that does not say how many it holds."""
        self.query_id, self.left, self.usual, self.done = query_id, parts, usual, done
        self.status, self.lock = 0, Lock()
        self.source_ns = -1
        """When the oldest input of the parts was created."""
        self.samples = 0
        """Samples of the parts that are done."""
        self.marks: dict[str, int] = {}
        """Of a begin the earliest of the parts, of any other moment the latest: the query has then reached it."""

    def part(
        self,
        number: int,
        status: int,
        samples: int = 0,
        source_ns: int = -1,
        marks: Marks | None = None,
    ) -> None:
        """Note that one part is done."""
        with self.lock:
            self.status = max(self.status, status)
            if source_ns >= 0:
                self.source_ns = min(source_ns, self.source_ns) if self.source_ns >= 0 else source_ns
            self.samples += samples or self.usual
            for name, at_ns in (marks or {}).items():
                choose = min if name.endswith("_begin") else max
                self.marks[name] = choose(at_ns, self.marks.get(name, at_ns))
            self.left -= 1
            last = self.left == 0
        if last:
            self.done(self.query_id, self.status, self.samples, self.source_ns, self.marks)


class Offline(CheckedScenario):
    """All queries arrive at the start; only throughput counts.

    The number of queries is fixed beforehand: as many as last `min_s` at the warm-up's speed (or `max_queries`).
    """

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up in a closed loop, then serve all queries as fast as possible; return them."""
        log = Log(self.trial.in_flight, clock)
        closed(log, work, clock, self.plan.warming(), self.trial.batch)
        first = len(log)
        self.plan.pile = self.trial.max_queries or self._pile(log)
        closed(log, work, clock, self.plan.measuring(), self.trial.batch)
        there = np.full(len(log) - first, self.plan.start_ns, dtype=np.int64)
        log.schedule = (first, there)
        self.plan.end(len(log), clock.now())
        return log.queries(self.trial.batch)

    def _pile(self, log: Log) -> int:
        service_s = typical_s(log)
        return max(1, round(self.trial.in_flight * max(self.trial.min_s, 1e-3) / max(service_s, 1e-7)))


def typical_s(log: Log) -> float:
    """Return the median service time of the later half of a warm-up in seconds; 1 ms if there was no warm-up."""
    recent = log.latencies(len(log) // 2)
    return float(np.median(recent)) / 1e9 if len(recent) else 1e-3
