"""run(trial) -> Result: the only function that composes the families.

Order: machine facts, model, backend, open (build, load, first answer), is it what was asked for, warm up and
measure under the sampler, verify, collect. Verification comes after the measured window: the gate's images and
reference would otherwise sit in the memory that the trial is charged for, and a fast wrong answer is rejected all
the same. Whatever goes wrong on the way becomes a status with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

from edgescope import cache, registry
from edgescope.analysis.run import open_loop, summary
from edgescope.backends.base import SelfDriven, spec_of
from edgescope.bench import external, gate, mode, outcome, phases, workers
from edgescope.bench.collect import Run, assembled, drive
from edgescope.bench.outcome import require, told
from edgescope.bench.watch import Devices, Watch, available, peak_rss
from edgescope.clock import Clock, MonotonicClock
from edgescope.devices import manifest
from edgescope.devices.replay import device
from edgescope.errors import EdgescopeError, message
from edgescope.isolate import placement
from edgescope.isolate.fresh import new_id
from edgescope.isolate.pool import Crews
from edgescope.models import zoo
from edgescope.records import Machine, Measured, Result, Status, Trial
from edgescope.scenarios.stop_rule import Plan

SAMPLER_HZ = 10.0
#: Significant drift of the latency over the window beyond which the run is called unstable.
UNSTABLE_DRIFT = 0.25
#: What must be said of an open loop, too: a queue near capacity moves by a quarter in one run of ten by chance.
MOVING = ("W-LOAD-1", "W-STAT-4")


def run(
    trial: Trial,
    *,
    clock: Clock = MonotonicClock(),  # noqa: B008  (stateless)
    hz: float = SAMPLER_HZ,
    devices: Devices | None = None,
) -> Result:
    """Run one trial in this process and return its Result; only a bug of edgescope's own raises.

    `hz` is the sampler's rate (0: none), `devices` by registry name what is asked for facts and sensors (None: all).
    """
    here = present() if devices is None else devices
    return answer(begin(trial, here), clock=clock, hz=hz, devices=here)


def begin(trial: Trial, devices: Devices) -> Result:
    """Return the Result of a trial that has only begun: where and when, nothing measured."""
    started = datetime.now(timezone.utc)
    return Result(
        id=new_id(trial, started),
        trial=trial,
        machine=manifest.machine(devices),
        status=Status.FAILED,
        started_at=started.isoformat(timespec="milliseconds"),
    )


def answer(
    begun: Result,
    *,
    clock: Clock = MonotonicClock(),  # noqa: B008
    hz: float = SAMPLER_HZ,
    devices: Devices,
    crews: Crews | None = None,
) -> Result:
    """Return the Result that a begun one becomes when its trial is measured; workers of `crews` do it where given."""

    def measured(bare: Result) -> Result:
        in_effect = mode.require(bare.trial, devices)
        return mode.noted(mode.kept(_measure(bare, clock, hz, devices, crews), devices), in_effect)

    return outcome.marked(guarded(begun, measured))


def refused(trial: Trial, devices: Devices, error: EdgescopeError) -> Result:
    """Return the Result of a trial that was not begun because of `error`."""
    return replace(begin(trial, devices), status=told(error)[0], reason=str(error))


def prepare(begun: Result) -> Result:
    """Build the trial's artifact and the reference it will be compared with; status ok when both are there."""

    def build(bare: Result) -> Result:
        trial = bare.trial
        model = zoo.get(trial.model, trial.shapes, trial.batch)
        backend = registry.load(registry.BACKENDS, trial.backend, "backend")()
        backend.prepare(model, spec_of(trial), cache.folder("artifacts"))
        for other in placement.beside(trial):
            extra = zoo.get(other.model, other.shapes, other.batch)
            backend.prepare(extra, spec_of(other), cache.folder("artifacts"))
        gate.prepare(model)
        return replace(bare, status=Status.OK)

    return guarded(begun, build)


def present() -> Devices:
    """Return one of every device there is, by registry name, but null; a recorded board's where one is played."""
    if board_file := device.played():
        return device.devices(board_file)
    names = [n for n in registry.DEVICES if n not in ("null", "replay")]
    return {n: registry.load(registry.DEVICES, n, "device")() for n in names}


def here() -> Machine:
    """Return this machine, as every result of it would describe it."""
    return manifest.machine(present())


