"""The only package that composes the families: `run` measures a Trial and `prepare` builds what it needs.

A trial begins, one of the drivers measures it, and its Result says what became of it: whatever goes wrong on the way
is a status with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from edgescope import registry
from edgescope.bench import outcome
from edgescope.bench.drivers import Driver, InProcess
from edgescope.bench.parts import prepare_trial, program_of
from edgescope.bench.watch import Devices, Watch
from edgescope.clock import Clock, MonotonicClock
from edgescope.devices import manifest
from edgescope.devices.manifest import here, present
from edgescope.errors import EdgescopeError
from edgescope.records import Machine, Result, Status, Trial

if TYPE_CHECKING:
    from edgescope.isolate.pool import WorkerPools

__all__ = ["answer", "apart", "here", "look", "prepare", "present", "refused", "run"]


SAMPLER_HZ = 10.0


def run(
    trial: Trial,
    *,
    clock: Clock = MonotonicClock(),  # noqa: B008  (stateless)
    hz: float = SAMPLER_HZ,
    devices: Devices | None = None,
) -> Result:
    """Run one trial in this process and return its Result; only a bug in edgescope itself raises.

    `hz` is the sampler's rate (0: no sampler); `devices`, by registry name, give facts and sensors (None: all).
    """
    here = present() if devices is None else devices
    return answer(Result.begun(trial, manifest.machine(here)), clock=clock, hz=hz, devices=here)


def answer(
    started: Result,
    *,
    clock: Clock = MonotonicClock(),  # noqa: B008
    hz: float = SAMPLER_HZ,
    devices: Devices,
    pools: WorkerPools | None = None,
) -> Result:
    """Measure the trial of a started Result and return the finished one; use the workers of `pools` if given."""
    return _measured(started, devices, hz, lambda: driver(started.trial, clock, pools))


def look(started: Result, *, devices: Devices, wait: Callable[[], None] = lambda: None) -> Result:
    """Measure the trial of a started Result in this process, without judging its outputs: its latency, and soon.

    `wait` returns once nothing else runs here; the trial has loaded by then.
    """
    return _measured(
        started, devices, SAMPLER_HZ, lambda: InProcess(MonotonicClock(), judged=False, wait=wait)
    )


def _measured(started: Result, devices: Devices, hz: float, chosen: Callable[[], Driver]) -> Result:
    def measured(started: Result) -> Result:
        in_effect, watch = outcome.require_mode(started.trial, devices), Watch(devices, hz)
        return outcome.concluded(started, watch, chosen().measure(started, watch), in_effect)

    return outcome.guarded(started, measured)


def driver(trial: Trial, clock: Clock, pools: WorkerPools | None = None) -> Driver:
    """Return the driver of the trial: workers, programs that own their loop, or this process."""
    engine = registry.BACKENDS.get(trial.backend)
    alike = trial.sharing == Trial.sharing and not trial.colocated
    in_itself = engine is not None and engine.driver == "external" and alike and trial.processes > 1
    if (trial.multi_process or pools is not None) and not in_itself:
        from edgescope.bench.workers import Workers  # most trials have one process

        return Workers(pools)
    if (program := program_of(trial)) is None:
        return InProcess(clock)
    from edgescope.bench.programs import OwnLoop  # most engines own no loop

    return OwnLoop(program)


def refused(trial: Trial, machine: Machine, error: EdgescopeError) -> Result:
    """Return the Result of a trial that did not start because of `error`."""
    return Result.begun(trial, machine, *outcome.status_of(error))


def prepare(started: Result) -> Result:
    """Build the trial's artifacts and references; return a Result whose status is ok if all were built."""

    def build(started: Result) -> Result:
        prepare_trial(started.trial)
        return started.ended(Status.OK)

    return outcome.guarded(started, build)


def apart(a: Trial, b: Trial) -> str:
    """Return why two trials cannot be alive together and take turns; '' if nothing is known against it."""
    from edgescope.bench import alternation  # a trial that runs alone takes no turns

    return alternation.apart(a, b)
