"""The cost of idleness: the latency of a query after 0, 10, 33, 100, 1000 and 10000 ms without one.

Clocks fall, cores sleep, other programs take the caches: a camera at 1 frame/s never sees the latency that a benchmark
in a closed loop reports. The gaps come in random order, interleaved, so that slow drift affects all alike; before each
gap, a stretch of back-to-back queries warms the device again. While it waits, the process sleeps: spinning would keep
the core awake.

In the rows, `stream` is 0 for the stretches and k for the k-th gap in ascending order. A query after a gap is scheduled
for the time it is due: the requested gap is its `scheduled` minus `done` of the row before, the actual gap is its
`issued` minus that `done`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from edgescope.clock import Clock
from edgescope.errors import UsageError
from edgescope.options import Option
from edgescope.records import Queries, Trial
from edgescope.records.lazy import np
from edgescope.scenarios.base import CheckedScenario
from edgescope.scenarios.query_log import Log, closed
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.base import EndOfInput, Work

STRETCH_NS, STRETCH_LEAST = 50_000_000, 2
"""Seconds of back-to-back queries before each gap, and their smallest number."""
MOST, MANY, FEW = 60, 20, 7
"""Queries after each gap: for short gaps, for gaps up to LONG_MS, and for longer gaps."""
SHORT_MS, LONG_MS = 100.0, 2000.0
LONGEST_MS, MOST_GAPS = 600_000.0, 50


def repeats(gap_ms: float) -> int:
    """Return how often a gap of this length is repeated; 7 is the fewest values whose median has an interval."""
    if gap_ms <= SHORT_MS:
        return MOST
    return MANY if gap_ms <= LONG_MS else FEW


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
