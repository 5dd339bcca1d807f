"""Runs a list of Trials so that nothing finished is ever lost or run twice.

Each cell is a fresh process (isolate). Cells run in a shuffled order, so that a machine that warms up or gets busy
does not favour one end of the grid. Results go to the store one by one; a sweep that was killed skips what the
store already holds, and at most the cell in flight runs again. A cell that cannot fit (pruning, forecast) is not
tried; it becomes a Result that says why.
"""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from edgescope.analysis.cells import machines
from edgescope.errors import DeviceError, SettingError, StoreError, UnsupportedError, UsageError, message
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.modes import catalog
from edgescope.modes.enter import entered
from edgescope.modes.sharing import kept, with_sharing
from edgescope.records import Machine, Result, Role, Status, Trial
from edgescope.remote import address
from edgescope.store import cell_lock
from edgescope.store.cell_lock import CellLock, Holder
from edgescope.store.results import FINAL, Store, read
from edgescope.sweep.eta import Pace
from edgescope.sweep.memory import kin, skipped

#: Seconds between two looks at a cell that another process measures.
WAIT_S = 0.2


class Runner(Protocol):
    """How one trial is run; tests pass their own."""

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build what the trial needs; a Result when that failed."""

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial."""


@runtime_checkable
class Expects(Protocol):
    """Optional, of a Runner: it starts more at once where it knows what is to come."""

    def expect(self, trials: Iterable[Trial]) -> None:
        """Take note of trials to come."""


class Isolated:
    """Every trial in a process of its own, in the mode it names; what a mode changed is put back after each."""

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference in their own process."""
        return fresh.prepare(trial, limits)

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in its own process; a mode that cannot be had is a Result that says why."""
        from edgescope import bench

        result = None
        try:
            devices = {} if trial.mode == catalog.AS_IS else bench.present()
            asked, daemon = with_sharing(catalog.find(trial.mode, devices), trial)
            with entered(asked) as mode:
                result = kept(fresh.run(trial, limits, mode.launch()), daemon)
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
    """Seconds left by the medians of the cells of each kind that ran so far; None before the first."""


Tell = Callable[[Progress], None]


class Sieve(Protocol):
    """What keeps cells from being tried; told of every result, the stored ones first."""

    def add(self, result: Result) -> None:
        """Take a result into account."""

    def reason(self, trial: Trial) -> str:
        """Return why the trial is not tried, '' where it is."""


def pending(
    trials: Sequence[Trial], store: Store, where: Machine, retry: Collection[Status] = ()
) -> list[Trial]:
    """Return the trials that the store has no final result of from this machine and software."""
    finished = store.finished(where, retry)
    return [t for t in trials if t.id not in finished]


