"""Which engine, precision, batch and number of processes to use: `edgescope.recommend("resnet50", search=True)`.

Each model, and each rate or other load, is a question of its own; several models that are named compete in one. A key
that was given holds for stored cells as for those to be measured; one that was not leaves stored cells free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from edgescope import bench
from edgescope.analysis.cells import machines
from edgescope.analysis.cells.choices import Load, asks_tails, belongs, load
from edgescope.analysis.cells.compare import by_cell
from edgescope.analysis.cells.objective import Wanted, wanted
from edgescope.analysis.cells.percentiles import lacks_rows
from edgescope.analysis.cells.question import of_harness
from edgescope.analysis.cells.recommend import Recommendation
from edgescope.analysis.cells.recommend import recommend as best
from edgescope.analysis.cells.variants import variant
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.records import TABLES, Answer, Json, Result, Trial
from edgescope.runner.setup import Setup, Stored, check_modes, store_of
from edgescope.search import candidates
from edgescope.search.explore import Budget, explore
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.study.grid import Study
from edgescope.verbs.optimize import WINDOW, row_line, row_of

#: Keys that say which cells are meant -> what a search takes where they are not given.
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
"""Keys of which a trial must have what was given, whatever else it has."""
#: Further processes of a search's pick.
CONFIRMED = 3


class Recommendations(Answer, tuple[Recommendation, ...]):
    """One answer a question."""

    __slots__ = ()

    def lines(self) -> Iterator[str]:
        """Yield each question's pick and the cells that were weighed."""
        for answer in self:
            yield f"{', '.join(answer.models)}: {answer.pick.label if answer.pick else 'no pick'}"
            yield from (f"  {reason}" for reason in answer.reasons)
            yield from (f"  {row_line(row)}" for row in answer.choices)

    def records(self) -> list[dict[str, Json]]:
        """Return a row a cell, best first."""
        return [row_of(row) | {"pick": row is answer.pick} for answer in self for row in answer.choices]


@dataclass(frozen=True)
class Question:
    """Models that compete under one load, and the stored results of their cells."""

    models: tuple[str, ...]
    load: Load | None
    """None where the keys alone say what a search offers."""
    stored: tuple[Result, ...]


def recommend(
    *models: str,
    objective: str = "",
    constraints: Sequence[str] = (),
    study: Study | Path | str | None = None,
    search: bool = False,
    budget: str | int = "10%",
    confirm: int | None = None,
    machine: str = "",
    store: Stored = None,
    setup: Setup = Setup(),
    **keys: Any,
) -> Recommendations:
    """Return the best of the stored cells that keeps every constraint, for each question that they answer.

    Where none is stored, or with `search`, a model-based search measures some cells (`budget`: a number, or a share)
    of the grid that `study` or the keys of a Trial describe, and confirms its pick in `confirm` further processes.
    """
    if isinstance(study, Path | str):
        study = grid.read(Path(study), zoo.pin)
        for note in study.notes:
            setup.tell(note)
    written = (study.objective, study.constraints) if study else ("", ())
    asked = wanted(objective or written[0] or "throughput", constraints or written[1])
    place = store_of(study.store if study and store is None else store)
    asking = Asking(keys, study, search, machine, place)
    answers = []
    for question in asking.questions(models):
        stored = list(question.stored)
        if stored and not search and not confirm:
            answers.append(best(_whole(stored, asked, asking.store, setup), asked))
            continue
        again = CONFIRMED if confirm is None else confirm
        measure = search or not stored
        trials = asking.grid(question) if measure else tuple(r.trial for r in stored)
        count = _budget(str(budget), len(trials)) if measure else 0
        spend = Budget(count, again, int(keys.get("seed", 0)))
        answers.append(best(_explored(trials, asked, spend, asking, setup), asked, least=again + 1))
    return Recommendations(answers)


