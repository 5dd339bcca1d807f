"""A program that owns its loop (trtexec): edgescope starts it, watches the machine, and checks its answers.

A load that another program makes (MLPerf LoadGen): who drove, what that program says of itself, its logs.
"""

from __future__ import annotations

from dataclasses import replace

from edgescope import cache
from edgescope.analysis.run import summary
from edgescope.backends.base import Backend, SelfDriven, spec_of
from edgescope.bench import gate
from edgescope.bench.collect import Run, assembled
from edgescope.bench.outcome import require
from edgescope.bench.watch import Watch, available
from edgescope.clock import MonotonicClock
from edgescope.errors import UsageError
from edgescope.models.base import Model
from edgescope.records import Absent, Result
from edgescope.scenarios import Foreign, Scenario
from edgescope.workloads.base import Opened
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
    ran = Run(
        model=model.info,
        artifact=made,
        effective=driven.effective,
        verification=verification,
        queries=driven.queries,
        window=driven.window,
        metrics={
            **summary.metrics(driven.queries, driven.window, trial.scenario),
            "peak_rss_bytes": Absent("the program runs in a process of its own"),
            **watch.board_memory(trial.device, driven.window, available(bare.machine)),
            **driven.facts,
        },
        warnings=driven.warnings,
    )
    return replace(assembled(bare, watch, ran), driver="external")


def examine(scenario: Scenario, opened: Opened, model: Model) -> None:
    """Let the program check the answers in its own way, where it drove and there is something to answer."""
    computes = model.reference not in ("null", "none")
    if isinstance(scenario, Foreign) and opened.answer is not None and computes:
        scenario.accuracy(opened.answer, model)


def noted(result: Result, scenario: Scenario) -> Result:
    """Return the result with what the program said; unchanged where edgescope drove itself."""
    if not isinstance(scenario, Foreign):
        return result
    return replace(
        result,
        driver="external",
        artifact={**result.artifact, **scenario.notes()},
        warnings=(*result.warnings, *scenario.warnings()),
    )
