"""Compute a run's metrics from its raw rows, marks and spans; `edgescope docs metrics` defines each once.

Latency is per query, from scheduled (or issued) to done; throughput is samples per second between the
window's two events. A mark is a moment that queries noted on their way (first token, parts of a step, stages): its
`since` in metrics.toml is another mark, else when the query was due, and a query that failed or lacks one of the two
does not count. The rows of all workers are pooled before anything is computed, so no figure is a mean of quantiles.

Everything is derived late from raw rows, so a stored result can be summarised again by a later version. A number that
the rows cannot support is Absent with the reason.

The scenario idle_gap asks for the latency of the first query after an idle gap, relative to queries back to back. It
numbers its gaps in the column `stream`. The requested length of a gap is scheduled - done of the query before; its
actual length is issued - done of the query before. Latency runs from issued, because the timer's delay is not the
model's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.analysis.run import lateness
from edgescope.errors import Message
from edgescope.metrics import METRICS
from edgescope.records import (
    QUERY_DROPPED,
    QUERY_ERROR,
    QUERY_OK,
    UNIT,
    Absent,
    Field,
    Measured,
    Queries,
    Spans,
    Window,
)
from edgescope.stats import (
    Drift,
    Interval,
    drift,
    early_stopping_estimate,
    mean_interval,
    percentile,
    quantile_interval,
    quantile_metric,
    refusal,
    states,
    upper_bound,
)
from edgescope.stats.intervals import Floats

Latencies = NDArray[np.int64]

OFFLINE = Absent("latency n/a (offline: only throughput counts)")
NO_TIME = "every query took 0 s by this clock: nothing to take a share of"
DRIFT_MATTERS = 0.02
"""A significant drift of at least this share of the mean gives a warning."""
CHANGES_TOLD = 3
"""Most moments of change that are listed one by one."""
IDLING = Absent("throughput n/a (idle_gap: the window is mostly idle on purpose)")


def metrics(
    queries: Queries, window: Window, scenario: str = "single_stream", deadline_s: float | None = None
) -> dict[str, Field]:
    """Return every metric of the measured window by name; times in seconds, throughput in samples/s.

    Offline has no latencies: a query's time would be its place in the queue. Latencies of idle_gap are those of the
    queries back to back, and the curve comes in addition. An open loop adds its backlog; an open loop or inputs with
    time stamps add the age of results; a deadline adds its misses; marks add what metrics.toml makes of them.
    """
    rows, facts = queries.rows(window), registry.scenario(scenario)
    status = rows.columns["status"]
    latency = latency_metrics(latency_rows(rows, scenario).latency_ns(), window)
    return {
        **(dict.fromkeys(latency, OFFLINE) if not facts.timed else latency),
        "throughput_sps": IDLING if facts.idles else throughput(rows, window),
        **(lateness.backlog(rows, window).fields if facts.open_loop else {}),
        **(idle_gap_metrics(queries, window) if facts.idles else {}),
        **live_metrics(rows, scenario, deadline_s),
        **of_marks(latency_rows(rows, scenario), timed=facts.timed),
        "queries": Measured(float(len(rows)), "queries", n=len(rows)),
        "errors": Measured(float(np.count_nonzero(status == QUERY_ERROR)), "queries", n=len(rows)),
        "dropped": Measured(float(np.count_nonzero(status == QUERY_DROPPED)), "queries", n=len(rows)),
    }


def live_metrics(rows: Queries, scenario: str, deadline_s: float | None) -> dict[str, Field]:
    """Return the misses of a deadline; of an open loop or stamped inputs also ages, jitter, drops and queue depth.

    Without time stamps, the age of a result is its latency from the due time, and is not given twice.
    """
    missed = lateness.misses(rows, deadline_s) if deadline_s is not None else {}
    if not registry.scenario(scenario).open_loop and not lateness.stamped(rows):
        return missed
    out: dict[str, Field] = dict.fromkeys(lateness.NAMES, lateness.UNSTAMPED)
    if lateness.stamped(rows):
        x = lateness.ages(rows)[1]
        out["frame_age_p50_s"], out["frame_age_p99_s"] = quantile_metric(x, 0.5), quantile_metric(x, 0.99)
        out["frame_age_p99_bound_s"] = _bound(x, upper_bound)
        out["frame_age_growth"] = lateness.age_growth(rows)
    out["jitter_s"] = lateness.jitter(rows)
    dropped = lateness.dropped_share(rows)
    return {**missed, **out, "dropped_share": dropped, **lateness.queue_depth(rows)}


def latency_rows(rows: Queries, scenario: str) -> Queries:
    """Return the rows whose latencies count for the trial: for idle_gap, those back to back."""
    return back_to_back(rows) if registry.scenario(scenario).idles else rows


def latency_metrics(latency_ns: Latencies, window: Window) -> dict[str, Field]:
    """Return the latency numbers of successful queries in time order (nanoseconds), in seconds."""
    x = np.asarray(latency_ns, dtype=np.float64) * 1e-9
    out: dict[str, Field] = {"latency_mean_s": _of(x, 2, lambda: _mean(x, window))}
    for metric in METRICS.values():
        if metric.quantile and metric.of:
            out[metric.of[0]] = quantile_metric(x, metric.quantile)
    out["latency_p99_bound_s"] = _bound(x, upper_bound)
    out["latency_p99_early_stopping_s"] = _bound(x, early_stopping_estimate)
    out["latency_max_s"] = _of(x, 1, lambda: Measured(float(x.max()), "s", n=len(x)))
    out["latency_cv"] = _of(x, 2, lambda: _cv(x))
    out["drift"] = _drift(x)
    return out


def _mean(x: NDArray[np.float64], window: Window) -> Field:
    """Return the mean, with its interval if the window was long enough to see the speeds at which the machine runs."""
    found = mean_interval(x)
    known = states(x).known_over((window.stop_ns - window.start_ns) * 1e-9)
    return found.measured("s") if known else Measured(found.value, "s", n=found.n)


def _cv(x: NDArray[np.float64]) -> Field:
    return Measured(float(x.std(ddof=1) / x.mean()), "1", n=len(x)) if x.any() else Absent(NO_TIME)


def throughput(rows: Queries, window: Window) -> Field:
    """Return samples of successful queries / (stop - start) of the window, in samples/s.

    Its interval is the inverted interval of the mean time between completions.
    """
    c = rows.columns
    ok = c["status"] == QUERY_OK
    elapsed_s = (window.stop_ns - window.start_ns) * 1e-9
    if elapsed_s <= 0 or not ok.any():
        return Absent("no query succeeded in the window" if elapsed_s > 0 else "the window has no length")
    value = float(c["samples"][ok].sum()) / elapsed_s
    gap = mean_interval(np.diff(np.sort(c["done_ns"][ok])))
    n = int(np.count_nonzero(ok))
    if not gap.reliable or gap.lo <= 0:
        return Measured(value, "samples/s", n=n)
    return Measured(value, "samples/s", value * gap.value / gap.hi, value * gap.value / gap.lo, n)


def _of(x: NDArray[np.float64], need: int, make: Callable[[], Field]) -> Field:
    return make() if len(x) >= need else refusal(len(x), need)


def _bound(x: NDArray[np.float64], rule: Callable[[NDArray[np.float64], float], float | Absent]) -> Field:
    """Return the upper bound of p99 by `rule`, or Absent with its refusal."""
    value = rule(x, 0.99)
    return value if isinstance(value, Absent) else Measured(value, "s", n=len(x))


def _drift(x: NDArray[np.float64]) -> Field:
    """Return the change of the mean over the window as a share of it; a significant one has an interval without 0."""
    if len(x) and not x.any():
        return Absent(NO_TIME)
    found = drift(x)
    if not math.isfinite(found.lo):
        return Absent(f"n/a: have {found.n_blocks} blocks, need 8")
    return Measured(found.share, "1", found.lo, found.hi, len(x))


def speeds(queries: Queries, window: Window, scenario: str) -> str:
    """Return `two speed states: 1.08 ms for 62 %, ...; change at 3.1 s`, or '' if no worker's window had several.

    Times run from issued to done, because waiting says nothing about the machine's speed. Offline has no such time,
    and after an idle gap a query is slower for another reason.
    """
    rows = queries.rows(window)
    ok = rows.columns["status"] == QUERY_OK
    facts = registry.scenario(scenario)
    if not facts.timed or facts.idles or len(np.unique(rows.columns["worker"])) != 1:
        return ""
    issued = rows.columns["issued_ns"][ok]
    found = states((rows.columns["done_ns"][ok] - issued) * 1e-9)
    if not found.several:
        return ""
    count = {2: "two", 3: "three"}.get(len(found.found), str(len(found.found)))
    each = ", ".join(f"{s.level * 1e3:.3g} ms for {s.share:.0%}" for s in found.found)
    at = [f"{(issued[i] - window.start_ns) * 1e-9:.1f} s" for i in found.changes[:CHANGES_TOLD]]
    more = len(found.changes) - len(at)
    tail = f" and {more} more" if more > 0 else ""
    return f"{count} speed states: {each}; change{'s' if len(found.changes) > 1 else ''} at {', '.join(at)}{tail}"


def warnings(
    queries: Queries, window: Window, scenario: str = "single_stream", *, may_drop: bool = False
) -> tuple[Message, ...]:
    """Return the warnings about these metrics, each with its evidence and fix.

    `may_drop` says that the work has a queue of its own, which can be told to drop.
    """
    rows = queries.rows(window)
    x = latency_rows(rows, scenario).latency_ns() * 1e-9
    found = drift(x)
    interval, failed = mean_interval(x), int(np.count_nonzero(rows.columns["status"] != QUERY_OK))
    facts = registry.scenario(scenario)
    several = speeds(queries, window, scenario)
    queue = lateness.backlog(rows, window) if facts.open_loop else None
    behind = queue is not None and queue.behind
    checks = (
        (behind, lateness.warning(queue, may_drop=may_drop) if queue is not None and behind else None),
        (facts.timed and not behind and not interval.reliable, _unreliable(interval)),
        (bool(several), _several(several)),
        (
            facts.timed
            and not behind
            and not several
            and found.significant
            and abs(found.share) >= DRIFT_MATTERS,
            _drifting(found),
        ),
        (failed > 0, _failed(failed, len(rows))),
    )
    return tuple(said for applies, said in checks if applies and said is not None)


def _unreliable(interval: Interval) -> Message:
    evidence = interval.note.removeprefix("interval unreliable: ")
    effect = "The mean is given without its interval"
    return Message(
        "W-STAT-3", "interval unreliable", evidence=evidence, effect=effect, fix="a longer --duration"
    )


def _several(text: str) -> Message:
    what = f"the machine changed its speed during the run: {text}"
    effect = "Mean and percentiles depend on how long it happened to stay at each"
    return Message(
        "W-STATE-1", what, effect=effect, fix="--replicates 5, or --duration 60s on a quiet machine"
    )


def _drifting(found: Drift) -> Message:
    what = f"latency drifts by {found.share:+.1%} over the window"
    effect = "There is no steady state for the mean to describe"
    fix = "a longer --warmup, and check for throttling"
    return Message("W-STAT-4", what, evidence=f"p = {found.p:.2g}", effect=effect, fix=fix)


def _failed(failed: int, n: int) -> Message:
    what = f"{failed} of {n} queries failed or were dropped"
    effect = "They have no latency: the percentiles describe the others only"
    return Message("W-STAT-5", what, effect=effect, fix="a lower --rate, or check the trial's reason")


NOT_DUE = Absent("time since a query was due n/a (offline: all are due at the start)")


def of_marks(rows: Queries, *, timed: bool = True) -> dict[str, Field]:
    """Return each figure that metrics.toml declares of the marks of these rows, which are those of the window.

    A mark that none of them reached is of other work, as of a model that ran beside. `timed`: whether the time since a
    query was due means anything.
    """
    marks = [name for name, moments in rows.marks.items() if (moments >= 0).any()]
    found: dict[str, Field] = {}
    for metric in METRICS.values():
        for word in _starred(metric.of_mark, marks):
            name, mark, since = (t.replace("*", word) for t in (metric.name, metric.of_mark, metric.since))
            if not since and not timed:
                found[name] = NOT_DUE
            elif not since or since in marks:
                found[name] = figure(rows, mark, since, metric.mark_quantile)
    return found


def _starred(pattern: str, marks: Iterable[str]) -> Iterator[str]:
    """Yield what a * stands for in each mark that has the form of `pattern`; '' for a pattern without one."""
    before, star, after = pattern.partition("*")
    for mark in marks if pattern else ():
        if not star and mark == pattern:
            yield ""
        elif star and mark.startswith(before) and mark.endswith(after) and len(mark) >= len(pattern):
            yield mark.removeprefix(before).removesuffix(after)


def figure(rows: Queries, mark: str, since: str = "", quantile: float = 0.5) -> Field:
    """Return a quantile of the seconds to a mark from another, or from when each query was due."""
    return quantile_metric(took_ns(rows, mark, since).astype(np.float64) * 1e-9, quantile)


def took_ns(rows: Queries, mark: str, since: str = "") -> NDArray[np.int64]:
    """Return the nanoseconds to a mark of the rows that succeeded and have both moments, in the order of the rows."""
    marks = rows.marks
    begins, ends = marks[since] if since else rows.due_ns(), marks[mark]
    known = (rows.columns["status"] == QUERY_OK) & (ends >= 0) & (begins >= 0)
    return np.asarray((ends - begins)[known], dtype=np.int64)


UNTOLD = "the engine does not report it: it waits for the device within its own call"


def of_spans(spans: Spans) -> dict[str, Field]:
    """Return `NAME_s`, the median length of each named span in seconds, and `phased_latency_s` of whole units.

    {} if there are no spans. The units were run one by one after the window, with timing around their parts, so
    `phased_latency_s` against the latency of the window shows the cost of the timing.
    """
    return {_span_metric(name): _median_length(spans, name) for name in spans.names}


def _span_metric(name: str) -> str:
    return "phased_latency_s" if name == UNIT else f"{name}_s"


def _median_length(spans: Spans, name: str) -> Field:
    found = spans.durations_ns(name)
    return quantile_metric(found.astype(np.float64) * 1e-9, 0.5) if len(found) else Absent(UNTOLD)


GAP_LEVEL = 0.975
"""Level of each median's interval: the ends of two such intervals bound the ratio of the medians at 95 % or more."""


