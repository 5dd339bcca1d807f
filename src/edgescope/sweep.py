"""Runs a list of Trials so that nothing finished is ever lost or run twice.

Each cell is a fresh process (isolate). Cells run in a shuffled order, so that a machine that warms up or gets busy
does not favour one end of the grid. Results go to the store one by one; a sweep that was killed skips what the
store already holds, and at most the cell in flight runs again.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from edgescope import isolate
from edgescope.errors import DeviceError, SettingError, UnsupportedError, UsageError
from edgescope.isolate import Limits
from edgescope.modes import catalog
from edgescope.modes.entering import entered
from edgescope.records import Machine, Result, Status, Trial
from edgescope.store import Store


class Runner(Protocol):
    """How one trial is run; tests pass their own."""

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build what the trial needs; a Result when that failed."""

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial."""


class Isolated:
    """Every trial in a process of its own, in the mode it names; what a mode changed is put back after each."""

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference in their own process."""
        return isolate.prepare(trial, limits)

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in its own process; a mode that cannot be had is a Result that says why."""
        from edgescope import bench

        result = None
        try:
            devices = {} if trial.mode == catalog.AS_IS else bench.present()
            with entered(catalog.find(trial.mode, devices)) as mode:
                env, prefix = mode.launch()
                result = isolate.run(trial, limits, isolate.Launch(prefix, env))
        except (SettingError, UnsupportedError, UsageError, DeviceError) as error:
            if result is None:
                return bench.refused(trial, bench.present(), error)
            result = replace(result, warnings=(*result.warnings, str(error)))  # measured, then not put back
        return result


@dataclass(frozen=True)
class Progress:
    """Where a sweep stands, told before each cell."""

    done: int
    total: int
    trial: Trial
    eta_s: float | None
    """Seconds left by the mean of the cells run so far; None before the first."""


Tell = Callable[[Progress], None]


def pending(
    trials: Sequence[Trial], store: Store, where: Machine, retry: Collection[Status] = ()
) -> list[Trial]:
    """Return the trials that the store has no final result of from this machine and software."""
    finished = store.finished(where, retry)
    return [t for t in trials if t.id not in finished]


def order(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """Return the trials replicate by replicate, each round shuffled: neighbours in time are comparable."""
    rng = random.Random(seed)
    rounds: dict[int, list[Trial]] = {}
    for trial in trials:
        rounds.setdefault(trial.replicate, []).append(trial)
    for cells in rounds.values():
        rng.shuffle(cells)
    return [trial for replicate in sorted(rounds) for trial in rounds[replicate]]


class Cells:
    """Runs cells one at a time and stores each; an artifact is prepared the first time a cell needs it."""

    def __init__(
        self, store: Store, limits: Limits, runner: Runner, where: Machine, retry: Collection[Status] = ()
    ) -> None:
        store.check()
        store.clean()
        self.store, self.limits, self.runner = store, limits, runner
        self.where, self.retry = where, frozenset(retry)
        """This machine, and the statuses of stored results that are worth another try."""
        self.prepared: dict[tuple[object, ...], Result | None] = {}

    def finished(self) -> dict[str, Result]:
        """Return trial id -> stored result of what need not run again here."""
        return self.store.finished(self.where, self.retry)

    def run(self, trial: Trial) -> Result:
        """Prepare, run and store one trial; StoreError says where the result was kept if the store failed."""
        key = (
            trial.model,
            trial.backend,
            trial.device,
            trial.precision,
            trial.batch,
            str(trial.options),
            str(trial.shapes),
        )
        if key not in self.prepared:
            self.prepared[key] = self.runner.prepare(trial, self.limits)
        failed = self.prepared[key]
        result = self.runner.run(trial, self.limits) if failed is None else isolate.inherited(failed, trial)
        self.store.save(result)
        return result


def run(
    trials: Sequence[Trial],
    cells: Cells,
    *,
    seed: int = 0,
    cooldown_s: float = 0.0,
    tell: Tell = lambda progress: None,
) -> Iterator[Result]:
    """Run every trial that is not finished yet; yield each Result once it is stored."""
    todo = order(pending(trials, cells.store, cells.where, cells.retry), seed)
    started = time.monotonic()
    for done, trial in enumerate(todo):
        eta = (time.monotonic() - started) / done * (len(todo) - done) if done else None
        tell(Progress(len(trials) - len(todo) + done, len(trials), trial, eta))
        if done and cooldown_s:
            time.sleep(cooldown_s)
        yield cells.run(trial)
