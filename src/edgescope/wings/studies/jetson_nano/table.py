"""The Jetson Nano study's table: as printed, with its misprints, and on this machine beside it.

The study divides seconds before by seconds after and prints the quotient twice. Both columns are recomputed from its
seconds; a printed value more than one per cent off is marked as a misprint, with the corrected value and the division.
Its FLOPS column is held against a count of the same network's multiply-accumulates: some rows count those, some twice
as many. Source: arXiv 2406.17749.

Here each network is timed before and after in four ways. "Before" is PyTorch eager, fp32, tf32 off; "after" is the
fastest variant that passed the accuracy gate. Both are fresh processes, interleaved, and the speed-up is taken within
rounds. One program has four times, and a ratio of two different ones means nothing:

    cold    from the network's definition to its first answer: load + first
    first   the first answer alone, with whatever the engine left to do lazily
    warm    the next ten answers, before anything has settled
    steady  the median once the latencies have settled

`claimed` is the speed-up of the same runs if timed as the study did: a cold start before, a warm call after.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from statistics import fmean, geometric_mean

import numpy as np

from edgescope.analysis import roofline
from edgescope.analysis.cells import machines
from edgescope.analysis.cells.replicates import (
    LONGER,
    MEASURED,
    NOT_RUN,
    by_replicate,
    log_mean,
    neighbours,
    of_pairs,
    plain_mean,
    spread,
    value_of,
)
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import SCREEN_S, pick, table
from edgescope.errors import UsageError
from edgescope.records import Absent, Field, Machine, Measured, ModelInfo, Result, Trial, digest
from edgescope.stats import paired_log_ratio
from edgescope.wings.studies.paper import paper

MISPRINT = 0.01
"""Share by which a printed quotient may differ from its own division: the printed values are rounded or cut."""
COUNTED = 0.15
"""Share within which a FLOPS value is taken for one, or two, per multiply-accumulate."""


@dataclass(frozen=True)
class Misprint:
    """One printed value that cannot be right."""

    column: str
    """ratio, speed-up or parameters."""
    printed: str
    correct: str
    why: str
    """The arithmetic, e.g. `0.6638 s / 0.1184 s = 5.606`."""

    def __str__(self) -> str:
        return f"{self.column} printed as {self.printed}, should be {self.correct}: {self.why}"


@dataclass(frozen=True)
class StudyRow:
    """One row as printed, and the network of the zoo that it means."""

    name: str
    ours: str
    before_s: float
    after_s: float
    ratio: str
    speedup: str
    params: int
    flops: int
    input: int | None = None
    """Number of input values of one sample; None if not known."""
    outputs: int | None = None
    counted_params: int | None = None
    counted_macs: int | None = None
    rebuilt: bool = False
    """Whether the study does not define this network: `ours` was then built to its printed size."""
    notes: tuple[str, ...] = ()

    @property
    def recomputed(self) -> float:
        """Return seconds before / seconds after, the speed-up that its own times give."""
        return self.before_s / self.after_s

    @property
    def misprints(self) -> tuple[Misprint, ...]:
        """Return the printed values that its own arithmetic, or a count of the network, contradicts."""
        found = [self._quotient(c, t) for c, t in (("ratio", self.ratio), ("speed-up", self.speedup))]
        return tuple(m for m in (*found, self._params()) if m)

    def _quotient(self, column: str, printed: str) -> Misprint | None:
        if abs(float(printed) / self.recomputed - 1) <= MISPRINT:
            return None
        why = f"{self.before_s:.4f} s / {self.after_s:.4f} s = {self.recomputed:.3f}"
        return Misprint(column, printed, f"{self.recomputed:.2f}", why)

    def _params(self) -> Misprint | None:
        if self.rebuilt or self.counted_params in (None, self.params):
            return None
        correct = f"{self.counted_params:,}"
        why = f"{self.ours} with 1000 classes has {correct}"
        return Misprint("parameters", f"{self.params:,}", correct, why)

    def flops_count(self, macs: int | None) -> str:
        """Return what the FLOPS column counts here, `MACs` or `2 x MACs`, or `unknown`; `macs` is our count."""
        per_mac = self.flops / macs if macs else math.nan
        kinds = {1: "MACs", 2: "2 x MACs"}
        return next((word for n, word in kinds.items() if abs(per_mac / n - 1) <= COUNTED), "unknown")


@dataclass(frozen=True)
class Study:
    """The whole table."""

    title: str
    source: str
    board: str
    mean_speedup_in_conclusion: float
    mean_speedup_in_abstract: str
    notes: tuple[str, ...]
    rows: tuple[StudyRow, ...]

    @property
    def arithmetic_mean(self) -> float:
        """Return the arithmetic mean of the recomputed speed-ups."""
        return fmean(r.recomputed for r in self.rows)

    @property
    def geometric_mean(self) -> float:
        """Return the geometric mean of the recomputed speed-ups: what a mean of ratios should be."""
        return geometric_mean(r.recomputed for r in self.rows)

    def row(self, model: str) -> StudyRow | None:
        """Return the row of a model of the zoo; a two-class variant has the row of its original."""
        name = model.removesuffix("_2class")
        return next((r for r in self.rows if r.ours == name), None)


@cache
def study() -> Study:
    """Return the study's table."""
    found = paper("jetson_nano")
    rows = tuple(StudyRow(**{**row, "notes": tuple(row.get("notes", ()))}) for row in found.page["row"])
    printed = found.page["printed"]
    facts = {**printed, "notes": tuple(printed["notes"])}
    return Study(found.title, found.source, found.boards, **facts, rows=rows)


