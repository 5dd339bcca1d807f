"""Make the rows that a recommendation chooses among: one per cell, each figure with its bounds.

A figure's value is the mean over the processes. Its ends bound a fresh process; the end of a tail
percentile is at least the largest order-statistic bound of any process. A constraint is judged on the worse end.

An order-statistic bound of p99 covers the variation within a process. Another process has its pages and threads
elsewhere, and differs by more than that. Of k processes with logs of mean m and spread s, a further one stays below

    exp(m + t(0.95, v) s sqrt(1 + 1/k))      with 95 % confidence, v degrees of freedom

(the usual prediction bound, on logs). Few cells have enough replicates to know their own s, so the spread of the
machine's other replicated cells is added as PRIOR_DOF further degrees of freedom (the moderated variance of limma,
Smyth 2004). Two rules keep that from narrowing a bound that it should not. A cell's own processes are not among the
others. And if a cell spreads by more than the others do, the bound from its own processes alone counts if it is
wider: nothing says that all cells of a machine spread alike. A cell with a single process has a bound as well, as
soon as some cells have more; if none has, the functions here return None, because a bound would cover one process
only.

How often these bounds hold is simulated in benchmarks/intervals.py (fresh_means). One case cannot be seen in any
measurement: a single process whose cell spreads by more than the cells it borrows from.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgescope import registry
from edgescope.analysis.cells.concurrency import reused
from edgescope.analysis.cells.objective import Wanted
from edgescope.analysis.cells.replicates import (
    MEASURED,
    QUANTILES,
    bounds,
    field_of,
    latencies_s,
    percentile_of,
    reaching,
    value_of,
)
from edgescope.analysis.cells.row import Row, figures, joined
from edgescope.analysis.cells.variants import alone, broken, of_starts, rejection, row_of, shown_runs
from edgescope.analysis.run import energy
from edgescope.analysis.run.usage import first
from edgescope.metrics import METRICS, Metric
from edgescope.records import Absent, Field, Measured, Result, Role, Status, Trial
from edgescope.stats import upper_bound
from edgescope.stats.intervals import quantile_effective_n, t_quantile
from edgescope.stats.pairs import SAME_WITHIN, Judgement

CONFIDENCE = 0.95
#: How many degrees of freedom the other cells' spread may count for: limma's prior for spreads that differ by 1.9 times
#: either way (one standard deviation: trigamma(2 / 2) is the variance of the logs of variances).
PRIOR_DOF = 2.0


@dataclass(frozen=True)
class Spread:
    """The standard deviation of logs between fresh processes of one cell, pooled over cells."""

    sd: float
    dof: float


def pooled(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Return the spread within groups of positive values, one group per cell; None if no group has two values."""
    total, dof = 0.0, 0
    for values in groups:
        if len(values) > 1:
            logs = [math.log(v) for v in values]
            mean = sum(logs) / len(logs)
            total += sum((x - mean) ** 2 for x in logs)
            dof += len(logs) - 1
    return Spread(math.sqrt(total / dof), dof) if dof else None


def moderated(values: Sequence[float], machine: Spread | None) -> Spread | None:
    """Return the spread of one cell's processes, moderated by the spread of the machine's other cells.

    `machine` is pooled over all cells, this one included.
    """
    own = pooled([values])
    others = _without(machine, own)
    if own is None or others is None:
        return own or (others and Spread(others.sd, _prior(others)))
    prior = _prior(others)
    dof = prior + own.dof
    both = Spread(math.sqrt((prior * others.sd**2 + own.dof * own.sd**2) / dof), dof)
    return max(own, both, key=_reach) if own.sd > others.sd else both


def _prior(others: Spread) -> float:
    """Return the degrees of freedom that the spread of the other cells counts for.

    The variance of the logs of variances is about 2 / dof, and two add:
    how cells differ, and how well `others` is known.
    """
    return 1.0 / (1.0 / PRIOR_DOF + 1.0 / others.dof)


def _without(machine: Spread | None, own: Spread | None) -> Spread | None:
    """Return the pooled spread without one cell's own share, or None if nothing is left."""
    if machine is None or own is None:
        return machine
    dof = machine.dof - own.dof
    squares = machine.dof * machine.sd**2 - own.dof * own.sd**2
    return Spread(math.sqrt(max(0.0, squares) / dof), dof) if dof > 0 else None


def _reach(spread: Spread) -> float:
    return t_quantile(CONFIDENCE, spread.dof) * spread.sd


