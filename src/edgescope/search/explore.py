"""Measures what the search suggests, cell by cell, and confirms the pick in fresh processes before it is called one.

Stored results of the grid's cells are read first, as knowledge. Then the budget is spent on cells that nobody has
measured, a fresh process a cell; one that fails teaches and costs nothing of it. What was stored when the search began
is remembered (start.py), so the same command after an interruption goes on where it was, and ends. The cell that
the search would pick is run again in further processes: with bounds that now know what lies between processes it must
still keep every constraint, and by its mean over them still be the best; otherwise the next one is confirmed. The runs
go to the store as those of a sweep do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice

from edgescope.analysis.cells.choices import choices
from edgescope.analysis.cells.concurrency import reused
from edgescope.analysis.cells.objective import Wanted
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import variant
from edgescope.errors import EdgescopeError, StoreError
from edgescope.records import Absent, Result, Status, Trial
from edgescope.search.bayes import Search
from edgescope.search.start import known
from edgescope.sweep.run import Cells

#: Statuses that say something of the machine's mood, nothing of the cell's neighbours.
MOODS = frozenset({Status.UNSTABLE, Status.CANCELLED, Status.SKIPPED})
#: A search ends once as many cells have failed as its budget has, or so many.
FAILED_AT_LEAST = 6
#: How many cells may be confirmed before the search answers with the best it has.
CONFIRMED_AT_MOST = 3


@dataclass(frozen=True)
class Budget:
    """How many cells may be measured beside those stored, and in how many further processes the pick is confirmed."""

    cells: int
    confirm: int = 3
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """Where a search stands, told before each run."""

    stage: str
    """`search` or `confirm`."""
    position: int
    """Number of this run in its stage, from 1; after one that failed the same number again."""
    total: int
    trial: Trial
    eta_s: float | None
    """Seconds left by the runs so far; None before the first."""


Tell = Callable[[Step], None]


def explore(
    trials: Sequence[Trial],
    cells: Cells,
    wanted: Wanted,
    budget: Budget,
    *,
    macs: Mapping[str, float] | None = None,
    cores: int = 1,
    tell: Tell = lambda step: None,
) -> Iterator[Result]:
    """Yield each Result, those of the store first; EdgescopeError where the objective cannot be measured here."""
    yield from _Exploration(trials, cells, wanted, budget, tell).run(macs or {}, cores)


class _Exploration:
    """One search: the grid, what is known of it, and what has been spent."""

    def __init__(
        self, trials: Sequence[Trial], cells: Cells, wanted: Wanted, budget: Budget, tell: Tell
    ) -> None:
        first = {variant(t): replace(t, replicate=0) for t in reversed(trials)}
        self.trials = [first[v] for v in dict.fromkeys(variant(t) for t in trials)]
        self.at = {variant(t): i for i, t in enumerate(self.trials)}
        self.cells, self.wanted, self.budget, self.tell = cells, wanted, budget, tell
        self.results: list[Result] = []
        self.spent: list[float] = []

    def run(self, macs: Mapping[str, float], cores: int) -> Iterator[Result]:
        """Search, then confirm."""
        self.search = Search(self.trials, self.wanted, seed=self.budget.seed, macs=macs, cores=cores)
        yield from self._stored()
        if self.budget.cells:
            yield from self._searched()
        yield from self._confirmed()

    def _searched(self) -> Iterator[Result]:
        """Measure what the search suggests until the budget is spent, nothing is left or too much has failed."""
        held = [variant(self.trials[cell]) for cell in self.search.rows]
        before = known(self.cells, list(self.at), self.wanted, self.budget.seed, held)
        while True:
            new = [row for cell, row in self.search.rows.items() if variant(self.trials[cell]) not in before]
            measured, budget = sum(row is not None for row in new), self.budget.cells
            cell = self.search.suggest(budget, measured) if measured < budget else None
            if cell is None or len(new) - measured >= max(budget, FAILED_AT_LEAST):
                return
            left = self._eta(budget - measured + self.budget.confirm)
            yield self._ran(Step("search", measured + 1, budget, self.trials[cell], left))

    def _stored(self) -> Iterator[Result]:
        """Yield what the store holds of this grid, with its raw rows."""
        for found in self.cells.finished().values():
            if variant(found.trial) in self.at:
                try:
                    result = self.cells.store.full(found)
                except StoreError:  # damaged: measured again if it is suggested
                    continue
                self.results.append(result)
                yield result
        self._learn()

    def _ran(self, step: Step) -> Result:
        """Run one trial, and learn from it."""
        self.tell(step)
        begun = time.monotonic()
        result = self.cells.run(step.trial)
        self.spent.append(time.monotonic() - begun)
        self.results.append(result)
        self._learn(result)
        return result

    def _learn(self, newest: Result | None = None) -> None:
        """Tell the search every cell's figures, of those that failed the status."""
        if not self.results:
            return
        for row in choices(self.results, self.wanted)[0]:
            cell = self.at[variant(row.trial)]
            if row.failed:
                known = self.search.rows.get(cell, row.metrics)
                if known is not None:  # told once
                    self.search.fail(cell, row.status, alone=row.status in MOODS)
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
                fix="another --objective, or edgescope doctor",
            )

    def _confirmed(self) -> Iterator[Result]:
        """Run the pick again in fresh processes, and what overtakes it, until one stands."""
        for _ in range(CONFIRMED_AT_MOST):
            cell = self.search.pick()
            if cell is None:
                return
            row = next(r for r in choices(self.results, self.wanted)[0] if self.at[variant(r.trial)] == cell)
            missing = self._missing(row)
            if not missing:
                return
            for position, number in enumerate(missing, start=1):
                again = replace(row.trial, replicate=number)  # as long as what it is held against
                left = len(missing) - position + 1
                yield self._ran(Step("confirm", position, len(missing), again, self._eta(left)))

    def _missing(self, row: Row) -> list[int]:
        """Return the numbers of the fresh processes that a cell lacks."""
        have = {n for n, r in row.replicates.items() if r.status in MEASURED and not reused(r)}
        free = (n for n in count(1) if n not in have)
        return list(islice(free, max(0, self.budget.confirm + 1 - len(have))))

    def _eta(self, runs: int) -> float | None:
        return sum(self.spent) / len(self.spent) * runs if self.spent else None
