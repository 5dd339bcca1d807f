"""Compute a multi-process trial's metrics from its workers' rows: in total, per process, and fairness.

The window of a multi-process trial runs from the latest start to the earliest stop, so that all workers were at work in
all of it. Throughput counts the queries that were done within it, latency describes those that fell due
within it. Its rows are those of the trial's own workers; colocated models have their own figures. What each worker
reports itself for its part of the window is merged as metrics.toml says. Fairness is
Jain's index of the workers' throughputs, (sum x)^2 / (n sum x^2): 1 if all get the same, 1/n if one gets
everything (Jain, Chiu and Hawe, DEC-TR-301, 1984).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.analysis.run.summary import (
    OFFLINE,
    latency_metrics,
    live_metrics,
    metrics,
    of_marks,
    throughput,
)
from edgescope.errors import Message
from edgescope.metrics import find
from edgescope.records import (
    MARK,
    QUERY_DROPPED,
    QUERY_DTYPES,
    Absent,
    Field,
    Measured,
    Queries,
    Result,
    Trial,
    Window,
    Worker,
)

Columns = Mapping[str, NDArray[Any]]

SKEW_S = 1e-3
"""Workers with a core each start within this."""
FEWEST = 20
"""Queries a worker should complete: one more or less is then 5 %."""


@dataclass(frozen=True)
class Rows:
    """One worker's rows, and the range of them that is measured."""

    columns: Columns
    first: int
    stop: int
    ran_on: bool = True
    """Whether it worked until the agreed stop; False where its queries ran out before."""

    @property
    def samples(self) -> int:
        """Samples per query; 1 if there is no row."""
        return int(self.columns["samples"].max(initial=1))

    def measured(self) -> dict[str, NDArray[Any]]:
        """Return the measured rows."""
        return {name: column[self.first : self.stop] for name, column in self.columns.items()}

    def inside(self, start_ns: int, stop_ns: int) -> NDArray[np.bool_]:
        """Return the mask of measured rows that were done between two moments, or dropped and due between them."""
        c = self.columns
        index = np.arange(len(c["query_id"]))
        due = np.maximum(c["scheduled_ns"], c["issued_ns"])
        when = np.where(c["status"] == QUERY_DROPPED, due, c["done_ns"])
        measured = (index >= self.first) & (index < self.stop)
        return np.asarray(measured & (when >= start_ns) & (when <= stop_ns), dtype=np.bool_)

    def within(self, start_ns: int, stop_ns: int) -> tuple[Queries, Window]:
        """Return those rows, and the window that holds nothing else."""
        inside = self.inside(start_ns, stop_ns)
        rows = Queries({name: column[inside] for name, column in self.columns.items()})
        return rows, Window(0, len(rows), start_ns, stop_ns)

    def ends(self) -> tuple[int, int]:
        """Return when the first measured query was issued and the last was done; -1 if there is none."""
        mine = self.measured()
        issued, done = mine["issued_ns"][mine["issued_ns"] >= 0], mine["done_ns"][mine["done_ns"] >= 0]
        return (int(issued.min()) if len(issued) else -1, int(done.max()) if len(done) else -1)


def window_of(own: Sequence[Rows], start_ns: int, stop_ns: int) -> tuple[int, int]:
    """Return the latest start and the earliest stop of the workers, within the agreed ones (monotonic ns).

    A worker that went on to the agreed stop was at work until then; a worker that ran out of queries, until its last.
    """
    ends = [rows.ends() for rows in own]
    starts = [start for start, _ in ends if start >= 0]
    stops = [stop for rows, (_, stop) in zip(own, ends, strict=True) if not rows.ran_on and stop >= 0]
    return max([start_ns, *starts]), min([stop_ns, *stops])


def common_s(windows: Sequence[Window]) -> float:
    """Return for how many seconds all of some windows are open; negative if they never are at one moment."""
    return (min(w.stop_ns for w in windows) - max(w.start_ns for w in windows)) / 1e9


