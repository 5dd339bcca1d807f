"""Join replicates, the fresh processes that repeat one cell: figures, percentiles, means and ratios with intervals.

Two processes of one program differ (memory layout, placement, the machine's state) by more than the noise within
either, so the spread between replicates is what an interval must show. What a
meter misses it misses in every replicate, so intervals of power and energy reach at least as far as its mean bounds.

A percentile of several fresh processes is the mean of their own percentiles. The process is the unit of repetition,
so each counts once however many queries it answered, and a ratio of two cells' medians is about what their pairs say.
Pooling the queries would weigh a fast process more, and would show only one of two modes. If a process has too few
queries for a percentile, the percentile of all processes' queries together is used, never below a lower percentile.

The interval of a mean over networks says how well the mean of these networks is known: it joins their own intervals,
which are independent, by the delta method with Welch and Satterthwaite's degrees of freedom. A mean of ratios is
geometric; the arithmetic one is here because studies print it.

From three replicate numbers that both cells have, runs are pairs (neighbours in time) whose ratios have an interval
(stats.pairs); pairs that do not resolve the ratio make it Absent, with what would. With fewer, each side keeps its own
interval and the two are joined by the delta method on logs, as independent figures.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.analysis.run.summary import OFFLINE, latency_rows, metrics
from edgescope.analysis.run.workers import due_in
from edgescope.metrics import METRICS, quantiles, scoped
from edgescope.records import Absent, Field, Measured, Result, Status
from edgescope.stats import Interval, Judgement, judge, paired_log_ratio, quantile_metric
from edgescope.stats.intervals import t_quantile
from edgescope.stats.pairs import MIN_PAIRS, RESOLVED, trimmed

MEASURED = (Status.OK, Status.UNSTABLE)
"""Statuses that count as measured: no replicate is left out for its value; an unstable one is reported as unstable."""
MIN_REPLICATES = 3
"""Fewer replicates make an interval of Student's t that is too wide to say anything."""
NOT_RUN = (Status.CANCELLED, Status.SKIPPED)
NEIGHBOURS_S = 3600.0
"""Two runs of one number are a pair if they start within this many seconds: later, the machine may have changed."""


def by_replicate(results: Iterable[Result], statuses: Collection[Status] = MEASURED) -> dict[int, Result]:
    """Return the measured replicates by number; if a number was run twice, the run that started last."""
    done = [r for r in results if r.status in statuses]
    return {r.trial.replicate: r for r in sorted(done, key=lambda r: r.started_at)}


def latencies_s(result: Result) -> NDArray[np.float64] | None:
    """Return the latencies of the measured window in seconds, in time order; None without raw rows or for offline.

    For several workers: the queries that fell due in the window, as for the stored figures (workers.due_in).
    """
    if result.queries is None or result.window is None or not registry.scenario(result.trial.scenario).timed:
        return None
    if result.workers:
        rows = due_in(result.queries, range(result.trial.processes), result.window)
    else:
        rows = result.queries.rows(result.window)
    rows = latency_rows(rows, result.trial.scenario)
    return np.asarray(rows.latency_ns() * 1e-9, dtype=np.float64)


def field_of(result: Result, name: str) -> Field:
    """Return one metric of one result: as stored, else derived from its raw rows, else Absent with the reason."""
    if name in result.metrics:
        return result.metrics[name]
    known = METRICS.get(name)
    of_rows = _derived(result) if known is None or known.merge == "rows" else {}
    return of_rows.get(name, Absent("not measured"))


_DERIVED: dict[tuple[Hashable, ...], Mapping[str, Field]] = {}
"""The metrics that were derived from rows, as long as the rows are in memory: a table asks for them by the dozen."""


def _derived(result: Result) -> Mapping[str, Field]:
    if result.queries is None or result.window is None:
        return {}
    trial = result.trial
    key = (id(result.queries), result.window, trial.scenario, trial.deadline_s)
    if key not in _DERIVED:
        _DERIVED[key] = metrics(result.queries, result.window, trial.scenario, trial.deadline_s)
        weakref.finalize(result.queries, _DERIVED.pop, key, None)
    return _DERIVED[key]


