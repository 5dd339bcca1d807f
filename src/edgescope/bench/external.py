"""A program that owns its loop (trtexec): edgescope starts it, watches the machine, and checks its answers."""

from __future__ import annotations

from dataclasses import replace

from edgescope import cache
from edgescope.analysis import summary
from edgescope.analysis.consumption import consumption
from edgescope.analysis.sustained import sustained
from edgescope.backends.base import Backend, SelfDriven, spec_of
from edgescope.bench import gate
from edgescope.bench.require import require
from edgescope.bench.watch import Watch, available, board
from edgescope.clock import MonotonicClock
from edgescope.errors import UsageError
from edgescope.models.base import Model
from edgescope.records import Absent, Field, Result, Status
from edgescope.workloads.inference import described


def measure(bare: Result, model: Model, backend: SelfDriven, watch: Watch) -> Result:
    """Return the Result of a trial whose loop is the program's own."""
    trial = bare.trial
    if trial.scenario not in ("single_stream", "offline"):
        raise UsageError(
            "E-SCEN-9",
            f"{trial.backend} owns its loop and offers no {trial.scenario}",
            fix="--scenario single_stream, or a backend that edgescope drives",
        )
    assert isinstance(backend, Backend)
    artifact = backend.prepare(model, spec_of(trial), cache.folder("artifacts"))
    with watch.watching(), watch.idling(trial.idle_s, MonotonicClock()):
        driven = backend.drive(artifact, trial)
    require(trial, driven.effective)
    made = {**described(artifact), "program": dict(driven.notes)}
    asked = replace(trial, batch=driven.answer_rows or trial.batch)
    verification = gate.check(asked, model, driven.answer, made, bare.machine)
    window = driven.window
    spent = consumption(
        watch.readings,
        driven.queries,
        window,
        idle=watch.idle,
        device=driven.effective.device,
        board=board(),
    )
    long_run = sustained(driven.queries, watch.readings, window, trial.scenario)
    metrics: dict[str, Field] = {
        **summary.metrics(driven.queries, window, trial.scenario),
        **long_run.fields,
        "peak_rss_bytes": Absent("the program runs in a process of its own"),
        **spent.metrics,
        **watch.board_memory(trial.device, window, available(bare.machine)),
        **watch.metrics(),
        **driven.facts,
    }
    return replace(
        bare,
        status=Status.OK,
        driver="external",
        model=model.info,
        artifact=made,
        effective=driven.effective,
        verification=verification,
        window=window,
        idle=watch.idle,
        meter=spent.meter,
        metrics=metrics,
        queries=driven.queries,
        readings=watch.readings,
        verdict=watch.verdict(window),
        warnings=(
            *spent.warnings,
            *summary.warnings(driven.queries, window, trial.scenario),
            *long_run.warnings,
            *driven.warnings,
        ),
    )
