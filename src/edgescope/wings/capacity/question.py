"""What a capacity search asks: the constraints of a run, its Trials, and the queue that its clients' queries form.

Two things must hold for N clients to fit. Each promise is kept: the upper bound of a latency quantile lies within the
limit. And the load is sustained: no backlog grows. A queue that gets longer by 5 ms every second keeps any limit for a
while; its slope shows within seconds.

    kept      every promise is shown to be kept                                   yes
    broken    one is shown to be broken, or the backlog grows                     no
    perhaps   the run is too short for a bound, or the limit lies between the figure and its bound

A trial is N clients, for some seconds, for the n-th time. A closed loop shows how long one query takes when nothing
waits. Replaying those times against the arrivals of N clients (Lindley 1952; several servers after Kiefer and
Wolfowitz) shows roughly where the tail exceeds its limit, and how much longer a run must be than its queries suggest:
latencies that queue resemble their neighbours, so a thousand of them may be worth fifty. The search takes its starting
point and the length of its runs from here; no answer rests on it.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edgescope import metrics, units
from edgescope.analysis.cells.objective import Compliance, Constraint, judged_end, parse, unreadable
from edgescope.analysis.run import lateness
from edgescope.analysis.run.usage import first
from edgescope.errors import UnsupportedError
from edgescope.metrics import Metric
from edgescope.options import settled
from edgescope.records import Absent, Field, Measured, Queries, Result, Scalar, Status, Trial, Trust
from edgescope.scenarios.open_loop import Trace, poisson
from edgescope.stats import (
    Interval,
    needed,
    percentile,
    quantile_effective_n,
    quantile_interval,
    upper_bound,
    upper_rank,
)
from edgescope.wings.capacity.keeping_up import achieved, behind, busy, measured_rows, queue_growth

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
OUT_OF_MEMORY = (Status.OOM,)


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
    growing = queue_growth(rows)
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
    none, full = Absent(ended), result.status in OUT_OF_MEMORY
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


CAMERA = "camera"
SCENARIOS = {"poisson": "server", "even": "fixed_rate", CAMERA: "trace"}
PER_CLIENT = "per-client"
#: Seeds among which the one is chosen whose number of arrivals is nearest to the rate's.
DRAWS = 16
#: From this number of arrivals on, any seed's number is within 1 % of the rate's.
MANY = 100_000
#: Smallest distance between the seeds of two attempts: the processes of an attempt have consecutive seeds.
SEEDS = 1000


@dataclass(frozen=True)
class Question:
    """The question how many clients of `rate` queries/s keep all constraints."""

    base: Trial
    """Model, engine, precision, batch, options, in_flight; the search sets its scenario and processes."""
    rate: float
    constraints: tuple[Constraint, ...]
    server_processes: str = "one"
    """one: a single process answers all clients; per-client: each client has its own process."""
    arrivals: str = "poisson"
    confirm_s: float = 30.0
    max_duration_s: float = 600.0
    """The longest run (seconds) that may be made for a bound."""
    max_clients: int = 1024

    @property
    def subject(self) -> str:
        """The model, without its digest, and how it runs."""
        return f"{self.base.model.partition('#')[0]} {self.base.label}"

    @property
    def client(self) -> str:
        """The word for one client: camera if each is periodic."""
        return CAMERA if self.arrivals == CAMERA else "client"

    @property
    def tails(self) -> list[tuple[float, float]]:
        """(quantile, seconds below which it must lie) of every constraint about time."""
        found = (tail(constraint, self.base.deadline_s) for constraint in self.constraints)
        return [one for one in found if one is not None]

    def trial(self, clients: int, seconds: float, attempt: int, store: Path) -> Trial:
        """Return the trial of `clients` clients for `seconds`; each `attempt` has its own seed and replicate."""
        one = self.server_processes == "one"
        scenario, options = SCENARIOS[self.arrivals], dict[str, Scalar]()
        rate: float | None = self.rate * (clients if one else 1)
        seed = self.base.seed + (SEEDS if one else max(SEEDS, DRAWS * self.max_clients)) * attempt
        if self.arrivals == CAMERA and one:
            rate, options = None, self._cameras(clients, seconds, seed, store)
        elif self.arrivals == CAMERA:
            scenario = SCENARIOS["even"]  # each process is a camera with its own phase
        load = {"scenario": scenario, "rate": rate, "scenario_options": options}
        load["processes"] = 1 if one else clients
        window = {"min_s": seconds, "max_s": seconds, "max_queries": None}
        trial = replace(self.base, **load, **window, seed=seed, replicate=self.base.replicate + attempt)  # type: ignore[arg-type]
        return typical(trial) if self.arrivals == "poisson" else trial

    def _cameras(self, clients: int, seconds: float, seed: int, store: Path) -> dict[str, Scalar]:
        """Write the arrivals of cameras with random phases into the store; return the options that replay them."""
        frames = math.ceil(seconds * self.rate) * clients
        times = arrivals(
            Load(self.rate, self.arrivals), clients, frames, np.random.default_rng((seed, clients))
        )
        name = f"cameras-{clients}x{self.rate:g}-{seconds:g}s-{seed}.txt"
        path = store / "arrivals" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{t:.9f}\n" for t in times))
        return settled({"trace": str(path)}, Trace.OPTIONS)


def typical(trial: Trial) -> Trial:
    """Return the trial with the seed, out of DRAWS, whose number of random arrivals is nearest to the rate's.

    By chance, half a minute at 10/s brings 265 to 335 queries; a load 10 % lighter is another question.
    """
    rate = trial.rate
    assert rate is not None, "random arrivals have a rate"
    wanted = rate * trial.max_s * trial.processes
    if wanted > MANY:
        return trial

    def off(seed: int) -> float:
        return abs(sum(_due(rate, seed + n, trial.max_s) for n in range(trial.processes)) - wanted)

    seeds = range(trial.seed, trial.seed + DRAWS * trial.processes, trial.processes)
    return replace(trial, seed=min(seeds, key=off))


def _due(rate: float, seed: int, seconds: float) -> int:
    """Return how many queries fall due in so many seconds of the server scenario."""
    count, end = 0, round(seconds * 1e9)
    for times in poisson(rate, seed):
        within = int(np.searchsorted(times, end))
        count += within
        if within < len(times):
            break
    return count


def judgeable(constraint: Constraint, result: Result) -> None:
    """Raise UnsupportedError if this machine does not measure the figure that `constraint` bounds."""
    found = resource(constraint, result)
    if isinstance(found, Absent):
        raise UnsupportedError(
            "E-CAP-1",
            f"{constraint.text} cannot be judged here",
            evidence=found.reason,
            effect="The search could not show that any number of clients keeps it",
            fix="leave it out; edgescope doctor --all lists what can be measured",
        )


# -- their queries as a queue ---------------------------------------------------------------------------------


#: Queries of one forecast: enough for a p99 of strongly correlated latencies within some 5 %.
QUERIES = 20_000
CONFIDENCE = 0.99
#: A run is planned longer than the forecast by this share, because the next run's tail differs.
SPARE = 2.0
#: Beyond this utilisation a queue takes longer to fill than any run lasts.
FULL = 0.98


@dataclass(frozen=True)
class Load:
    """The load of N clients: the rate of each, the arrival pattern, and the number of servers."""

    rate: float
    """Queries per second of one client."""
    arrivals: str = "poisson"
    """poisson, even (all clients perfectly interleaved) or camera (each periodic, with its own phase)."""
    servers: int = 1


def latencies(service_s: Floats, load: Load, clients: int, *, seed: int = 0, n: int = QUERIES) -> Floats:
    """Return the seconds from due to done of `n` queries; the service times are repeated in their order."""
    rng = np.random.default_rng((seed, clients))
    due = arrivals(load, clients, n, rng)
    service = np.resize(np.roll(service_s, -int(rng.integers(len(service_s)))), n)
    if load.servers > 1:
        return _several(due, service, load.servers)
    before = np.concatenate(([0.0], np.cumsum(service[:-1])))
    return np.asarray(np.maximum.accumulate(due - before) + before + service - due, dtype=np.float64)


def arrivals(load: Load, clients: int, n: int, rng: np.random.Generator) -> Floats:
    """Return the times in seconds, in order, at which `n` queries of all clients are due."""
    total = load.rate * clients
    if load.arrivals == "poisson":
        return np.asarray(np.cumsum(rng.exponential(1 / total, n)), dtype=np.float64)
    if load.arrivals == "even":
        return np.arange(n, dtype=np.float64) / total
    phases = np.sort(rng.uniform(0, 1 / load.rate, clients))
    frames = math.ceil(n / clients)
    return np.asarray((np.arange(frames)[:, None] / load.rate + phases).ravel()[:n], dtype=np.float64)


def _several(due: Floats, service: Floats, servers: int) -> Floats:
    """Serve each query by the first of several servers that is free."""
    free = [0.0] * servers
    out = np.empty(len(due))
    for i, (t, s) in enumerate(zip(due.tolist(), service.tolist(), strict=True)):
        done = max(t, heapq.heappop(free)) + s
        heapq.heappush(free, done)
        out[i] = done - t
    return out


@dataclass(frozen=True)
class Forecast:
    """The expected result of a run of N clients for one quantile."""

    quantile_s: float
    """The quantile itself."""
    seconds: float
    """How long a run must be for its upper bound, at least the requested length."""
    over: float
    """The bound that such a run will give, as a multiple of the quantile."""


def forecast(service_s: Floats, load: Load, clients: int, q: float, at_least_s: float = 0.0) -> Forecast:
    """Return the forecast for one quantile `q`; seconds is inf where the servers cannot keep up."""
    total = load.rate * clients
    if total * float(service_s.mean()) / load.servers >= FULL:
        return Forecast(math.inf, math.inf, 1.0)
    x = latencies(service_s, load, clients, n=max(QUERIES, 20 * needed(q, CONFIDENCE)))
    share = quantile_effective_n(x, q) / len(x)
    seconds = max(at_least_s, SPARE * needed(q, CONFIDENCE) / (share * total))
    worth = share * total * seconds
    rank = upper_rank(math.floor(worth), q, CONFIDENCE)
    assert rank is not None, "twice the queries that a bound needs have one"
    point, bounded = percentile(x, q), percentile(x, rank / worth)
    return Forecast(point, seconds, max(1.0, bounded / point))


def ceiling(service_s: Floats, load: Load) -> int:
    """Return the most clients whose queries the servers can answer at all."""
    return math.floor(load.servers / float(service_s.mean()) / load.rate)


def estimate(service_s: Floats, load: Load, tails: Sequence[tuple[float, float]], confirm_s: float) -> int:
    """Return roughly how many clients fit, at least 1: the most whose forecast bounds keep every limit.

    `tails` are pairs of a quantile of the latency and the seconds below which it must lie.
    """
    most = max(1, ceiling(service_s, load))

    def fits(clients: int) -> bool:
        found = [(limit, forecast(service_s, load, clients, q, confirm_s)) for q, limit in tails]
        return all(f.quantile_s * f.over < limit for limit, f in found)

    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(1, low)