@dataclass(frozen=True)
class Gap:
    """One point of the curve of idle gaps."""

    requested_s: float
    """Requested idle time."""
    idle_s: float
    """Median actual idle time before these queries; the timer is late."""
    latency: Field
    """Their median latency in seconds, with its 97.5 % interval."""
    penalty: Field
    """That latency over the median without a gap."""

    @property
    def label(self) -> str:
        """Return the requested gap: `33ms`."""
        return f"{self.requested_s * 1e3:g}ms"


def idle_gap_curve(queries: Queries, window: Window) -> tuple[Gap, ...]:
    """Return the points in the order of their gaps, beginning without a gap; empty if there are none."""
    c = queries.rows(window).columns
    before = np.concatenate([[-1], queries.columns["done_ns"]])[window.first : window.stop]
    requested, idle, latency = (
        (c[until] - since) * 1e-9
        for until, since in (("scheduled_ns", before), ("issued_ns", before), ("done_ns", c["issued_ns"]))
    )
    good = c["status"] == QUERY_OK
    found: list[Gap] = []
    base: Field = Absent("no query without a gap succeeded")
    for number in range(1, int(c["stream"].max(initial=0)) + 1):
        mine = good & (c["stream"] == number)
        if not mine.any():
            continue
        median = _median_of(latency[mine])
        base = median if number == 1 else base
        gap = float(np.median(requested[mine])), float(np.median(idle[mine]))
        found.append(Gap(*gap, median, ratio(median, base)))
    return tuple(found)


