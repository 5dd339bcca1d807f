"""Choose engine, precision, batch and number of processes: `edgescope.recommend("resnet50", search=True)`.

Each model and each load (for example each rate) is a separate question; models named together compete in one. A given
key applies to stored cells and to cells to be measured; a key that is not given does not filter the stored cells.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edgescope import bench, registry
from edgescope.analysis.cells import machines
from edgescope.analysis.cells.compare import by_cell
from edgescope.analysis.cells.objective import Wanted, wanted
from edgescope.analysis.cells.replicates import lacks_rows
from edgescope.analysis.cells.row import of_harness, row_line, row_of
from edgescope.errors import UnsupportedError, UsageError
from edgescope.models import zoo
from edgescope.records import TABLES, Answer, Json, Result, Trial
from edgescope.runner.setup import Setup, Stored, Tell, check_modes, own_results, silent, store_of
from edgescope.search import candidates
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.study.grid import Study
from edgescope.wings.recommend.candidates import Load, asks_tails, load
from edgescope.wings.recommend.explore import Budget, explore
from edgescope.wings.recommend.recommendation import Recommendation
from edgescope.wings.recommend.recommendation import recommend as best
from edgescope.workloads.base import Choosy

#: Keys that select cells -> the values that a search uses if they are not given.
AXES: Mapping[str, Any] = {
    "backend": (),
    "precision": (),
    "batch": [1, 4, 16],
    "device": None,
    "processes": [1, 2, 4],
    "sharing": "time_slicing",
    "colocated": "",
    "mode": "as_is",
    "io": "host",
    "scenario": "single_stream",
    "rate": None,
    "in_flight": 1,
}
CONTENT = (*TABLES, "shapes")
"""Keys whose given entries a trial must have; it may have others."""
#: Further processes that confirm the pick of a search.
CONFIRMED = 3


class Recommendations(Answer, tuple[Recommendation, ...]):
    """One recommendation for each question."""

    __slots__ = ()

    def lines(self) -> Iterator[str]:
        """Yield each question's pick, its reasons and the cells that were compared."""
        for answer in self:
            yield f"{', '.join(answer.models)}: {answer.pick.label if answer.pick else 'no pick'}"
            yield from (f"  {reason}" for reason in answer.reasons)
            yield from (f"  {row_line(row)}" for row in answer.choices)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each cell, best first."""
        return [row_of(row) | {"pick": row is answer.pick} for answer in self for row in answer.choices]


@dataclass(frozen=True)
class Question:
    """Models that compete under one load, and the stored results of their cells."""

    models: tuple[str, ...]
    load: Load | None
    """None if only the keys describe the load of a search."""
    stored: tuple[Result, ...]


def recommend(
    *models: str,
    objective: str = "",
    constraints: Sequence[str] = (),
    study: Study | Path | str | None = None,
    search: bool = False,
    cells: str | int = "10%",
    confirm: int | None = None,
    machine: str = "",
    store: Stored = None,
    setup: Setup = Setup(),
    **keys: Any,
) -> Recommendations:
    """Return, for each question, the best stored cell that keeps every constraint.

    If no cell is stored, or with `search`, a model-based search measures some cells (`cells`: a number or a share)
    of the grid that `study` or the keys of a Trial describe, and confirms its pick in `confirm` further processes.
    """
    if isinstance(study, Path | str):
        study = grid.read(Path(study), zoo.pin)
        for note in study.notes:
            setup.tell(note)
    written = (study.objective, study.constraints) if study else ("", ())
    goals = wanted(objective or written[0] or "throughput", constraints or written[1])
    place = store_of(study.store if study and store is None else store)
    scope = Scope(keys, study, search, machine, place, tell=setup.tell)
    answers = []
    for question in scope.questions(models):
        stored = list(question.stored)
        if stored and not search and not confirm:
            answers.append(best(_whole(stored, goals, scope.store, setup), goals))
            continue
        again = CONFIRMED if confirm is None else confirm
        measure = search or not stored
        trials = scope.grid(question) if measure else tuple(r.trial for r in stored)
        count = _to_measure(str(cells), len(trials)) if measure else 0
        spend = Budget(count, again, int(keys.get("seed", 0)))
        answers.append(best(_explored(trials, goals, spend, scope, setup), goals, least=again + 1))
    return Recommendations(answers)


class Scope:
    """The cells to choose among: the given keys of a Trial, a study or None, and one store and machine."""

    def __init__(
        self,
        keys: Mapping[str, Any],
        study: Study | None,
        search: bool,
        machine: str,
        store: Store,
        *,
        tell: Tell = silent,
    ) -> None:
        self.given, self.study, self.search = keys, study, search
        self.machine, self.store, self.tell = machine, store, tell
        self.keys = grid.settled({**{name: {} for name in CONTENT}, **AXES, **keys})

    def questions(self, models: Sequence[str]) -> list[Question]:
        """Return one question for each model and load, or for each load if `models` names models.

        If there are no cells, the only question has the named models and no load.
        """
        found = [r for r in self.results if self._fits(r.trial)]
        named = tuple(zoo.pin(name) for name in models)
        if self.search and self.study is None:  # the keys describe the load
            every = () if named else dict.fromkeys(r.trial.model for r in found)
            return [Question((name,), None, ()) for name in every] or [Question(named, None, ())]
        trials = [r.trial for r in found]
        if self.study is not None:
            trials = [t for t in self.study.trials if self._fits(t)]
        trials = [t for t in trials if t.model in named or not named]
        if not named and self.study is None:  # skip the harness's own models unless there are no others
            trials = [t for t in trials if not of_harness(t)] or trials
        known = dict.fromkeys((named or (t.model,), load(t)) for t in trials)
        return [
            Question(m, to, tuple(r for r in found if r.trial.model in m and load(r.trial) == to))
            for m, to in known
        ] or [Question(named, None, ())]

    @cached_property
    def results(self) -> list[Result]:
        """Return the stored results to choose among; a search measures here, so it takes no other machine's."""
        whose = self.machine or (machines.HERE if self.search else "")
        return own_results(self.store, whose, self.tell)

    def _fits(self, trial: Trial) -> bool:
        """Return whether a trial belongs to the study and has the given keys.

        Without a study, a key of the load that is not given must have its default: one query at a time.
        """
        names = AXES.keys() & self.given.keys()
        names |= {"workload", "scenario", "colocated"} if self.study is None else set()
        return (
            all(getattr(trial, n) in _values(self.keys.get(n, getattr(Trial, n))) for n in names)
            and all(self.keys[table].items() <= getattr(trial, table).items() for table in CONTENT)
            and (self.study is None or trial.variant in self._inside)
        )

    @cached_property
    def _inside(self) -> set[str]:
        return {t.variant for t in self.study.trials} if self.study else set()

    def grid(self, question: Question) -> tuple[Trial, ...]:
        """Return the cells to search: those of the study, or the product of the keys."""
        if self.study is not None:
            found = (t for t in self.study.trials if t.model in question.models and self._fits(t))
            trials = tuple(t for t in found if question.load in (None, load(t)))
            if not trials:
                raise UsageError("E-PICK-5", "the study has no cell that the flags and models name")
            return able(trials)
        if not question.models:
            raise UsageError(
                "E-PICK-2",
                "the store holds no results to choose from, and no model is named for a search",
                fix="edgescope recommend MODEL, or edgescope sweep first",
            )
        keys = {**candidates.WINDOW, **self.keys}
        if keys["backend"]:
            keys["precision"] = keys["precision"] or ["fp32"]
            return able(grid.grid(keys | {"model": list(question.models)}))
        cells: list[Trial] = []
        for model in question.models:
            for t in _proposed(model, keys["device"], keys["precision"]):
                one = {"model": model, "backend": t.backend, "precision": t.precision, "device": t.device}
                cells += grid.grid(keys | one | {"options": {**t.options, **keys["options"]}})
        return able(tuple({t.id: t for t in cells}.values()))


