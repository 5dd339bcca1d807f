"""Runs trials in reused worker processes, for a large grid: starting an engine takes longer than measuring a cell.

One process leads the workers, as in `isolate` but for one trial after another; they stay alive between trials that
share model, engine, device, precision, options and sharing. Every trial has the limits it would have alone. A result
says that its processes were reused (`Result.process`), and a trial of one process goes through the same workers, so
that all cells of a grid compare. Replicates are what fresh processes are for: from the second on they run as
`isolated.Isolated` runs them, and so does what a reused process cannot do.

One MPS daemon serves the whole sweep. A cell that fails under it may have been a client's fatal fault, which ends the
other clients, too; the daemon is started anew then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from edgescope.devices.base import Mode
from edgescope.errors import SettingError
from edgescope.isolate.fresh import Limits
from edgescope.isolate.persistent import PersistentChild
from edgescope.isolate.placement import placements
from edgescope.isolate.pool import alike
from edgescope.modes import sharing
from edgescope.modes.enter import entered, stoppable
from edgescope.modes.mps import Mps, share
from edgescope.records import Result, Status, Trial
from edgescope.runner.isolated import in_mode
from edgescope.runner.run import Runner

_UNHARMED = frozenset({Status.OK, Status.UNSTABLE, Status.UNSUPPORTED, Status.WRONG_OUTPUT})


class ReusingRunner:
    """A Runner whose workers live on between trials; a context manager that ends them."""

    def __init__(self, fresh: Runner) -> None:
        self.fresh = fresh
        self._leader, self._preparer = PersistentChild(), PersistentChild()
        self._mps: Mps | None = None
        self._prestart: dict[str, int] = {}
        self._started: dict[str, int] = {}
        """Workers that the present leader may be keeping, by sharing."""
        self._held, self._life = ExitStack(), ExitStack()

    def __enter__(self) -> ReusingRunner:
        self._life.enter_context(stoppable())  # between two trials, too: a daemon may be running
        return self

    def __exit__(self, *exc: object) -> None:
        with self._life:
            self.close()

    def close(self) -> None:
        """End every process; the MPS daemon last, since it waits for its clients."""
        self._preparer.close()
        self._leader.close()
        self._quit_mps()

    def _dismiss(self) -> None:
        """End the workers."""
        self._leader.close()
        self._started.clear()

    def expect(self, trials: Iterable[Trial]) -> None:
        """Take note of trials to come: a pool is then started as large as they need it, where memory has room."""
        for trial in trials:
            if not trial.replicate:
                most = len(placements(trial))
                self._prestart[alike(trial)] = max(most, self._prestart.get(alike(trial), 0))

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference in a process that is kept until the next trial is measured."""
        result = self._preparer.answer("prepare", trial, limits)
        return None if result.status is Status.OK else result

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in reused workers; a mode or a sharing that cannot be had is a Result that says why."""
        self._preparer.close()  # an exporter's memory is none of the measured workers'

        def measured(mode: Mode) -> Result:
            if trial.replicate or mode.launch() or trial.tracer != Trial.tracer:
                return self._in_fresh(trial, limits)
            result = self._answered(trial, limits)
            if result.reason is not None and result.reason.code == "E-WORKER-1" and not trial.multi_process:
                return self._in_fresh(trial, limits)
            return replace(result, process="reused")

        return in_mode(trial, measured, shared=False)

    def _in_fresh(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in fresh processes, with no reused ones beside it."""
        self._dismiss()
        self._quit_mps()
        return self.fresh.run(trial, limits)

    def _answered(self, trial: Trial, limits: Limits) -> Result:
        """Return the reused workers' answer; memory that idle ones hold never decides over a trial."""
        result = self._once(trial, limits)
        if result.status is Status.OOM and sum(self._started.values()) > len(placements(trial)):
            self._dismiss()
            self._prestart.pop(alike(trial), None)
            result = self._once(trial, limits)
        return result

    def _once(self, trial: Trial, limits: Limits) -> Result:
        env, prestart = self._environment(trial), self._prestart.get(alike(trial), 0)
        self._started[trial.sharing] = max(
            self._started.get(trial.sharing, 0), prestart, len(placements(trial))
        )
        result = self._leader.answer("run", trial, limits, env, prestart)
        if env:
            assert self._mps is not None
            result = sharing.rechecked(result, self._mps)
            if result.status not in _UNHARMED:
                self._leader.stop()
                try:
                    self._quit_mps()
                except SettingError as error:
                    return replace(result, warnings=(*result.warnings, error.message))
        return result

    def _environment(self, trial: Trial) -> Mapping[str, str]:
        """Return what makes the workers clients of the one MPS daemon, {} of a trial that shares otherwise."""
        asked = sharing.mps_of(trial)
        if asked is None:
            return {}
        if self._mps is None:
            daemon = Mps()
            self._held.enter_context(entered(daemon))
            self._mps = daemon
        self._mps.begin()
        return {**self._mps.launch().env, **share(asked.percent)}

    def _quit_mps(self) -> None:
        self._mps = None
        self._held.close()