def value_of(result: Result, name: str) -> float | None:
    """Return the value of one metric of one result, or None."""
    found = field_of(result, name)
    return found.value if isinstance(found, Measured) else None


def paired_values(
    a: Mapping[int, Result], b: Mapping[int, Result], name: str
) -> tuple[list[float], list[float]]:
    """Return one metric of both sides, for the replicate numbers at which both have a positive value."""
    both = ((value_of(a[i], name), value_of(b[i], name)) for i in sorted(a.keys() & b.keys()))
    usable = [(x, y) for x, y in both if x is not None and y is not None and x > 0 and y > 0]
    return [x for x, _ in usable], [y for _, y in usable]


@dataclass(frozen=True)
class Pairs:
    """The paired runs of two cells, by number, and why other numbers that both have do not form a pair."""

    over: Mapping[int, Result]
    under: Mapping[int, Result]
    left_out: tuple[str, ...] = ()
    """`replicate 3: crashed`; a run is never left out for its values."""

    @property
    def words(self) -> str:
        """`4 of 5 pairs`."""
        n, of = len(self.over), len(self.over) + len(self.left_out)
        return f"{n} of {of} pair{'s' if of != 1 else ''}"


def pairs(over: Sequence[Result], under: Sequence[Result], name: str, within_s: float = math.inf) -> Pairs:
    """Return the replicate numbers that both sides ran as pairs, without those that lack a value of `name`.

    `within_s`: how many seconds the starts of a pair may differ.
    """
    both, values = [_newest(side) for side in (over, under)], [by_replicate(over), by_replicate(under)]
    paired, left_out = [], []
    for i in sorted(both[0].keys() & both[1].keys()):
        ended = next((side[i] for side, done in zip(both, values, strict=True) if i not in done), None)
        if ended is not None:
            left_out.append(f"replicate {i}: {ended.status.value} ({ended.trial.label})")
        elif any((value_of(side[i], name) or 0.0) <= 0 for side in values):
            left_out.append(f"replicate {i}: no {name} on both sides")
        elif within_s < math.inf and _apart_s(values[0][i], values[1][i]) > within_s:
            left_out.append(f"replicate {i}: the two runs began more than {within_s / 60:.0f} minutes apart")
        else:
            paired.append(i)
    return Pairs({i: values[0][i] for i in paired}, {i: values[1][i] for i in paired}, tuple(left_out))


def _newest(results: Iterable[Result]) -> dict[int, Result]:
    """Return the newest run of every replicate number, failed or not."""
    ran = [r for r in results if r.status not in NOT_RUN]
    return {r.trial.replicate: r for r in sorted(ran, key=lambda r: r.started_at)}


def neighbours(
    a: Mapping[int, Result], b: Mapping[int, Result]
) -> tuple[dict[int, Result], dict[int, Result]]:
    """Return the runs of both sides, for the numbers whose two runs began within NEIGHBOURS_S of each other."""
    near = [i for i in sorted(a.keys() & b.keys()) if _apart_s(a[i], b[i]) <= NEIGHBOURS_S]
    return {i: a[i] for i in near}, {i: b[i] for i in near}


def _apart_s(a: Result, b: Result) -> float:
    """Return the seconds between two starts, or infinity if one is not known."""
    try:
        begun = [datetime.fromisoformat(r.started_at) for r in (a, b)]
        return abs((begun[0] - begun[1]).total_seconds())
    except (ValueError, TypeError):  # no stamp, or one with and one without a time zone
        return math.inf


Ends = tuple[float, float]


def bounds(result: Result, name: str) -> Ends | None:
    """Return the meter's bounds on a power or an energy of one result, or None for other metrics or without bounds."""
    field = field_of(result, name)
    # the ends of energy per sample may be an interval over blocks
    whole = field_of(result, "energy_j") if name == "energy_per_sample_j" else field
    if not scoped(name) or not isinstance(field, Measured) or not isinstance(whole, Measured):
        return None
    if whole.lo is None or whole.hi is None:
        return None
    share = 1.0 if whole is field or whole.value == 0 else field.value / whole.value
    return whole.lo * share, whole.hi * share