def order(trials: Sequence[Trial], seed: int, *, reuse: bool = False) -> list[Trial]:
    """Return the trials replicate by replicate, each round shuffled: neighbours in time are comparable.

    `reuse` brings the cells of the first round that the same workers can serve together, pools and cells shuffled.
    """
    rng = random.Random(seed)
    rounds: dict[int, list[Trial]] = {}
    for trial in trials:
        rounds.setdefault(trial.replicate, []).append(trial)
    for cells in rounds.values():
        rng.shuffle(cells)
    if reuse and 0 in rounds:
        pools: dict[str, list[Trial]] = {}
        for trial in rounds[0]:
            pools.setdefault(kin(trial), []).append(trial)
        rounds[0] = [trial for pool in pools.values() for trial in pool]
    return [trial for replicate in sorted(rounds) for trial in rounds[replicate]]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Cells:
    """Runs cells one at a time and stores each; an artifact is prepared the first time a cell needs it.

    A cell that another process measures into the same store is waited for, and its result is the answer then.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits,
        runner: Runner,
        where: Machine,
        retry: Collection[Status] = (),
        *,
        say: Callable[[str], None] = _say,
    ) -> None:
        store.check()
        store.clean()
        self.store, self.limits, self.runner = store, limits, runner
        self.where, self.retry = where, frozenset(retry)
        """This machine, and the statuses of stored results that are worth another try."""
        self.prepared: dict[str, Result | None] = {}
        self._say, self._told = say, set[tuple[int, str, str]]()
        self._known = store.names(where)
        """Results that were there when this began, and its own; others come from other processes."""
        for holder in cell_lock.holders(store.root):
            if holder.host == socket.gethostname():
                self._tell(holder, "start", "measures into this store")

    def finished(self) -> dict[str, Result]:
        """Return trial id -> stored result of what need not run again here."""
        return self.store.finished(self.where, self.retry)

    def ahead(self, trials: Iterable[Trial]) -> None:
        """Prepare what all of these need: a runner that keeps processes then needs one for it, not one each time."""
        trials = list(trials)
        if isinstance(self.runner, Expects):
            self.runner.expect(trials)
        for trial in trials:
            self.unprepared(trial)

    def unprepared(self, trial: Trial) -> Result | None:
        """Return why the trial's artifact cannot be had, None where it is there."""
        key = trial.key(Role.ARTIFACT | Role.BATCH | Role.SHARING, but=("sharing",))
        if key not in self.prepared:
            self.prepared[key] = self.runner.prepare(trial, self.limits)
        return self.prepared[key]

    def run(self, trial: Trial) -> Result:
        """Prepare, run and store one trial; StoreError says where the result was kept if the store failed."""
        lock = self._lock(trial)
        with lock.released():
            while holder := lock.take(self._command()):
                self._tell(
                    holder, trial.cell, f"measures {trial.model} {trial.label}, which this run waits for"
                )
                time.sleep(WAIT_S)
            if (theirs := self._theirs(trial)) is not None:
                return theirs
            failed = self.unprepared(trial)
            return self.put(
                self.runner.run(trial, self.limits) if failed is None else fresh.inherited(failed, trial)
            )

    def free_first(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Yield the trials, those whose cell another process measures after the others."""
        later = []
        for trial in trials:
            if holder := self._held(trial):
                self._tell(
                    holder, "later", f"measures {trial.model} {trial.label}, so other cells come first"
                )
                later.append(trial)
            else:
                yield trial
        yield from later

    def _lock(self, trial: Trial) -> CellLock:
        return CellLock(self.store.root, self.where.id, trial.cell)

    def _held(self, trial: Trial) -> Holder | None:
        lock = self._lock(trial)
        with lock.released():
            return lock.take()

    def _theirs(self, trial: Trial) -> Result | None:
        """Return the result that another process has stored of this very trial meanwhile, None where there is none."""
        new = sorted(n for n in self.store.names(self.where) - self._known if n.startswith(f"{trial.id}-"))
        for name in reversed(new):
            with contextlib.suppress(StoreError):
                result = read(self.store.root / self.where.id / name)
                if result.status in FINAL and result.machine.state.get("packages") == self._packages():
                    text = f"another process has measured {trial.model} {trial.label} meanwhile"
                    self._say(message("I-STORE-2", text, effect="Its result is taken", evidence=name))
                    self._known.add(name)
                    return result
        return None

    def _packages(self) -> object:
        return self.where.state.get("packages")

    def _command(self) -> str:
        words = self.where.state.get("command")
        return shlex.join(map(str, words))[:300] if isinstance(words, list | tuple) else ""

    def _tell(self, holder: Holder, about: str, what: str) -> None:
        """Say who else is at work, once for each process and matter."""
        key = holder.pid, holder.host, about
        if key in self._told:
            return
        self._told.add(key)
        wait = f"wait for it: tail --pid={holder.pid} -f /dev/null" if holder.pid else ""
        effect = "Two runs at once disturb each other: the figures of both are worse than the machine's"
        self._say(message("W-STORE-1", f"{holder} {what}", effect=effect, fix=wait))

    def put(self, result: Result) -> Result:
        """Store the result and return it; where its process did not live to describe the machine, that is this one."""
        if not machines.known(result) and address.VARIABLE not in os.environ:
            result = replace(result, machine=self.where)
        self._known.add(self.store.save(result).name)
        return result


def run(
    trials: Sequence[Trial],
    cells: Cells,
    *,
    seed: int = 0,
    cooldown_s: float = 0.0,
    rest: Callable[[], object] | None = None,
    sieves: Sequence[Sieve] = (),
    reuse: bool = False,
    tell: Tell = lambda progress: None,
) -> Iterator[Result]:
    """Run every trial that is not finished yet; yield each Result once it is stored.

    `rest` is called between two cells in place of the pause of `cooldown_s`; a trial that one of the `sieves` has a
    reason against is stored as skipped.
    """
    todo = order(pending(trials, cells.store, cells.where, cells.retry), seed, reuse=reuse)
    pause = rest or (lambda: time.sleep(cooldown_s))
    pace, ran = Pace(), 0
    if reuse:
        cells.ahead(todo)
    for result in cells.finished().values() if sieves else ():
        _told(sieves, result)
    for done, trial in enumerate(cells.free_first(todo)):
        left = pace.left(todo[done:], cooldown_s)
        tell(Progress(len(trials) - len(todo) + done, len(trials), trial, left))
        reason = next((why for sieve in sieves if (why := sieve.reason(trial))), "")
        if reason:
            result = cells.put(skipped(trial, cells.where, reason))
        else:
            if ran:
                pause()
            ran, begun = ran + 1, time.monotonic()
            result = cells.run(trial)
            pace.add(trial, time.monotonic() - begun)
        _told(sieves, result)
        yield result


def _told(sieves: Sequence[Sieve], result: Result) -> None:
    for sieve in sieves:
        sieve.add(result)
