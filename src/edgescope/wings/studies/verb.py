"""Measure what a study needs: `edgescope.ladder(model, source)` and `edgescope.train_characterize()`."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from edgescope import units
from edgescope.analysis.cells import machines
from edgescope.devices import manifest
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.models.image import photos
from edgescope.options import pinned
from edgescope.records import Answer, Json, Result, Trial
from edgescope.report.document import Document
from edgescope.runner.builds import Waiting
from edgescope.runner.setup import Setup, Stored, check_modes, store_of
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.wings.studies import beside
from edgescope.wings.studies.edge_training import study as training
from edgescope.wings.studies.page import document, of
from edgescope.wings.studies.paper import papers
from edgescope.wings.studies.video_ladder import climb
from edgescope.wings.studies.video_ladder import study as levels

BUDGET_S = 1200.0


def study(
    name: str,
    store: Store,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    command: str = "",
    prices: Mapping[str, float] = MappingProxyType({}),
    **options: Any,
) -> Document:
    """Return the document that sets a paper beside one machine's results, or several machines' beside each other.

    `store` holds the raw rows of `results`; those of results that the study uses are read. `models`: beginnings of
    names; `prices`: what boards cost, by name, address or id; `options`: the flags of this study. UsageError for an
    unknown study, an option that names something that the store lacks, or a price of no board.
    """
    if name not in papers():
        raise UsageError(
            "E-PAPER-1", f"no study is called {name!r}", evidence=f"known: {', '.join(papers())}"
        )
    paper = papers()[name]
    mine = [r for r in results if not models or r.trial.model.startswith(models)]
    wanted = [r for r in mine if paper.own.wanted(r.trial, models, **options)]
    each = machines.each(wanted)
    if len(each) > 1:
        groups = [store.fulls(group) for group in each]
        return beside.document(beside.beside(paper, groups, prices, models=models, **options), command)
    left = len(mine) - len(wanted)
    return document(paper, store.fulls(wanted), models=models, left_out=left, command=command, **options)


@dataclass(frozen=True, repr=False)
class Ladder(Answer):
    """The levels of a pipeline, as far as they were measured."""

    document: Document
    climbed: climb.Climbed

    def lines(self) -> Iterator[str]:
        """Yield one line for each level."""
        for rung in self.climbed.rungs:
            yield levels.line(self.climbed, rung)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each level."""
        return levels.records(self.climbed)


def ladder(
    model: str = "",
    source: str = "",
    *,
    device: str = "cpu",
    store: Stored = None,
    setup: Setup = Setup(),
) -> Ladder:
    """Return the ladder of a detector or classifier over a video file: each level measured, verified and compared.

    `model` is a network of the zoo that sees images (SSD300 on a GPU, the face detector on a CPU); `source` a video
    file (the film of samples.txt). What the store holds is not measured again.
    """
    paper = papers()[levels.NAME]
    model, film = model or levels.MODELS[device], pinned(source) if source else ""
    steps = climb.levels(paper, device, jetson=climb.is_jetson(manifest.here()))
    place = store_of(store)
    check_modes([Trial(model=model)], setup.tell)
    cells, seen = setup.cells(place), dict[str, Result]()

    def known(trial: Trial) -> Result | None:
        asked = grid.pinned(trial, zoo.pin)
        return seen.get(asked.id) or _kept(seen, asked, cells.stored(asked))

    while (found := climb.climb(steps, model, device, film, known)).wants is not None:
        asked = grid.pinned(found.wants, zoo.pin)
        setup.tell(f"  {asked.label}")
        _kept(seen, asked, cells.run(asked))
    return Ladder(of(paper, levels.told(paper, found, model, device)), found)


def _kept(seen: dict[str, Result], trial: Trial, result: Result | None) -> Result | None:
    if result is not None:
        seen[trial.id] = result
    return result


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
    modes: Sequence[str] = (),
    budget: float | str | None = BUDGET_S,
    store: Stored = None,
    setup: Setup = Setup(),
    waiting: Waiting = lambda what: contextlib.nullcontext(),
) -> Characterized:
    """Measure the study's grid until the budget is spent; what the store holds is not measured again.

    `models`: beginnings of names of its networks; `modes`: a board's, in which each is measured as well; `budget` in
    seconds or as "20min", None for as long as it takes. The data sets are written into the cache first.
    """
    end = (
        None
        if budget is None
        else time.monotonic() + (units.seconds(budget) if isinstance(budget, str) else budget)
    )
    place = store_of(store)
    cells = setup.cells(place)
    for network in training.networks():
        if not models or network.model.startswith(models):
            with waiting(f"writing the data set of {network.model}"):
                recipe = photos.Recipe(network.count, *network.side, packed=network.packed, grey=network.grey)
                photos.write_set(network.folder, recipe)
    planned = [grid.pinned(trial, zoo.pin) for trial in training.trials(device, models, modes)]
    results: list[Result] = []
    for trial in planned:
        found = cells.stored(trial)
        if found is None and (end is None or time.monotonic() < end):
            setup.tell(f"  {trial.model.partition('#')[0]} {trial.label}")
            found = cells.run(trial)
        if found is not None:
            results.append(found)
    return Characterized(study(training.NAME, place, results, models=models), tuple(results), len(planned))