def fresh(values: Sequence[float], machine: Spread | None) -> tuple[float, float] | None:
    """Return the 90 % prediction interval of a further process: it lies outside each end with 5 %.

    `values`: positive, one per process; `machine`: pooled over all cells, this one included. None if nothing is known
    about the spread between processes.
    """
    spread = moderated(values, machine)
    if spread is None or len(values) == 0:
        return None
    mean = sum(math.log(v) for v in values) / len(values)
    reach = _reach(spread) * math.sqrt(1 + 1 / len(values))
    return math.exp(mean - reach), math.exp(mean + reach)


def compared(a: Sequence[float], b: Sequence[float], machine: Spread | None) -> Judgement | None:
    """Return FASTER if the means of two cells' processes differ significantly (95 %), SAME if they surely do not.

    SAME asks the 90 % interval of their ratio to lie within SAME_WITHIN. None if the spread is not known.
    """
    first, second = moderated(a, machine), moderated(b, machine)
    if first is None or second is None or not a or not b:
        return None
    gap = abs(sum(map(math.log, a)) / len(a) - sum(map(math.log, b)) / len(b))
    error = math.sqrt(first.sd**2 / len(a) + second.sd**2 / len(b))
    dof = min(first.dof, second.dof)
    if gap > t_quantile(0.975, dof) * error:
        return Judgement.FASTER
    alike = gap + t_quantile(0.95, dof) * error <= math.log1p(SAME_WITHIN)
    return Judgement.SAME if alike else Judgement.AMBIGUOUS


# -- the rows ------------------------------------------------------------------------------------------------


#: Statuses with a measured window; a longer run that crashed or was refused does not hide a shorter one.
FINISHED = (*MEASURED, Status.WRONG_OUTPUT)


def tail(metric: Metric) -> bool:
    """Return whether a metric is a percentile whose bound may need the raw rows of all processes together."""
    return (metric.quantile or 0.0) > 0.5


def asks_tails(wanted: Wanted) -> bool:
    """Return whether a question needs raw rows: a bound may have to come from all processes' rows together."""
    return any(tail(c.metric) for c in wanted.constraints)


Load = tuple[str, str, str, str, int, int]


def load(trial: Trial) -> Load:
    """Return the load of a trial: workload, scenario, rate, colocated models, io; for an open loop its servers too.

    An open loop's rate is offered to each process, and the queries in flight bound the queue, so both are part of it.

    Cells under two loads answer two questions: a cell that is offered ten times as much is not ten times as good.
    """
    opened = registry.scenario(trial.scenario).open_loop
    met = (trial.in_flight, trial.processes) if opened else (0, 0)
    return (trial.workload, trial.key(Role.LOAD), trial.colocated, trial.io, *met)


def choices(results: Iterable[Result], wanted: Wanted) -> tuple[list[Row], Spreads]:
    """Return one row per cell, rejected if it breaks a constraint, and the spread between processes."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        groups.setdefault(result.trial.variant, []).append(result)
    every = [(_longest(group), group) for group in groups.values()]
    spreads = Spreads([list(shown_runs(long).values()) for long, _ in every])
    scope = energy.usual([r for long, _ in every for r in long])
    return [_choice(long, group, wanted, spreads, scope) for long, group in every], spreads


class Spreads:
    """The spread between fresh processes of one cell on this machine, for each metric, pooled over the cells."""

    def __init__(self, groups: Sequence[Sequence[Result]]) -> None:
        self.groups = groups
        self.known: dict[str, Spread | None] = {}

    def of(self, column: str) -> Spread | None:
        """Return the spread of one column; a tail with too few queries takes the spread of a lower percentile."""
        if column not in self.known:
            own = pooled(values(group, column) for group in self.groups)
            lower = [name for name in QUANTILES if QUANTILES[name] < QUANTILES.get(column, 0.0)]
            self.known[column] = self.of(lower[-1]) if own is None and lower else own
        return self.known[column]


def values(group: Sequence[Result], column: str) -> list[float]:
    """Return the positive values of one column, one per process."""
    found = (_figure(r, column) for r in group)
    return [f.value for f in found if isinstance(f, Measured) and f.value > 0]


def _longest(group: Sequence[Result]) -> list[Result]:
    """Return the runs over the longest window in which a run finished; only fresh processes if there are any."""
    finished = [r for r in group if r.status in FINISHED] or group
    most = max(r.trial.max_s for r in finished)
    long = [r for r in group if r.trial.max_s == most]
    started = [r for r in long if not reused(r)]
    return started if any(r.status in MEASURED for r in started) else long


def _choice(
    group: Sequence[Result], own: Sequence[Result], wanted: Wanted, spreads: Spreads, scope: str
) -> Row:
    """Return the row of the runs in `group`, the longest of the variant's `own`."""
    replicates = shown_runs(group)
    done, first = list(replicates.values()), next(iter(replicates.values()), group[0])
    status, why = rejection(group)
    notes: list[str] = []
    bounded = {c.metric.name for c in wanted.constraints}
    found = figures(done, first.trial.workload, scope)
    for name in found.keys() & _varying():
        if name in QUANTILES:
            found[name] = _latency(done, name, found[name], spreads, notes if name in bounded else [])
        else:
            found[name] = _between(done, name, spreads, scope)
    for name in of_starts(found, own):
        found[name] = _between(alone(own), name, spreads, scope)
    row = row_of(group, replicates, found | {"speedup": Absent("not compared with a baseline")})
    remarks = (*dict.fromkeys(notes), *_weak(done, spreads))
    return broken(replace(row, status=status if why else row.status, notes=remarks), wanted)


