"""Whether one run kept its promises: latency bounds, and whether the machine kept up with what was offered.

Two things must hold for N clients to fit. Each promise is kept: of a latency's quantile the upper bound lies within the
limit. And the load is sustained: no backlog grows. A queue that gets longer by 5 ms every second keeps any limit for a
while; its slope shows within seconds.

    kept      every promise is shown to be kept                                   yes
    broken    one is shown to be broken, or the backlog grows                     no
    perhaps   the run is too short for a bound, or the limit lies between the figure and its bound
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.slo import RESOURCES, Slo
from edgescope.records import QUERY_DROPPED, QUERY_OK, Absent, Field, Measured, Queries, Result, Status, Trust
from edgescope.stats import Interval, drift, percentile, quantile_interval, upper_bound

Floats = NDArray[np.float64]

#: A backlog that grows by this many seconds a second is that of a server 1 % too slow.
GROWTH = 0.01
#: Queries that a slope needs.
FEW = 20
#: A point estimate beyond this many times its limit needs no second look.
FAR = 1.5
#: A bound that is expected beyond this many times its limit is not worth a second look either.
BAND = 1.25
#: What a run's rows can be judged by; the others are failures.
MEASURED = (Status.OK, Status.UNSTABLE)
#: Failures that say that there is no room, not that something went wrong.
FULL = (Status.OOM,)


class Kept(str, Enum):
    """Whether a promise, or all of a run's, is kept."""

    YES = "yes"
    NO = "no"
    PERHAPS = "perhaps"


@dataclass(frozen=True)
class Held:
    """One promise in one run."""

    slo: Slo
    found: Field
    """The figure: a quantile of the latencies (the largest of too few), bytes or watts."""
    bound: Field
    """What it is judged on: of a quantile its upper bound, or why there is none yet."""
    kept: Kept
    clear: bool = True
    """Whether another look at the same load can hardly come to another answer."""
    likely: bool = True
    """Of a `perhaps`: whether the longer run that shows it may be expected to keep the promise."""
    whole: bool = True
    """False where `found` is the largest of too few queries for the quantile itself."""
    expected: float = 0.0
    """Of a `perhaps` without a bound: the bound that a longer run may be expected to give, in seconds."""


@dataclass(frozen=True)
class Point:
    """N clients, offered for a while: what was promised, what happened."""

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
    kept: Kept
    clear: bool
    why: str
    """Why it does not fit; '' where it does."""
    sustained: bool = True
    """Whether the machine kept up with what was offered."""
    weaker: bool = False
    """Whether it counts although no bound could be had in reasonable time."""

    @property
    def fits(self) -> bool:
        """Whether the search goes on as if this load fits: shown, or likely."""
        return self.kept is Kept.YES or (self.kept is Kept.PERHAPS and all(h.likely for h in self.held))

    @property
    def shown(self) -> bool:
        """Whether it is shown to fit, or passes for it."""
        return self.kept is Kept.YES or (self.weaker and self.fits)

    @property
    def disturbed(self) -> bool:
        """Whether something else on the machine may be to blame."""
        return self.result.verdict.trust is Trust.DISTURBED


def measured_rows(result: Result) -> Queries:
    """Return the rows of the trial's own model that fell due within the window, in the order in which they did.

    A crew counts as done what was done by its stop; what fell due before it and came later is part of a tail.
    """
    assert result.queries is not None and result.window is not None
    w, rows = result.window, result.queries
    if result.workers:
        due, worker = rows.columns["scheduled_ns"], rows.columns["worker"]
        mine = (due >= w.start_ns) & (due < w.stop_ns) & (worker < result.trial.processes)
        rows = _picked(rows, np.flatnonzero(mine)) if mine.any() else rows.rows(w)
    else:
        rows = rows.rows(w)
    return _picked(rows, np.argsort(_due(rows), kind="stable"))


def _picked(rows: Queries, which: NDArray[np.int64]) -> Queries:
    return Queries({name: column[which] for name, column in rows.columns.items()})