def joined(workers: Sequence[Rows], own: int, start_ns: int, stop_ns: int) -> tuple[Queries, Window]:
    """Return all workers' rows in one table, and the window: the rows of the first `own` done within it.

    Rows before the window are warm-up and queries that it cut off; rows after it are those of colocated models. Each
    part is in the order of issue; `query_id` counts within a worker.
    """
    parts = [_numbered(rows.columns, number) for number, rows in enumerate(workers)]
    marked = dict.fromkeys(name for part in parts for name in part if MARK.fullmatch(name))
    inside = [rows.inside(start_ns, stop_ns) & (n < own) for n, rows in enumerate(workers)]
    colocated = [np.full(len(i), n >= own) for n, i in enumerate(inside)]
    table = {
        name: np.concatenate([part.get(name, np.full_like(part["done_ns"], -1)) for part in parts])
        for name in (*QUERY_DTYPES, *marked)
    }
    where = np.where(np.concatenate(inside), 1, np.where(np.concatenate(colocated), 2, 0))
    order = np.lexsort((table["issued_ns"], where))
    first = int(np.count_nonzero(where == 0))
    stop = first + int(np.count_nonzero(where == 1))
    return Queries({name: column[order] for name, column in table.items()}), Window(
        first, stop, start_ns, stop_ns
    )


def _numbered(columns: Columns, number: int) -> dict[str, NDArray[Any]]:
    return {**columns, "worker": np.full(len(columns["query_id"]), number, dtype=np.int16)}


def of_worker(queries: Queries, worker: int, window: Window) -> Queries:
    """Return one worker's rows that were done in the window, whichever part of the table they are in.

    Warm-up is over in all workers before any window begins, so nothing else is done within it.
    """
    c = queries.columns
    inside = (c["done_ns"] > window.start_ns) & (c["done_ns"] <= window.stop_ns)
    return _some(queries, (c["worker"] == worker) & inside)


def due_in(queries: Queries, workers: Sequence[int], window: Window) -> Queries:
    """Return the rows of some workers that fell due within the window, whenever they were done; in that order.

    Latency is computed from these: leaving out queries still in progress at the stop would leave out slow ones.
    """
    due = queries.due_ns()
    mine = np.isin(queries.columns["worker"], workers) & (due >= window.start_ns) & (due <= window.stop_ns)
    found = _some(queries, mine)
    return _some(found, np.argsort(found.due_ns(), kind="stable"))


def _some(queries: Queries, which: NDArray[Any]) -> Queries:
    return Queries({name: column[which] for name, column in queries.columns.items()})


def worker_metrics(
    trial: Trial, queries: Queries, window: Window, workers: Sequence[Worker]
) -> dict[str, Field]:
    """Return the metrics of a multi-process trial: those of any trial, over its own workers, and of concurrency."""
    own = [w for w in workers if w.number < trial.processes]
    others = [w for w in workers if w.number >= trial.processes]
    each = [throughput(of_worker(queries, w.number, window), window) for w in own]
    out = metrics(queries, window, trial.scenario, trial.deadline_s)
    if registry.scenario(trial.scenario).timed:
        rows = due_in(queries, [w.number for w in own], window)
        out |= latency_metrics(rows.latency_ns(), window)
        out |= live_metrics(rows, trial.scenario, trial.deadline_s)
        out |= of_marks(rows)
    return {
        **out,
        "throughput_per_process_sps": _divided(out["throughput_sps"], len(own)),
        "fairness": jain(each),
        "latency_p99_worst_worker_s": _worst(queries, window, own, trial.scenario),
        "start_skew_s": skew([w.start_ns for w in own]),
        "stop_skew_s": skew([w.stop_ns for w in own]),
        **_colocated(queries, window, others),
    }


