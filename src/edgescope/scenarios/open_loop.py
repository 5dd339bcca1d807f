"""Open loops: queries fall due on a schedule, whether or not earlier ones are done, and wait in an unbounded queue.

Latency runs from the moment a query is due, so a stall is charged to every query it delayed (no coordinated
omission). At most `in_flight` are served at once; the others wait in order. The window is fixed: nothing falls due
after it, and the run does not end early because the mean is known. Queries that still wait at its end are served for
up to a tenth of the window longer (a second at least); the rest are dropped, in rows that keep their due times.

The schedule of a trace is a text file with the seconds at which recorded queries arrived:

    0.000            one number a line, from 0 in the order of time; blank lines and lines that begin with # are
    0.033            ignored. In a CSV, the first column, or the one that the first line calls arrival_s
    0.070
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import ClassVar

from edgescope import cache
from edgescope.clock import Clock
from edgescope.errors import UsageError
from edgescope.options import Option, unpinned
from edgescope.process import said
from edgescope.records import Queries, Trial
from edgescope.records.lazy import NDArray, np
from edgescope.scenarios.base import CheckedScenario, rate_of
from edgescope.scenarios.query_log import Ints, Log, closed
from edgescope.scenarios.stop_rule import FOREVER, Plan
from edgescope.workloads.base import EndOfInput, Work

PATIENCE_SHARE, PATIENCE_S = 0.1, 1.0
"""The queue is served for this share of the window longer, so that a healthy run drops nothing."""
DRAWN = 1024
"""Number of random gaps drawn at a time."""
FIRST_LOOK_NS, LOOK_NS = 2_000_000_000, 1_000_000_000
"""For whoever watches: nanoseconds to the first look at whether arrivals exceed service, and between two looks."""
CLEARLY = 0.95
"""Arrivals exceed service where less than this share of what fell due is done."""
MOST_AT_ONCE = 999_999
"""The largest number of queries in one burst."""
ARRIVAL_COLUMN = "arrival_s"
MOST_TRACE_BYTES = 200_000_000
"""Ten million arrivals: more would be minutes of reading before anything is measured."""
MOST_ARRIVAL_S = 1e7
"""115 days; beyond that the column holds dates, not seconds from a start."""


def patience_s(trial: Trial) -> float:
    """Return the seconds that an open loop still serves its queue after its window."""
    return max(PATIENCE_S, PATIENCE_SHARE * trial.max_s)


class OpenLoop(CheckedScenario):
    """Offers queries on the schedule that a subclass gives."""

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
        """Offer each query when it is due and wait for the end of the window; return the due times."""
        plan, first, due = self.plan, len(log), array("q")

        def latencies(row: int) -> Ints:
            finished = np.array(log.finished[first:], dtype=np.int64)
            return np.asarray((finished - np.array(due, dtype=np.int64)[: len(finished)])[finished >= 0])

        look_ns = plan.start_ns + FIRST_LOOK_NS if said.watched() else FOREVER
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
            if now >= look_ns:
                look_ns = now + LOOK_NS
                said.tell_watcher(
                    overload(due, int((np.array(log.finished[first:]) >= 0).sum()), start_ns, now)
                )
            if going and (now >= plan.check_ns or len(log) >= plan.limit):
                going = plan.goes_on(now, len(log), latencies)
                if not going and now < plan.deadline_ns:  # the plan says stop: nothing more falls due
                    last_ns = now
        else:
            plan.stopped_by = "the schedule has ended"
            return due
        if going and len(log) < plan.limit:
            clock.sleep_until(plan.deadline_ns)
            plan.goes_on(clock.now(), len(log), latencies)
        return due


def overload(due: array[int], done: int, start_ns: int, now_ns: int) -> str:
    """Return the rates of arrivals and service so far and what follows, or '' if service keeps up."""
    elapsed_s, spanned_s = (now_ns - start_ns) * 1e-9, (due[-1] - start_ns) * 1e-9
    if min(elapsed_s, spanned_s) <= 0:
        return ""
    arrivals, service = (len(due) - 1) / spanned_s, done / elapsed_s
    if not done or service >= CLEARLY * arrivals:
        return ""
    older = 1 - service / arrivals
    return f"arrivals {arrivals:.3g}/s > service {service:.3g}/s: results get {older:.2g} s older per second"


class FixedRate(OpenLoop):
    """Query k is due at (k + phase) / rate, with the plan's phase: a camera."""

    def offsets(self) -> Iterator[int]:
        """Yield (k + phase) / rate."""
        rate, phase = rate_of(self.trial), self.plan.phase
        return (round((k + phase) * 1e9 / rate) for k in count())


class Server(OpenLoop):
    """Queries arrive at random, independently of each other: many clients (MLPerf's Poisson arrivals).

    The gaps are exponential with mean 1 / rate and drawn from the trial's seed. The same seed gives every variant and
    replicate the same arrivals, so that chance in the arrivals does not enter their ratios.
    """

    def offsets(self) -> Iterator[int]:
        """Yield the arrival times of a Poisson process."""
        for times in poisson(rate_of(self.trial), self.trial.seed):
            yield from times.tolist()


def poisson(rate: float, seed: int) -> Iterator[NDArray[np.int64]]:
    """Yield the arrival times of a Poisson process in nanoseconds, DRAWN at a time, without end."""
    rng, at = np.random.default_rng(abs(seed)), 0.0
    while True:
        times = at + np.cumsum(rng.exponential(1 / rate, DRAWN))
        at = float(times[-1])
        yield (times * 1e9).astype(np.int64)


