"""Judge whether one run kept its constraints and whether the machine kept up with the offered load.

Two things must hold for N clients to fit. Each promise is kept: the upper bound of a latency quantile lies within the
limit. And the load is sustained: no backlog grows. A queue that gets longer by 5 ms every second keeps any limit for a
while; its slope shows within seconds.

    kept      every promise is shown to be kept                                   yes
    broken    one is shown to be broken, or the backlog grows                     no
    perhaps   the run is too short for a bound, or the limit lies between the figure and its bound
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope import metrics, units
from edgescope.analysis.cells.objective import Compliance, Constraint, judged_end, parse, unreadable
from edgescope.analysis.run import lateness
from edgescope.analysis.run.open_loop import achieved, behind, busy, growth, measured_rows
from edgescope.analysis.run.usage import first
from edgescope.metrics import Metric
from edgescope.records import Absent, Field, Measured, Queries, Result, Status, Trust
from edgescope.stats import Interval, percentile, quantile_interval, upper_bound

Floats = NDArray[np.float64]

#: A point estimate beyond this many times its limit needs no second run.
FAR = 1.5
#: A bound that is expected beyond this many times its limit is not worth a second run either.
BAND = 1.25
#: A bound this many times beyond its limit may lie within it in another run.
NEAR = 1.15
#: Statuses of a run whose rows can be judged; the others are failures.
MEASURED = (Status.OK, Status.UNSTABLE)
#: Failures that mean "too many clients", not "something went wrong".
FULL = (Status.OOM,)


QUANTILE = re.compile(r"(frame_age_)?p(\d\d)\.?(\d{0,2})")
#: Metrics that can be promised to clients besides a quantile: of the machine, and shares of the queries.
RESOURCES = ("memory", "gpu_memory", "power", "energy")
MISSES, DROPPED = metrics.METRICS["deadline_miss_ratio"], metrics.METRICS["dropped_share"]
SHARES = (*MISSES.bound, *DROPPED.bound)


def client_constraints(texts: Iterable[str]) -> tuple[Constraint, ...]:
    """Return the constraints in these texts, each with one or several joined by commas; UsageError for none."""
    parts = [part for text in texts for part in text.split(",") if part.strip()]
    found = tuple(parse(part, _metric_of) for part in parts)
    if not found:
        raise unreadable("", "nothing is promised")
    for constraint in found:
        if constraint.limit <= 0:
            raise unreadable(constraint.text, "the limit must be a positive number")
    return found


def _metric_of(name: str) -> Metric | str:
    """Return the metric that `name` bounds: a quantile from the median up, one of RESOURCES or SHARES; or why not."""
    known = metrics.bounded()
    match = QUANTILE.fullmatch("frame_age_p99" if name == "age" else name)
    quantile = float(f"0.{match[2]}{match[3]}") if match and not name.endswith(".") else 0.0
    if match and quantile >= 0.5:
        own = Metric(name=f"{match[0]}_s", title=name, unit="s", better="lower", quantile=quantile)
        return own if match[1] else known.get(name, own)
    if name in (*RESOURCES, *SHARES):
        return known[name]
    what = "is a constraint of recommend and optimize, not promised to clients" if name in known else ""
    can = ", ".join(("p50 to p99.99", "frame_age_p50 to frame_age_p99.99", *RESOURCES, *SHARES))
    return f"{name!r} {what or 'cannot be promised'}; known: {can}"


def tail(constraint: Constraint, deadline_s: float | None) -> tuple[float, float] | None:
    """Return (quantile, seconds below which it must lie) of a constraint about time, or None if it is about none.

    `misses<1%` of a deadline of 33 ms means that the 99 % quantile of the ages lies below 33 ms.
    """
    if constraint.quantile is not None:
        return constraint.quantile, constraint.limit
    if constraint.metric == MISSES and deadline_s is not None and 0.0 < constraint.limit <= 0.5:
        return 1.0 - constraint.limit, deadline_s
    return None


def timed(constraint: Constraint, rows: Queries) -> Floats:
    """Return what a constraint about time judges, in seconds and row order: latencies, or ages of frames."""
    if constraint.quantile is None or constraint.metric.name.startswith("frame_age"):
        return lateness.ages(rows)[1]
    return np.asarray(rows.latency_ns(), dtype=np.float64) * 1e-9


@dataclass(frozen=True)
class Held:
    """One constraint in one run."""

    constraint: Constraint
    found: Field
    """The figure: a quantile of the latencies (the largest of too few), bytes or watts."""
    bound: Field
    """The end that is judged: the upper bound of a quantile, or the reason why there is none yet."""
    kept: Compliance
    clear: bool = True
    """Whether another run at the same load would almost surely give the same answer."""
    likely: bool = True
    """For a `perhaps`: whether a run long enough to show it is expected to keep the constraint."""
    whole: bool = True
    """False if `found` is the slowest query because there are too few for the quantile itself."""
    expected: float = 0.0
    """For a `perhaps` without a bound: the bound that a longer run is expected to give, in seconds."""


@dataclass(frozen=True)
class Point:
    """One run with the load of N clients: its figures and the judgement on each constraint."""

    clients: int
    stage: str
    """`search` or `confirm`."""
    result: Result
    seconds: float
    offered: float
    """Queries per second that N clients send."""
    achieved: Field
    """Queries per second that were answered, from the first due to the last done."""
    busy: Field
    """Share of the time in which the servers (processes x in_flight) had a query."""
    growth: Field
    """Seconds by which the wait for a server grew in each second; n the queries."""
    held: tuple[Held, ...]
    kept: Compliance
    clear: bool
    why: str
    """Why it does not fit; '' if it does."""
    sustained: bool = True
    """Whether the machine kept up with what was offered."""
    weaker: bool = False
    """Whether a figure counts if its bound could not be had in reasonable time; a bound that exists counts alone."""

    @property
    def fits(self) -> bool:
        """Whether the search goes on as if this load fits: shown, or likely."""
        return self.kept is Compliance.YES or (
            self.kept is Compliance.PERHAPS and all(h.likely for h in self.held)
        )

    @property
    def shown(self) -> bool:
        """Whether it is shown to fit, or passes on its figures."""
        return self.kept is Compliance.YES or self.by_figure

    @property
    def by_figure(self) -> bool:
        """Whether it passes only on a figure that has no bound."""
        unsure = [h for h in self.held if h.kept is not Compliance.YES]
        unbounded = all(isinstance(h.bound, Absent) for h in unsure)
        return self.weaker and self.kept is Compliance.PERHAPS and self.fits and unbounded

    @property
    def disturbed(self) -> bool:
        """Whether something else on the machine may be to blame."""
        return self.result.verdict.trust is Trust.DISTURBED


def judge(
    result: Result,
    clients: int,
    constraints: Sequence[Constraint],
    *,
    offered: float,
    stage: str = "search",
    guide: float = 1.0,
) -> Point:
    """Return the run of `offered` queries per second as a Point.

    `guide` is by how much the bound of a longer run is expected to exceed the figure of this one.
    """
    trial = result.trial
    if result.status not in MEASURED or result.queries is None or result.window is None:
        return _unmeasured(result, clients, offered, stage)
    rows = measured_rows(result)
    held = tuple(_held(constraint, result, rows, guide) for constraint in constraints)
    growing = growth(rows)
    may_drop = any(constraint.metric in (MISSES, DROPPED) for constraint in constraints)
    slow = behind(rows, growing, offered, may_drop=may_drop)
    kept, clear = _together(held, bool(slow))
    return Point(
        clients,
        stage,
        result,
        (result.window.stop_ns - result.window.start_ns) * 1e-9,
        offered,
        achieved(rows),
        busy(rows, trial.in_flight * trial.processes),
        growing,
        held,
        kept,
        clear,
        "; ".join(slow + [words(h) for h in held if h.kept is kept is not Compliance.YES]),
        not slow,
    )


def _unmeasured(result: Result, clients: int, offered: float, stage: str) -> Point:
    """Return the Point of a run that ended without rows; its status says whether that means "does not fit"."""
    ended = f"the run ended as {result.status.value}"
    none, full = Absent(ended), result.status in FULL
    seconds, why = result.trial.max_s, str(result.reason or ended)
    return Point(clients, stage, result, seconds, offered, none, none, none, (), Compliance.NO, full, why)


def _together(held: Sequence[Held], grows: bool) -> tuple[Compliance, bool]:
    """Return the judgement on all constraints together, and whether it is clear."""
    broken = [h for h in held if h.kept is Compliance.NO]
    if grows or broken:
        return Compliance.NO, grows or any(h.clear for h in broken)
    perhaps = [h for h in held if h.kept is Compliance.PERHAPS]
    return (Compliance.PERHAPS, all(h.clear for h in perhaps)) if perhaps else (Compliance.YES, True)


def _held(constraint: Constraint, result: Result, rows: Queries, guide: float) -> Held:
    if constraint.metric in (MISSES, DROPPED):
        return _share(constraint, result, rows)
    if constraint.quantile is None:
        return _resource(constraint, result)
    return _latency(constraint, timed(constraint, rows), constraint.quantile, guide)


def _latency(constraint: Constraint, x: Floats, q: float, guide: float) -> Held:
    if not len(x):
        none = Absent("no query succeeded")
        return Held(constraint, none, none, Compliance.NO)
    whole = len(x) * (1 - q) >= 1 - 1e-9
    point = percentile(x, q) if whole else float(x.max())
    interval = quantile_interval(x, q) if whole else None
    lo = interval.lo if isinstance(interval, Interval) else None
    bound = upper_bound(x, q)
    found = Measured(point, "s", lo, interval.hi if isinstance(interval, Interval) else None, len(x))
    top: Field = bound if isinstance(bound, Absent) else Measured(bound, "s", n=len(x))
    kept = constraint.check(None if isinstance(top, Absent) else top.value, max(lo or 0.0, point / FAR))
    if kept is not Compliance.PERHAPS:
        return Held(constraint, found, top, kept, whole=whole)
    expected = point * max(1.0, guide)
    clear = expected > BAND * constraint.limit
    likely = constraint.holds(expected)
    return Held(constraint, found, top, Compliance.PERHAPS, clear, likely, whole, expected)


def _share(constraint: Constraint, result: Result, rows: Queries) -> Held:
    """Judge a share of the queries on the upper end of its interval."""
    limit_s = result.trial.deadline_s
    found: Field = lateness.dropped_share(rows)
    if constraint.metric == MISSES:
        found = lateness.misses(rows, limit_s)[MISSES.name] if limit_s else Absent("no --deadline")
    if isinstance(found, Absent):
        return Held(constraint, found, found, Compliance.NO)
    lo, hi = (found.value if end is None else end for end in (found.lo, found.hi))
    clear, likely = found.value > BAND * constraint.limit, constraint.holds(found.value)
    top = Measured(hi, found.unit, n=found.n)
    kept = constraint.check(hi, lo)
    return Held(constraint, found, top, kept, clear or kept is not Compliance.PERHAPS, likely)


def _resource(constraint: Constraint, result: Result) -> Held:
    """Judge bytes or watts on the worse end of the interval; a metric that was not measured keeps no constraint."""
    found = resource(constraint, result)
    if isinstance(found, Absent):
        return Held(constraint, found, found, Compliance.NO)
    end = judged_end(found, constraint.at_most)
    return Held(constraint, found, Measured(end, found.unit, n=found.n), constraint.check(end, end))


def resource(constraint: Constraint, result: Result) -> Field:
    """Return how much of the promised resource a run used, or Absent with the sensor's reason."""
    return first(result, constraint.metric.of)


