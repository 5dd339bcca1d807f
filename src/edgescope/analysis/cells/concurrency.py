"""Group concurrent runs into cells, and say in which of them one way of sharing the device beats another.

There is a cell for each model, precision, batch, number of processes and sharing of the device. Its figures come from
its finished runs: of three fresh processes or more with an interval between them, of one run with the interval from
within it; `interval` says which. A trial with one process runs without workers and stands for P = 1. A Series holds
cells that differ in one axis only: processes, batch or precision.

MemoryLine is memory against processes by least squares: the slope is the cost of one more process, with Student's t
from three numbers on. Memory is linear in P if each point lies within NEAR (a share of its value) of the line. The
rule beside it is P x (model + 2 x batch): the weights, and one batch computed while another waits.

Two cells are equal when they differ in their sharing alone: model, precision, batch, number of processes, engine,
options, mode and machine are the same. Total throughput is compared, as a ratio with its interval; a difference within
the noise, or within five per cent, gives no remark. `remarks(results)` gives the largest first; each is a sentence.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgescope import registry
from edgescope.analysis.cells.replicates import (
    MEASURED,
    MIN_REPLICATES,
    NOTICED,
    above,
    across,
    log_mean,
    percentiles,
    quotient,
)
from edgescope.analysis.cells.row import Row
from edgescope.analysis.run.energy import usual, within
from edgescope.analysis.run.usage import ACTIVITY, activity
from edgescope.metrics import scoped
from edgescope.records import Absent, Field, Measured, Result, Status, Trial, Trust, Verdict
from edgescope.stats.intervals import t_quantile

#: Metric of a trial with several processes -> the same metric of a trial with one.
PLAIN: Mapping[str, str] = {"processes_rss_bytes": "peak_rss_bytes"}
FIGURES = (
    "throughput_sps",
    "power_w",
    "energy_per_sample_j",
    "fairness",
    "start_skew_s",
    "counter_gap_queries",
    "unified_memory_bytes",
    "processes_rss_bytes",
    "processes_pss_bytes",
    "gpu_processes_memory_bytes",
    "gpu_board_memory_bytes",
    "memory_rule_bytes",
)
TRUST = (Trust.THROTTLED, Trust.DISTURBED, Trust.UNKNOWN, Trust.CLEAN)


@dataclass(frozen=True, kw_only=True)
class Cell(Row):
    """One cell of concurrent processes: `trial` is the Trial of one run, `rejected` says why none finished.

    `metrics` are FIGURES, ACTIVITY, latency_p50_s, latency_p99_s and throughput_per_process_sps.
    """

    runs: tuple[Result, ...]
    """The finished runs that the figures come from; empty if none finished."""
    reused: tuple[Result, ...]
    """Finished runs with workers reused from the cell before; they are in `runs` if fresh ones are too few."""
    interval: str
    """Where the intervals come from: `5 fresh processes`, `within one run` ..."""
    lost: tuple[Result, ...]
    """Failed runs of a cell in which other runs finished."""

    @property
    def fresh(self) -> tuple[Result, ...]:
        """The runs whose processes were started fresh."""
        return tuple(r for r in self.runs if not reused(r))

    @property
    def ok(self) -> bool:
        """Whether a run finished."""
        return bool(self.runs)

    @property
    def total(self) -> Field:
        """Samples per second of all processes together."""
        return self["throughput_sps"]

    def value(self, name: str) -> float | None:
        """Return one figure's value, or None."""
        found = self[name]
        return found.value if isinstance(found, Measured) else None

    @property
    def place(self) -> str:
        """The cell's label: `resnet50 fp16 batch 1, P = 8, MPS`."""
        return place(self.trial)


def place(trial: Trial) -> str:
    """Return the label of a trial's cell."""
    t = trial
    shared = sharing_words(t) if t.processes > 1 or t.sharing != "time_slicing" else ""
    return ", ".join(filter(None, [f"{t.model} {t.precision} batch {t.batch}", f"P = {t.processes}", shared]))


def sharing_words(trial: Trial) -> str:
    """Return the sharing of the device in words: `time slicing`, `MPS`, `MPS at 50 %`, `pinned cores`."""
    name, _, share = trial.sharing.partition("=")
    if name == "mps":
        return f"MPS at {share} %" if share else "MPS"
    if name == "pinned":
        return "pinned cores"
    return "shared cores" if trial.place.is_host else "time slicing"


def wanted(trial: Trial) -> bool:
    """Return whether a trial belongs here: a closed loop, one query at a time in each process, without a profiler."""
    closed = registry.scenario(trial.scenario).keeps_in_flight
    usual = (None, 1, "", Trial.tracer)
    return closed and (trial.rate, trial.in_flight, trial.colocated, trial.tracer) == usual


