"""Which variant of a model to use: one row per cell, and a pick that can be defended.

A variant that gave wrong outputs, or did not run, keeps its row with the reason and can never be picked: a
fast wrong answer is not fast. The speed-up over the baseline comes from paired replicates, and the pick says
which other variants are not significantly different, because then price, memory or habit may decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from edgescope.analysis.compare import by_cell
from edgescope.analysis.replicates import across, by_replicate, field_of, paired_values, pooled_quantile
from edgescope.errors import UsageError
from edgescope.records import Absent, Field, Measured, Result, Status, Trial, Trust, Verdict
from edgescope.stats import Interval, Judgement, judge_pairs, paired_log_ratio

NOT_RUN = (Status.CANCELLED, Status.SKIPPED)
#: Says that the machine was not steady, not that the variant is wrong; such replicates are left out.
LEFT_OUT = (*NOT_RUN, Status.UNSTABLE)
WORST_FIRST = (Trust.THROTTLED, Trust.DISTURBED, Trust.UNKNOWN, Trust.CLEAN)


@dataclass(frozen=True)
class Objective:
    """What to optimise: the metric paired per replicate, and which way is better."""

    metric: str
    column: str
    higher_is_better: bool
    words: str


OBJECTIVES: Mapping[str, Objective] = {
    "latency": Objective("latency_p50_s", "p50_s", False, "lowest median latency"),
    "throughput": Objective("throughput_sps", "throughput_sps", True, "highest throughput"),
    "energy": Objective("energy_per_sample_j", "energy_per_sample_j", False, "least energy per sample"),
}


@dataclass(frozen=True)
class VariantRow:
    """One cell: its numbers, whether it may be used, and its replicates."""

    cell: str
    label: str
    trial: Trial
    status: Status
    verdict: Verdict
    p50_s: Field
    p99_s: Field
    throughput_sps: Field
    peak_rss_bytes: Field
    power_w: Field
    energy_per_sample_j: Field
    accuracy: Field
    agreement: Field
    """Top-1 agreement with fp32 of a trained classifier, else Absent; `gate` has the sentence of either."""
    speedup: Field
    """Baseline's median latency / this one's, paired by replicate (offline: throughputs); 2 is double."""
    gate: str = ""
    rejected: str = ""
    """Why this variant can never be the best; '' where it can."""
    replicates: Mapping[int, Result] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class VariantTable:
    """The rows in the order in which their cells were first run, and the baseline's cell."""

    rows: tuple[VariantRow, ...]
    baseline: str

    def row(self, cell: str) -> VariantRow:
        """Return the row of a cell; KeyError where there is none."""
        return {r.cell: r for r in self.rows}[cell]


@dataclass(frozen=True)
class Pick:
    """The variant to use, in one sentence with its figures; no row where none may be used."""

    row: VariantRow | None
    reason: str
    ties: tuple[str, ...] = ()
    """Labels of eligible variants that are not significantly worse."""


def table(results: Iterable[Result], baseline: str | None = None) -> VariantTable:
    """Return one row per cell; `baseline`: a cell or label, by default torch_eager fp32, else the first."""
    groups = by_cell(results)
    machines = {r.machine.id for group in groups.values() for r in group}
    if len(machines) > 1:
        raise UsageError(
            "E-VAR-4",
            "variants of several machines cannot share a table",
            evidence=", ".join(sorted(machines)),
        )
    if not groups:
        raise UsageError("E-VAR-1", "there are no results to tabulate", fix="edgescope optimize MODEL")
    base = _baseline(groups, baseline)
    against = by_replicate(groups[base])
    return VariantTable(tuple(_row(cell, group, against) for cell, group in groups.items()), base)


def _baseline(groups: Mapping[str, Sequence[Result]], wanted: str | None) -> str:
    trials = {cell: group[0].trial for cell, group in groups.items()}
    if wanted is None:
        plain = (c for c, t in trials.items() if (t.backend, t.precision) == ("torch_eager", "fp32"))
        return next(plain, next(iter(trials)))
    found = [c for c, t in trials.items() if wanted in (c, t.label)]
    if not found:
        known = ", ".join(t.label for t in trials.values())
        raise UsageError("E-VAR-2", f"no variant is called {wanted!r}", evidence=f"known: {known}")
    return found[0]


def _row(cell: str, group: Sequence[Result], against: Mapping[int, Result]) -> VariantRow:
    # a rejected variant's figures are shown too, struck out
    done = by_replicate(group) or by_replicate(group, (Status.WRONG_OUTPUT, Status.UNSTABLE))
    results, first = list(done.values()), next(iter(done.values()), group[0])
    checked = first.verification
    fields = checked.fields if checked else {}
    return VariantRow(
        cell=cell,
        label=first.trial.label,
        trial=first.trial,
        status=first.status,
        verdict=_verdict(results),
        p50_s=pooled_quantile(results, 0.50),
        p99_s=pooled_quantile(results, 0.99),
        throughput_sps=across(results, "throughput_sps"),
        peak_rss_bytes=_peak(results),
        power_w=across(results, "power_w"),
        energy_per_sample_j=across(results, "energy_per_sample_j"),
        accuracy=fields.get("accuracy", Absent("not verified")),
        agreement=fields.get("top1_agreement", Absent("not verified")),
        speedup=_speedup(against, done),
        gate=checked.detail if checked else "",
        rejected=_rejected(group),
        replicates=done,
    )


