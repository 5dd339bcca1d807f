"""Run every trial in its own process and in its mode: the path whose figures can be trusted."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace

from edgescope import bench
from edgescope.devices.base import Mode
from edgescope.errors import DeviceError, SettingError, UnsupportedError, UsageError
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.isolate.persistent import PersistentChild
from edgescope.modes import catalog
from edgescope.modes.enter import entered
from edgescope.modes.sharing import rechecked, with_sharing
from edgescope.records import Result, Status, Trial


class Isolated:
    """A Runner that restores the settings of the mode after each trial.

    One process leads pair after pair. It ends with this object, with a mode that starts programs in its own way, and
    when memory runs out.
    """

    def __init__(self) -> None:
        self._leader, self._lock = PersistentChild(), threading.Lock()
        weakref.finalize(self, self._leader.close)

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

        def prepared() -> list[Result]:
            failed = fresh.prepare(trial, limits)
            return [] if failed is None else [failed]

        return next(iter(self._with_room(prepared)), None)

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in its own process; if its mode cannot be set, return a Result with the reason."""
        return in_mode(
            trial, lambda mode: self._with_room(lambda: [fresh.run(trial, limits, mode.launch())])[0]
        )

    def look(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in its own process, in its mode, without judging its outputs."""
        return in_mode(
            trial, lambda mode: self._with_room(lambda: [fresh.look(trial, limits, mode.launch())])[0]
        )

    def pair(self, trials: tuple[Trial, Trial], purpose: str, limits: Limits) -> tuple[Result, Result]:
        """Run two trials of one mode in turns; a mode that cannot be had is a Result that says why."""
        ends: list[Result] = []

        def measured(mode: Mode) -> Result:
            if mode.launch() != self._leader.launch:
                self._leader.close()
                self._leader.launch = mode.launch()
            try:
                ends[:] = self._with_room(lambda: self._leader.pair(trials, purpose, limits))
            finally:
                if mode.launch():  # a control group cannot be left while somebody is in it
                    self._leader.close()
            return ends[0]

        first = in_mode(trials[0], measured)
        if not ends:
            return first, replace(first, id=fresh.inherited(first, trials[1]).id, trial=trials[1])
        return first, ends[1]


def in_mode(trial: Trial, measured: Callable[[Mode], Result], *, shared: bool = True) -> Result:
    """Return `measured` in the trial's mode (and sharing, if `shared`); a failure to set it is a Result."""
    result = None
    try:
        devices = {} if trial.mode == catalog.AS_IS else bench.present()
        wanted, daemon = catalog.find(trial.mode, devices), None
        if shared:
            wanted, daemon = with_sharing(wanted, trial)
        with entered(wanted) as mode:
            result = rechecked(measured(mode), daemon)
    except (SettingError, UnsupportedError, UsageError, DeviceError) as error:
        if result is None:
            return bench.refused(trial, bench.present(), error)
        result = replace(
            result, warnings=(*result.warnings, error.message)
        )  # measured, but not restored afterwards
    return result
