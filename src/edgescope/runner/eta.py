"""How long the rest of a sweep will take, knowing that cells differ.

A cell with eight processes of a large network takes many times what a small one takes, so the mean of the cells done
so far would be wrong by whatever the shuffle brought first. Each kind of cell has its own median; a kind of which none
has been timed yet borrows the median of the closest kind that has.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from edgescope.records import Trial

Kind = tuple[object, ...]


def kinds(trial: Trial) -> tuple[Kind, ...]:
    """Return the kinds that a trial belongs to, the narrowest first."""
    cold = trial.replicate > 0
    return (
        (trial.model, trial.backend, trial.processes, trial.max_s, cold),
        (trial.model, trial.processes, trial.max_s),
        (trial.model, trial.max_s),
        (trial.max_s,),
        (),
    )


class Pace:
    """Seconds that the cells took so far."""

    def __init__(self) -> None:
        self.seconds: dict[Kind, list[float]] = {}

    def add(self, trial: Trial, seconds: float) -> None:
        """Take the time of one cell into account."""
        for kind in kinds(trial):
            self.seconds.setdefault(kind, []).append(seconds)

    def of(self, trial: Trial) -> float | None:
        """Return the seconds that a cell will probably take; None before the first was timed."""
        known = (self.seconds[kind] for kind in kinds(trial) if kind in self.seconds)
        times = next(known, None)
        return statistics.median(times) if times else None

    def left(self, trials: Iterable[Trial], between_s: float = 0.0) -> float | None:
        """Return the seconds that all of them will take, with a pause between; None before the first was timed."""
        each = [self.of(trial) for trial in trials]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) + between_s * len(known) if known else None
