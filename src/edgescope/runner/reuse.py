"""Runs trials in reused worker processes, for a large grid: starting an engine takes longer than measuring a cell.

One process leads the workers, as in `isolate`, but for one trial after another. Workers stay alive between trials
with the same model, engine, device, precision, options and sharing. Every trial has the same limits as alone. A result
says that its processes were reused (`Result.process`). A trial of one process uses the same workers, so all cells of a
grid can be compared. Replicates need fresh processes: from the second on they run like `isolated.Isolated` runs them,
and so do trials that a reused process cannot run.

One MPS daemon serves the whole sweep. A fatal fault of one client ends the other clients, too, so the daemon is
restarted after a cell that failed under it.
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
from edgescope.modes import mps
from edgescope.modes.enter import entered, stoppable
from edgescope.modes.mps import Mps, share
from edgescope.records import Result, Status, Trial
from edgescope.runner.isolated import in_mode
from edgescope.runner.run import Runner

_UNHARMED = frozenset({Status.OK, Status.UNSTABLE, Status.UNSUPPORTED, Status.WRONG_OUTPUT})


class ReusingRunner:
    """A Runner whose workers stay alive between trials; a context manager that ends them."""

    one_by_one = True
    """Artifacts are built one after the other, in the one process that prepares."""

    def __init__(self, fresh: Runner) -> None:
        self.fresh = fresh
        self._leader, self._preparer = PersistentChild(), PersistentChild()
        self._mps: Mps | None = None
        self._prestart: dict[str, int] = {}
        self._started: dict[str, int] = {}
        """Sharing -> number of workers that the current leader may hold."""
        self._held, self._life = ExitStack(), ExitStack()

    def __enter__(self) -> ReusingRunner:
        self._life.enter_context(stoppable())  # between two trials, too: a daemon may be running
        return self

    def __exit__(self, *exc: object) -> None:
        with self._life:
            self.close()

    def close(self) -> None:
        """End every process; the MPS daemon last, because it waits for its clients."""
        self._preparer.close()
        self._leader.close()
        self._quit_mps()

    def _dismiss(self) -> None:
        """End the workers."""
        self._leader.close()
        self._started.clear()

    def expect(self, trials: Iterable[Trial]) -> None:
        """Remember the coming trials: a pool then starts as large as they need it, if memory allows."""
        for trial in trials:
            if not trial.replicate:
                most = len(placements(trial))
                self._prestart[alike(trial)] = max(most, self._prestart.get(alike(trial), 0))

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference in a process that stays alive until the next trial is measured."""
        result = self._preparer.answer("prepare", trial, limits)
        return None if result.status is Status.OK else result

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in reused workers; if its mode or sharing cannot be set, return a Result with the reason."""
        self._preparer.close()  # so that an exporter's memory does not count for the measured workers

        def measured(mode: Mode) -> Result:
            if trial.replicate or mode.launch() or trial.tracer != Trial.tracer:
                return self._in_fresh(trial, limits)
            result = self._answered(trial, limits)
            if result.reason is not None and result.reason.code == "E-WORKER-1" and not trial.multi_process:
                return self._in_fresh(trial, limits)
            return replace(result, process="reused")

        return in_mode(trial, measured, shared=False)

    def _in_fresh(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in fresh processes after ending the reused ones."""
        self._dismiss()
        self._quit_mps()
        return self.fresh.run(trial, limits)

    def _answered(self, trial: Trial, limits: Limits) -> Result:
        """Return the reused workers' result; retry without idle workers if memory ran out while they held some."""
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
            result = mps.rechecked(result, self._mps)
            if result.status not in _UNHARMED:
                self._leader.stop()
                try:
                    self._quit_mps()
                except SettingError as error:
                    return result.warned(error.message)
        return result

    def _environment(self, trial: Trial) -> Mapping[str, str]:
        """Return the environment that makes the workers clients of the MPS daemon; {} if the sharing is not MPS."""
        wanted = mps.mps_of(trial)
        if wanted is None:
            return {}
        if self._mps is None:
            daemon = Mps()
            self._held.enter_context(entered(daemon))
            self._mps = daemon
        self._mps.begin()
        return {**self._mps.launch().env, **share(wanted.percent)}

    def _quit_mps(self) -> None:
        self._mps = None
        self._held.close()