def near(point: Point) -> bool:
    """Whether a run fails only by bounds that lie a little beyond their limits."""
    missed = [h for h in point.held if h.kept is not Compliance.YES]
    return point.kept is Compliance.PERHAPS and all(
        isinstance(h.bound, Measured) and h.bound.value <= NEAR * h.constraint.limit for h in missed
    )


def words(held: Held) -> str:
    """Return `p99 31.2 ms (bound 33 ms) < 40 ms`, or the words for a constraint that is broken or not shown."""
    constraint = held.constraint
    sign = "<" if constraint.strict else "<="
    if isinstance(held.found, Absent):
        return f"{constraint.text} cannot be judged: {held.found.reason}"
    name = constraint.name if held.whole else f"the slowest of {held.found.n} queries"
    figure, limit = (
        f"{name} {units.text(held.found.value, constraint.metric.unit)}",
        units.text(constraint.limit, constraint.metric.unit),
    )
    if isinstance(held.bound, Absent):
        inside = sign if constraint.holds(held.found.value) else ">"
        have = held.bound.reason.removeprefix("n/a: ").replace(",", " independent queries,")
        if held.kept is Compliance.PERHAPS and not held.likely and held.expected > held.found.value:
            expected = units.text(held.expected, constraint.metric.unit)
            return f"{figure} of {limit}, and a bound of some {expected} is to be expected"
        return f"{figure} {inside} {limit}, no bound ({have})"
    if constraint.quantile is not None or constraint.metric in (MISSES, DROPPED):
        figure += f" (bound {units.text(held.bound.value, constraint.metric.unit)})"
    return f"{figure} {sign if constraint.holds(held.bound.value) else '>'} {limit}"
