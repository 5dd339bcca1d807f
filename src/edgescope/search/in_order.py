"""Run trials that a verb names one after the other; before each, tell its place and how long the rest takes."""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.records import Result, Trial
from edgescope.runner.run import Cells
from edgescope.search.loop import Loop, Step, Tell


class InOrder:
    """Counts the runs of a plan whose later trials may depend on the results of the first."""

    def __init__(self, cells: Cells, tell: Tell) -> None:
        self.loop, self.done = Loop(cells, tell), 0

    def run(
        self, stage: str, trial: Trial, ahead: Sequence[Trial] | None = None, *, anew: bool = False
    ) -> Result:
        """Return the result of a trial, from the store unless `anew`.

        `ahead` are the trials that follow; None while the results so far do not tell them, so their number is unknown.
        """
        self.done += 1
        step = Step(
            stage=stage,
            trial=trial,
            what=trial.label,
            position=self.done,
            total=0 if ahead is None else self.done + len(ahead),
            ahead=ahead or (),
            anew=anew,
        )
        return self.loop.answer(step)[0]
