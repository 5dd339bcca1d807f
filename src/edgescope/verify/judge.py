"""Judge whether outputs are the answers of the fp32 network: a fast wrong answer is a failed trial.

There are two methods, because agreement means something different for a trained and an untrained network:

    top1_agreement  trained classifiers: on how many of >= 300 real inputs does the variant name the
                    same class as fp32? The lower end of the 95 % interval must reach the threshold: Wilson's, for as
                    many independent inputs as the frames of a film count for (stats.shares). The task accuracy of both
                    on labelled inputs is reported too, but not judged.
    centred_l2      everything else: the outputs of a random network hardly depend on its input (two inputs
                    have a cosine of 0.999), so plain closeness proves nothing. The fp32 mean over the inputs
                    is subtracted from both; the rest must differ by at most 10 %, and the order in which two inputs
                    excite an output must be the same for 90 % of the pairs. No task accuracy is claimed.

A network that answers for every pixel or every box outputs a million numbers for one input. It is judged on fewer
inputs, as many as hold 2^23 values and at least 8: every input then brings far more numbers than a class label does,
and a gate on a board needs a hundred megabytes, not gigabytes.

Everything here is arithmetic on arrays; the engine is a function that is passed in.

Two figures measure how far a variant's outputs lie from the fp32 network's if there are no classes to compare.

Outputs of a random network hardly depend on its input, so plain closeness proves nothing: both figures measure
only what an input changes. `verify` judges them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import UsageError, WrongOutputError
from edgescope.models.base import DENSE, MIN_FRAMES, TRAINED_FRAMES, Batch, Model, Purpose, Samples
from edgescope.records import Absent, Field, Measured, Verification
from edgescope.stats.pairs import wilson
from edgescope.stats.shares import clustered_share

Run = Callable[[Batch], Sequence[NDArray[Any]]]

TOP1_FLOOR = {"fp32": 0.95, "tf32": 0.95, "fp16": 0.95, "bf16": 0.95, "int8": 0.75}
L2_CEILING = 0.1
RANK_FLOOR = 0.9
UNTRAINED_INPUTS = 32
FEWEST, VALUES = 8, 2**23
"""For large inputs or outputs: the least number of inputs to judge on, and the most values of all of them together."""
CHANCE = 0.01
"""A network's accuracy on labelled inputs (lower bound) must lie above this, and above the share of the commonest
label, for its top class to mean anything. Any other network is judged by centred_l2."""


@dataclass(frozen=True)
class Reference:
    """The fp32 outputs on the gate's inputs and on the labelled inputs, and what computed them."""

    gate: Outputs
    labelled: Outputs | None
    origin: str


def required_agreement(precision: str, min_agreement: float | None) -> float:
    """Return the required lower bound of top1_agreement: `min_agreement`, or the precision's floor if it is None.

    UsageError if it lies below that floor: the gate can be made stricter, never laxer.
    """
    floor = TOP1_FLOOR[precision]
    if min_agreement is not None and not min_agreement >= floor:
        raise UsageError(
            "E-GATE-7",
            f"--min-agreement {min_agreement:g} asks for less than the floor {floor:g} of {precision}",
            effect="A variant that gives other answers would pass",
            fix=f"leave --min-agreement out, or ask for more than {floor:g}",
        )
    return floor if min_agreement is None else min_agreement


def gate_samples(model: Model) -> Samples:
    """Return the inputs on which variants of `model` are judged: real ones if trained, else synthetic ones.

    400 for a trained classifier; for others 32, or as many as hold VALUES, at least FEWEST.
    """
    classifier = model.info.trained and model.info.task not in DENSE
    one = sum(math.prod(spec.shape) for spec in model.inputs)
    samples = model.samples(Purpose.GATE, TRAINED_FRAMES if classifier else fitting(UNTRAINED_INPUTS, one))
    if samples is None or not len(samples):
        raise WrongOutputError(
            "E-GATE-1",
            f"{model.info.name} has no inputs to be judged on",
            effect="Its outputs cannot be distinguished from wrong ones",
            fix="let the model's samples() return inputs for Purpose.GATE",
        )
    return samples