def _weak(done: Sequence[Result], spreads: Spreads) -> tuple[str, ...]:
    found = []
    if done and all(reused(r) for r in done):
        found.append("its workers were reused from the cell before")
    if len(done) == 1 and spreads.of("throughput_sps") is None:
        found.append("one process: its bounds do not include the spread between processes")
    return tuple(found)


def _varying() -> set[str]:
    """Return the metrics that vary between processes, unlike those of the artifact."""
    shown = (m for m in METRICS.values() if m.bound or m.objective or m.shown)
    return {m.name for m in shown if not m.artifact and (m.of or m.quantile)}


def _figure(result: Result, column: str) -> Field:
    """Return one column's figure of one process."""
    metric = METRICS[column]
    if metric.unit == "bytes":
        return first(result, metric.of)
    return percentile_of(result, column) if metric.quantile else field_of(result, metric.of[0])


def _between(done: Sequence[Result], column: str, spreads: Spreads, scope: str) -> Field:
    """Return the mean of the processes with bounds for a fresh one; watts have at least the meter's bounds."""
    size = METRICS[column].unit == "bytes"
    mean = joined(done, METRICS[column], scope)
    if isinstance(mean, Absent) or mean.value <= 0:
        return mean
    found = values(done, column)
    ends = fresh(found, spreads.of(column))
    if ends is None:
        return mean
    lo, hi = reaching(*ends, [] if size else [bounds(r, METRICS[column].of[0]) for r in done])
    return replace(mean, lo=lo, hi=max(hi, mean.value) if size else hi)


def _latency(done: Sequence[Result], column: str, point: Field, spreads: Spreads, notes: list[str]) -> Field:
    """Return the cell's percentile; its upper end bounds a fresh process."""
    if isinstance(point, Absent):
        return point
    found = values(done, column)
    top = [point.value, *found]
    if tail(METRICS[column]):
        top.append(_order_bound(done, column, notes))
    if len(found) < len(done):  # over all processes' queries together
        return Measured(point.value, "s", None, max(top), len(done))
    ends = fresh(found, spreads.of(column))
    least = min(found) if ends is None else min(*found, ends[0])
    return Measured(point.value, "s", least, max([*top, ends[1]] if ends else top), len(found))


def _order_bound(done: Sequence[Result], column: str, notes: list[str]) -> float:
    """Return the largest order-statistic bound of a process, else the bound of all rows, else the slowest query."""
    stored = [r.metrics.get("latency_p99_bound_s") for r in done] if column == "p99_s" else []
    known = [f.value for f in stored if isinstance(f, Measured)]
    if known and len(known) == len(done):
        return max(known)
    parts = [x for x in map(latencies_s, done) if x is not None]
    rows = np.concatenate(parts) if parts else np.zeros(0)
    bound = upper_bound(rows, QUANTILES[column]) if len(rows) else Absent("no rows")
    if isinstance(bound, float):
        return max([bound, *known])
    longest = [value_of(r, "latency_max_s") or 0.0 for r in done]
    n = len(rows) or sum(f.n for f in (field_of(r, "latency_max_s") for r in done) if isinstance(f, Measured))
    if n:
        worth = quantile_effective_n(rows, QUANTILES[column]) if len(rows) else n
        sure = math.floor(100 * (1 - QUANTILES[column] ** worth))
        few = "" if worth > 0.9 * n else f"effective n {worth:.0f}, "
        name = column.removesuffix("_s")
        notes.append(f"{name} upper bound = slowest of {n:,} queries ({few}confidence {sure} %)")
    return max([*longest, *known, 0.0])
