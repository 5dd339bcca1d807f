"""Run every trial in its own process and in its mode: the path whose figures can be trusted."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from edgescope.devices.base import Mode
from edgescope.devices.manifest import here, present
from edgescope.errors import DeviceError, SettingError, UnsupportedError, UsageError
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.isolate.imports import Imported, Imports, program
from edgescope.isolate.persistent import PersistentChild
from edgescope.modes import catalog
from edgescope.modes.enter import entered
from edgescope.modes.mps import rechecked, with_sharing
from edgescope.records import Result, Status, Trial


class Isolated:
    """A Runner that restores the settings of the mode after each trial.

    One process leads pair after pair. It ends with this object, with a mode that starts programs in its own way, and
    when memory runs out. While something is built, and nothing measured, it imports what the coming pairs need.
    """

    def __init__(self) -> None:
        self._leader, self._lock = PersistentChild(), threading.Lock()
        self._imports: dict[str, Imports] = {}
        """Program -> what its first process that ran alone had imported."""
        self._coming: Sequence[Trial] = ()
        weakref.finalize(self, self._leader.close)

    def _noted(self, trial: Trial, found: Imports) -> None:
        if found.took_bytes:  # else nobody knows yet what such a process takes
            self._imports.setdefault(program(trial), found)

    def expect(self, trials: Iterable[Trial]) -> None:
        """Remember the coming trials: those of pairs are made ready for while something is built."""
        self._coming = [t for t in trials if t.turn_s is not None and t.mode == catalog.AS_IS]

    def _get_ready(self, limits: Limits) -> None:
        """Have the leader import what the coming pairs need, as far as a trial has told it."""
        with self._lock:  # several builds may begin at once
            coming, self._coming = self._coming, ()
            if known := self._known(coming):
                self._leader.expect(known, limits)

    def _known(self, trials: Sequence[Trial]) -> list[Imported]:
        return [(t, self._imports[program(t)]) for t in trials if program(t) in self._imports]

    def _with_room(self, ask: Callable[[], Sequence[Result]]) -> Sequence[Result]:
        """Return what `ask` returns; ask again without the leader if memory ran out while it held some."""
        held, ends = self._leader.alive, ask()
        if held and any(end.status is Status.OOM for end in ends):
            with self._lock:  # several builds may fail at once
                self._leader.close()
            ends = ask()
        return ends

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference in their own process; return the Result of a failure, else None."""
        self._get_ready(limits)

        def prepared() -> list[Result]:
            failed = fresh.prepare(trial, limits)
            return [] if failed is None else [failed]

        return next(iter(self._with_room(prepared)), None)

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in its own process; if its mode cannot be set, return a Result with the reason."""
        return self._alone(fresh.run, trial, limits)

    def look(self, trial: Trial, limits: Limits, meanwhile: Callable[[], object] = lambda: None) -> Result:
        """Run the trial in its own process, in its mode, without judging its outputs.

        `meanwhile` runs while that process loads.
        """
        return self._alone(partial(fresh.look, meanwhile=meanwhile), trial, limits)

    def _alone(self, run: Callable[..., Result], trial: Trial, limits: Limits) -> Result:
        self._leader.settle(limits)

        def measured(mode: Mode) -> Result:
            return self._with_room(lambda: [run(trial, limits, mode.launch(), noted=self._noted)])[0]

        return in_mode(trial, measured)

    def pair(self, trials: tuple[Trial, Trial], purpose: str, limits: Limits) -> tuple[Result, Result]:
        """Run two trials of one mode in turns; a mode that cannot be had is a Result that says why."""
        ends: list[Result] = []
        known = self._known(trials)

        def measured(mode: Mode) -> Result:
            if mode.launch() != self._leader.launch:
                self._leader.close()
                self._leader.launch = mode.launch()
            try:
                ends[:] = self._with_room(lambda: self._leader.pair(trials, purpose, limits, known))
            finally:
                if mode.launch():  # a control group cannot be left while somebody is in it
                    self._leader.close()
            return ends[0]

        first = in_mode(trials[0], measured)
        if not ends:
            return first, first.inherited(trials[1])
        return first, ends[1]


def in_mode(trial: Trial, measured: Callable[[Mode], Result], *, shared: bool = True) -> Result:
    """Return `measured` in the trial's mode (and sharing, if `shared`); a failure to set it is a Result."""
    result = None
    try:
        devices = {} if trial.mode == catalog.AS_IS else present()
        wanted, daemon = catalog.find(trial.mode, devices), None
        if shared:
            wanted, daemon = with_sharing(wanted, trial)
        with entered(wanted) as mode:
            result = rechecked(measured(mode), daemon)
    except (SettingError, UnsupportedError, UsageError, DeviceError) as error:
        if result is None:
            from edgescope.bench import (
                refused,  # what composes a trial: its own process has it, this one seldom needs it
            )

            return refused(trial, here(), error)
        result = result.warned(error.message)  # measured, but not restored afterwards
    return result
