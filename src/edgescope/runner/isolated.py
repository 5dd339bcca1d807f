"""Run every trial in its own process and in its mode: the path whose figures can be trusted.

A large grid may reuse its workers, since starting an engine takes longer than measuring a cell. One process leads them,
as in `isolate`, but for one trial after another. Workers stay alive between trials with the same model, engine, device,
precision, options and sharing. Every trial has the same limits as alone. A result says that its processes were reused
(`Result.process`). A trial of one process uses the same workers, so all cells of a grid can be compared. Replicates
need fresh processes: from the second on they run alone, and so do trials that a reused process cannot run.

One MPS daemon serves the whole sweep. A fatal fault of one client ends the other clients, too, so the daemon is
restarted after a cell that failed under it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from edgescope.devices.base import Mode
from edgescope.devices.manifest import here, present
from edgescope.errors import DeviceError, SettingError, UnsupportedError, UsageError
from edgescope.isolate import fresh
from edgescope.isolate.fresh import Limits
from edgescope.isolate.notes import Imported, Imports, program
from edgescope.isolate.persistent import PersistentChild
from edgescope.isolate.placement import placements
from edgescope.isolate.pool import alike
from edgescope.modes import catalog
from edgescope.modes.enter import entered, stoppable
from edgescope.modes.gpu import Mps, mps_of, rechecked, share, with_sharing
from edgescope.records import Result, Status, Trial
from edgescope.runner.run import Runner


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


# -- reused worker processes -----------------------------------------------------------------------------------

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
            result = rechecked(result, self._mps)
            if result.status not in _UNHARMED:
                self._leader.stop()
                try:
                    self._quit_mps()
                except SettingError as error:
                    return result.warned(error.message)
        return result

    def _environment(self, trial: Trial) -> Mapping[str, str]:
        """Return the environment that makes the workers clients of the MPS daemon; {} if the sharing is not MPS."""
        wanted = mps_of(trial)
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
