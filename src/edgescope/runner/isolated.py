"""Every trial in a process of its own, in the mode that it names: the path whose figures can be trusted."""

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
from edgescope.modes.sharing import kept, with_sharing
from edgescope.records import Result, Trial


class Isolated:
    """A Runner: what a mode changed is put back after each trial."""

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference in their own process."""
        return fresh.prepare(trial, limits)

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in its own process; a mode that cannot be had is a Result that says why."""

        def measured(mode: Mode) -> Result:
            return fresh.run(trial, limits, mode.launch())

        return in_mode(trial, measured)

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
    """Return `measured` in the trial's mode, and in its sharing if `shared`; one that cannot be had is a Result."""
    result = None
    try:
        devices = {} if trial.mode == catalog.AS_IS else bench.present()
        asked, daemon = catalog.find(trial.mode, devices), None
        if shared:
            asked, daemon = with_sharing(asked, trial)
        with entered(asked) as mode:
            result = kept(measured(mode), daemon)
    except (SettingError, UnsupportedError, UsageError, DeviceError) as error:
        if result is None:
            return bench.refused(trial, bench.present(), error)
        result = replace(result, warnings=(*result.warnings, error.message))  # measured, then not put back
    return result