# -- on this machine ------------------------------------------------------------------------------------------


WARM_QUERIES = 10
"""Number of answers after the first whose mean is `warm`."""
TIMES = ("cold_s", "first_s", "warm_s", "steady_s")
SCREENED = "screened only; run again to finish"


@dataclass(frozen=True)
class Times:
    """The four times of one variant, in seconds, each with its interval over fresh processes."""

    cold_s: Field
    first_s: Field
    warm_s: Field
    steady_s: Field


@dataclass(frozen=True, kw_only=True)
class NanoRow:
    """One network: the study's figures, and ours if it was measured."""

    study: StudyRow
    model: str
    params: Field
    macs: Field
    flops: Field
    """Twice the multiply-accumulates."""
    before: Times
    after: Times
    variant: str = ""
    """Label of the variant after; '' if there is none."""
    speedup: Field
    """Steady before / steady after, paired within rounds."""
    claimed: Field
    """Cold before / warm after, of the same processes."""
    limit_s: Field
    """The least time that the machine's measured ceilings allow the network, at any precision that passed the gate."""
    of_limit: Field
    """limit_s / steady after: 1 is as fast as the machine can be."""
    bound_by: str = ""
    limit_precision: str = ""
    """The precision with the smallest limit; '' if there is no limit."""
    gate: str = ""
    verdicts: tuple[str, str] = ("", "")
    """Trust of before and after."""
    notes: tuple[str, ...]
    runs: tuple[Result, ...] = field(default=(), repr=False)
    """The runs of the variant after."""

    @property
    def flops_count(self) -> str:
        """What the study's FLOPS column counts in this row."""
        return self.study.flops_count(int(self.macs.value) if isinstance(self.macs, Measured) else None)


@dataclass(frozen=True)
class NanoTable:
    """All rows, and the means over those that were measured."""

    study: Study
    device: str
    machine: Machine | None
    rows: tuple[NanoRow, ...]
    geometric: Field
    arithmetic: Field
    claimed: Field
    """Geometric mean of the speed-ups that the study's way of timing would have claimed."""

    @property
    def measured(self) -> tuple[NanoRow, ...]:
        """Return the rows that have a speed-up."""
        return tuple(r for r in self.rows if isinstance(r.speedup, Measured))


def nano_table(
    results: Iterable[Result],
    models: Sequence[str] = (),
    *,
    device: str = "cpu",
    ceilings: roofline.Ceilings | None = None,
) -> NanoTable:
    """Return the table of these results (with raw rows for warm times); `models` default to the study's eleven.

    UsageError for a model that the study does not have, or results of several machines.
    """
    page = study()
    pairs = [(_study_row(page, m), m) for m in _names(models)]
    mine = machines.one([r for r in results if wanted(r.trial, models, device)])
    machine = next((r.machine for r in mine), None)
    usable = _usable(ceilings, machine, device)
    rows = tuple(_row(s, m, [r for r in mine if r.trial.model == m], usable) for s, m in pairs)
    ups, claimed = [r.speedup for r in rows], [r.claimed for r in rows]
    return NanoTable(page, device, machine, rows, log_mean(ups), plain_mean(ups), log_mean(claimed))


def _study_row(page: Study, model: str) -> StudyRow:
    found = page.row(model)
    if found is None:
        known = ", ".join(r.ours for r in page.rows)
        raise UsageError("E-NANO-1", f"the study has no model {model!r}", evidence=f"it has {known}")
    return found


def _names(models: Sequence[str]) -> tuple[str, ...]:
    return tuple(models) or tuple(r.ours for r in study().rows)