def guarded(bare: Result, work: Callable[[Result], Result]) -> Result:
    """Return work(bare), or the bare result with the status and reason of what was raised."""
    try:
        return work(bare)
    except Exception as error:  # models and engines raise anything
        status, reason = told(error)
        return replace(bare, status=status, reason=reason)


def _measure(bare: Result, clock: Clock, hz: float, devices: Devices, crews: Crews | None) -> Result:
    trial, plan, watch = bare.trial, Plan(bare.trial), Watch(devices, hz)
    plan.edge = watch.mark
    if trial.crowded or crews is not None:
        found = workers.measure(bare, watch, crews)
        if found.result.status is not Status.OK:
            return found.result
        return settled(found.result, warmed=found.warmed, failure=found.failure)
    scenario = registry.load(registry.SCENARIOS, trial.scenario, "scenario")(trial, plan)
    model = zoo.get(trial.model, trial.shapes, trial.batch)
    backend = registry.load(registry.BACKENDS, trial.backend, "backend")()
    if isinstance(backend, SelfDriven):
        return settled(external.measure(bare, model, backend, watch))
    workload = registry.load(registry.WORKLOADS, trial.workload, "workload")()
    with workload.open(trial, model, backend, cache.folder("artifacts")) as opened:
        effective = opened.effective()
        require(trial, effective)
        with watch.watching(), watch.idling(trial.idle_s, clock):
            queries = drive(scenario, opened.work, clock)
        peak = peak_rss()
        parts = phases.metrics(opened, trial.io)
        verification = gate.check(trial, model, opened.answer, opened.artifact, bare.machine)
        external.examine(scenario, opened, model)
    ran = Run(
        model=model.info,
        artifact=opened.artifact,
        effective=effective,
        verification=verification,
        queries=queries,
        window=plan.window,
        metrics={
            **opened.facts,
            **summary.metrics(queries, plan.window, trial.scenario),
            "peak_rss_bytes": peak,
            **parts,
            **watch.board_memory(trial.device, plan.window, available(bare.machine)),
        },
    )
    result = assembled(bare, watch, ran)
    result = external.noted(result, scenario)
    return settled(result, warmed=plan.settled, failure=opened.failure())


def _certain(change: Measured) -> bool:
    """Whether the interval of a change excludes none."""
    return change.lo is not None and change.hi is not None and (change.lo > 0 or change.hi < 0)


def _moved(drift: Measured, warnings: list[str]) -> str:
    """Say why there is no steady state: a load beyond what can be served has none however long the warm-up."""
    text = f"latency moved by {drift.value:+.0%} over the window"
    if any(warning.startswith("W-LOAD-1") for warning in warnings):
        return message(
            "E-STAT-2", text, evidence="more was offered than could be served", fix="a lower --rate"
        )
    return message("E-STAT-1", text, fix="--warmup 30s")


def settled(result: Result, *, warmed: bool = True, failure: str = "") -> Result:
    """Return the result with its final status and the warnings that its own numbers give rise to."""
    warnings = list(result.warnings)
    if not warmed:
        warnings.append(
            message(
                "W-WARM-1",
                "the latencies had not settled when the warm-up was cut off",
                effect="The first measured queries may be slower than the rest",
                fix="--warmup 30s",
            )
        )
    status, reason = result.status, ""
    check, errors, drift = result.verification, result.metrics.get("errors"), result.metrics.get("drift")
    if check is not None and not check.passed:
        status, reason = Status.WRONG_OUTPUT, message("E-OUT-2", f"wrong outputs: {check.detail}")
    elif isinstance(errors, Measured) and errors.value:
        text = f"{errors.value:.0f} of {errors.n} queries failed"
        status, reason = Status.FAILED, message("E-RUN-3", text, evidence=failure)
    elif (
        isinstance(drift, Measured)
        and _certain(drift)
        and abs(drift.value) > UNSTABLE_DRIFT
        and (result.trial.scenario not in open_loop.OPEN or any(w.startswith(MOVING) for w in warnings))
        and not isinstance(
            result.metrics.get("settled_s"), Measured
        )  # then burst and sustained are told apart
    ):
        status, reason = Status.UNSTABLE, _moved(drift, warnings)
    return replace(result, status=status, reason=reason, warnings=tuple(warnings))
