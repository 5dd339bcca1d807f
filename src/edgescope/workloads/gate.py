"""The accuracy gate of a network in an engine: its reference outputs and the check against them.

Another backend computes the reference, in the process that prepares. The arithmetic is in verify/judge.py; what is
stored between processes is in verify/reference.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edgescope.backends.base import Spec, spec_of
from edgescope.errors import EdgescopeError, Message, UnavailableError
from edgescope.models.base import Model, Samples, usual_batch, written
from edgescope.records import GateOutcome, Json, Machine, Measured, Trial, Verification
from edgescope.verify import judge, reference
from edgescope.verify.judge import Reference, Run, numeric
from edgescope.workloads.base import NOTHING, Answer, Parts

QUANTISED = Message(
    "W-GATE-1",
    "the file is quantised and holds no fp32 network to compare its answers with",
    effect="It is timed, and whether its outputs are right is not known",
    fix="edgescope optimize FLOAT_FILE, the file before it was quantised",
)
_ROUNDED = Message(
    "W-GATE-3",
    "on random numbers two engines' roundings of a quantised file cannot be told from a fault",
    effect="It is timed, and whether its outputs are right is not known",
    fix="--data FOLDER with inputs of yours",
)
UNANSWERED = Message(
    "W-GATE-2",
    "the engine returns no answers that could be compared",
    effect="It is timed, and whether its outputs are right is not known",
    fix="edgescope backends",
)


def prepare(model: Model, parts: Parts, metric: str = "", batch: int = 1) -> Reference | Message | None:
    """Return the fp32 outputs of `model`, computed once by its reference backend, or why there are none.

    The null model computes nothing: None. Where answers cannot be told apart in a batch, those of single inputs are
    what a trial of batch 1 is compared with. An engine that lacks an operator of the file must not keep another one,
    which has it, from being measured: its error is the reason.
    """
    if model.reference == "null":
        return None
    if model.reference == "none":
        return QUANTISED
    usual = usual_batch(model)
    found = _reference(model, parts, metric, usual)
    if isinstance(found, Message) and batch == 1 < usual:
        single = _reference(model, parts, metric, 1, alone=True)
        return found if isinstance(single, Message) else single
    return found


def _plain(model: Model, batch: int = 1) -> Spec:
    """Return how the reference runs: in fp32, or a file of another precision as it is."""
    return Spec("as_is" if written(model) else "fp32", batch=batch)


class _NoReferenceError(Exception):
    """The engine of the reference cannot load or run the network."""


def _reference(
    model: Model, parts: Parts, metric: str, batch: int, *, alone: bool = False
) -> Reference | Message:
    try:
        return reference.reference(
            model, lambda: _run_of(model, parts, batch), batch=batch, metric=metric, alone=alone
        )
    except _NoReferenceError as error:
        return _none_of(model, error.__cause__)


def _run_of(model: Model, parts: Parts, batch: int) -> Run:
    """Return the reference backend as a function of one batch of `batch`; it raises _NoReferenceError."""
    backend = parts.reference(model.reference)
    session: Run = _or_no_reference(
        lambda: backend.load(backend.prepare(model, _plain(model, batch), parts.folder))
    )
    return lambda inputs: _or_no_reference(lambda: session(inputs))


def _or_no_reference(work: Callable[[], Any]) -> Any:
    """Return what `work` returns; UnavailableError where a package is missing, which is the user's to mend."""
    try:
        return work()
    except (UnavailableError, MemoryError):
        raise
    except Exception as error:  # engines raise anything
        raise _NoReferenceError from error


def _none_of(model: Model, error: BaseException | None) -> Message:
    known = error if isinstance(error, EdgescopeError) else None
    return Message(
        "E-GATE-12",
        f"{model.reference} cannot compute the fp32 answers of {model.info.name}",
        evidence=f"{known.code}: {known.what}"
        if known
        else " ".join(f"{type(error).__name__}: {error}".split())[:300],
        effect="Other engines are timed, and whether their outputs are right is not known",
        fix=known.fix if known else "",
    )