def wanted(trial: Trial, models: Sequence[str] = (), device: str = "cpu") -> bool:
    """Return whether a trial belongs to this table: one inference at a time, host to host, on this device."""
    how = (trial.device, trial.workload, trial.scenario, trial.io, trial.batch, trial.in_flight)
    return trial.model in _names(models) and how == (device, Trial.workload, Trial.scenario, "host", 1, 1)


def _usable(
    ceilings: roofline.Ceilings | None, machine: Machine | None, device: str
) -> roofline.Ceilings | Absent:
    if ceilings is None:
        return Absent(f"no ceilings given: {roofline.FIX.replace('cpu', device)}, then --ceilings FILE")
    if machine is not None and (ceilings.machine_id, ceilings.device) != (machine.id, device):
        return Absent(f"the ceilings are those of {ceilings.device} of machine {ceilings.machine_id}")
    return ceilings


def picked(results: Iterable[Result], model: str, device: str = "cpu") -> Trial | None:
    """Return the trial of the pick that the table shows for a model, or None if there is no pick."""
    group = _latest_study(
        [r for r in results if r.trial.model == model and wanted(r.trial, (model,), device)]
    )
    best = pick(table(group)).row if group else None
    return best.trial if best else None


def _row(
    printed: StudyRow, model: str, results: Sequence[Result], ceilings: roofline.Ceilings | Absent
) -> NanoRow:
    info = next((r.model for r in results if r.model is not None), None)
    group = _latest_study(results)
    if not group and any(_screens(r) for r in results):
        unfinished = _blank(printed, model, info, SCREENED)
        return replace(unfinished, notes=(*unfinished.notes, SCREENED))
    blank = _blank(
        printed, model, info, f"not measured: no torch_eager fp32 result of {model} on this device"
    )
    if not group:
        return blank
    same = [r for r in results if _software(r) == _software(group[0])]
    found = table(group, next(r.trial.cell for r in group if _is_baseline(r.trial)))
    before = found.row(found.baseline)
    if not before.replicates:
        return replace(blank, notes=(*blank.notes, f"before: {before.rejected}"))
    best = pick(found).row
    filled = replace(blank, before=_times(before), verdicts=(before.verdict.trust.value, ""))
    notes = (*blank.notes, *_rejections(same))
    if best is None:
        return replace(filled, notes=(*notes, "no variant passed the gate"))
    runs = tuple(best.replicates.values())
    after = _after(replace(filled, notes=notes, runs=runs), before, best)
    return _with_limit(after, best.trial.precision, _passed(same), ceilings)


def _blank(printed: StudyRow, model: str, info: ModelInfo | None, why: str) -> NanoRow:
    none, unknown = Absent(why), Absent("not counted")
    original = model == printed.ours
    params = info.params if info else printed.counted_params if original else None
    macs = info.macs if info else printed.counted_macs if original else None
    return NanoRow(
        study=printed,
        model=model,
        params=Measured(float(params), "1") if params else unknown,
        macs=Measured(float(macs), "1") if macs else unknown,
        flops=Measured(2.0 * macs, "1") if macs else unknown,
        before=Times(none, none, none, none),
        after=Times(none, none, none, none),
        speedup=none,
        claimed=none,
        limit_s=none,
        of_limit=none,
        notes=printed.notes,
    )


def _is_baseline(trial: Trial) -> bool:
    return (trial.backend, trial.precision, dict(trial.options)) == ("torch_eager", "fp32", {})