def jain(throughputs: Sequence[Field]) -> Field:
    """Return Jain's fairness index of the workers' throughputs; an idle worker counts as 0."""
    x = np.array([t.value if isinstance(t, Measured) else 0.0 for t in throughputs])
    if not x.any():
        return Absent("no worker completed a query in the window")
    return Measured(float(x.sum() ** 2 / (len(x) * (x**2).sum())), "1", n=len(x))


def skew(times_ns: Sequence[int]) -> Field:
    """Return seconds between the first and the last of the workers' times."""
    known = [t for t in times_ns if t >= 0]
    if len(known) < len(times_ns) or not known:
        return Absent("a worker issued no query")
    return Measured((max(known) - min(known)) / 1e9, "s", n=len(known))


@dataclass(frozen=True)
class Share:
    """One worker's figures in the window."""

    worker: Worker
    throughput_sps: Field
    latency: Mapping[str, Field]


def shares(result: Result) -> list[Share]:
    """Return each worker's figures, colocated models last; [] for a result without workers or without its rows."""
    queries, window = result.queries, result.window
    if queries is None or window is None:
        return []
    return [
        Share(
            w,
            throughput(of_worker(queries, w.number, window), window),
            worker_latency(queries, window, w.number),
        )
        for w in result.workers
    ]


def worker_latency(queries: Queries, window: Window, worker: int) -> dict[str, Field]:
    """Return one worker's latency numbers."""
    return latency_metrics(due_in(queries, [worker], window).latency_ns(), window)


def _worst(queries: Queries, window: Window, own: Sequence[Worker], scenario: str) -> Field:
    if not registry.scenario(scenario).timed:
        return OFFLINE
    tails = [worker_latency(queries, window, w.number)["latency_p99_s"] for w in own]
    lacking = [t for t in tails if isinstance(t, Absent)]
    known = [t for t in tails if isinstance(t, Measured)]
    if lacking or not known:
        return lacking[0] if lacking else Absent("there is no worker")
    return max(known, key=lambda t: t.value)


def _divided(total: Field, by: int) -> Field:
    if isinstance(total, Absent):
        return total
    lo, hi = (None if end is None else end / by for end in (total.lo, total.hi))
    return Measured(total.value / by, total.unit, lo, hi, total.n)


def _colocated(queries: Queries, window: Window, others: Sequence[Worker]) -> dict[str, Field]:
    if not others:
        return {}
    numbers = [w.number for w in others]
    parts = [of_worker(queries, n, window) for n in numbers]
    done = Queries({k: np.concatenate([part.columns[k] for part in parts]) for k in QUERY_DTYPES})
    tail = latency_metrics(due_in(queries, numbers, window).latency_ns(), window)["latency_p99_s"]
    return {"colocated_throughput_sps": throughput(done, window), "colocated_latency_p99_s": tail}


def counter_gap(rows: Rows, counts: tuple[int, int], looks: tuple[tuple[int, int], tuple[int, int]]) -> int:
    """Return by how many queries a worker's rows and the shared counter of samples differ between two readings of it.

    `looks` are the times before and after each reading; the counter may have been read at any moment between them. A
    query whose samples were only partly counted counts as one.
    """
    c = rows.columns
    done, samples = c["done_ns"][c["done_ns"] >= 0], c["samples"][c["done_ns"] >= 0]
    order = np.argsort(done, kind="stable")
    sums = np.concatenate(([0], np.cumsum(samples[order], dtype=np.int64)))
    (a0, a1), (b0, b1) = (sums[np.searchsorted(done[order], look, side="right")] for look in looks)
    counted = counts[1] - counts[0]
    return math.ceil(float(max(0, (b0 - a1) - counted, counted - (b1 - a0))) / rows.samples)