def able(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials whose workload their engine can do; UnsupportedError, of the first, if there is none."""
    found, refused = [], None
    for trial in trials:
        kind = registry.load(registry.WORKLOADS, trial.workload, "workload")()
        try:
            if isinstance(kind, Choosy):
                kind.check(trial)
        except UnsupportedError as error:
            refused = refused or error
        else:
            found.append(trial)
    if refused is not None and not found:
        raise refused
    return tuple(found)


def _values(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def _proposed(model: str, device: str | None, precision: Sequence[str]) -> list[Trial]:
    """Return the trials worth trying for one model, except those that need long compilation."""
    base = Trial(model=model, device=device or candidates.usual_device(model))
    tried = candidates.propose(base, candidates.installed()).trials
    return [
        t for t in tried if (not precision or t.precision in precision) and not candidates.starts_slowly(t)
    ]


def _whole(stored: list[Result], goals: Wanted, store: Store, setup: Setup) -> list[Result]:
    """Return the results, with their raw rows if a percentile or the bound of a tail needs them."""
    if not asks_tails(goals) and not any(lacks_rows(group) for group in by_cell(stored).values()):
        return stored
    found = store.fulls(stored)
    for problem in store.problems:
        setup.tell(problem)
    return found


def _to_measure(text: str, cells: int) -> int:
    """Return how many cells may be measured: the number, or the share of `cells` but at least 6."""
    number = text.removesuffix("%")
    try:
        count = max(6, round(float(number) / 100 * cells)) if text.endswith("%") else int(number)
    except ValueError:
        count = 0
    if count < 1:
        raise UsageError(
            "E-PICK-4", f"--cells takes a number of cells or a share, not {text!r}", fix="--cells 10%"
        )
    return min(count, cells)


def _explored(
    trials: Sequence[Trial], goals: Wanted, budget: Budget, scope: Scope, setup: Setup
) -> list[Result]:
    check_modes(trials, setup.tell)
    machines.measured_by(bench.here(), scope.machine)
    if budget.cells:
        setup.tell(
            f"searching {len(trials)} cells: measuring {budget.cells} of them, besides those that the store holds"
        )
    table = zoo.table()
    known = {name: table.get(name.partition("#")[0], {}).get("macs") for name in {t.model for t in trials}}
    macs = {name: float(n) for name, n in known.items() if n}
    cells = setup.cells(scope.store)
    return list(explore(trials, cells, goals, budget, macs=macs, cores=os.cpu_count() or 1, tell=setup.tell))
