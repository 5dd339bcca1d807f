"""Explain what limits a stored result, check the remedy, say it: `edgescope.explain("latest", verify=True)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgescope import units
from edgescope.analysis import roofline
from edgescope.analysis.cells import ids
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.finding import CAUSES, CLOSE, Bound, Diagnosis, Finding, Remedy, judged
from edgescope.analysis.kernels.account import account, causes, of_trace
from edgescope.analysis.roofline import Ceilings
from edgescope.command import bench_command
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.records import Absent, Answer, Field, Json, Measured, Result, Trial
from edgescope.records.answers import figure_text, plain
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.runner.run import ExperimentRunner
from edgescope.runner.setup import Setup, Stored, named, store_of
from edgescope.stats.pairs import paired_log_ratio
from edgescope.study import grid
from edgescope.wings.explain import gpu, machine, network, stages, threads
from edgescope.wings.explain.case import FASTER, Case, settings
from edgescope.wings.trace.lends import read

FEW = 10
"""Queries of a window from which a gain is predicted: fewer do not tell how they spread."""
LOOKS = (machine.found, threads.found, stages.found, network.found, gpu.found)


def diagnose(
    result: Result,
    others: Iterable[Result] = (),
    ceilings: Ceilings | None = None,
    traced: Iterable[Finding] = (),
) -> Diagnosis:
    """Return what limits a run, by its own figures, what else the store holds, and what a trace of it shows.

    The cause is `unknown`, with the reason, where they contradict each other or say too little.
    """
    every = list(others)
    case = Case(result, every, ceilings)
    missing = tuple(_missing(case))
    if result.status not in MEASURED:
        return Diagnosis(
            result, (), f"it did not finish: {result.reason or result.status.value}", (), missing
        )
    if case.unit_s is None:
        return Diagnosis(result, (), "no throughput was measured", (), missing)
    own = [_sure(f, result) for look in LOOKS for f in look(case)]
    return judged(result, [*own, *traced], missing)


def _sure(finding: Finding, result: Result) -> Finding:
    """Return the finding, without predicted gains if the window holds too few queries to say how much they vary."""
    window = result.window
    seen = window.stop - window.first if window is not None else FEW
    if seen >= FEW:
        return finding
    few = Absent(
        f"not predicted: {seen} quer{'y' if seen == 1 else 'ies'} in the window, {FEW} needed (--duration)"
    )
    changed = (replace(r, gain=few) if isinstance(r.gain, Measured) else r for r in finding.remedies)
    return replace(finding, remedies=tuple(changed))


def _missing(case: Case) -> Iterator[str]:
    """Yield what would tell more, each with the command that measures it."""
    device = case.trial.device
    if case.ceilings is None and case.made_of == "phases":
        yield f"what this machine can do at most: edgescope doctor --roofline {device}"
    if (
        not case.of("batch")
        and case.made_of == "phases"
        and case.trial.workload == Trial.workload  # whose queries a batch joins
        and not case.open_loop
    ):
        yield f"another batch, which tells calls from arithmetic: --batch {case.trial.batch * 4}"
    if case.made_of == "stages" and case.figure("pipeline_fps") is None:
        yield "what each stage costs the pipeline: --workload-option what_if=true"


# -- what the remedy did -------------------------------------------------------------------------------------


SLACK = FASTER - 1
"""A bound holds if the gain is not beyond it by more than this share: less counts as no change at all."""


@dataclass(frozen=True)
class Check:
    """A remedy that was run, its predicted gain, and the gain that was measured."""

    remedy: Remedy | None
    predicted: Field
    realised: Field
    """Throughput with the remedy over that without it; pairs of fresh processes, 95 % interval."""

    @property
    def holds(self) -> bool | None:
        """Return whether the gain is close to the prediction, or keeps its bound; None if either is not known."""
        if not isinstance(self.predicted, Measured) or not isinstance(self.realised, Measured):
            return None
        share = self.predicted.value / self.realised.value
        bound = self.remedy.bound if self.remedy is not None else Bound.NONE
        if bound is Bound.LEAST:
            return share <= 1 + SLACK
        if bound is Bound.MOST:
            return share >= 1 / (1 + SLACK)
        return abs(share - 1) <= CLOSE

    @property
    def words(self) -> str:
        """Return the gain beside its prediction in one sentence."""
        if isinstance(self.realised, Absent):
            return f"nothing was checked: {self.realised.reason}"
        text = f"the gain is {units.ratio(self.realised)}"
        if isinstance(self.predicted, Absent) or self.remedy is None:
            return f"{text}; none was predicted"
        verdict = "as predicted" if self.holds else "not as predicted"
        return f"{text}, {verdict} ({self.remedy.promise})"


def checked(remedy: Remedy, pairs: Sequence[tuple[Result, Result]]) -> Check:
    """Return the gain of a remedy over (without, with) pairs of runs; absent if a run failed."""
    for pair in pairs:
        for result in pair:
            if result.status not in MEASURED:
                why = f"{result.trial.label} ended with {result.status.value}: {result.reason}"
                return Check(remedy, remedy.gain, Absent(why))
    before, after = ([_rate(pair[side]) for pair in pairs] for side in (0, 1))
    if not pairs or min(*before, *after) <= 0:
        return Check(remedy, remedy.gain, Absent("a run has no throughput"))
    return Check(remedy, remedy.gain, paired_log_ratio(after, before).measured("ratio"))


def _rate(result: Result) -> float:
    """Return the samples per second of a run; 0 if it has none."""
    found = result.metrics.get("throughput_sps")
    return found.value if isinstance(found, Measured) else 0.0


# -- the answer ----------------------------------------------------------------------------------------------


ROUNDS = 3
"""Pairs of fresh processes, one with the remedy and one without, that check a prediction."""


@dataclass(frozen=True, repr=False)
class Explained(Answer):
    """What limits each result, and the check of its remedy if it was asked for."""

    diagnoses: tuple[Diagnosis, ...]
    checks: tuple[Check | None, ...]

    def lines(self) -> Iterator[str]:
        """Yield each result's cause, its evidence and its remedies."""
        for diagnosis, check in zip(self.diagnoses, self.checks, strict=True):
            yield f"{diagnosis.label}: {diagnosis.cause}"
            if not diagnosis.findings:
                yield f"  {diagnosis.reason}"
                continue
            first = diagnosis.findings[0]
            yield f"  {first.extent}, {first.confidence.value}"
            yield from (f"  {e.text} ({e.source})" for e in first.evidence)
            for r in first.remedies:
                yield f"  try: {r.words}; {figure_text(f'gain {r.bound.value}'.strip(), r.gain)}"
            if check is not None:
                yield f"  checked: {check.words}"

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each finding of each result."""
        return [
            {"result": d.result.id if d.result else d.trace, "rank": rank}
            | {
                "cause": f.cause,
                "part": f.part,
                "share": None if f.guessed else f.share,
                "confidence": f.confidence.value,
            }
            | {"remedy": f.remedies[0].words if f.remedies else None}
            | {"predicted_gain": plain(f.remedies[0].gain) if f.remedies else None}
            | {"bound": f.remedies[0].bound.value if f.remedies else ""}
            for d in self.diagnoses
            for rank, f in enumerate(d.findings, 1)
        ]


def explain(
    *results: str | Result,
    verify: bool = False,
    remedy: int = 1,
    trace: Path | str | None = None,
    machine: str = "",
    store: Stored = None,
    setup: Setup = Setup(),
) -> Explained:
    """Return what limits each result, with the evidence, the remedies, and what each should gain.

    A result is named as in `edgescope list`, or `latest` of `machine` (this one). Other results of
    the store that differ in one setting are
    taken as experiments. `trace` is a profiler's file of the same work (`edgescope.trace`); without a result, it is
    explained alone. `verify` runs the first cause's remedy (or its `remedy`-th) in turns with the result's own
    trial and compares the gain with the prediction.
    """
    place = store_of(store)
    found = [
        place.full(named(place, r, ids.one, machine, setup.tell)) if isinstance(r, str) else r
        for r in results
    ]
    listed = list(place.results())
    if not found and trace is None:
        raise UsageError("E-EXPLAIN-1", "no result was named", fix="edgescope explain latest")
    seen = account(read(trace)) if trace is not None else None
    traced = tuple(causes(seen)) if seen is not None else ()
    diagnoses = tuple(diagnose(r, listed, roofline.stored(place.root, r), traced) for r in found)
    if seen is not None and not found:
        diagnoses = (of_trace(seen, Path(trace or "").name),)
    cells = setup.cells(place) if verify else None
    checks = tuple(_check(d, remedy, cells, setup) if cells else None for d in diagnoses)
    return Explained(diagnoses, checks)


def _check(diagnosis: Diagnosis, number: int, cells: ExperimentRunner, setup: Setup) -> Check:
    """Run the trial and its remedy in turns, in fresh processes, and return the gain beside its prediction."""
    finding = diagnosis.findings[0] if diagnosis.findings else None
    remedies = [r for r in finding.remedies if r.change] if finding else []
    if finding is None or diagnosis.result is None or not 1 <= number <= len(remedies):
        why = _unchecked(number, len(remedies)) if finding is not None else "the cause is unknown"
        return Check(None, Absent("not predicted"), Absent(why))
    chosen = remedies[number - 1]
    before = diagnosis.result.trial
    after = grid.pinned(changed(before, chosen), zoo.pin)
    return checked(chosen, list(_pairs(before, after, cells, setup)))


def _unchecked(number: int, remedies: int) -> str:
    if not remedies:
        return "no flag does what would help"
    return f"there is no remedy {number} that flags can do, only 1 to {remedies}"


def changed(trial: Trial, remedy: Remedy) -> Trial:
    """Return the trial with a remedy's changes."""
    return Trial.from_json({**trial.to_json(), **remedy.change})