def judge(
    result: Result,
    clients: int,
    slos: Sequence[Slo],
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
        nothing = Absent(f"the run ended as {result.status.value}")
        why = result.reason or f"the run ended as {result.status.value}"
        full = result.status in FULL
        return Point(
            clients, stage, result, trial.max_s, offered, nothing, nothing, nothing, (), Kept.NO, full, why
        )
    rows = measured_rows(result)
    held = tuple(_held(slo, result, rows, guide) for slo in slos)
    growing = growth(rows)
    behind = _behind(rows, growing, offered)
    kept, clear = _together(held, bool(behind))
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
        "; ".join(behind + [words(h) for h in held if h.kept is kept is not Kept.YES]),
        not behind,
    )


def _behind(rows: Queries, growing: Field, offered: float) -> list[str]:
    """Return in words how the machine falls behind what is offered; empty where it keeps up."""
    out = []
    if isinstance(growing, Measured) and growing.lo is not None and growing.value >= GROWTH:
        served = offered / (1 + growing.value)  # query k is due at k / offered and begun at k / served
        grown = f"the wait grows by {growing.value * 1e3:.3g} ms each second"
        out.append(f"arrivals {offered:.4g}/s > service {served:.4g}/s: {grown}")
    dropped = int((rows.columns["status"] == QUERY_DROPPED).sum())
    if dropped:
        out.append(f"{dropped} of {len(rows)} queries still waited when the run had to end")
    return out


def _together(held: Sequence[Held], grows: bool) -> tuple[Kept, bool]:
    """Return what all promises make together, and whether that is clear."""
    broken = [h for h in held if h.kept is Kept.NO]
    if grows or broken:
        return Kept.NO, grows or any(h.clear for h in broken)
    perhaps = [h for h in held if h.kept is Kept.PERHAPS]
    return (Kept.PERHAPS, all(h.clear for h in perhaps)) if perhaps else (Kept.YES, True)


def _held(slo: Slo, result: Result, rows: Queries, guide: float) -> Held:
    if slo.quantile is None:
        return _resource(slo, result)
    x = np.asarray(rows.latency_ns(), dtype=np.float64) * 1e-9
    return _latency(slo, x, slo.quantile, guide)


def _latency(slo: Slo, x: Floats, q: float, guide: float) -> Held:
    if not len(x):
        none = Absent("no query succeeded")
        return Held(slo, none, none, Kept.NO)
    whole = len(x) * (1 - q) >= 1 - 1e-9
    point = percentile(x, q) if whole else float(x.max())
    interval = quantile_interval(x, q) if whole else None
    lo = interval.lo if isinstance(interval, Interval) else None
    bound = upper_bound(x, q)
    found = Measured(point, "s", lo, interval.hi if isinstance(interval, Interval) else None, len(x))
    top: Field = bound if isinstance(bound, Absent) else Measured(bound, "s", n=len(x))
    if isinstance(top, Measured) and slo.kept_by(top.value):
        return Held(slo, found, top, Kept.YES, whole=whole)
    beyond = (lo is not None and not slo.kept_by(lo)) or not slo.kept_by(point / FAR)
    if beyond:
        return Held(slo, found, top, Kept.NO, whole=whole)
    expected = point * max(1.0, guide)
    clear = expected > BAND * slo.limit
    likely = slo.kept_by(expected)
    return Held(slo, found, top, Kept.PERHAPS, clear, likely, whole, expected)


def _resource(slo: Slo, result: Result) -> Held:
    """Judge bytes or watts on the end of the interval that hurts; what was not measured keeps no promise."""
    found = resource(slo, result)
    if isinstance(found, Absent):
        return Held(slo, found, found, Kept.NO)
    end = found.value if found.hi is None else found.hi
    kept = Kept.YES if slo.kept_by(end) else Kept.NO
    return Held(slo, found, Measured(end, found.unit, n=found.n), kept)


