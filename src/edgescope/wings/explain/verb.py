"""Explain what limits a stored result, and check the remedy: `edgescope.explain("latest", verify=True)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from edgescope.analysis import roofline
from edgescope.analysis.cells import ids
from edgescope.analysis.finding import Diagnosis, Remedy
from edgescope.analysis.kernels.account import account
from edgescope.analysis.kernels.findings import found as findings_of
from edgescope.analysis.kernels.findings import of_trace
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.records import Absent, Answer, Json, Result, Trial
from edgescope.records.answers import figure_text, plain
from edgescope.runner.own_results import named
from edgescope.runner.run import Cells
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.study import grid
from edgescope.tracing.read import read
from edgescope.wings.explain.diagnose import diagnose
from edgescope.wings.explain.verification import Check, checked

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
    traced = tuple(findings_of(seen)) if seen is not None else ()
    diagnoses = tuple(diagnose(r, listed, roofline.stored(place.root, r), traced) for r in found)
    if seen is not None and not found:
        diagnoses = (of_trace(seen, Path(trace or "").name),)
    cells = setup.cells(place) if verify else None
    checks = tuple(_check(d, remedy, cells, setup) if cells else None for d in diagnoses)
    return Explained(diagnoses, checks)


def _check(diagnosis: Diagnosis, number: int, cells: Cells, setup: Setup) -> Check:
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


def _pairs(before: Trial, after: Trial, cells: Cells, setup: Setup) -> Iterator[tuple[Result, Result]]:
    """Yield pairs of fresh, stored runs; each pair begins with the side that the one before it ended with."""
    used = [r.trial.replicate for r in cells.store.results() if r.trial.cell in (before.cell, after.cell)]
    first = max(used, default=-1) + 1
    for number in range(ROUNDS):
        done: dict[str, Result] = {}
        for trial in (before, after) if number % 2 == 0 else (after, before):
            setup.tell(f"checking the remedy, pair {number + 1} of {ROUNDS}: {trial.label}")
            done[trial.id] = cells.run(replace(trial, replicate=first + number))
        yield done[before.id], done[after.id]
