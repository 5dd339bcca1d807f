"""How long the runs that are left will take, knowing that cells differ and that some artifacts are not built yet.

A cell with eight processes of a large network takes many times what a small one takes, so the mean of the cells done
so far would be wrong by whatever the shuffle brought first. Each kind of cell has its own median; a kind of which none
has been timed yet borrows the median of the closest kind that has, and a window of another length is added as such.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from edgescope.records import Role, Trial

Kind = tuple[object, ...]


def kinds(trial: Trial) -> tuple[Kind, ...]:
    """Return the kinds that a trial belongs to, the narrowest first."""
    cold = trial.replicate > 0
    return (
        (trial.model, trial.backend, trial.processes, trial.max_s, cold),
        (trial.model, trial.processes, trial.max_s),
        (trial.model, trial.max_s),
        (trial.max_s,),
    )


def needed(trial: Trial) -> str:
    """Return the name of what must be built before the trial runs; trials that share it need it built once."""
    return trial.key(Role.ARTIFACT | Role.BATCH | Role.SHARING, but=("sharing",))


def window(trial: Trial) -> float:
    """Return the seconds that a run waits for by itself, whatever starting its engine takes."""
    return trial.max_s + 2 * trial.idle_s + (trial.warmup or 0.0)


class Pace:
    """Seconds that runs and builds took so far."""

    def __init__(self) -> None:
        self.seconds: dict[Kind, list[float]] = {}
        self.beside: list[float] = []
        """What each run took beyond its window."""
        self.builds: dict[str, float] = {}

    def add(self, trial: Trial, seconds: float) -> None:
        """Take the time of one run into account."""
        for kind in kinds(trial):
            self.seconds.setdefault(kind, []).append(seconds)
        self.beside.append(max(0.0, seconds - window(trial)))

    def built(self, trial: Trial, seconds: float) -> None:
        """Take the time of building what a trial needs into account."""
        self.builds.setdefault(needed(trial), seconds)

    def of(self, trial: Trial) -> float | None:
        """Return the seconds that a run will probably take; None before the first was timed."""
        times = next((self.seconds[kind] for kind in kinds(trial) if kind in self.seconds), None)
        if times:
            return statistics.median(times)
        return statistics.median(self.beside) + window(trial) if self.beside else None

    def left(self, trials: Iterable[Trial], between_s: float = 0.0) -> float | None:
        """Return the seconds that all of them will take, with a pause between; None while too little was timed."""
        trials = list(trials)
        if not self.beside:
            return None
        runs = sum(self.of(trial) or 0.0 for trial in trials)
        building = self._building({needed(t) for t in trials} - self.builds.keys(), runs)
        return None if building is None else building + runs + between_s * len(trials)

    def _building(self, missing: set[str], runs: float) -> float | None:
        """Return about how many seconds the missing artifacts take; None where the only one built may mislead.

        The first one also exports the network, which the others then find in the cache.
        """
        times = list(self.builds.values())
        if not missing or not times:
            return 0.0
        if len(times) == 1 and times[0] * len(missing) > runs:
            return None
        return statistics.median(times[1:] or times) * len(missing)