def reaching(lo: float, hi: float, outer: Iterable[Ends | None]) -> Ends:
    """Return [lo, hi] widened to the mean of the bounds that are known."""
    known = [ends for ends in outer if ends is not None]
    if not known:
        return lo, hi
    low, high = np.mean(known, axis=0)
    return min(lo, float(low)), max(hi, float(high))


def judged(
    over: Mapping[int, Result], under: Mapping[int, Result], name: str, higher_is_better: bool = False
) -> tuple[Interval, Judgement] | None:
    """Return the paired ratio over / under of one metric and the judgement on it; None without a pair.

    For power and energy it reaches as far as the meter's bounds on both sides: if they overlap, neither is better.
    """
    values = paired_values(over, under, name)
    if not values[0]:
        return None
    pairs = sorted(over.keys() & under.keys())
    a, b = ([e for i in pairs if (e := bounds(side[i], name))] for side in (over, under))
    sure, likely = (_widened(paired_log_ratio(*values, level), a, b) for level in (0.95, 0.90))
    return sure, judge(sure, likely, higher_is_better)


def _widened(ratio: Interval, over: Sequence[Ends], under: Sequence[Ends]) -> Interval:
    if not over or not under:
        return ratio
    (low, high), (least, most) = np.mean(over, axis=0), np.mean(under, axis=0)
    lo = float(low / most) if most > 0 else 0.0
    hi = float(high / least) if least > 0 else math.inf
    return replace(ratio, lo=min(ratio.lo, lo), hi=max(ratio.hi, hi))


def across(results: Sequence[Result], name: str) -> Field:
    """Return the mean of one metric over replicates, with Student's t interval between them (from three on).

    One replicate keeps the interval from within its run. For power and energy the interval reaches to the meter's
    bounds.
    """
    fields = [field_of(r, name) for r in results]
    found = [f for f in fields if isinstance(f, Measured)]
    if not found:
        return fields[0] if fields else Absent("no replicate finished")
    if len(found) == 1:
        return found[0]
    outer = [bounds(r, name) for r in results]
    return spread([f.value for f in found], found[0].unit, outer, least=-math.inf)


def spread(
    values: Sequence[float | None], unit: str, bounds: Sequence[Ends | None] = (), *, least: float = 0.0
) -> Field:
    """Return the mean of one value per process, with Student's t interval between them from three on.

    `bounds` are a meter's, one pair per process: the interval reaches to their mean. No value lies below `least`.
    """
    x = np.array([v for v in values if v is not None], dtype=np.float64)
    if not len(x):
        return Absent("not measured: no raw rows, or too few before the window")
    mean, n = float(x.mean()), len(x)
    if n < MIN_REPLICATES:
        return Measured(mean, unit, n=n)
    half = t_quantile(0.975, n - 1) * float(x.std(ddof=1)) / math.sqrt(n)
    return Measured(mean, unit, *reaching(max(least, mean - half), mean + half, bounds), n)


def log_mean(ratios: Sequence[Field]) -> Field:
    """Return the geometric mean of the measured ratios; n is their number."""
    found = [f for f in ratios if isinstance(f, Measured)]
    if not found:
        return Absent("nothing was measured")
    errors = [_error(f) for f in found]
    centre = float(np.mean([math.log(f.value) for f in found]))
    half = _half(errors, [1.0] * len(found))
    if half is None:
        return Measured(math.exp(centre), "1", n=len(found))
    return Measured(math.exp(centre), "1", math.exp(centre - half), math.exp(centre + half), len(found))