def resource(slo: Slo, result: Result) -> Field:
    """Return what a run used of what a promise bounds; Absent with the sensor's reason."""
    fields = [result.metrics[name] for name in RESOURCES[slo.name][1] if name in result.metrics]
    reasons = [f.reason for f in fields if isinstance(f, Absent)]
    read = [f for f in fields if isinstance(f, Measured)]
    return read[0] if read else Absent(next(iter(reasons), "nothing measures it here"))


def achieved(rows: Queries) -> Field:
    """Return answered queries per second, from the first that was due to the last that was done."""
    c = rows.columns
    ok = c["status"] == QUERY_OK
    if not ok.any():
        return Absent("no query succeeded")
    span_s = float(c["done_ns"][ok].max() - _due(rows).min()) * 1e-9
    return Measured(float(ok.sum()) / span_s, "queries/s", n=int(ok.sum()))


def busy(rows: Queries, servers: int) -> Field:
    """Return the share of the servers' time in which they had a query, from issued to done."""
    c = rows.columns
    if not len(rows):
        return Absent("no query was offered")
    done = c["done_ns"]
    span = float(max(done.max(), _due(rows).max()) - _due(rows).min())
    worked = float((done - c["issued_ns"])[done >= 0].sum())
    return Measured(min(1.0, worked / span / servers), "share", n=len(rows))


def growth(rows: Queries) -> Field:
    """Return by how many seconds a second the wait for a server grows; with an interval where it is no chance."""
    issued = rows.columns["issued_ns"]
    begun = issued >= 0  # those that were dropped never were
    if int(begun.sum()) < FEW:
        return Absent(f"n/a: have {int(begun.sum())}, need {FEW}")
    due = _due(rows)[begun]
    wait = (issued[begun] - due) * 1e-9
    at = (due - due[0]) * 1e-9
    if at[-1] <= 0:
        return Absent("all queries were due at once")
    slope = float(np.polyfit(at, wait, 1)[0])
    found = drift(wait)
    sure = found.significant and np.isfinite(found.lo)
    mean = float(wait.mean()) / float(at[-1])
    return Measured(
        slope, "1", found.lo * mean if sure else None, found.hi * mean if sure else None, len(wait)
    )


def _due(rows: Queries) -> NDArray[np.int64]:
    c = rows.columns
    return np.asarray(np.where(c["scheduled_ns"] >= 0, c["scheduled_ns"], c["issued_ns"]), dtype=np.int64)


def words(held: Held) -> str:
    """Return `p99 31.2 ms (bound 33 ms) < 40 ms`, or what is not shown or broken."""
    slo = held.slo
    sign = "<" if slo.strict else "<="
    if isinstance(held.found, Absent):
        return f"{slo.text} cannot be judged: {held.found.reason}"
    name = slo.name if held.whole else f"the slowest of {held.found.n} queries"
    figure, limit = f"{name} {shown(held.found.value, slo.unit)}", shown(slo.limit, slo.unit)
    if isinstance(held.bound, Absent):
        inside = sign if slo.kept_by(held.found.value) else ">"
        have = held.bound.reason.removeprefix("n/a: ").replace(",", " independent queries,")
        if held.kept is Kept.PERHAPS and not held.likely and held.expected > held.found.value:
            return (
                f"{figure} of {limit}, and a bound of some {shown(held.expected, slo.unit)} is to be expected"
            )
        return f"{figure} {inside} {limit}, no bound ({have})"
    if slo.quantile is not None:
        figure += f" (bound {shown(held.bound.value, slo.unit)})"
    return f"{figure} {sign if slo.kept_by(held.bound.value) else '>'} {limit}"


def shown(value: float, unit: str) -> str:
    """Return a value in the unit people use: ms up to a second, MB up to a gigabyte, W."""
    steps = {"s": ((1.0, "s"), (1e3, "ms")), "bytes": ((1e-9, "GB"), (1e-6, "MB"))}.get(unit, ((1.0, unit),))
    factor, word = next((step for step in steps if value * step[0] >= 1), steps[-1])
    return f"{value * factor:.3g} {word}"