def warnings(
    trial: Trial, found: Mapping[str, Field], each: Sequence[int], cores: int
) -> tuple[Message, ...]:
    """Return the warnings of a multi-process trial; `each` is the number of queries that each own worker completed."""
    late, gap = found.get("start_skew_s"), found.get("counter_gap_queries")
    checks = []
    # an open loop begins when its first query is due
    if not registry.scenario(trial.scenario).open_loop and isinstance(late, Measured) and late.value > SKEW_S:
        checks.append(_late(late.value, trial.processes, cores))
    if isinstance(gap, Measured) and gap.value > 1:
        checks.append(_gap(gap.value))
    if each and min(each) < FEWEST:
        checks.append(_coarse(min(each)))
    return tuple(checks)


def _late(seconds: float, workers: int, cores: int) -> Message:
    return Message(
        "W-WORKER-1",
        f"the workers started {seconds * 1e3:.1f} ms apart",
        evidence=f"{workers} workers on {cores} cores",
        effect="The window begins with the last of them, so only queries under full load are counted",
        fix="" if workers > cores else "a machine without other work",
    )


def _gap(queries: float) -> Message:
    return Message(
        "W-WORKER-3",
        f"a worker's rows and the shared counter differ by {queries:.0f} queries",
        effect="One of the two accounts of this window is wrong",
        fix="the same command again; report it if it stays",
    )


def _coarse(queries: int) -> Message:
    return Message(
        "W-WORKER-4",
        f"a worker completed only {queries} queries in the window",
        effect=f"One more or less would change its throughput by {1 / max(queries, 1):.0%}",
        fix="--duration 30s",
    )


UNREPORTED = Absent("not reported")


def merged(workers: Sequence[Mapping[str, Field]]) -> dict[str, Field]:
    """Return one figure for each name that a worker reports; a single worker's are its own."""
    if len(workers) == 1:
        return dict(workers[0])
    names = dict.fromkeys(name for worker in workers for name in worker)
    return {name: merge(name, [worker.get(name, UNREPORTED) for worker in workers]) for name in names}


def merge(name: str, each: Sequence[Field]) -> Field:
    """Return the workers' figures of one metric as one.

    A sum needs all of them. The mean weighs each with its count (units, steps ...) and is over the workers that have
    one; so is the largest, whose count is that of these workers.
    """
    known = [field for field in each if isinstance(field, Measured)]
    if not known:
        return each[0]
    known_metric = find(name)
    rule = RULES.get(known_metric.merge if known_metric else "")
    if rule is None:
        return Absent(
            f"of {len(each)} workers: nothing says how to merge {name} (edgescope docs add-a-metric)"
        )
    return rule(each, known)


def _summed(each: Sequence[Field], known: Sequence[Measured]) -> Field:
    for number, field in enumerate(each):
        if isinstance(field, Absent):
            return Absent(f"worker {number}: {field.reason}")
    return _weighted(known, [1.0] * len(known))


def _weighted_mean(each: Sequence[Field], known: Sequence[Measured]) -> Field:
    whole = sum(field.n for field in known)
    shares = [field.n / whole if whole else 1 / len(known) for field in known]
    return _weighted(known, shares)


def _largest(each: Sequence[Field], known: Sequence[Measured]) -> Field:
    return replace(max(known, key=lambda field: field.value), n=len(known))


def _weighted(known: Sequence[Measured], weights: Sequence[float]) -> Measured:
    """Return a weighted sum; its ends are those of the workers' intervals, at least as wide as the joint one."""

    def total(values: Sequence[float | None]) -> float | None:
        found = [w * v for w, v in zip(weights, values, strict=True) if v is not None]
        return sum(found) if len(found) == len(values) else None

    value, count = total([f.value for f in known]), sum(f.n for f in known)
    assert value is not None
    return Measured(value, known[0].unit, total([f.lo for f in known]), total([f.hi for f in known]), count)


RULES: Mapping[str, Callable[[Sequence[Field], Sequence[Measured]], Field]] = {
    "sum": _summed,
    "mean": _weighted_mean,
    "max": _largest,
}