def plain_mean(ratios: Sequence[Field]) -> Field:
    """Return the arithmetic mean of the measured ratios; n is their number."""
    found = [f for f in ratios if isinstance(f, Measured)]
    if not found:
        return Absent("nothing was measured")
    mean = float(np.mean([f.value for f in found]))
    half = _half([_error(f) for f in found], [f.value for f in found])
    if half is None:
        return Measured(mean, "1", n=len(found))
    # computed on the log, as for its parts: a mean of ratios never lies below 0, however little is known
    return Measured(mean, "1", mean * math.exp(-half / mean), mean * math.exp(half / mean), len(found))


Error = tuple[float, int]
"""Standard error of the log of a ratio, and its degrees of freedom."""


def _error(ratio: Measured) -> Error | None:
    """Return the error of a paired ratio's log, from its interval; zero for a ratio that is 1 by definition."""
    if ratio.lo is None or ratio.hi is None or ratio.lo <= 0 or ratio.n < MIN_PAIRS:
        return (0.0, 1) if ratio.value == 1.0 else None
    half = (math.log(ratio.hi) - math.log(ratio.lo)) / 2
    freedom = ratio.n - 2 * trimmed(ratio.n) - 1
    return half / t_quantile(0.975, freedom), freedom


def _half(errors: Sequence[Error | None], weights: Sequence[float]) -> float | None:
    """Return the half width of the mean of weighted, independent errors, or None if one of them is not known."""
    if any(e is None for e in errors):
        return None
    parts = [((w * e[0] / len(errors)) ** 2, e[1]) for e, w in zip(errors, weights, strict=True) if e]
    variance = sum(v for v, _ in parts)
    if variance == 0:
        return 0.0
    freedom = variance**2 / sum(v**2 / df for v, df in parts)
    return t_quantile(0.975, max(1, math.floor(freedom))) * math.sqrt(variance)


NOTICED = 0.05
"""Share by which two cells must differ before a difference is reported."""
LONGER = "more pairs (optimize --budget, sweep --replicates)"
"""What resolves a ratio of a table, whichever verb measured it: stored results do not say."""
ENOUGH, MOST = 5, 20
"""Pairs that bound a ratio on a quiet machine, and the most that are worth requesting on a noisy one."""


def quotient(over: Sequence[Result], under: Sequence[Result], name: str) -> Field:
    """Return `over` / `under` of one metric; n is the number of pairs, or 1 if the runs were not pairs."""
    first, second = paired_values(by_replicate(over), by_replicate(under), name)
    if len(first) >= MIN_REPLICATES:
        return of_pairs(paired_log_ratio(first, second), "--replicates")
    return of_fields(across(over, name), across(under, name))


def of_pairs(ratio: Interval, flag: str) -> Field:
    """Return a paired ratio if its pairs resolve it, else Absent with the reason; `flag` is the flag for more pairs."""
    if ratio.reliable:
        return ratio.measured("1")
    if flag == LONGER:
        return Absent(f"{ratio.note}: use {flag}")
    wish = ENOUGH
    if ratio.n >= MIN_PAIRS:  # the interval narrows with the square root of the pairs
        wish = max(ENOUGH, math.ceil(ratio.n * (math.log(ratio.hi / ratio.value) / math.log(RESOLVED)) ** 2))
    more = f"use {flag} {wish}" if wish <= MOST else "measure on a quieter machine"
    return Absent(f"{ratio.note}: {more}")


def of_fields(over: Field, under: Field) -> Field:
    """Return the ratio of two independent figures, its interval joined on logs."""
    for side in (over, under):
        if isinstance(side, Absent):
            return side
    assert isinstance(over, Measured) and isinstance(under, Measured)
    if over.value <= 0 or under.value <= 0:
        return Absent("a ratio of a value that is 0 says nothing")
    centre = math.log(over.value / under.value)
    top, bottom = _ends(over), _ends(under)
    if top is None or bottom is None:
        return Measured(math.exp(centre), "1", n=1)
    (low, high), (least, most) = top, bottom
    lo, hi = math.exp(centre - math.hypot(low, most)), math.exp(centre + math.hypot(high, least))
    return Measured(math.exp(centre), "1", lo, hi, 1)


