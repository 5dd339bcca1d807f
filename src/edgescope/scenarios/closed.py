"""Closed loops: each query waits until an earlier one is done, or for an idle gap after it.

The idle gaps show the cost of idleness: the latency of a query after 0, 10, 33, 100, 1000 and 10000 ms without one.
Clocks fall, cores sleep, other programs take the caches: a camera at 1 frame/s never sees the latency that a benchmark
in a closed loop reports. The gaps come in random order, interleaved, so that slow drift affects all alike; before each
gap, a stretch of back-to-back queries warms the device again. While it waits, the process sleeps: spinning would keep
the core awake.

In their rows, `stream` is 0 for the stretches and k for the k-th gap in ascending order. A query after a gap is
scheduled for the time it is due: the requested gap is its `scheduled` minus `done` of the row before, the actual gap is
its `issued` minus that `done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock
from typing import ClassVar

from edgescope.clock import Clock
from edgescope.errors import UsageError
from edgescope.options import Option
from edgescope.records import Marks, Queries, Trial
from edgescope.records.lazy import np
from edgescope.scenarios.base import CheckedScenario
from edgescope.scenarios.query_log import Log, closed
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.base import Done, EndOfInput, Work

STRETCH_NS, STRETCH_LEAST = 50_000_000, 2
"""Seconds of back-to-back queries before each gap, and their smallest number."""
MOST_QUERIES, MANY_QUERIES, FEW_QUERIES = 60, 20, 7
"""Queries after each gap: for short gaps, for gaps up to LONG_MS, and for longer gaps."""
SHORT_MS, LONG_MS = 100.0, 2000.0
LONGEST_MS, MOST_GAPS = 600_000.0, 50


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


def repeats(gap_ms: float) -> int:
    """Return how often a gap of this length is repeated; 7 is the fewest values whose median has an interval."""
    if gap_ms <= SHORT_MS:
        return MOST_QUERIES
    return MANY_QUERIES if gap_ms <= LONG_MS else FEW_QUERIES


def _gaps(text: str) -> tuple[float, ...]:
    """Return the idle gaps to try, in milliseconds, ascending and from 0."""
    try:
        found = sorted({0.0, *(float(part) for part in text.split(","))})
    except ValueError:
        found = [-1.0]
    if not (found[0] >= 0 and 0 < found[-1] <= LONGEST_MS and len(found) <= MOST_GAPS):
        raise UsageError(
            "E-SCEN-4",
            f"idle_gap needs milliseconds between 0 and {LONGEST_MS:.0f}",
            evidence=f"gaps_ms {text!r}",
            fix="--scenario idle_gap --scenario-option gaps_ms=0,10,33,100",
        )
    return tuple(found)


class IdleGap(CheckedScenario):
    """One query at a time, each measured one after an idle gap; the gaps determine the duration."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "gaps_ms": Option("0,10,33,100,1000,10000", "idle milliseconds to try; a camera's frame is 33 ms")
    }

    def __init__(self, trial: Trial, plan: Plan) -> None:
        """Raise UsageError if the gaps are not times."""
        super().__init__(trial, plan)
        self.gaps_ms = _gaps(self.options["gaps_ms"])

    def order(self) -> list[int]:
        """Return the numbers of the gaps (from 1, ascending) in the order they are tried: shuffled by the seed."""
        count = len(self.gaps_ms)
        all_of_them = np.repeat(np.arange(1, count + 1), [repeats(gap) for gap in self.gaps_ms])
        return [int(k) for k in np.random.default_rng(abs(self.trial.seed)).permutation(all_of_them)]

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up, then measure after every gap; return all queries."""
        log, batch = Log(1, clock), self.trial.batch
        closed(log, work, clock, self.plan.warming(), batch)
        plan, first = self.plan.measuring(), len(log)
        plan.begin(first, clock.now())
        streams: list[int] = []
        due: list[int] = []
        gaps_ns = [round(gap * 1e6) for gap in self.gaps_ms]

        def one(stream: int, due_ns: int) -> None:
            streams.append(stream)
            due.append(due_ns)
            log.free.get()
            work.issue(log.add(clock.now()), batch, log.done)
            log.drain(work)

        try:
            for number in self.order():
                until, least = clock.now() + STRETCH_NS, len(log) + STRETCH_LEAST
                while len(log) < least or clock.now() < until:
                    one(0, -1)
                then = log.finished[-1] + gaps_ns[number - 1]
                clock.doze_until(then)
                one(number, then)
        except EndOfInput:
            plan.input_ended()
            log.drain(work)
        log.schedule = (first, np.array(due, dtype=np.int64))
        log.streams = (first, np.array(streams, dtype=np.int16))
        plan.end(len(log), clock.now())
        return log.queries(batch)
