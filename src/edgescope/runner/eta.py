"""Estimate how long the remaining runs take, given that cells differ and that some artifacts are not built yet.

A cell with eight processes of a large network takes many times as long as a small one, so the mean of the cells so far
would depend on the shuffle. Each kind of cell has its own median. A kind that was not timed yet takes the median of the
closest timed kind; if no kind with its window was timed, it takes its own window plus the median of the rest.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace

from edgescope import registry
from edgescope.records import Role, Trial

Kind = tuple[object, ...]
BUILT = Role.ARTIFACT | Role.BATCH | Role.SHARING
"""The fields that a build depends on; of sharing, what runs beside."""


def kinds(trial: Trial) -> tuple[Kind, ...]:
    """Return the kinds that a trial belongs to, narrowest first."""
    cold = trial.replicate > 0
    return (
        (trial.model, trial.backend, trial.processes, trial.max_s, cold),
        (trial.model, trial.processes, trial.max_s),
        (trial.model, trial.max_s),
        (trial.max_s,),
    )


def needed(trial: Trial) -> str:
    """Return a key of the artifact that a trial needs; trials with the same key need it built once."""
    about = registry.about(trial.backend)
    built = {name: value for name, value in trial.options.items() if name not in about.RUNNING}
    but = ("sharing",) if about.BUILDS else ("sharing", "precision", "options")
    return replace(trial, options=built).key(BUILT, but=but)


def window(trial: Trial) -> float:
    """Return the seconds that a run takes in any case: its window, its idle phases and its warm-up."""
    return trial.max_s + 2 * trial.idle_s + (trial.warmup or 0.0)


class Pace:
    """The seconds that runs and builds took so far."""

    def __init__(self) -> None:
        self.seconds: dict[Kind, list[float]] = {}
        self.overheads: list[float] = []
        """The seconds that each run took beyond its window."""
        self.builds: dict[str, float] = {}

    def add(self, trial: Trial, seconds: float) -> None:
        """Record the time of one run."""
        for kind in kinds(trial):
            self.seconds.setdefault(kind, []).append(seconds)
        self.overheads.append(max(0.0, seconds - window(trial)))

    def built(self, trial: Trial, seconds: float) -> None:
        """Record the time of building a trial's artifact."""
        self.builds.setdefault(needed(trial), seconds)

    def of(self, trial: Trial) -> float | None:
        """Return the estimated seconds of a run, or None before the first run was timed."""
        times = next((self.seconds[kind] for kind in kinds(trial) if kind in self.seconds), None)
        if times:
            return statistics.median(times)
        return statistics.median(self.overheads) + window(trial) if self.overheads else None

    def left(self, trials: Iterable[Trial], between_s: float = 0.0) -> float | None:
        """Return the estimated seconds of all trials, with pauses of `between_s`; None while too few were timed."""
        trials = list(trials)
        if not self.overheads:
            return None
        runs = sum(self.of(trial) or 0.0 for trial in trials)
        building = self._building({needed(t) for t in trials} - self.builds.keys(), runs)
        return None if building is None else building + runs + between_s * len(trials)

    def _building(self, missing: set[str], runs: float) -> float | None:
        """Return the estimated seconds of building the missing artifacts; None if the only build so far may mislead.

        The first build also exports the network; later ones find it in the cache.
        """
        times = list(self.builds.values())
        if not missing or not times:
            return 0.0
        if len(times) == 1 and times[0] * len(missing) > runs:
            return None
        return statistics.median(times[1:] or times) * len(missing)