def _rejected(every: Sequence[Result]) -> str:
    """Say why a cell may not be used: any replicate that failed or gave wrong outputs speaks for all.

    Of a replicate that was run again, the newer run speaks.
    """
    group = list({r.trial.replicate: r for r in sorted(every, key=lambda r: r.started_at)}.values())
    for r in group:
        if r.verification is not None and not r.verification.passed:
            return f"wrong outputs: {r.verification.detail}"
    failed = [r for r in group if r.status is not Status.OK and r.status not in LEFT_OUT]
    if failed:
        count = f" ({len(failed)} of {len(group)} replicates)" if len(group) > 1 else ""
        return f"{failed[0].status.value}{count}: {failed[0].reason or 'no reason given'}"
    done = [r for r in group if r.status is Status.OK]
    if not done:
        return f"{group[0].status.value}: {group[0].reason or 'did not run'}"
    return "" if all(r.verification for r in done) else "not verified against the fp32 reference"


def _verdict(results: Sequence[Result]) -> Verdict:
    """Return the worst verdict of the replicates, how many share it, and the evidence of the first that does."""
    trusts = [r.verdict.trust for r in results]
    worst = next((t for t in WORST_FIRST if t in trusts), None)
    if worst is None:
        return Verdict(Trust.UNKNOWN, ("nothing was measured",))
    evidence = results[trusts.index(worst)].verdict.evidence
    if len(results) == 1:
        return Verdict(worst, evidence)
    return Verdict(worst, (f"{trusts.count(worst)} of {len(results)} processes", *evidence))


def _peak(results: Sequence[Result]) -> Field:
    fields = [field_of(r, "peak_rss_bytes") for r in results]
    peaks = [f.value for f in fields if isinstance(f, Measured)]
    absent = fields[0] if fields else Absent("not measured")
    return Measured(max(peaks), "bytes", n=len(peaks)) if peaks else absent


def _speedup(baseline: Mapping[int, Result], variant: Mapping[int, Result]) -> Field:
    if any(r.trial.scenario == "offline" for r in variant.values()):
        after, before = paired_values(baseline, variant, "throughput_sps")
    else:
        before, after = paired_values(baseline, variant, "latency_p50_s")
    if not before:
        return Absent("no replicate number has a latency here and at the baseline")
    return paired_log_ratio(before, after).measured("1")


def pick(found: VariantTable, objective: str = "latency") -> Pick:
    """Return the eligible row that is best on latency, throughput or energy, and why."""
    if objective not in OBJECTIVES:
        known = ", ".join(OBJECTIVES)
        raise UsageError("E-VAR-3", f"no objective is called {objective!r}", evidence=f"known: {known}")
    goal = OBJECTIVES[objective]
    ranked = sorted(
        (r for r in found.rows if not r.rejected and isinstance(getattr(r, goal.column), Measured)),
        key=lambda r: getattr(r, goal.column).value * (-1 if goal.higher_is_better else 1),
    )
    if not ranked:
        return Pick(None, _none(found, goal))
    best = ranked[0]
    ties = [(other, *_against(best, other, goal)) for other in ranked[1:]]
    ties = [t for t in ties if t[2] is not Judgement.FASTER]
    sentences = [_figures(best, found, goal)] + [_tie(*t) for t in ties]
    return Pick(best, " ".join(sentences), tuple(t[0].label for t in ties))


def _against(best: VariantRow, other: VariantRow, goal: Objective) -> tuple[Interval | None, Judgement]:
    values = paired_values(best.replicates, other.replicates, goal.metric)
    return judge_pairs(*values, goal.higher_is_better) if values[0] else (None, Judgement.AMBIGUOUS)


def _figures(best: VariantRow, found: VariantTable, goal: Objective) -> str:
    text = f"{best.label}: {goal.words}, {show(getattr(best, goal.column))}"
    if best.cell != found.baseline and isinstance(best.speedup, Measured):
        text += f", {show(best.speedup)}x the speed of {found.row(found.baseline).label}"
    text += f"; {best.gate.rstrip('.')}." if best.gate else "."
    if best.verdict.trust in (Trust.THROTTLED, Trust.DISTURBED):
        text += f" Measured while {best.verdict.trust.value}: {'; '.join(best.verdict.evidence)}."
    return text


def _tie(other: VariantRow, ratio: Interval | None, judgement: Judgement) -> str:
    figures = f"ratio {show(ratio.measured('1'))} over {ratio.n} pairs" if ratio else "no pairs"
    if judgement is Judgement.SAME:
        return f"SAME as {other.label} ({figures}): either will do."
    return f"Not decided against {other.label} ({figures}): more rounds would tell."


def _none(found: VariantTable, goal: Objective) -> str:
    reasons = "; ".join(f"{r.label}: {r.rejected or _why(getattr(r, goal.column))}" for r in found.rows)
    return f"No variant can be recommended for the {goal.words}. {reasons}."


def _why(value: Field) -> str:
    return value.reason if isinstance(value, Absent) else ""


SCALES: Mapping[str, tuple[float, str]] = {
    "s": (1e3, " ms"),
    "samples/s": (1.0, " samples/s"),
    "J": (1e3, " mJ"),
    "1": (1.0, ""),
}


def show(value: Field) -> str:
    """Return `2.41 ms [2.40, 2.42]` for the sentence, with the interval where there is one."""
    if isinstance(value, Absent):
        return value.reason
    scale, unit = SCALES.get(value.unit, (1.0, f" {value.unit}"))
    text = f"{value.value * scale:.4g}{unit}"
    if value.lo is None or value.hi is None:
        return text
    return f"{text} [{value.lo * scale:.4g}, {value.hi * scale:.4g}]"
