"""Runs trials in processes that are kept: what a large grid needs when starting an engine takes longer than measuring.

One process leads the crews, as in `isolate` but for one trial after another; its workers stay alive between trials
that share model, engine, device, precision, options and sharing. Every trial has the limits it would have alone. A
result says that its workers were kept warm (`machine.state["warm"]`, `artifact["workers"]`), and one process of its own
goes through the same crew, so that all cells of a grid compare. Replicates are what fresh processes are for: from the
second on they run as `isolated.Isolated` runs them, and so does what a kept process cannot do.

One MPS daemon serves the whole sweep. A cell that fails under it may have been a client's fatal fault, which ends the
other clients, too; the daemon is started anew then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace

from edgescope.devices.base import Mode
from edgescope.errors import DeviceError, SettingError, UnsupportedError, UsageError
from edgescope.isolate.fresh import Limits
from edgescope.isolate.persistent import Served
from edgescope.isolate.placement import seats
from edgescope.isolate.pool import alike
from edgescope.modes import catalog, sharing
from edgescope.modes.enter import entered, stoppable
from edgescope.modes.mps import Mps, share
from edgescope.records import Machine, Result, Status, Trial
from edgescope.runner.run import Runner

KEPT = "kept warm"
"""What artifact["workers"] says of a result from here."""
_UNHARMED = frozenset({Status.OK, Status.UNSTABLE, Status.UNSUPPORTED, Status.WRONG_OUTPUT})


class Warm:
    """A Runner whose workers live on between trials; a context manager that ends them."""

    def __init__(self, cold: Runner) -> None:
        self.cold = cold
        self._leader, self._preparer = Served(), Served()
        self._mps: Mps | None = None
        self._staff: dict[str, int] = {}
        self._hired: dict[str, int] = {}
        """Workers that the present leader may be keeping, by sharing."""
        self._held, self._life = ExitStack(), ExitStack()

    def __enter__(self) -> Warm:
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
        """End the kept workers."""
        self._leader.let_go()
        self._hired.clear()

    def expect(self, trials: Iterable[Trial]) -> None:
        """Take note of trials to come: a crew is then started as large as they need it, where memory has room."""
        for trial in trials:
            if not trial.replicate:
                most = len(seats(trial))
                self._staff[alike(trial)] = max(most, self._staff.get(alike(trial), 0))

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build artifact and reference in a process that is kept until the next trial is measured."""
        result = self._preparer.answer("prepare", trial, limits)
        return None if result.status is Status.OK else result

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial with kept workers; a mode or a sharing that cannot be had is a Result that says why."""
        from edgescope import bench

        self._preparer.let_go()  # an exporter's memory is none of the measured crew's
        result = None
        try:
            with entered(_mode(trial)) as mode:
                if trial.replicate or any(mode.launch()):
                    return self._cold(trial, limits)
                result = self._answered(trial, limits)
        except (SettingError, UnsupportedError, UsageError, DeviceError) as error:
            if result is None:
                return bench.refused(trial, bench.present(), error)
            result = replace(result, warnings=(*result.warnings, str(error)))  # measured, then not put back
        if result.reason.startswith("E-CREW-1") and not trial.crowded:
            return self._cold(trial, limits)
        return marked(result)

    def _cold(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial in fresh processes, with no kept ones beside it."""
        self._dismiss()
        self._quit_mps()
        return self.cold.run(trial, limits)

    def _answered(self, trial: Trial, limits: Limits) -> Result:
        """Return the kept workers' answer; memory that idle ones hold never decides over a trial."""
        result = self._once(trial, limits)
        if result.status is Status.OOM and sum(self._hired.values()) > len(seats(trial)):
            self._dismiss()
            self._staff.pop(alike(trial), None)
            result = self._once(trial, limits)
        return result

    def _once(self, trial: Trial, limits: Limits) -> Result:
        env, staff = self._environment(trial), self._staff.get(alike(trial), 0)
        self._hired[trial.sharing] = max(self._hired.get(trial.sharing, 0), staff, len(seats(trial)))
        result = self._leader.answer("run", trial, limits, env, staff)
        if env:
            assert self._mps is not None
            result = sharing.kept(result, self._mps)
            if result.status not in _UNHARMED:
                self._leader.stop()
                try:
                    self._quit_mps()
                except SettingError as error:
                    return replace(result, warnings=(*result.warnings, str(error)))
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
        return {**self._mps.launch()[0], **share(asked.percent)}

    def _quit_mps(self) -> None:
        self._mps = None
        self._held.close()


def _mode(trial: Trial) -> Mode:
    from edgescope import bench

    return catalog.find(trial.mode, {} if trial.mode == catalog.AS_IS else bench.present())


def marked(result: Result) -> Result:
    """Return the result with the word that its workers were kept."""
    machine = Machine(result.machine.stable, {**result.machine.state, "warm": True})
    artifact = {**result.artifact, "workers": KEPT} if result.artifact else result.artifact
    return replace(result, machine=machine, artifact=artifact)
