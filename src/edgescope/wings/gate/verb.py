"""Judge a change against a baseline: `edgescope.gate(candidate, baseline, limits=["latency=5%"])`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from edgescope import metrics, units
from edgescope.analysis.cells import alternation, compare, variants
from edgescope.analysis.cells.objective import Constraint
from edgescope.analysis.cells.objective import parse as bounded
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.errors import UsageError
from edgescope.records import Field, Json, Measured, Result, Status, Trial
from edgescope.records.answers import Answer, figure_text, plain
from edgescope.runner.run import ExperimentRunner
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.verbs.compare import Named, named_results
from edgescope.wings.gate.judging import Check, Verdict, bounds, losses, outputs, together
from edgescope.wings.gate.limits import Limit, parse

USUAL = ("latency=5%",)
BUDGET_S = 180.0
TURN_S, WINDOW_S = 0.05, 0.7
"""How long a turn is, and how much of each side a pair measures, unless its trial says it, in seconds."""
LEAST_S = 60.0
"""Seconds that one pair may take, whatever is left of the budget: without any there is no verdict at all."""
LOOKS = (4, 8, 16, 32, 64)
"""After how many pairs the limits are judged: each look spends half of the error that is left."""
MUST_AGREE = ("device", "mode", "scenario", "rate", "workload", "batch", "processes", "in_flight", "io")
"""Settings whose difference makes a loss that no change of the model or the engine made."""


@dataclass(frozen=True, repr=False)
class Gate(Answer):
    """The verdict on a candidate, one Check for each limit, and what it was measured with."""

    candidate: str
    baseline: str
    """'' where only constraints were asked."""
    checks: tuple[Check, ...]
    pairs: int = 0
    """Pairs in turns that the verdict rests on; 0 for stored results that took none."""
    seconds: float = 0.0
    """What the measuring took."""
    differences: tuple[compare.Difference, ...] = ()
    warnings: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()
    """What was measured for it; empty where it was stored."""

    @property
    def verdict(self) -> Verdict:
        """The verdict over all checks."""
        return together(self.checks)

    def lines(self) -> Iterator[str]:
        """Yield the verdict and one line for each check."""
        against = f" against {self.baseline}" if self.baseline else ""
        yield f"{self.verdict.value}: {self.candidate}{against}"
        for check in self.checks:
            ratio = f" {figure_text('ratio', check.ratio)}" if isinstance(check.ratio, Measured) else ""
            yield f"  {check.verdict.value} {check.limit}{ratio}: {check.why}"

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each check."""
        return [
            {
                "limit": check.limit,
                "verdict": check.verdict.value,
                "baseline": plain(check.baseline) if check.baseline else None,
                "candidate": plain(check.candidate) if check.candidate else None,
                "ratio": plain(check.ratio) if check.ratio else None,
                "why": check.why,
            }
            for check in self.checks
        ]


@dataclass(frozen=True)
class Question:
    """What is asked of the candidate."""

    limits: tuple[Limit, ...]
    constraints: tuple[Constraint, ...]

    def measured(self, trial: Trial) -> Trial:
        """Return the trial as its pairs run: in turns, but for memory, power and energy, which need a process alone."""
        asked: tuple[Limit | Constraint, ...] = (*self.limits, *self.constraints)
        figures = [each.metric for each in asked if each.metric.of]
        if any(m.unit == "bytes" or metrics.scoped(m.of[0]) for m in figures):
            return trial
        if (trial.min_s, trial.max_s) != (Trial.min_s, Trial.max_s):
            return replace(trial, idle_s=0.0, turn_s=TURN_S)
        return replace(trial, idle_s=0.0, turn_s=TURN_S, min_s=WINDOW_S, max_s=WINDOW_S)

    def checks(self, old: Sequence[Result], new: Sequence[Result], look: int = 0) -> tuple[Check, ...]:
        """Return the checks; `look` counts from 1 the times that these runs are judged, 0 if only once."""
        return (
            outputs(new),
            *losses(self.limits, old, new, look),
            *bounds(self.constraints, _figures(new)),
        )


def gate(
    candidate: Named | Trial,
    baseline: Named | Trial | None = None,
    *,
    limits: Sequence[str] = (),
    constraints: Sequence[str] = (),
    budget: float | str = BUDGET_S,
    store: Stored = None,
    other_store: Stored = None,
    machine: str = "",
    setup: Setup = Setup(),
) -> Gate:
    """Return PASS, FAIL or INCONCLUSIVE on what a candidate may lose against a baseline.

    Two Trials are measured here in turns until every limit is decided or `budget` (seconds, or "3min") is spent. Names
    of stored results (`edgescope list`), results, or the replicates of a cell are judged as they are; `other_store`
    holds the baseline if `store` does not. `limits` are losses (`latency=5%`, the default with a baseline),
    `constraints` bounds of the candidate's own figures (`p99<=33ms`). UsageError where the two cannot be compared.
    """
    usual = USUAL if baseline is not None else ()
    asked = Question(tuple(map(parse, limits or usual)), tuple(map(bounded, constraints)))
    _check(asked, candidate, baseline)
    if isinstance(candidate, Trial):
        cells = setup.cells(store_of(store))
        if not isinstance(baseline, Trial):
            result = cells.run(candidate)
            return replace(_alone([result], asked), results=(result,))
        seconds = units.seconds(budget) if isinstance(budget, str) else budget
        return InTurns((asked.measured(baseline), asked.measured(candidate)), cells, seconds).judged(asked)
    new = named_results(candidate, store, machine, setup.tell)
    if baseline is None or isinstance(baseline, Trial):
        return _alone(new, asked)
    old = named_results(baseline, store if other_store is None else other_store, machine, setup.tell)
    return _against(old, new, asked.checks(old, new))


