"""A finished run as a Result: what was found, and what follows from the rows and readings of its window.

Drives a scenario in this process, and says what the process came to need.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from edgescope.analysis.energy.of_run import consumption
from edgescope.analysis.run import summary
from edgescope.analysis.run.sustained import sustained
from edgescope.bench.watch import Watch, board
from edgescope.clock import Clock
from edgescope.records import (
    Effective,
    Field,
    Json,
    ModelInfo,
    Queries,
    Result,
    Status,
    Verification,
    Window,
)
from edgescope.scenarios import Scenario
from edgescope.workloads.base import Work


@dataclass(frozen=True)
class Run:
    """What measuring and checking brought, whoever drove the load."""

    model: ModelInfo
    artifact: Mapping[str, Json]
    effective: Effective
    verification: Verification | None
    queries: Queries
    window: Window
    metrics: Mapping[str, Field]
    """What is known beside energy, long-run behaviour and the sampler's cost; counts where a name is given twice."""
    warnings: Sequence[str] = ()


def assembled(bare: Result, watch: Watch, run: Run) -> Result:
    """Return the Result of a run that finished, what it used and how it went on in the long run included."""
    trial, queries, window = bare.trial, run.queries, run.window
    spent = consumption(
        watch.readings,
        queries,
        window,
        idle=watch.idle,
        device=run.effective.device,
        board=board(),
        beside=trial.beside,
    )
    long_run = sustained(queries, watch.readings, window, trial.scenario)
    return replace(
        bare,
        status=Status.OK,
        model=run.model,
        artifact=run.artifact,
        effective=run.effective,
        verification=run.verification,
        window=window,
        idle=watch.idle,
        meter=spent.meter,
        metrics={**long_run.fields, **spent.metrics, **watch.metrics(), **run.metrics},
        queries=queries,
        readings=watch.readings,
        verdict=watch.verdict(window, summary.speeds(queries, window, trial.scenario)),
        warnings=(
            *run.warnings,
            *spent.warnings,
            *summary.warnings(queries, window, trial.scenario),
            *long_run.warnings,
        ),
    )


def drive(scenario: Scenario, work: Work, clock: Clock) -> Queries:
    """Drive the scenario with the garbage collector out of the way."""
    gc.collect()
    gc.freeze()
    try:
        return scenario.drive(work, clock)
    finally:
        gc.unfreeze()