def _pairs(
    before: Trial, after: Trial, cells: ExperimentRunner, setup: Setup
) -> Iterator[tuple[Result, Result]]:
    """Yield pairs of fresh, stored runs; each pair begins with the side that the one before it ended with."""
    used = [r.trial.replicate for r in cells.store.results() if r.trial.cell in (before.cell, after.cell)]
    first = max(used, default=-1) + 1
    for number in range(ROUNDS):
        done: dict[str, Result] = {}
        for trial in (before, after) if number % 2 == 0 else (after, before):
            setup.tell(f"checking the remedy, pair {number + 1} of {ROUNDS}: {trial.label}")
            done[trial.id] = cells.run(replace(trial, replicate=first + number))
        yield done[before.id], done[after.id]


def document(
    diagnoses: Sequence[Diagnosis], checks: Sequence[Check | None], *, command: str = ""
) -> doc.Document:
    """Return the document about one or more results."""
    parts: list[doc.Part | None] = []
    for diagnosis, check in zip(diagnoses, checks, strict=True):
        mine = tuple(_parts(diagnosis, check))
        parts += mine if len(diagnoses) == 1 else [doc.Section(diagnosis.label, mine)]
    data = [_data(d, c) for d, c in zip(diagnoses, checks, strict=True)]
    title = f"Explanation of {diagnoses[0].label}" if len(diagnoses) == 1 else "Explanations"
    return doc.Document(title, tuple(parts), {"results": data}, command)


