"""Open loops: queries fall due on a schedule, ready or not, and wait in a queue without end.

Latency runs from the moment a query is due, so a stall is charged to every query it delayed (no coordinated
omission). At most `in_flight` are worked on at once; the others wait in order. The window is fixed: nothing falls due
after it, and the run does not end early because the mean is known. What still waits then is served for up to a tenth
of the window longer (a second at least); the rest is dropped, in rows that say when they were due.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import count

import numpy as np

from edgescope.clock import Clock
from edgescope.errors import UsageError
from edgescope.records import Queries, Trial
from edgescope.scenarios import arrivals, settings
from edgescope.scenarios.query_log import Ints, Log, closed
from edgescope.scenarios.stop_rule import Plan
from edgescope.workloads.base import EndOfInput, Work

PATIENCE_SHARE, PATIENCE_S = 0.1, 1.0
"""How much longer than the window the queue is served, so that a healthy run drops nothing."""
DRAWN = 1024
"""Random gaps drawn at once."""


def patience_s(trial: Trial) -> float:
    """Return for how many seconds after its window an open loop still serves its queue."""
    return max(PATIENCE_S, PATIENCE_SHARE * trial.max_s)


class OpenLoop:
    """Offers queries on the schedule that a subclass gives."""

    def __init__(self, trial: Trial, plan: Plan) -> None:
        self.trial, self.plan = settings.checked(trial), plan

    def offsets(self) -> Iterator[int]:
        """Yield when each query is due, in nanoseconds from the start, in order."""
        raise NotImplementedError

    def drive(self, work: Work, clock: Clock) -> Queries:
        """Warm up in a closed loop, then offer queries on schedule for the time the plan allows."""
        log = Log(self.trial.in_flight, clock)
        closed(log, work, clock, self.plan.warming(), self.trial.batch)
        first, plan = len(log), self.plan.measuring()
        plan.whole = True
        plan.begin(first, clock.now())
        due = self._offered(log, work, clock)
        log.drain(work)
        log.schedule = (first, np.array(due, dtype=np.int64))
        plan.end(len(log), clock.now())
        if not due:
            raise UsageError(
                "E-SCEN-6",
                "no query fell due within the window",
                evidence=f"{self.trial.scenario}, {self.trial.max_s:g} s",
                effect="There is nothing to measure",
                fix="a longer --duration, or a higher --rate",
            )
        return log.queries(self.trial.batch)

    def _offered(self, log: Log, work: Work, clock: Clock) -> array[int]:
        """Offer what falls due, and wait for the end of the window; return when each query was due."""
        plan, first, due = self.plan, len(log), array("q")

        def latencies(row: int) -> Ints:
            finished = np.array(log.finished[first:], dtype=np.int64)
            return np.asarray((finished - np.array(due, dtype=np.int64)[: len(finished)])[finished >= 0])

        start_ns, going, last_ns = plan.start_ns, True, plan.deadline_ns + round(patience_s(self.trial) * 1e9)
        for offset in self.offsets():
            t = start_ns + offset
            if len(log) >= plan.limit or t >= min(plan.deadline_ns, last_ns):
                break
            due.append(t)
            clock.sleep_until(t)
            if clock.now() > last_ns:
                log.drop()
                continue
            log.free.get()
            try:
                work.issue(log.add(clock.now()), self.trial.batch, log.done)
            except EndOfInput:
                plan.input_ended()
                return due
            now = clock.now()
            if going and (now >= plan.check_ns or len(log) >= plan.limit):
                going = plan.goes_on(now, len(log), latencies)
                if not going and now < plan.deadline_ns:  # told to stop: nothing more falls due
                    last_ns = now
        else:
            plan.stopped_by = "the schedule has ended"
            return due
        if going and len(log) < plan.limit:
            clock.sleep_until(plan.deadline_ns)
            plan.goes_on(clock.now(), len(log), latencies)
        return due


class FixedRate(OpenLoop):
    """Query k is due at k / rate, or as much later as the plan's phase says: a camera."""

    def offsets(self) -> Iterator[int]:
        """Yield (k + phase) / rate."""
        rate, phase = settings.rate(self.trial), self.plan.phase
        return (round((k + phase) * 1e9 / rate) for k in count())


class Server(OpenLoop):
    """Queries arrive at random, independently of each other: many clients (MLPerf's Poisson arrivals).

    The gaps are exponential with mean 1 / rate and drawn from the trial's seed: the same seed gives the same arrivals
    to every variant and replicate, so that their ratios are not the arrivals' luck.
    """

    def offsets(self) -> Iterator[int]:
        """Yield the arrival times of a Poisson process."""
        rate, rng, at = settings.rate(self.trial), np.random.default_rng(abs(self.trial.seed)), 0.0
        while True:
            times = at + np.cumsum(rng.exponential(1 / rate, DRAWN))
            at = float(times[-1])
            yield from (times * 1e9).astype(np.int64).tolist()


class Burst(OpenLoop):
    """`arrivals` queries at once, then none until `rate` is made up: eight cameras with one trigger."""

    def offsets(self) -> Iterator[int]:
        """Yield each burst's time as often as it has queries."""
        rate, size = settings.rate(self.trial), settings.burst(self.trial)
        return (round(k // size * size * 1e9 / rate) for k in count())


class Trace(OpenLoop):
    """The arrivals of a file, once or over and over: `arrivals` is FILE or loop:FILE."""

    def offsets(self) -> Iterator[int]:
        """Yield the recorded times; looped, again after the last one and a mean gap."""
        recorded = settings.trace(self.trial)
        times = recorded.tolist()
        yield from times
        if arrivals.looped(self.trial.arrivals):
            period = arrivals.period_ns(recorded)
            for turn in count(1):
                yield from (turn * period + t for t in times)