def is_traced(trial: Trial) -> bool:
    """Return whether a trial runs one of these cells under a profiler."""
    return trial.tracer != Trial.tracer and wanted(replace(trial, tracer=Trial.tracer))


def setup(trial: Trial) -> str:
    """Return the settings that all cells of one table share, in words: engine, device, options, mode, workload, io."""
    same = replace(trial, precision="fp32", batch=1, processes=1, sharing="time_slicing", in_flight=1)
    io = "" if trial.io == "host" else f" io={trial.io}"
    return same.label.replace(" fp32 b1", "", 1) + io


def axes(trial: Trial) -> tuple[object, ...]:
    """Return the axes that a concurrency study varies: two trials of one cell may still differ in options."""
    return (trial.model.partition("#")[0], trial.precision, trial.batch, trial.processes, trial.sharing)


def key(trial: Trial) -> tuple[object, ...]:
    """Return the key of a trial's cell, which leaves out duration, seed and replicate."""
    where = (trial.precision, trial.batch, trial.processes, trial.sharing)
    return (trial.model, setup(trial), tuple(sorted(trial.shapes.items())), *where)


def cells(results: Iterable[Result]) -> list[Cell]:
    """Return the cells of these results in order of first appearance; trials that are not `wanted` are left out."""
    groups: dict[tuple[object, ...], list[Result]] = {}
    for result in results:
        if wanted(result.trial):
            groups.setdefault(key(result.trial), []).append(result)
    return [_cell(group) for group in groups.values()]


def reused(result: Result) -> bool:
    """Return whether the workers of a result were reused from an earlier trial, not started for it."""
    return result.process == "reused"


def _cell(group: Sequence[Result]) -> Cell:
    newest = sorted(group, key=lambda r: r.started_at)
    latest = list({(r.trial.id, reused(r)): r for r in newest}.values())
    done = [r for r in latest if r.status in MEASURED]
    again = [r for r in done if reused(r)]
    fresh = [r for r in done if not reused(r)]
    counted = fresh if len(fresh) >= MIN_REPLICATES else [*fresh, *again]
    runs = sorted(counted, key=lambda r: r.trial.replicate)
    end = runs[0] if runs else newest[-1]
    trusts = {r.verdict.trust for r in runs}
    return Cell(
        trial=replace(end.trial, replicate=0),
        runs=tuple(runs),
        reused=tuple(again),
        status=Status.OK if runs else end.status,
        rejected="" if runs else str(end.reason or ""),
        verdict=Verdict(next((t for t in TRUST if t in trusts), Trust.UNKNOWN)),
        interval=_interval(len(fresh), len(runs) - len(fresh)),
        lost=tuple(r for r in latest if r.status not in MEASURED) if runs else (),
        metrics=_figures(runs) if runs else {},
    )


def _interval(fresh: int, warm: int) -> str:
    """Return where the intervals come from; a warm run has its own processes too, started for an earlier cell."""
    n = fresh + warm
    if n == 0:
        return "none"
    if n == 1:
        return "within one run" if fresh else "within one run of warm workers"
    what = f"{n} fresh processes" if not warm else f"{n} runs of warm workers" if not fresh else ""
    what = what or f"{n} runs, {fresh} of fresh processes and {warm} of warm workers"
    return what if n >= MIN_REPLICATES else f"{what}: no interval"


def _figures(runs: Sequence[Result]) -> dict[str, Field]:
    out = {name: _figure(runs, name) for name in FIGURES}
    scope = usual(runs)
    out |= {name: within(field, runs, scope) for name, field in out.items() if scoped(name)}
    p = runs[0].trial.processes
    out["throughput_per_process_sps"] = scaled(out["throughput_sps"], 1 / p)
    latency = percentiles(runs)
    out |= {"latency_p50_s": latency["p50_s"], "latency_p99_s": latency["p99_s"]}
    return out | {name: activity(runs, name) for name in ACTIVITY}


def _figure(runs: Sequence[Result], name: str) -> Field:
    found = across(runs, name)
    if isinstance(found, Absent) and name in PLAIN and not runs[0].trial.multi_process:
        return across(runs, PLAIN[name])
    if name == "fairness" and isinstance(found, Absent) and runs[0].trial.processes == 1:
        return Absent("a single process does not share the device")
    return found