def _check(asked: Question, candidate: Named | Trial, baseline: Named | Trial | None) -> None:
    """Raise UsageError for what cannot be judged, before anything is measured."""
    nothing, alone = "Nothing was measured", '--baseline NAME, or --constraint "p99<=33ms"'
    if not asked.limits and not asked.constraints:
        raise UsageError("E-JUDGE-3", "nothing was asked of the candidate", effect=nothing, fix=alone)
    if asked.limits and baseline is None:
        told = ", ".join(limit.text for limit in asked.limits)
        text = "a limit is a loss against a baseline, and there is none"
        raise UsageError("E-JUDGE-5", text, evidence=told, effect=nothing, fix=alone)
    if baseline is not None and isinstance(candidate, Trial) != isinstance(baseline, Trial):
        raise UsageError(
            "E-JUDGE-4",
            "one side is to be measured, the other is stored",
            effect=nothing,
            fix="name two models, or two results of edgescope list",
        )
    if isinstance(candidate, Trial) and isinstance(baseline, Trial):
        if candidate.id == baseline.id:
            text, fix = "both sides are the same trial", "name two different models"
            raise UsageError("E-JUDGE-6", text, evidence=candidate.model, effect=nothing, fix=fix)
        if unlike := list(_unlike(baseline, candidate)):
            raise _apart(unlike)


def _alone(runs: Sequence[Result], asked: Question) -> Gate:
    return Gate(_name(runs[0].trial), "", asked.checks((), runs))


def _figures(runs: Sequence[Result]) -> Mapping[str, Field]:
    """Return the figures of one cell as constraints name them."""
    return variants.table(runs).rows[0].metrics if any(r.status in MEASURED for r in runs) else {}


def _against(old: Sequence[Result], new: Sequence[Result], checks: tuple[Check, ...]) -> Gate:
    """Return the verdict on two sides; UsageError where one says nothing about the other."""
    _refuse(old, new)
    pairs = len(alternation.pairs(new, old))
    apart = () if pairs else ("the two took no turns: a change of the machine between them counts, too",)
    names = _name(new[0].trial), _name(old[0].trial)
    return Gate(*names, checks, pairs, differences=compare.differences(old, new), warnings=apart)


class InTurns:
    """Two trials that take turns until all is decided, or the time is spent."""

    def __init__(
        self,
        trials: tuple[Trial, Trial],
        cells: ExperimentRunner,
        budget_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`trials`: the baseline's and the candidate's."""
        self.trials, self.cells, self.budget_s, self.clock = trials, cells, budget_s, clock
        self.begun, self.old, self.new = clock(), list[Result](), list[Result]()

    def judged(self, asked: Question) -> Gate:
        """Measure and judge."""
        checks: tuple[Check, ...] = ()
        for look, pairs in enumerate(LOOKS, 1):
            more = self._until(pairs)
            if not self.old:
                raise self._nothing()
            checks = asked.checks(self.old, self.new, look)
            if not more or together(checks) is not Verdict.INCONCLUSIVE:
                break
        found = _against(self.old, self.new, checks)
        return replace(found, seconds=self._spent(), results=(*self.old, *self.new))

    def _nothing(self) -> UsageError:
        return UsageError(
            "E-JUDGE-8",
            "no pair of runs ended in time",
            evidence=f"{units.lasting(self.budget_s)} were allowed",
            effect="Nothing was judged",
            fix="--budget 10min",
        )

    def _spent(self) -> float:
        return self.clock() - self.begun

    def _until(self, pairs: int) -> bool:
        """Add pairs until there are so many; return whether more may follow: there is time, and both sides ran."""
        while (number := len(self.old)) < pairs:
            left = self.budget_s - self._spent()
            if number and left < self._spent() / number:
                return False
            base, ours = (replace(trial, replicate=number) for trial in self.trials)
            ends = self.cells.run_pair(base, ours, alternation.CONFIRMING, max(left, LEAST_S))
            if all(end.status is Status.CANCELLED for end in ends):
                return False
            self.old.append(ends[0])
            self.new.append(ends[1])
            if any(end.status not in MEASURED for end in ends):
                return False
        return True


def _refuse(old: Sequence[Result], new: Sequence[Result]) -> None:
    """Raise UsageError where the baseline says nothing about the candidate."""
    bad = next((r for r in old if r.status not in MEASURED), None)
    if bad is None:
        bad = next((r for r in old if r.verification is not None and not r.verification.passed), None)
    if bad is not None:
        raise UsageError(
            "E-JUDGE-2",
            "the baseline failed itself",
            evidence=f"{bad.id}: {bad.status.value}" + (f", {bad.reason}" if bad.reason else ""),
            effect="Nothing is judged against it",
            fix="name a baseline that is ok in edgescope list",
        )
    blockers = [*compare.compare(old, new).blockers, *_unlike(old[0].trial, new[0].trial)]
    if blockers:
        raise _apart(blockers)


def _unlike(a: Trial, b: Trial) -> Iterator[str]:
    """Yield which settings differ whose difference would be the loss."""
    for name in MUST_AGREE:
        old, new = getattr(a, name), getattr(b, name)
        if old != new:
            yield f"{name} differs: {old} against {new}"


def _apart(blockers: Sequence[str]) -> UsageError:
    return UsageError(
        "E-JUDGE-7",
        "the two sides cannot be judged against each other",
        evidence="; ".join(dict.fromkeys(blockers)),
        effect="A loss would be that of the setting",
        fix="measure both sides on this machine with the same settings",
    )


def _name(trial: Trial) -> str:
    return f"{trial.model.partition('#')[0]} {trial.label}"
