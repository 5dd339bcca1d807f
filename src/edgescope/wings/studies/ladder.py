"""Take a video pipeline up the ladder, one change at a time: `edgescope.ladder(model, source)`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgescope.models import zoo
from edgescope.options import pinned
from edgescope.records import Answer, Json, Result, Trial
from edgescope.report.document import Document
from edgescope.runner.setup import Setup, Stored, check_modes, store_of
from edgescope.study import grid
from edgescope.wings.studies.paper import papers
from edgescope.wings.studies.video_ladder import climb, report


@dataclass(frozen=True, repr=False)
class Ladder(Answer):
    """The levels of a pipeline, as far as they were measured."""

    document: Document
    climbed: climb.Climbed

    def lines(self) -> Iterator[str]:
        """Yield one line for each level."""
        for rung in self.climbed.rungs:
            yield report.line(self.climbed, rung)

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each level."""
        return report.records(self.climbed)


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
    paper = papers()[report.NAME]
    model, film = model or report.MODELS[device], pinned(source) if source else ""
    steps, place = climb.levels(paper, device), store_of(store)
    check_modes([Trial(model=model)], setup.tell)
    cells, seen = setup.cells(place), dict[str, Result]()

    def known(trial: Trial) -> Result | None:
        asked = grid.pinned(trial, zoo.pin)
        return seen.get(asked.id) or _kept(seen, asked, cells.stored(asked))

    while (found := climb.climb(steps, model, device, film, known)).wants is not None:
        asked = grid.pinned(found.wants, zoo.pin)
        setup.tell(f"  {asked.label}")
        _kept(seen, asked, cells.run(asked))
    return Ladder(report.of(paper, found, model, device), found)


def _kept(seen: dict[str, Result], trial: Trial, result: Result | None) -> Result | None:
    if result is not None:
        seen[trial.id] = result
    return result