class Burst(OpenLoop):
    """`burst_size` queries at once, then a pause that keeps the mean at `rate`: eight cameras with one trigger."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {"burst_size": Option(0, "queries that come at once")}

    def __init__(self, trial: Trial, plan: Plan) -> None:
        """Raise UsageError if the trial gives no burst size."""
        super().__init__(trial, plan)
        self.size: int = self.options["burst_size"]
        if not 1 <= self.size <= MOST_AT_ONCE:
            raise UsageError(
                "E-SCEN-2",
                "burst needs the number of queries that come at once",
                evidence=f"burst_size {self.size}, of 1 to {MOST_AT_ONCE}",
                fix="--scenario burst --scenario-option burst_size=8 --rate 80",
            )

    def offsets(self) -> Iterator[int]:
        """Yield each burst's time once for each of its queries."""
        rate, size = rate_of(self.trial), self.size
        return (round(k // size * size * 1e9 / rate) for k in count())


class Trace(OpenLoop):
    """The arrivals recorded in a file, once or repeated."""

    OPTIONS: ClassVar[Mapping[str, Option]] = {
        "trace": Option("", "file with the second at which each query arrived", file=True),
        "loop": Option(False, "begin again when the file has ended"),
    }

    def __init__(self, trial: Trial, plan: Plan) -> None:
        """Raise UsageError if the file is no trace, or if the trial also gives a rate."""
        super().__init__(trial, plan)
        if trial.rate is not None:
            raise UsageError("E-SCEN-5", "a trace brings its own rate", fix="leave --rate out")
        if not self.options["trace"]:
            raise UsageError(
                "E-SCEN-3", "trace needs a file", fix="--scenario trace --scenario-option trace=FILE"
            )
        self.recorded = read_trace(unpinned(self.options["trace"]))
        self.period_ns = trace_period_ns(self.recorded) if self.options["loop"] else 0

    def offsets(self) -> Iterator[int]:
        """Yield the recorded times; a loop begins again one mean gap after the last."""
        times = self.recorded.tolist()
        turns = count() if self.options["loop"] else range(1)
        return (turn * self.period_ns + t for turn in turns for t in times)


def read_trace(path: Path) -> Ints:
    """Return the arrivals in nanoseconds, in order; UsageError if the file is no trace."""
    return _parsed(path, _content(path))


@lru_cache(maxsize=4)
def _parsed(path: Path, content: str) -> Ints:
    """Return the arrivals of a file; a file is parsed once for each content."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(path, 0, "is not text", f"byte {error.start}: {error.reason}") from error
    return parsed_trace(text, path)


def parsed_trace(text: str, path: Path = Path("trace")) -> Ints:
    """Return the arrivals of a trace's text in nanoseconds; a UsageError names the first wrong line."""
    out: list[int] = []
    column, before, started = 0, 0.0, False
    for number, line in enumerate(text.split("\n"), 1):
        fields = [field.strip().strip('"').strip() for field in line.split(",")]
        if fields == [""] or fields[0].startswith("#"):
            continue
        if not started and ARRIVAL_COLUMN in fields:
            column, started = fields.index(ARRIVAL_COLUMN), True
            continue
        started = True
        value = _seconds(fields[column] if column < len(fields) else "", path, number)
        if value < before:
            raise _bad(
                path, number, "is not in the order of time", f"{value:g} s after {before:g} s", "sort -g"
            )
        out.append(round(value * 1e9))
        before = value
    if not out:
        raise _bad(path, 0, "holds no arrival", f"{len(text)} characters")
    return np.array(out, dtype=np.int64)


def trace_period_ns(times: Ints) -> int:
    """Return the period of a looped trace in nanoseconds: its last arrival plus the mean gap.

    Raises UsageError if all arrivals are at one moment.
    """
    if times[-1] == times[0]:
        raise UsageError(
            "E-TRACE-3",
            "a trace whose arrivals are all at one moment cannot be looped",
            evidence=f"{len(times)} arrivals at {times[0] / 1e9:g} s",
            fix=f"--scenario burst --scenario-option burst_size={len(times)} --rate N",
        )
    return int(times[-1] + (times[-1] - times[0]) // (len(times) - 1))


def _seconds(text: str, path: Path, number: int) -> float:
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        raise _bad(path, number, "is not a number of seconds", repr(text[:40])) from None
    if not math.isfinite(value):
        raise _bad(path, number, "is not a finite number of seconds", repr(text[:40]))
    if value < 0:
        raise _bad(path, number, "is negative", f"{value:g} s; the trace begins at 0")
    if value > MOST_ARRIVAL_S:
        fix = "subtract the first time from all of them"
        raise _bad(
            path, number, "is no time from the start of a trace", f"{value:g} s > {MOST_ARRIVAL_S:g} s", fix
        )
    return value


def _bad(path: Path, number: int, what: str, evidence: str, fix: str = "") -> UsageError:
    where = f"{path} line {number}" if number else str(path)
    return UsageError(
        "E-TRACE-1",
        f"{where} {what}",
        evidence=evidence,
        effect="Nothing was measured",
        fix=fix or "one arrival in seconds a line, from 0, in the order of time",
    )


def _content(path: Path) -> str:
    """Return the digest of the file's content; UsageError if it is too large or cannot be read."""
    try:
        size = path.stat().st_size
        problem = (
            f"{size / 1e6:.0f} MB, at most {MOST_TRACE_BYTES / 1e6:.0f}" if size > MOST_TRACE_BYTES else ""
        )
        content = "" if problem else cache.content(path)
    except OSError as error:
        problem = error.strerror or str(error)
    if problem:
        raise UsageError("E-TRACE-4", f"the trace {str(path)!r} cannot be read", evidence=problem)
    return content