def idle_gap_metrics(queries: Queries, window: Window) -> dict[str, Field]:
    """Return `idle_gap_33ms_latency_p50_s` and `idle_gap_33ms_penalty` for every gap of the window."""
    out: dict[str, Field] = {}
    for gap in idle_gap_curve(queries, window):
        out[f"idle_gap_{gap.label}_latency_p50_s"] = gap.latency
        out[f"idle_gap_{gap.label}_penalty"] = gap.penalty
    return out


def back_to_back(rows: Queries) -> Queries:
    """Return the rows between the gaps, as a closed loop would measure them."""
    mine = rows.columns["stream"] == 0
    return Queries({name: column[mine] for name, column in rows.columns.items()})


def _median_of(x: Floats) -> Field:
    if len(x) < 2:
        return refusal(len(x), 2)
    interval = quantile_interval(x, 0.5, GAP_LEVEL)
    if isinstance(interval, Interval):
        return interval.measured("s")
    return Measured(percentile(x, 0.5), "s", n=len(x))


def ratio(above: Field, below: Field) -> Field:
    """Return above / below with an interval from the ends of both, which is wider than necessary."""
    for field in (above, below):
        if isinstance(field, Absent):
            return field
    assert isinstance(above, Measured) and isinstance(below, Measured)
    value = above.value / below.value
    if above is below:
        return Measured(1.0, "1", n=above.n)
    if above.lo is None or above.hi is None or not below.lo or not below.hi:
        return Measured(value, "1", n=above.n)
    return Measured(value, "1", above.lo / below.hi, above.hi / below.lo, above.n)