def _parts(diagnosis: Diagnosis, check: Check | None) -> Iterator[doc.Part | None]:
    if diagnosis.result is not None:
        of = diagnosis.result.trial
        yield doc.Text(
            f"{of.model.partition('#')[0]}, {of.label}, result {diagnosis.result.id}", "lead", doc.MAIN
        )
    yield _answer(diagnosis)
    if diagnosis.findings:
        first = diagnosis.findings[0]
        yield doc.Items(tuple(_evidence(first)), kind="plain")
        yield _in_words(first)
        yield _remedies(first)
        yield doc.Code(_applied(diagnosis), level=doc.MAIN) if _applied(diagnosis) else None
    if check is not None:
        kind = "" if check.holds else "warn"
        yield doc.Text(doc.Mark(f"Checked: {check.words}.", kind))
    if diagnosis.findings[1:]:
        yield doc.Section("Next", (_table(diagnosis.findings[1:]),), level=doc.MAIN)
    if diagnosis.ruled_out:
        yield doc.Section("Looked at and left out", (_table(diagnosis.ruled_out),), level=doc.DETAIL)
    if diagnosis.missing:
        level = doc.DETAIL if diagnosis.findings else doc.MAIN
        yield doc.Items(tuple(diagnosis.missing), "Would tell more", level=level)