def scaled(field: Field, factor: float) -> Field:
    """Return a field, with its interval, times a positive constant."""
    if isinstance(field, Absent):
        return field
    lo = None if field.lo is None else field.lo * factor
    hi = None if field.hi is None else field.hi * factor
    return replace(field, value=field.value * factor, lo=lo, hi=hi)


NEAR = 0.05
"""How far a point may lie from the line, as a share of its value."""
TWO = Absent("two points lie on any line")


@dataclass(frozen=True)
class MemoryLine:
    """One series' line."""

    series: Series
    points: int
    slope: Field
    """Bytes that one more process costs."""
    start: Field
    """Bytes at P = 0, where the line meets the axis."""
    residual: Field
    """Largest distance of a point from the line, as a share of the point."""
    rule: Field
    """Bytes of model + 2 x batch."""
    against: Field
    """slope / rule."""

    @property
    def linear(self) -> bool | None:
        """Whether every point lies within NEAR of the line; None if that is not known."""
        return self.residual.value <= NEAR if isinstance(self.residual, Measured) else None


def memory_line(series: Series, figure: str) -> MemoryLine:
    """Return the line through one memory figure of a series; Absent fields give the reason if there is none."""
    points = [(c.trial.processes, v) for c in series.cells if (v := c.value(figure)) is not None]
    rule = _rule(series.cells)
    if len(points) < 2:
        none = Absent(f"{figure} was measured at {len(points)} number of processes")
        return MemoryLine(series, len(points), none, none, none, rule, none)
    x, y = (np.array(column, dtype=np.float64) for column in zip(*points, strict=True))
    slope, start = np.polyfit(x, y, 1)
    off = y - (slope * x + start)
    fitted = _slope(float(slope), x, off)
    residual = Measured(float(np.max(np.abs(off) / y)), "1", n=len(x)) if len(x) > 2 else TWO
    against = rule if isinstance(rule, Absent) else scaled(fitted, 1 / rule.value)
    start_ = Measured(float(start), "bytes", n=len(x))
    return MemoryLine(series, len(x), fitted, start_, residual, rule, against)


def _slope(slope: float, x: NDArray[np.float64], off: NDArray[np.float64]) -> Measured:
    n = len(x)
    if n < 3:
        return Measured(slope, "bytes", n=n)
    error = math.sqrt(float(off @ off) / (n - 2) / float(((x - x.mean()) ** 2).sum()))
    half = t_quantile(0.975, n - 2) * error
    return Measured(slope, "bytes", slope - half, slope + half, n)


def _rule(cells: Sequence[Cell]) -> Field:
    """Return model + 2 x batch in bytes, from any cell that has it: it is the same for every P."""
    fields = [(c["memory_rule_bytes"], c.trial.processes) for c in cells]
    known = [f.value / p for f, p in fields if isinstance(f, Measured) and f.value > 0]
    if known:
        return Measured(known[0], "bytes")
    return next((f for f, _ in fields if isinstance(f, Absent)), Absent("no cell has it"))


#: From the fewest bits to the most; equals are in no order.
PRECISIONS = ("as_is", "int8", "fp16", "bf16", "tf32", "fp32")
WIDTH = {"as_is": 8, "int8": 8, "fp16": 16, "bf16": 16, "tf32": 19, "fp32": 32}


@dataclass(frozen=True)
class Series:
    """Finished cells that differ in one axis, in its order."""

    cells: tuple[Cell, ...]
    axis: str
    """processes, batch or precision."""

    @property
    def words(self) -> str:
        """The settings that the cells share: `resnet50 fp16 batch 1, time slicing`."""
        t = self.cells[-1].trial
        parts = [t.model]
        parts += [t.precision] if self.axis != "precision" else []
        parts += [f"batch {t.batch}"] if self.axis != "batch" else []
        head = " ".join(parts)
        how = [f"P = {t.processes}"] if self.axis != "processes" else []
        shared = t.sharing != "time_slicing" or (self.axis == "processes" or t.processes > 1)
        return ", ".join([head, *how, *([sharing_words(t)] if shared else [])])


def over_processes(cells: Iterable[Cell]) -> list[Series]:
    """Return one series per model, precision, batch and sharing; each begins with the cell of one process."""
    done = [c for c in cells if c.ok]
    alone = {
        _but(c, "processes"): c for c in done if c.trial.processes == 1 and c.trial.sharing == "time_slicing"
    }
    found = _grouped(done, lambda c: (*_but(c, "processes"), c.trial.sharing))
    out = []
    for group in found:
        first = alone.get(_but(group[0], "processes"))
        begins = first is not None and all(c.trial.processes > 1 for c in group)
        whole = [first, *group] if first is not None and begins else group
        out.append(Series(tuple(sorted(whole, key=lambda c: c.trial.processes)), "processes"))
    return [s for s in out if len(s.cells) > 1]


