"""The accuracy gate of a network in an engine: its reference outputs and the check against them.

Another backend computes the reference, in the process that prepares. The arithmetic is in verify/judge.py; what is
stored between processes is in verify/reference.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from edgescope.backends.base import Spec, spec_of
from edgescope.models.base import Model, usual_batch
from edgescope.records import Json, Machine, Trial, Verification
from edgescope.verify import reference
from edgescope.verify.judge import Reference, Run
from edgescope.workloads.base import Answer, Parts

NOTHING = Verification(True, "none", {}, 0.0, "there is nothing to verify: nothing is computed")


def prepare(model: Model, parts: Parts, metric: str = "") -> Reference | None:
    """Return the fp32 outputs of `model`, computed once by its reference backend, or None if it has none.

    The null model computes nothing (`null`); a file that is already quantised has no fp32 network (`none`).
    """
    if model.reference in ("null", "none"):
        return None

    spec = Spec(batch=usual_batch(model))

    def open_run() -> Run:
        backend = parts.backend(model.reference)
        session: Run = backend.load(backend.prepare(model, spec, parts.folder))
        return session

    return reference.reference(model, open_run, batch=spec.batch, metric=metric)


def check(
    trial: Trial,
    model: Model,
    answer: Answer | None,
    artifact: Mapping[str, Json],
    *,
    machine: Machine,
    parts: Parts,
) -> Verification | None:
    """Return the gate's verdict on `answer`, made from `artifact`; None if there is nothing to compare with."""
    if model.reference == "none":
        return None
    truth = prepare(model, parts, trial.metric) if answer is not None else None
    if answer is None or truth is None:
        return NOTHING
    facts: dict[str, Json] = {
        "artifact": artifact.get("digest"),
        "backend": trial.backend,
        "device": trial.device,
        "io": trial.io,
        "options": dict(trial.options),
        "shapes": {name: list(shape) for name, shape in trial.shapes.items()},
        "packages": machine.state.get("packages"),
        "machine": machine.id,
    }
    return reference.verified(
        answer,
        model,
        truth,
        precision=trial.precision,
        batch=trial.batch,
        min_agreement=trial.min_agreement,
        min_accuracy=trial.min_accuracy,
        metric=trial.metric,
        facts=facts,
        own=trial.backend == model.reference and replace(spec_of(trial), shapes={}, batch=1) == Spec(),
        replicate=trial.replicate,
    )