def fitting(most: int, values: int) -> int:
    """Return how many rows of `values` values are used: `most`, or as many as hold VALUES, at least FEWEST."""
    return min(most, max(FEWEST, VALUES // max(values, 1)))


def outputs(run: Run, samples: Samples, batch: int) -> Outputs:
    """Return run's outputs over the samples, in chunks of `batch`; the last is padded and cut again.

    All samples are used, or the first few if an output has one value per pixel or box (`fitting`).
    WrongOutputError at the first output that has no row per sample or is not finite.
    """
    parts: list[list[NDArray[Any]]] = []
    start, end = 0, len(samples)
    while start < end:
        rows = np.minimum(np.arange(start, start + batch), len(samples) - 1)
        given = {name: np.ascontiguousarray(array[rows]) for name, array in samples.arrays.items()}
        got = [np.asarray(array) for array in run(given)]
        _check(got, batch, start)
        end = min(end, fitting(end, _values(got)))
        parts.append([array[: end - start].copy() for array in got])
        start += batch
    _same_shapes(parts)
    return tuple(np.concatenate(column) for column in zip(*parts, strict=True))


def _values(got: Sequence[NDArray[Any]]) -> int:
    """Return how many values one sample's outputs hold, or 0 if the first output has one value per class."""
    return sum(math.prod(array.shape[1:]) for array in got) if got[0].ndim > 2 else 0


def _check(got: Sequence[NDArray[Any]], batch: int, start: int) -> None:
    if not got:
        raise WrongOutputError(
            "E-GATE-2", "the model returned no output", fix="let forward(), or the graph, return its tensors"
        )
    for index, array in enumerate(got):
        if array.ndim == 0 or len(array) != batch:
            shape = "x".join(map(str, array.shape)) or "a single number"
            raise WrongOutputError(
                "E-GATE-3",
                f"output {index} has no row per sample",
                evidence=f"shape {shape} for batch {batch}",
                fix="let every output keep the batch as its first axis, or measure with --batch 1",
            )
        bad = array.size - int(np.count_nonzero(np.isfinite(array)))
        if bad:
            raise WrongOutputError(
                "E-GATE-4",
                f"output {index} holds NaN or infinity",
                evidence=f"{bad} of {array.size} values, inputs {start} to {start + batch - 1}",
                fix="--precision fp32; if that gives NaN too, check the model's weights and input range",
            )


def _same_shapes(parts: Sequence[Sequence[NDArray[Any]]]) -> None:
    shapes = {tuple(array.shape[1:] for array in part) for part in parts}
    if len(shapes) > 1:
        raise WrongOutputError(
            "E-GATE-5",
            "the outputs change shape from input to input",
            evidence=str(shapes),
            fix="cut or pad the outputs to one shape, or leave that step (e.g. box selection) out of the model",
        )


def verify(
    run: Run,
    model: Model,
    reference: Reference,
    *,
    precision: str,
    batch: int = 1,
    min_agreement: float | None = None,
) -> tuple[Verification, Outputs | None]:
    """Return the gate's answer for one variant, and its outputs on the gate's inputs (None where unusable).

    `min_agreement` raises the required lower bound of top1_agreement (or of rank_agreement if that method applies and
    it lies above RANK_FLOOR); UsageError if it lies below the floor of the precision.
    """
    required_agreement(precision, min_agreement)
    labelled = model.samples(Purpose.LABELLED, TRAINED_FRAMES) if model.info.trained else None
    try:
        samples = gate_samples(model)
        got = outputs(run, samples, batch)
        named = outputs(run, labelled, batch) if labelled is not None else None
    except WrongOutputError as error:
        return refused(str(error), precision, reference.origin), None
    answer = judge(
        got,
        reference,
        precision=precision,
        min_agreement=min_agreement,
        labelled=named,
        labels=_labels(labelled),
        groups=samples.groups,
    )
    return answer, got


def _labels(samples: Samples | None) -> NDArray[np.int64] | None:
    return samples.labels if samples else None


def refused(why: str, precision: str, origin: str) -> Verification:
    """Return the Verification for outputs that cannot be compared."""
    return Verification(False, "none", {}, TOP1_FLOOR[precision], why, origin)


def judge(
    got: Outputs,
    reference: Reference,
    *,
    precision: str,
    min_agreement: float | None = None,
    labelled: Outputs | None = None,
    labels: NDArray[np.int64] | None = None,
    groups: NDArray[np.int64] | None = None,
) -> Verification:
    """Return the gate's answer for outputs already computed; `labelled` and `labels` if trained.

    `groups` are those of the gate's samples. UsageError if `min_agreement` lies below the floor of the precision.
    """
    floor = required_agreement(precision, min_agreement)
    shapes = [array.shape for array in got], [array.shape for array in reference.gate]
    if shapes[0] != shapes[1]:
        return refused(f"outputs of shape {shapes[0]}, fp32 gives {shapes[1]}", precision, reference.origin)
    if not all(np.isfinite(array).all() for array in reference.gate):
        return refused("the fp32 network itself returns NaN or infinity", precision, reference.origin)
    fields: dict[str, Field] = {
        "centred_l2": Measured(centred_l2(got, reference.gate), "1", n=len(got[0])),
        "rank_agreement": Measured(rank_agreement(got, reference.gate), "1", n=len(got[0])),
    }
    tasks = _accuracies(reference.labelled, labelled, labels)
    known = tasks.get("reference_accuracy")
    if isinstance(known, Measured) and known.lo is not None and known.lo > _chance(labels):
        return _judge_top1((got[0], reference), fields | tasks, (precision, floor), groups)
    return _judge_l2(reference, fields, max(RANK_FLOOR, min_agreement or 0.0))


def _chance(labels: NDArray[np.int64] | None) -> float:
    """Return the accuracy of a network that always gives one answer."""
    return CHANCE if labels is None else max(CHANCE, float(np.bincount(labels).max() / len(labels)))


def _judge_top1(
    answers: tuple[NDArray[Any], Reference],
    fields: dict[str, Field],
    needed: tuple[str, float],
    groups: NDArray[np.int64] | None,
) -> Verification:
    """Return the Verification of `answers` (the variant's, the reference) by `needed` (precision, floor)."""
    (got, reference), (precision, floor) = answers, needed
    same, n = got.argmax(axis=1) == reference.gate[0].argmax(axis=1), len(got)
    interval = clustered_share(same, None if groups is None else groups[:n])
    found = Measured(interval.value, "1", interval.lo, interval.hi, n)
    enough = n >= MIN_FRAMES
    worth = "" if groups is None else f", worth {interval.n_eff:.0f} independent ones"
    lo, hi = (100 * (end or 0.0) for end in (found.lo, found.hi))
    fields = {"top1_agreement": found, **fields}
    accuracy, of_reference = (fields[name] for name in ("accuracy", "reference_accuracy"))
    detail = (
        f"top-1 agreement {100 * found.value:.1f} % ({int(same.sum())}/{n}{worth}, 95 % CI {lo:.1f}-{hi:.1f};"
        f" min {100 * floor:.0f} % for {precision})"
        + ("" if enough else f"; fewer than {MIN_FRAMES} inputs are too few to pass")
        + f"; labelled inputs: {_printed(accuracy)} right, fp32 {_printed(of_reference)}"
    )
    passed = enough and found.lo is not None and found.lo >= floor
    return Verification(passed, "top1_agreement", fields, floor, detail, reference.origin)


def _judge_l2(reference: Reference, fields: dict[str, Field], floor: float) -> Verification:
    l2, rank = (_value(fields[name]) for name in ("centred_l2", "rank_agreement"))
    reason = "no task accuracy: the network is untrained, or its task is not known"
    absent = Absent(reason)
    fields = fields | dict.fromkeys(("top1_agreement", "accuracy", "reference_accuracy"), absent)
    detail = (
        f"centred outputs differ from fp32 by {l2:.2g} (at most {L2_CEILING:g}), {rank:.1%} of input pairs in"
        f" the same order (at least {floor:.0%}), on {len(reference.gate[0])} inputs; {reason}"
    )
    return Verification(
        l2 <= L2_CEILING and rank >= floor, "centred_l2", fields, L2_CEILING, detail, reference.origin
    )


def _accuracies(
    wanted: Outputs | None, got: Outputs | None, labels: NDArray[np.int64] | None
) -> dict[str, Field]:
    if (
        wanted is None
        or got is None
        or labels is None
        or wanted[0].ndim != 2
        or wanted[0].shape[1] <= labels.max()
    ):
        return {}
    right = {"accuracy": got, "reference_accuracy": wanted}
    return {
        name: _share(int((a[0].argmax(axis=1) == labels).sum()), len(labels)) for name, a in right.items()
    }


def _share(k: int, n: int) -> Measured:
    interval = wilson(k, n)
    return Measured(k / n, "1", interval.lo, interval.hi, n)


def _value(field: Field) -> float:
    return field.value if isinstance(field, Measured) else float("nan")


def _printed(field: Field) -> str:
    return f"{round(field.value * field.n)}/{field.n}" if isinstance(field, Measured) else "n/a"


Outputs = tuple[NDArray[Any], ...]


def centred_l2(got: Outputs, wanted: Outputs) -> float:
    """Return |got - wanted| / |wanted - its mean over inputs| (Euclidean), the worst of all outputs.

    0 if both are equal; infinity if fp32 does not depend on the input at all and the variant differs.
    """
    return max(_centred_l2(a, b) for a, b in zip(got, wanted, strict=True))


def _centred_l2(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Return the centred L2 of one output, row by row: dense outputs in float64 would not fit a board's memory."""
    mean = wanted.mean(axis=0, dtype=np.float64)
    rows = [_apart(a, b, mean) for a, b in zip(got, wanted, strict=True)]
    difference, spread = (math.sqrt(sum(column)) for column in zip(*rows, strict=True))
    if difference == 0.0:
        return 0.0
    return difference / spread if spread > 0.0 else float("inf")


def _apart(got: NDArray[Any], wanted: NDArray[Any], mean: NDArray[np.float64]) -> tuple[float, float]:
    """Return two squared distances of one row: of the outputs from the wanted ones, and of these from their mean."""
    exact = wanted.astype(np.float64)
    return float(np.square(got - exact).sum()), float(np.square(exact - mean).sum())


def rank_agreement(got: Outputs, wanted: Outputs) -> float:
    """Return the share of (output element, pair of inputs) ordered as in fp32, the worst of all outputs.

    Looks at up to 64 inputs and about 2,000 elements; pairs that are equal in fp32 are left out. 0.5 is
    chance.
    """
    return min(_rank(a, b) for a, b in zip(got, wanted, strict=True))


def _rank(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    n = min(64, len(wanted))
    step = max(1, wanted[0].size // 2000)
    a, b = (array[:n].reshape(n, -1)[:, ::step].astype(np.float64) for array in (got, wanted))
    first, second = np.triu_indices(n, k=1)
    order, truth = (np.sign(x[first] - x[second]) for x in (a, b))
    nonzero = truth != 0
    return float((order == truth)[nonzero].mean()) if nonzero.any() else 1.0
