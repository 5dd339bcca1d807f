"""Opens a trial: the one place where a model, an engine, a workload and a scenario are put together."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from edgescope import cache, registry
from edgescope.backends.base import Backend, Spec
from edgescope.errors import UsageError
from edgescope.isolate import placement
from edgescope.models import zoo
from edgescope.models.base import Model, usual_batch
from edgescope.records import Trial
from edgescope.scenarios import Scenario
from edgescope.scenarios.stop_rule import Plan
from edgescope.tracing import FOLDER
from edgescope.verify.judge import Run
from edgescope.workloads.base import OpenWorkload, Parts, Program, RunsPrograms, Workload


class Here:
    """Models and engines of this machine, from the registry."""

    @property
    def folder(self) -> Path:
        """Return the artifact cache."""
        return cache.folder("artifacts")

    def model(self, trial: Trial) -> Model:
        """Return the model that a trial names, with its shapes, its batch and its data."""
        model = zoo.get(trial.model, trial.shapes, trial.batch)
        if not trial.has_data:
            return model
        from edgescope.data.dataset_model import (
            with_data,  # a tenth of a second, and most trials have no data
        )

        return with_data(model, trial, self._fp32)

    def _fp32(self, model: Model) -> Run:
        """Return the fp32 network as its reference engine runs it."""
        backend, batch = self.reference(model.reference), usual_batch(model)
        session: Run = backend.load(backend.prepare(model, Spec(batch=batch), self.folder))
        return session

    def backend(self, name: str) -> Backend:
        """Return the engine called `name`."""
        return self.reference(name)

    def reference(self, name: str) -> Backend:
        """Return the engine called `name` on this machine."""
        backend: Backend = registry.load(registry.BACKENDS, name, "backend")()
        return backend


HERE = Here()


def workload_of(trial: Trial) -> Workload:
    """Return the kind of work that a trial names."""
    workload: Workload = registry.load(registry.WORKLOADS, trial.workload, "workload")()
    return workload


def scenario_of(trial: Trial, plan: Plan) -> Scenario:
    """Return the scenario that a trial names; `plan` decides when it stops."""
    scenario: Scenario = registry.load(registry.SCENARIOS, trial.scenario, "scenario")(trial, plan)
    return scenario


def open_work(trial: Trial, parts: Parts = HERE) -> AbstractContextManager[OpenWorkload]:
    """Return a context that holds the trial's work open."""
    return workload_of(trial).open(trial, parts)


def prepare_trial(trial: Trial, parts: Parts = HERE) -> None:
    """Build the artifacts that opening the trial and its colocated work would otherwise have to build."""
    for one in (trial, *placement.colocated(trial)):
        workload_of(one).prepare(one, parts)


def program_of(trial: Trial, parts: Parts = HERE) -> Program | None:
    """Return the program that owns the trial's loop, or None if edgescope drives it."""
    workload = workload_of(trial)
    return workload.program(trial, parts) if isinstance(workload, RunsPrograms) else None


def recorded(trial: Trial) -> AbstractContextManager[None]:
    """Return a context; the trial's tracer records this process only inside it.

    Raises UsageError if the process was not started under the tracer.
    """
    if trial.tracer == Trial.tracer:
        return nullcontext()
    if FOLDER not in os.environ:
        raise UsageError(
            "E-TRACER-1",
            f"tracer {trial.tracer} starts the process that it records, and this one runs already",
            effect="Nothing was measured",
            fix="edgescope.isolate.fresh.run(trial), or edgescope.runner.isolated.Isolated",
        )
    return placement.tracer_of(trial).window(Path(os.environ[FOLDER]))
