"""Run every trial in its own process and in its mode: the path whose figures can be trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from edgescope import bench
from edgescope.devices.base import Mode
from edgescope.errors import DeviceError, SettingError, UnsupportedError, UsageError
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.modes import catalog
from edgescope.modes.enter import entered
from edgescope.modes.sharing import rechecked, with_sharing
from edgescope.records import Result, Trial


class Isolated:
    """A Runner that restores the settings of the mode after each trial."""

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference in their own process; return the Result of a failure, else None."""
        return fresh.prepare(trial, limits)

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in its own process; if its mode cannot be set, return a Result with the reason."""

        def measured(mode: Mode) -> Result:
            return fresh.run(trial, limits, mode.launch())

        return in_mode(trial, measured)

    def look(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in its own process, in its mode, without judging its outputs."""
        return in_mode(trial, lambda mode: fresh.look(trial, limits, mode.launch()))

    def pair(self, trials: tuple[Trial, Trial], purpose: str, limits: Limits) -> tuple[Result, Result]:
        """Run two trials of one mode in turns; a mode that cannot be had is a Result that says why."""
        ends: list[Result] = []

        def measured(mode: Mode) -> Result:
            ends[:] = fresh.pair(trials, purpose, limits, mode.launch())
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