def _answer(diagnosis: Diagnosis) -> doc.Answer:
    if not diagnosis.findings:
        return doc.Answer(
            "Unknown", "", (diagnosis.reason,), f"The cause is unknown: {diagnosis.reason}.", kind="none"
        )
    first = diagnosis.findings[0]
    means = CAUSES[first.cause]
    short = (means, f"{first.extent}, {first.confidence.value}")
    reason = f"{first.name}: {means}. It explains {first.extent} ({first.confidence.value})."
    return doc.Answer("Cause", first.name, short, reason)


def _evidence(finding: Finding) -> Iterator[doc.Value]:
    for e in finding.evidence:
        text = f"{'Against: ' if e.against else ''}{e.text}"
        yield doc.Mark(f"{text} [{e.source}]" if e.source else text, "warn" if e.against else "")


def _in_words(finding: Finding) -> doc.Items | None:
    """Return the remedies whole, for a terminal, whose tables cut what is long."""
    said = (f"{r.words}: {_gain(r)}" for r in finding.remedies)
    return doc.Items(tuple(said), "Remedies", level=doc.BRIEF) if finding.remedies else None


def _gain(remedy: Remedy) -> str:
    how = f" ({remedy.basis})" if remedy.basis else ""
    return _why(remedy) or f"{remedy.promise}{how}"


def _remedies(finding: Finding) -> doc.Table | None:
    if not finding.remedies:
        return None
    heads = (
        doc.Column("Remedy", head="remedy"),
        doc.Column("Predicted gain", "ratio", head="gain"),
        doc.Column("How it was computed", head="computed from", rank=1),
    )
    rows = tuple(
        doc.Row((r.words, r.promise if r.bound.value else r.gain, r.basis or _why(r)))
        for r in finding.remedies
    )
    return doc.Table(heads, rows, reasons=True, level=doc.DETAIL)


def _why(remedy: Remedy) -> str:
    return remedy.gain.reason if isinstance(remedy.gain, Absent) else ""


def _applied(diagnosis: Diagnosis) -> str:
    """Return the command that measures the first remedy that flags can do, or ''."""
    if diagnosis.result is None:
        return ""
    trial = diagnosis.result.trial
    for remedy in diagnosis.findings[0].remedies:
        if remedy.change:
            return bench_command(Trial.from_json({**trial.to_json(), **remedy.change, "replicate": 0}))
    return ""


def _table(findings: Sequence[Finding]) -> doc.Table:
    heads = (
        doc.Column("Cause", head="cause"),
        doc.Column("Of the time", "share", head="of the time"),
        doc.Column("Confidence", head="confidence"),
        doc.Column("Evidence", head="evidence", rank=1),
    )
    rows = tuple(
        doc.Row((f.name, _share(f), f.confidence.value, f.evidence[0].text if f.evidence else ""))
        for f in findings
    )
    return doc.Table(heads, rows)


def _share(finding: Finding) -> Field:
    return Absent("nothing measures it") if finding.guessed else Measured(finding.share, "share")


def _data(diagnosis: Diagnosis, check: Check | None) -> dict[str, Json]:
    return {
        "result": diagnosis.result.id if diagnosis.result else None,
        "trial": settings(diagnosis.result.trial) if diagnosis.result else None,
        "trace": diagnosis.trace,
        "cause": diagnosis.cause,
        "reason": diagnosis.reason,
        "findings": [to_plain(f) for f in diagnosis.findings],
        "ruled_out": [to_plain(f) for f in diagnosis.ruled_out],
        "missing": list(diagnosis.missing),
        "check": None if check is None else {**to_plain(check), "holds": check.holds},
    }