class Asking:
    """What is asked: keys of Trials, a study or none, and the store and machine whose cells are meant."""

    def __init__(
        self, keys: Mapping[str, Any], study: Study | None, search: bool, machine: str, store: Store
    ) -> None:
        self.given, self.study, self.search = keys, study, search
        self.machine, self.store = machine, store
        self.keys = grid.settled({**{name: {} for name in CONTENT}, **AXES, **keys})

    def questions(self, models: Sequence[str]) -> list[Question]:
        """Return a question a model and load, or a load where models are named; one without models for nothing."""
        found = [r for r in self._of_machine() if self._fits(r.trial)]
        named = tuple(zoo.pin(name) for name in models)
        if self.search and self.study is None:  # the keys say the load
            every = () if named else dict.fromkeys(r.trial.model for r in found)
            return [Question((name,), None, ()) for name in every] or [Question(named, None, ())]
        meant = [r.trial for r in found]
        if self.study is not None:
            meant = [t for t in self.study.trials if self._fits(t)]
        meant = [t for t in meant if t.model in named or not named]
        if (
            not named and self.study is None
        ):  # the harness is asked about by name, or where there is nothing else
            meant = [t for t in meant if not of_harness(t)] or meant
        known = dict.fromkeys((named or (t.model,), load(t)) for t in meant)
        return [
            Question(m, to, tuple(r for r in found if r.trial.model in m and belongs(r.trial, to)))
            for m, to in known
        ] or [Question(named, None, ())]

    def _of_machine(self) -> list[Result]:
        """Return the stored results, of one machine where one is named; UsageError where it is not known."""
        found, chosen = list(self.store.results()), self.machine
        if not chosen:
            return found
        mine = bench.here().id
        chosen = mine if chosen == machines.HERE else chosen
        known = any(r.machine.id.startswith(chosen) for r in found)
        if not known and (not found or mine.startswith(chosen)):
            return []  # nothing is stored of this machine yet; a search refuses another
        return machines.one(found, chosen)

    def _fits(self, trial: Trial) -> bool:
        """Return whether a trial is of the study and has what was given; without a load it is one query at a time."""
        names = AXES.keys() & self.given.keys()
        names |= {"workload", "scenario", "colocated"} if self.study is None else set()
        return (
            all(getattr(trial, n) in _values(self.keys.get(n, getattr(Trial, n))) for n in names)
            and all(self.keys[table].items() <= getattr(trial, table).items() for table in CONTENT)
            and (self.study is None or variant(trial) in self._inside)
        )

    @cached_property
    def _inside(self) -> set[str]:
        return {variant(t) for t in self.study.trials} if self.study else set()

    def grid(self, question: Question) -> tuple[Trial, ...]:
        """Return the cells to search: of the study, else the product of the keys."""
        if self.study is not None:
            found = (t for t in self.study.trials if t.model in question.models and self._fits(t))
            trials = tuple(t for t in found if question.load in (None, load(t)))
            if not trials:
                raise UsageError("E-PICK-5", "the study has no cell that the flags and models name")
            return trials
        if not question.models:
            raise UsageError(
                "E-PICK-2",
                "the store holds no result to choose among, and no model is named to search for",
                fix="edgescope recommend MODEL, or edgescope sweep first",
            )
        keys = {**WINDOW, **self.keys}
        if keys["backend"]:
            keys["precision"] = keys["precision"] or ["fp32"]
            return grid.grid(keys | {"model": list(question.models)})
        cells: list[Trial] = []
        for model in question.models:
            for t in _proposed(model, keys["device"], keys["precision"]):
                one = {"model": model, "backend": t.backend, "precision": t.precision, "device": t.device}
                cells += grid.grid(keys | one | {"options": {**t.options, **keys["options"]}})
        return tuple({t.id: t for t in cells}.values())


def _values(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def _proposed(model: str, device: str | None, precision: Sequence[str]) -> list[Trial]:
    """Return what is worth trying for one model, without what takes a compiler's time."""
    base = Trial(model=model, device=device or candidates.usual_device(model))
    tried = candidates.propose(base, candidates.installed()).trials
    return [
        t for t in tried if (not precision or t.precision in precision) and not candidates.starts_slowly(t)
    ]


def _whole(stored: list[Result], asked: Wanted, store: Store, setup: Setup) -> list[Result]:
    """Return the results, with their raw rows where a percentile or the bound of a tail needs them."""
    if not asks_tails(asked) and not any(lacks_rows(group) for group in by_cell(stored).values()):
        return stored
    found = store.fulls(stored)
    for problem in store.problems:
        setup.tell(problem)
    return found


def _budget(text: str, cells: int) -> int:
    """Return how many cells may be measured: a number, or a share of the grid and at least 6."""
    number = text.removesuffix("%")
    try:
        count = max(6, round(float(number) / 100 * cells)) if text.endswith("%") else int(number)
    except ValueError:
        count = 0
    if count < 1:
        raise UsageError(
            "E-PICK-4", f"--budget takes a number of cells or a share, not {text!r}", fix="--budget 10%"
        )
    return min(count, cells)


def _explored(
    trials: Sequence[Trial], asked: Wanted, budget: Budget, asking: Asking, setup: Setup
) -> list[Result]:
    check_modes(trials, setup.tell)
    machines.unmixed(trials, asking.store.results(), bench.here(), asking.machine)
    if budget.cells:
        setup.tell(
            f"searching {len(trials)} cells: {budget.cells} of them are measured, beside those that the store holds"
        )
    table = zoo.table()
    known = {name: table.get(name.partition("#")[0], {}).get("macs") for name in {t.model for t in trials}}
    macs = {name: float(n) for name, n in known.items() if n}
    cells = setup.cells(asking.store)
    return list(explore(trials, cells, asked, budget, macs=macs, cores=os.cpu_count() or 1, tell=setup.tell))