def over_batches(cells: Iterable[Cell]) -> list[Series]:
    """Return one series per model, precision, number of processes and sharing."""
    return _over(cells, "batch", lambda trial: trial.batch)


def over_precisions(cells: Iterable[Cell]) -> list[Series]:
    """Return one series per model, batch, number of processes and sharing, from the fewest bits to the most."""
    return _over(cells, "precision", lambda trial: PRECISIONS.index(trial.precision))


def _over(cells: Iterable[Cell], axis: str, place: Callable[[Trial], int]) -> list[Series]:
    """Return one series per setting of all but the axis, of those that have cells at two of its places or more."""
    found = _grouped([c for c in cells if c.ok], lambda c: (*_but(c, axis), c.trial.sharing))
    ordered = [sorted(group, key=lambda c: place(c.trial)) for group in found]
    return [Series(tuple(g), axis) for g in ordered if place(g[0].trial) != place(g[-1].trial)]


def _but(cell: Cell, axis: str) -> tuple[object, ...]:
    """Return a cell's key within one setup, without one axis and the sharing."""
    t = cell.trial
    parts = {"model": t.model, "precision": t.precision, "batch": t.batch, "processes": t.processes}
    return tuple(v for k, v in parts.items() if k != axis)


def _grouped(cells: Sequence[Cell], key: Callable[[Cell], tuple[object, ...]]) -> list[list[Cell]]:
    groups: dict[tuple[object, ...], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return list(groups.values())


@dataclass(frozen=True)
class Remark:
    """One sentence, and the figures behind it."""

    subject: str
    """The kind of remark: `mps`, `pinned` or `processes`."""
    text: str
    ratio: Measured
    """The ratio of their total throughputs."""
    results: tuple[str, ...]
    """Ids of the results it was taken from."""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Pair:
    """Two cells that differ only in how the device is shared, or in the number of processes."""

    over: Cell
    under: Cell
    ratio: Field

    @property
    def subject(self) -> str:
        """The sharing in question."""
        return self.over.trial.sharing.partition("=")[0]


def remarks(results: Iterable[Result]) -> tuple[Remark, ...]:
    """Return the remarks on these results, the largest gain first; () if there are none.

    Machines are not mixed: each gets its own remarks, in turn.
    """
    machines: dict[str, list[Result]] = {}
    for result in results:
        machines.setdefault(result.machine.id, []).append(result)
    return tuple(r for group in machines.values() for r in of_cells(cells(group)))


def of_cells(found: Sequence[Cell]) -> tuple[Remark, ...]:
    """Return, for each way of sharing, each model's largest gain, the mean and the largest loss."""
    pairs = equal_pairs(found)
    said = [r for subject in ("mps", "pinned") for r in _on([p for p in pairs if p.subject == subject])]
    return (*said, *_processes(found))


def equal_pairs(found: Sequence[Cell]) -> list[Pair]:
    """Return each MPS or pinned cell with its equal under plain sharing; only cells of several processes count."""
    shared = {key(c.trial)[:-1]: c for c in found if c.ok and c.trial.sharing == "time_slicing"}
    own = [c for c in found if c.ok and c.trial.sharing != "time_slicing" and c.trial.processes > 1]
    both = [(c, shared[key(c.trial)[:-1]]) for c in own if key(c.trial)[:-1] in shared]
    return [Pair(a, b, quotient(a.runs, b.runs, "throughput_sps")) for a, b in both]


def _on(pairs: Sequence[Pair]) -> list[Remark]:
    known = [(p, p.ratio) for p in pairs if isinstance(p.ratio, Measured)]
    sure = [(p, r) for p, r in known if above(r) is not None and abs(r.value - 1) >= NOTICED]
    if not sure:
        return []
    best: dict[str, tuple[Pair, Measured]] = {}
    for pair, ratio in sorted(sure, key=lambda each: -each[1].value):
        best.setdefault(pair.over.trial.model, (pair, ratio))
    tried = Counter(p.over.trial.model for p, _ in known)
    out = [_remark(p, r, _of(tried[name], "largest")) for name, (p, r) in best.items() if r.value > 1]
    out += [_summary(pairs)] if len(known) > 1 else []
    worst = min(sure, key=lambda each: each[1].value)
    return out + ([_remark(*worst, _of(len(known), "least"))] if worst[1].value < 1 else [])


def _of(count: int, which: str) -> str:
    """Return the note that a figure was picked among several: the most extreme of noisy figures is biased outwards."""
    return (
        f"; the {which} of {count}, so leaning {'high' if which == 'largest' else 'low'}" if count > 1 else ""
    )


def _remark(pair: Pair, ratio: Measured, picked: str) -> Remark:
    a, b = pair.over.trial, pair.under.trial
    cell = f"{a.model} {a.precision} batch {a.batch}, P = {a.processes}"
    text = f"{cell}: {sharing_words(a)} gives {times(ratio)} the total throughput of {sharing_words(b)}"
    return Remark(
        pair.subject, text + _within(ratio, picked, pair.over, pair.under), ratio, _ids(pair.over, pair.under)
    )


def _summary(pairs: Sequence[Pair]) -> Remark:
    known = [(p, p.ratio) for p in pairs if isinstance(p.ratio, Measured)]
    more = sum(above(r) is True and r.value >= 1 + NOTICED for _, r in known)
    less = sum(above(r) is False and r.value <= 1 - NOTICED for _, r in known)
    mean = log_mean([r for _, r in known])
    assert isinstance(mean, Measured)
    low, high = min(r.value for _, r in known), max(r.value for _, r in known)
    a, b = pairs[0].over.trial, pairs[0].under.trial
    text = (
        f"{sharing_words(a).partition(' at ')[0]} against {sharing_words(b)} at {len(known)} equal cells: more in "
        f"{more}, less in {less}; {digits(mean.value)}x in the geometric mean, {digits(low)}x to {digits(high)}x"
    )
    ids = [i for p, _ in known for i in _ids(p.over, p.under)]
    return Remark(pairs[0].subject, text, mean, tuple(dict.fromkeys(ids)))


def _processes(found: Sequence[Cell]) -> list[Remark]:
    """Return the remark on where more processes gained the most over one of the same model, precision and batch."""
    one = {
        key(c.trial)[:-2]: c
        for c in found
        if c.ok and c.trial.processes == 1 and c.trial.sharing == "time_slicing"
    }
    many = [
        (c, one[key(c.trial)[:-2]])
        for c in found
        if c.ok and c.trial.processes > 1 and key(c.trial)[:-2] in one
    ]
    pairs = [Pair(a, b, quotient(a.runs, b.runs, "throughput_sps")) for a, b in many]
    known = [(p, p.ratio) for p in pairs if isinstance(p.ratio, Measured)]
    if not known:
        return []
    pair, ratio = max(known, key=lambda each: each[1].value)
    if above(ratio) is True and ratio.value >= 1 + NOTICED:
        t = pair.over.trial
        shared = f"{t.processes} processes ({sharing_words(t)})"
        text = f"{t.model} {t.precision} batch {t.batch}: {shared} give {times(ratio)} the total throughput of one"
        text += _within(ratio, _of(len(known), "largest"), pair.over, pair.under)
        return [Remark("processes", text, ratio, _ids(pair.over, pair.under))]
    if all(r.hi is not None and r.hi <= 1 + 2 * NOTICED for _, r in known):
        text = f"more processes gave no more in total: at best {times(ratio)} the throughput of one ({pair.over.place})"
        return [Remark("processes", text, ratio, _ids(pair.over, pair.under))]
    return []


def times(ratio: Measured) -> str:
    """Return `3.6x [3.5, 3.7]`."""
    text = f"{digits(ratio.value)}x"
    if ratio.lo is None or ratio.hi is None:
        return text
    places = 0 if ratio.value >= 100 else 1 if ratio.value >= 10 else 2
    places = places if round(ratio.hi - ratio.lo, 6) <= 0.2 else min(places, 1)
    return f"{ratio.value:.{places}f}x [{ratio.lo:.{places}f}, {ratio.hi:.{places}f}]"


def digits(value: float) -> str:
    """Return a ratio with two decimals below ten, one below a hundred."""
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def _within(ratio: Measured, picked: str, *of: Cell) -> str:
    """Return where the interval comes from, and among how many cells a figure was picked."""
    bad = any(c.verdict.trust in (Trust.DISTURBED, Trust.THROTTLED) for c in of)
    but = ("; the machine was disturbed or throttled" if bad else "") + picked
    if ratio.n > 1:
        return f" ({ratio.n} pairs of runs{but})"
    runs = " and ".join(dict.fromkeys(str(len(c.runs)) for c in of))
    plural = "run" if runs == "1" else "runs"
    return f" ({runs} {plural} each{'' if ratio.lo is None else ', interval from within'}{but})"


def _ids(*of: Cell) -> tuple[str, ...]:
    return tuple(r.id for c in of for r in c.runs)
