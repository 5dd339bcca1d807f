"""Measure the grid of the training study: `edgescope.train_characterize()`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from edgescope import units
from edgescope.models import zoo
from edgescope.models.image import photo_set
from edgescope.records import Answer, Json, Result
from edgescope.report.document import Document
from edgescope.runner.builds import Waiting
from edgescope.runner.setup import Setup, Stored, store_of
from edgescope.study import grid
from edgescope.wings.studies.edge_training import grid as plan
from edgescope.wings.studies.paper import study

BUDGET_S = 1200.0


@dataclass(frozen=True, repr=False)
class Characterized(Answer):
    """The study of a machine as far as it was measured."""

    document: Document
    results: tuple[Result, ...]
    planned: int

    @property
    def measured(self) -> int:
        """Return the number of runs that are measured."""
        return len(self.results)

    def lines(self) -> Iterator[str]:
        """Yield how much was measured, then one line for each run."""
        yield f"{self.measured} of {self.planned} runs of the training study"
        yield from (
            f"  {result.trial.model} {result.trial.label}: {result.status.value}" for result in self.results
        )

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each run."""
        return [{"trial": r.trial.to_json(), "status": r.status.value, "id": r.id} for r in self.results]


def train_characterize(
    *,
    device: str = "cpu",
    models: tuple[str, ...] = (),
    budget: float | str | None = BUDGET_S,
    store: Stored = None,
    setup: Setup = Setup(),
    waiting: Waiting = lambda what: contextlib.nullcontext(),
) -> Characterized:
    """Measure the study's grid until the budget is spent; what the store holds is not measured again.

    `models`: beginnings of names of its networks; `budget` in seconds or as "20min", None for as long as it takes. The
    data sets are written into the cache first.
    """
    end = (
        None
        if budget is None
        else time.monotonic() + (units.seconds(budget) if isinstance(budget, str) else budget)
    )
    place = store_of(store)
    cells = setup.cells(place)
    for network in plan.networks():
        if not models or network.model.startswith(models):
            with waiting(f"writing the data set of {network.model}"):
                recipe = photo_set.Recipe(
                    network.count, *network.side, packed=network.packed, grey=network.grey
                )
                photo_set.write(network.folder, recipe)
    planned = [grid.pinned(trial, zoo.pin) for trial in plan.trials(device, models)]
    results: list[Result] = []
    for trial in planned:
        found = cells.stored(trial)
        if found is None and (end is None or time.monotonic() < end):
            setup.tell(f"  {trial.model.partition('#')[0]} {trial.label}")
            found = cells.run(trial)
        if found is not None:
            results.append(found)
    return Characterized(study(plan.NAME, place, results, models=models), tuple(results), len(planned))
