"""run(trial) -> Result: the only function that composes the families.

Order: machine facts, model, backend, open (build, load, first answer), is it what was asked for, warm up and
measure under the sampler, verify, collect. Verification comes after the measured window: the gate's images and
reference would otherwise sit in the memory that the trial is charged for, and a fast wrong answer is rejected all
the same. Whatever goes wrong on the way becomes a status with a reason.
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from edgescope import cache, gate, registry
from edgescope.analysis import energy, summary
from edgescope.clock import Clock, MonotonicClock
from edgescope.devices import manifest, spin
from edgescope.devices.base import Device, Throttle
from edgescope.errors import (
    EdgescopeError,
    RanElsewhereError,
    SafetyError,
    UnavailableError,
    UnsupportedError,
    WrongOutputError,
    message,
)
from edgescope.isolate import new_id
from edgescope.models import zoo
from edgescope.plan import WARMUP_MAX_NS, Plan
from edgescope.records import Absent, Effective, Field, Json, Measured, Queries, Result, Status, Trial
from edgescope.telemetry.base import Telemetry
from edgescope.telemetry.null import NullSampler
from edgescope.telemetry.sampler import Sampler
from edgescope.telemetry.verdict import judge
from edgescope.workloads.base import Opened

SAMPLER_HZ = 10.0
#: Latency drift over the window beyond which a run is called unstable.
UNSTABLE_DRIFT = 0.10


def run(
    trial: Trial,
    *,
    clock: Clock = MonotonicClock(),  # noqa: B008  (stateless)
    hz: float = SAMPLER_HZ,
    devices: Sequence[Device] | None = None,
) -> Result:
    """Run one trial in this process and return its Result; only a bug of edgescope's own raises.

    `hz` is the sampler's rate (0: none), `devices` what is asked for facts and sensors (None: all that are here).
    """
    return _guarded(trial, devices, lambda bare: _measure(bare, clock, hz, devices))


def prepare(trial: Trial) -> Result:
    """Build the trial's artifact and the reference it will be compared with; status ok when both are there."""

    def build(bare: Result) -> Result:
        model = zoo.get(trial.model, trial.shapes, trial.batch)
        backend = registry.load(registry.BACKENDS, trial.backend, "backend")()
        backend.prepare(model, gate.spec_of(trial), cache.folder("artifacts"))
        gate.prepare(model)
        return replace(bare, status=Status.OK)

    return _guarded(trial, None, build)


def _guarded(trial: Trial, devices: Sequence[Device] | None, work: Callable[[Result], Result]) -> Result:
    """Return work(bare result), or the bare result with the status and reason of what was raised."""
    started = datetime.now(timezone.utc)
    bare = Result(
        id=new_id(trial, started),
        trial=trial,
        machine=manifest.machine(devices),
        status=Status.FAILED,
        started_at=started.isoformat(timespec="milliseconds"),
    )
    try:
        return work(bare)
    except (UnsupportedError, UnavailableError) as error:
        return replace(bare, status=Status.UNSUPPORTED, reason=str(error))
    except WrongOutputError as error:
        return replace(bare, status=Status.WRONG_OUTPUT, reason=str(error))
    except SafetyError as error:
        return replace(bare, status=Status.OOM, reason=str(error))
    except EdgescopeError as error:
        return replace(bare, reason=str(error))
    except MemoryError as error:
        return replace(bare, status=Status.OOM, reason=_raised(error))
    except Exception as error:  # models and engines raise anything; the trace goes to stderr, its end to the record
        traceback.print_exc(file=sys.stderr)
        return replace(bare, reason=_raised(error))


def _raised(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno} in {last.name}"
    text = " ".join(str(error).split())[:300]
    return message(
        "E-RUN-1",
        "the model or its engine raised an error",
        evidence=f"{type(error).__name__}: {text}; {where}",
        effect="There is no number for this cell",
    )


def _measure(bare: Result, clock: Clock, hz: float, devices: Sequence[Device] | None) -> Result:
    trial = bare.trial
    here = manifest.present() if devices is None else devices
    plan = Plan(trial)
    scenario = registry.load(registry.SCENARIOS, trial.scenario, "scenario")(trial, plan)
    model = zoo.get(trial.model, trial.shapes, trial.batch)
    backend = registry.load(registry.BACKENDS, trial.backend, "backend")()
    workload = registry.load(registry.WORKLOADS, trial.workload, "workload")()
    with workload.open(trial, model, backend, cache.folder("artifacts")) as opened:
        effective = opened.effective()
        _check_effective(trial, effective)
        queries, watch = _drive(scenario, opened, clock, hz, here)
        facts = dict(opened.facts) | {"peak_rss_bytes": _peak_rss()}
        verification = gate.verify(trial, model, opened, effective)
    measured = summary.metrics(queries, plan.window, trial.scenario)
    readings = watch.telemetry.readings()
    result = replace(
        bare,
        status=Status.OK,
        model=model.info,
        artifact=opened.artifact,
        effective=effective,
        verification=verification,
        window=plan.window,
        metrics=facts | measured | energy.metrics(readings, queries, plan.window) | watch.metrics(),
        queries=queries,
        readings=readings,
        verdict=watch.verdict(plan),
    )
    return _settle(result, plan, opened.failure())


class _Watch:
    """What looked at the machine while the queries ran: sampler, throttle counters, spin probe."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.telemetry = telemetry
        self.throttles: list[Throttle] = []
        self.speed: float | None = None

    def metrics(self) -> dict[str, Field]:
        """Return the sampler's own cost."""
        cost = self.telemetry.cost()
        share: Json = cost.get("cpu_share")
        if share is None:
            absent = Absent(f"the sampler took fewer than two readings: {cost.get('end')}")
            return {"sampler_cpu_share": absent, "sampler_hz": absent}
        hz = Measured(float(cost["achieved_hz"]), "Hz", n=int(cost["ticks"]))
        return {"sampler_cpu_share": Measured(float(share), "1", n=int(cost["ticks"])), "sampler_hz": hz}