def _ends(field: Measured) -> tuple[float, float] | None:
    """Return how far the interval reaches below and above on the log, or None if there is none."""
    if field.lo is None or field.hi is None or field.lo <= 0 or not math.isfinite(field.hi):
        return None
    return math.log(field.value / field.lo), math.log(field.hi / field.value)


def above(ratio: Field, limit: float = 1.0, *, exact: bool = False) -> bool | None:
    """Return True if a ratio is significantly above `limit`, False if significantly below, None if neither.

    An interval from within runs does not include the spread between processes: without pairs of runs a ratio must
    also differ from the limit by NOTICED. Without an interval the answer is None, except for figures that are read
    off rather than sampled (`exact`: memory): there NOTICED is enough.
    """
    if isinstance(ratio, Absent):
        return None
    far = abs(ratio.value / limit - 1) >= NOTICED
    if ratio.lo is None or ratio.hi is None:
        return ratio.value > limit if exact and far else None
    if ratio.n < MIN_REPLICATES and not far:
        return None
    if ratio.lo > limit:
        return True
    return False if ratio.hi < limit else None


QUANTILES: Mapping[str, float] = quantiles()
NOT_LOADED = "raw latencies are not loaded"


def percentiles(results: Sequence[Result]) -> dict[str, Field]:
    """Return the percentiles of one cell's replicates in seconds, in rising order; n counts the queries.

    Three processes or more have a Student's t interval on the logs of their percentiles, around the point. One process
    has its own order-statistic interval; two have none.
    """
    out, least = {}, 0.0
    for name, q in QUANTILES.items():
        field = _joined([percentile_of(r, name) for r in results], results, q)
        if isinstance(field, Measured):
            field = _at_least(field, least)
            least = field.value
        out[name] = field
    return out


def percentile_of(result: Result, name: str) -> Field:
    """Return one percentile of one process: as stored, else from its raw rows; Absent with the reason."""
    if not registry.scenario(result.trial.scenario).timed:
        return OFFLINE
    stored = result.metrics.get(f"latency_{name.removesuffix('_s')}_s")
    if stored is not None:
        return stored
    latency = latencies_s(result)
    return Absent(NOT_LOADED) if latency is None else quantile_metric(latency, QUANTILES[name])


def lacks_rows(results: Sequence[Result]) -> bool:
    """Return whether a percentile up to p99 of this cell needs raw rows that are not loaded."""
    found = [percentile_of(r, name) for r in results for name in ("p50_s", "p99_s")]
    return len(results) > 1 and any(isinstance(f, Absent) and f != OFFLINE for f in found)


def _joined(own: Sequence[Field], results: Sequence[Result], q: float) -> Field:
    """Return one percentile of the cell from those of its processes."""
    if len(own) < 2:
        return own[0] if own else Absent("no replicate finished")
    found = [f for f in own if isinstance(f, Measured)]
    if len(found) < len(own):
        return _together(own, results, q)
    values = np.array([f.value for f in found])
    mean = Measured(float(values.mean()), "s", n=sum(f.n for f in found))
    if len(values) < MIN_REPLICATES:
        return mean
    logs = np.log(np.maximum(values, 1e-12))
    spread = math.exp(t_quantile(0.975, len(values) - 1) * float(logs.std(ddof=1)) / math.sqrt(len(values)))
    return replace(mean, lo=mean.value / spread, hi=mean.value * spread)


def _together(own: Sequence[Field], results: Sequence[Result], q: float) -> Field:
    """Return the percentile of all processes' queries together, without an interval."""
    parts = [x for x in (latencies_s(r) for r in results) if x is not None and len(x)]
    if not parts:
        return next(f for f in own if isinstance(f, Absent))
    field = quantile_metric(np.concatenate(parts), q)
    return replace(field, lo=None, hi=None) if isinstance(field, Measured) else field


def _at_least(field: Measured, least: float) -> Measured:
    if field.value >= least:
        return field
    return replace(field, value=least, hi=None if field.hi is None else max(field.hi, least))