def check(
    trial: Trial,
    model: Model,
    answer: Answer | None,
    artifact: Mapping[str, Json],
    *,
    machine: Machine,
    parts: Parts,
) -> GateOutcome:
    """Return the gate's verdict on `answer`, made from `artifact`, or why there is none."""
    truth = prepare(model, parts, trial.metric, trial.batch)
    if truth is None:
        return NOTHING
    if answer is None:
        return UNANSWERED
    if isinstance(truth, Message):
        return _without_numbers(trial, model, answer, parts) or truth
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
    found = reference.verified(
        answer,
        model,
        truth,
        precision=trial.precision,
        batch=trial.batch,
        min_agreement=trial.min_agreement,
        min_accuracy=trial.min_accuracy,
        metric=trial.metric,
        facts=facts,
        own=trial.backend == model.reference
        and replace(spec_of(trial), shapes={}, batch=1) == _plain(model)
        and type(parts.backend(trial.backend)) is type(parts.reference(trial.backend)),
        replicate=trial.replicate,
    )
    return _ROUNDED if _cannot_tell(found, model) else found


def _without_numbers(trial: Trial, model: Model, answer: Answer, parts: Parts) -> Verification | None:
    """Return a failed verdict on outputs without a finite number, which are wrong though nothing can be compared.

    Random numbers may be what a network has no answer to, so fp32 must have one. To real inputs every network has.
    """
    samples = judge.gate_samples(model)
    mute = silent(answer, samples, trial.batch)
    if not any(mute):
        return None
    origin = f"{model.reference} {written(model) or 'fp32'}"
    if all(mute) and not samples.noise:
        return judge.refused("no output holds a finite number on real inputs", trial.precision, origin)
    theirs = _silent_reference(model, parts) or mute
    wrong = [number for number, (ours, other) in enumerate(zip(mute, theirs, strict=False)) if ours > other]
    if not wrong:
        return None
    return judge.refused(
        f"output {wrong[0]} holds NaN or infinity alone, that of {origin} does not", trial.precision, origin
    )


def _silent_reference(model: Model, parts: Parts) -> tuple[bool, ...]:
    """Return which outputs of the reference hold no finite number; nothing where it is not known."""
    if model.reference == "none":
        return ()
    batch = usual_batch(model)
    try:
        return silent(_run_of(model, parts, batch), judge.gate_samples(model), batch)
    except _NoReferenceError:
        return ()


def _cannot_tell(found: Verification, model: Model) -> bool:
    """Return whether a quantised file's answers on noise differ by what two roundings of it may: not known then.

    Random numbers hardly move the outputs of most networks, so one step of int8 is a large part of what they move.
    What differs by as much as the outputs of another input is wrong all the same.
    """
    apart = found.fields.get("centred_l2")
    near = isinstance(apart, Measured) and apart.value < 1
    return bool(written(model)) and not found.passed and near and judge.gate_samples(model).noise


SILENCE_ASKED = 4
"""Inputs that are asked, or one batch if that is more."""


def silent(run: Run, samples: Samples, batch: int) -> tuple[bool, ...]:
    """Return, for each output of `run`, whether it holds numbers and none of them is finite, on the first inputs."""
    most = min(len(samples), max(SILENCE_ASKED, batch))
    found = [_silent_in(run, samples, start, batch) for start in range(0, most, batch)]
    said = ([one for one in each if one is not None] for each in zip(*found, strict=True))
    return tuple(bool(known) and all(known) for known in said)


def _silent_in(run: Run, samples: Samples, start: int, batch: int) -> list[bool | None]:
    rows = np.minimum(np.arange(start, start + batch), len(samples) - 1)
    outputs: Sequence[Any] = run(
        {name: np.ascontiguousarray(array[rows]) for name, array in samples.arrays.items()}
    )
    return [_holds_none(output) for output in outputs]


def _holds_none(output: object) -> bool | None:
    """Return whether no number of an output is finite; None where it is empty."""
    if not numeric(output):
        return False
    values = np.asarray(output)
    return not np.isfinite(values).any() if values.size else None
