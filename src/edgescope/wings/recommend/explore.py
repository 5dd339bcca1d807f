"""Measure the cells that the search suggests, and confirm the pick in fresh processes.

The search first learns the stored results of the grid's cells. Then it spends the budget on cells that were not
measured, a fresh process per cell; a failed cell is learned too and costs no budget. The store remembers which results
it held when the search began (search/loop.py), so the same command goes on where it was interrupted, and ends.
The cell that the search would pick runs again in further processes, in turns with the runner-up where the two can be
alive together (bench/alternation.py). It must still keep every constraint, with bounds that include the spread between
processes, and its mean must still be the best; otherwise the next cell is confirmed. Which of two cells that took turns
is the better one, their ratio says (wings/recommend/recommendation.py). The runs go to the store like those of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any

from edgescope.analysis.cells.alternation import CONFIRMING, OF_SPEED
from edgescope.analysis.cells.concurrency import reused
from edgescope.analysis.cells.objective import Wanted
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.cells.row import Row
from edgescope.errors import EdgescopeError, StoreError
from edgescope.records import Absent, Measured, Result, Status, Trial
from edgescope.runner.run import ExperimentRunner
from edgescope.search.loop import Loop, Step, Strategy, Tell, known
from edgescope.wings.recommend.bayes import Search
from edgescope.wings.recommend.candidates import choices

#: Statuses that describe the machine's state and say nothing about the cell's neighbours.
UNRELATED = frozenset({Status.UNSTABLE, Status.CANCELLED, Status.SKIPPED})
#: A search ends once as many cells have failed as its budget holds, and at least this many.
FAILED_AT_LEAST = 6
#: How many cells may be confirmed before the search answers with the best it has.
CONFIRMED_AT_MOST = 3
#: Seconds of a turn, of a pick that is confirmed in turns with the runner-up.
TURN_S = 0.1


@dataclass(frozen=True)
class Budget:
    """How many cells may be measured beyond the stored ones, and how many further processes confirm the pick."""

    cells: int
    confirm: int = 3
    seed: int = 0


def explore(
    trials: Sequence[Trial],
    cells: ExperimentRunner,
    wanted: Wanted,
    budget: Budget,
    *,
    macs: Mapping[str, float] | None = None,
    cores: int = 1,
    tell: Tell = lambda step: None,
) -> Iterator[Result]:
    """Yield each Result, stored ones first; EdgescopeError if the objective cannot be measured here."""
    exploration = _Exploration(trials, cells, wanted, budget, macs=macs or {}, cores=cores)
    yield from exploration.stored()
    yield from Loop(cells, tell).run(exploration.run())


class _Exploration:
    """One search: the grid, its known results and the budget."""

    def __init__(
        self,
        trials: Sequence[Trial],
        cells: ExperimentRunner,
        wanted: Wanted,
        budget: Budget,
        **about: Any,
    ) -> None:
        first = {t.variant: replace(t, replicate=0) for t in reversed(trials)}
        self.trials = [first[v] for v in dict.fromkeys(t.variant for t in trials)]
        self.at = {t.variant: i for i, t in enumerate(self.trials)}
        self.cells, self.wanted, self.budget = cells, wanted, budget
        self.search = Search(self.trials, wanted, seed=budget.seed, **about)
        self.results: list[Result] = []

    def run(self) -> Strategy:
        """Search, then confirm."""
        if self.budget.cells:
            yield from self._searched()
        yield from self._confirmed()

    def _searched(self) -> Strategy:
        """Measure suggested cells until the budget is spent, no cell is left or too many failed."""
        held = [self.trials[cell].variant for cell in self.search.rows]
        before = known(self.cells, list(self.at), self.wanted, self.budget.seed, held)
        while True:
            new = [row for cell, row in self.search.rows.items() if self.trials[cell].variant not in before]
            measured, budget = sum(row is not None for row in new), self.budget.cells
            cell = self.search.suggest(budget, measured) if measured < budget else None
            if cell is None or len(new) - measured >= max(budget, FAILED_AT_LEAST):
                return
            trial = self.trials[cell]
            further = [t for i, t in enumerate(self.trials) if i != cell and i not in self.search.rows]
            again = [replace(trial, replicate=n + 1) for n in range(self.budget.confirm)]
            ahead = (*further[: budget - measured - 1], *again)
            yield from self._ran(self._step("search", trial, measured + 1, budget, ahead))

    def stored(self) -> Iterator[Result]:
        """Yield the stored results of this grid with their raw rows."""
        for found in self.cells.finished().values():
            if found.trial.variant in self.at:
                try:
                    result = self.cells.store.full(found)
                except StoreError:  # damaged: measured again if it is suggested
                    continue
                self.results.append(result)
                yield result
        self._learn()

    def _step(self, stage: str, trial: Trial, position: int, total: int, ahead: Sequence[Trial]) -> Step:
        what = f"{trial.model.partition('#')[0]} {trial.label}"
        return Step(
            stage=stage, trial=trial, what=what, position=position, total=total, anew=True, ahead=ahead
        )

    def _ran(self, step: Step) -> Strategy:
        """Run one trial, or a pair in turns, and learn from what came of it."""
        for result in (yield step):
            if step.beside is None or result.status is not Status.CANCELLED:  # its other side failed
                self.results.append(result)
                self._learn(result)

    def _learn(self, newest: Result | None = None) -> None:
        """Pass each cell's figures to the search, and the status of each failed cell."""
        if not self.results:
            return
        for row in choices(self.results, self.wanted)[0]:
            cell = self.at[row.trial.variant]
            if row.failed:
                known = self.search.rows.get(cell, row.metrics)
                if known is not None:  # a failure is passed on once
                    self.search.fail(cell, row.status, alone=row.status in UNRELATED)
            else:
                self.search.tell(cell, row.metrics)
        column = self.wanted.goal.name
        seen = [r[column] for r in self.search.rows.values() if r is not None]
        absent = [f.reason for f in seen if isinstance(f, Absent)]
        if newest is not None and seen and len(absent) == len(seen):
            raise EdgescopeError(
                "E-PICK-3",
                f"the {self.wanted.goal.best} cannot be searched for: it cannot be measured here",
                evidence=absent[0],
                fix="another --objective; edgescope doctor lists what can be measured",
            )

    def _confirmed(self) -> Strategy:
        """Run the pick again, in turns with the runner-up; if another cell overtakes it, confirm that one."""
        for _ in range(CONFIRMED_AT_MOST):
            cell = self.search.pick()
            if cell is None:
                return
            rows = choices(self.results, self.wanted)[0]
            row = next(r for r in rows if self.at[r.trial.variant] == cell)
            rival = self._rival(row, rows)
            missing = self._missing(row, rival)
            if not missing:
                return
            again = [replace(row.trial, replicate=n) for n in missing]  # as long as what it is compared with
            again = list(map(in_turns, again)) if rival else again
            for position, trial in enumerate(again, start=1):
                step = self._step("confirm", trial, position, len(again), again[position:])
                if rival is not None:
                    beside = replace(in_turns(rival.trial), replicate=trial.replicate)
                    what = f"{step.what} in turns with {rival.label}"
                    step = replace(step, beside=beside, purpose=CONFIRMING, what=what)
                yield from self._ran(step)
                if rival is not None and self.search.rows[self.at[rival.trial.variant]] is None:
                    break  # it failed: the next one takes its place

    def _rival(self, pick: Row, rows: Sequence[Row]) -> Row | None:
        """Return the runner-up; None if there is none, or if it and the pick cannot take turns."""
        goal = self.wanted.goal
        able = [r for r in rows if r is not pick and not r.rejected and isinstance(r[goal.name], Measured)]
        if goal.name not in OF_SPEED or not able or self.wanted.alone(pick.trial.device):
            return None
        best = (max if goal.higher else min)(able, key=lambda r: r.measured(goal.name).value)
        alike = best.trial.max_s == pick.trial.max_s
        return best if alike and not self.cells.apart(in_turns(pick.trial), in_turns(best.trial)) else None

    def _missing(self, row: Row, rival: Row | None) -> list[int]:
        """Return the replicate numbers of the fresh processes that a cell still lacks, free on both sides of a pair."""
        have = {n for n, r in row.replicates.items() if r.status in MEASURED and not reused(r)}
        taken = have | set(rival.replicates if rival else ())
        free = (n for n in count(1) if n not in taken)
        return list(islice(free, max(0, self.budget.confirm + 1 - len(have))))


def in_turns(trial: Trial) -> Trial:
    """Return the trial as one side of a pair."""
    return replace(trial, turn_s=TURN_S)