def _latest_study(results: Sequence[Result]) -> list[Result]:
    """Return the results that were measured together: they differ in engine, precision and options only.

    Pairs of other durations, seeds or package versions were not neighbours in time, and screening runs are no study.
    If a model was studied several times, the latest day (UTC) counts; on that day the study whose baseline has most
    finished processes, then the newest.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if not _screens(result):
            same = replace(result.trial, backend="", precision="fp32", options={}, min_agreement=None)
            groups.setdefault((same.cell, _software(result)), []).append(result)
    ranked = [(_rank(group), group) for group in groups.values() if any(_is_baseline(r.trial) for r in group)]
    return max(ranked, key=lambda pair: pair[0])[1] if ranked else []


def _screens(result: Result) -> bool:
    return result.trial.max_s <= SCREEN_S


def _software(result: Result) -> str:
    """Return a hash of the package versions that a result was measured with."""
    return digest(result.machine.state.get("packages"))


def _rank(group: Sequence[Result]) -> tuple[str, int, str]:
    base = by_replicate(r for r in group if _is_baseline(r.trial))
    newest = max(r.started_at for r in group)
    return newest[: len("2026-01-01")], len(base), newest


def _times(row: Row) -> Times:
    runs = list(row.replicates.values())
    cold, first, warm = (spread(list(map(read, runs)), "s") for read in (_cold, _first, _warm))
    return Times(cold, first, warm, row["p50_s"])


def _cold(result: Result) -> float | None:
    load, first = value_of(result, "load_s"), _first(result)
    return None if load is None or first is None else load + first


def _first(result: Result) -> float | None:
    return value_of(result, "first_s")


def _warm(result: Result) -> float | None:
    """Return the mean seconds of the answers after the first, or None without raw rows or with too few answers."""
    if result.queries is None or result.window is None or result.window.first < WARM_QUERIES:
        return None
    columns = {k: v[:WARM_QUERIES] for k, v in result.queries.columns.items()}
    latencies = replace(result.queries, columns=columns).latency_ns()
    return float(np.mean(latencies)) * 1e-9 if len(latencies) == WARM_QUERIES else None


def _after(row: NanoRow, before: Row, best: Row) -> NanoRow:
    return replace(
        row,
        after=_times(best),
        variant=best.label,
        speedup=Measured(1.0, "1", n=len(best.replicates)) if best.cell == before.cell else best["speedup"],
        claimed=_claimed(before.replicates, best.replicates),
        gate=best.gate,
        verdicts=(before.verdict.trust.value, best.verdict.trust.value),
    )


def _claimed(before: Mapping[int, Result], after: Mapping[int, Result]) -> Field:
    old, new = neighbours(before, after)
    both = ((_cold(old[i]), _warm(new[i])) for i in old)
    pairs = [(c, w) for c, w in both if c and w]
    if not pairs:
        return Absent("no round has a cold start before and a warm call after")
    return of_pairs(paired_log_ratio([c for c, _ in pairs], [w for _, w in pairs]), LONGER)


def _passed(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the precisions of the variants whose every checked process passed the gate, in screening runs too."""
    checked = [r for r in results if r.verification is not None]
    wrong = {_name(r.trial) for r in checked if r.verification and not r.verification.passed}
    right = [r for r in checked if r.status in MEASURED and _name(r.trial) not in wrong]
    return tuple(dict.fromkeys(r.trial.precision for r in right))


def _name(trial: Trial) -> str:
    return replace(trial, min_agreement=None).variant


def _with_limit(
    row: NanoRow, own: str, passed: Sequence[str], ceilings: roofline.Ceilings | Absent
) -> NanoRow:
    """Compare the pick with the smallest limit of all precisions that passed: its own may be a slow choice."""
    found = {p: _limit(row, p, ceilings) for p in dict.fromkeys((own, *passed))}
    mine, limits = found[own], {p: f for p, f in found.items() if isinstance(f, roofline.Limit)}
    if isinstance(mine, Absent):
        return replace(row, limit_s=mine, of_limit=mine)
    at = min(limits, key=lambda p: limits[p].total_s)
    best, unknown = limits[at], [p for p in found if p not in limits]
    note = f"limit: at {at}, bound by {best.bound_by}"
    note += f"; {', '.join(unknown)} passed the gate too but has no ceiling" if unknown else ""
    return replace(
        row,
        limit_s=Measured(best.total_s, "s"),
        of_limit=_share(best.total_s, row.after.steady_s),
        bound_by=best.bound_by,
        limit_precision=at,
        notes=(*row.notes, note),
    )


def _share(limit_s: float, steady: Field) -> Field:
    """Return the share of the machine's limit that was reached: least time / time."""
    if isinstance(steady, Absent):
        return steady
    if steady.lo is None or steady.hi is None:
        return Measured(limit_s / steady.value, "1", n=steady.n)
    return Measured(limit_s / steady.value, "1", limit_s / steady.hi, limit_s / steady.lo, steady.n)


def _limit(row: NanoRow, precision: str, ceilings: roofline.Ceilings | Absent) -> roofline.Limit | Absent:
    if isinstance(ceilings, Absent):
        return ceilings
    s, macs, params = row.study, row.macs, row.params
    if isinstance(macs, Absent) or isinstance(params, Absent) or s.input is None or s.outputs is None:
        return Absent("what the network must compute and move is not known")
    outputs = 2 if row.model.endswith("_2class") else s.outputs
    work = roofline.Work(int(macs.value), int(params.value), s.input, outputs, precision)
    return roofline.limit(work, ceilings)


def _rejections(results: Sequence[Result]) -> tuple[str, ...]:
    """Return `openvino int8 b1 wrong_output` for each variant that dropped out, in screening runs too."""
    out = [r for r in results if r.status not in (*MEASURED, *NOT_RUN)]
    return tuple(dict.fromkeys(f"{r.trial.label} {r.status.value}" for r in out))
