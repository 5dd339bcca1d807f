"""Judge whether outputs are the answers of the fp32 network: a fast wrong answer is a failed trial.

There are four methods; the first that there are inputs for decides:

    a measure       labelled inputs, 100 or more: the variant's top-1, mIoU, mAP or whatever measures right answers
                    (verify.measures) must reach 99 % of fp32's on the same inputs, or the share that
                    `min_accuracy` asks for. Few labels can hide a loss: where the 95 % interval of the difference
                    reaches five times as far as the floor, the outputs must be close to fp32's as well.
    top1_agreement  trained classifiers: on how many of >= 100 real inputs does the variant name the
                    same class as fp32? The lower end of the 95 % interval must reach the threshold: Wilson's, for as
                    many independent inputs as the frames of a film count for (stats.shares). What a few labelled
                    inputs say is reported, but not judged.
    box_agreement   trained detectors: mean average precision, at overlap 0.5, of the variant's boxes against those
                    that fp32 finds in >= 100 real inputs. The lower end of its 95 % interval over inputs must reach the
                    same thresholds as top1_agreement.
    centred_l2      everything else: the outputs of a random network hardly depend on its input (two inputs
                    have a cosine of 0.999), so plain closeness proves nothing. The fp32 mean over the inputs
                    is subtracted from both; the rest must differ by at most 10 %, and the order in which two inputs
                    excite an output must be the same for 90 % of the pairs. No task accuracy is claimed.

A network that answers for every pixel or every box outputs a million numbers for one input. Its outputs are compared on
fewer inputs, as many as hold 2^23 values and at least 8: every input then brings far more numbers than a class label
does, and a gate on a board needs a hundred megabytes, not gigabytes. A measure keeps little of an input and sees all.

Everything here is arithmetic on arrays; the engine is a function that is passed in.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edgescope.errors import UsageError, WrongOutputError
from edgescope.models.base import DENSE, MIN_FRAMES, TRAINED_FRAMES, Batch, Decodes, Model, Purpose, Samples
from edgescope.records import Absent, Field, Measured, Verification, digest
from edgescope.records.lazy import NDArray, np
from edgescope.stats.shares import clustered_share
from edgescope.verify.measure import (
    Compared,
    Measure,
    Tally,
    absent,
    agreed,
    compared,
    lacking,
    measure_of,
)
from edgescope.verify.measures import BoxAgreement, Outputs, centred_l2, rank_agreement
from edgescope.verify.metric_names import named

Run = Callable[[Batch], Sequence[NDArray[Any]]]

FP32_FLOOR, REDUCED_FLOOR = 0.95, 0.80
"""Least agreement with fp32 (lower end): of another engine in fp32, of reduced precisions (edgescope docs metrics)."""
ACCURACY_FLOOR, REACH = 0.99, 5.0
"""Least share of fp32's value of a measure, and how many times this loss its interval may reach."""
L2_CEILING = 0.1
RANK_FLOOR = 0.9
UNTRAINED_INPUTS = 32
FEWEST, VALUES = 8, 2**23
"""For large inputs or outputs: the least number of inputs to judge on, and the most values of all of them together."""
VARIED = 0.75
"""Most inputs that fp32 may give one class, where no label shows that its classes mean anything: below the floor, so
that a variant that always gives one answer fails."""


@dataclass(frozen=True)
class Reference:
    """The fp32 outputs on the gate's inputs, what the measure keeps of the labelled ones, and what computed them."""

    gate: Outputs
    tally: Tally | None
    origin: str
    written: str = ""
    """The precision of a file that holds no fp32 network: its own outputs stand here; '' for fp32."""


@dataclass(frozen=True)
class Basis:
    """What variants of a model are judged on: the gate's inputs, and labelled ones with the measure that reads them."""

    gate: Samples
    labelled: Samples | None
    measure: Measure | None
    metric: str
    """The measure as the trial names it; '' if the labels chose it."""
    classifier: bool
    """Whether its top class means something, labels or not."""

    @property
    def key(self) -> str:
        """The hash of everything but the outputs that an answer depends on."""
        told = self.labelled
        right = None if told is None else [_plain(told.labels), [b.tolist() for b in told.boxes or ()]]
        scenes = [_plain(x.groups) for x in (self.gate, told) if x is not None]
        return digest([self.metric, self.gate.digests, told.digests if told else (), right, scenes])


def _plain(array: NDArray[Any] | None) -> object:
    return None if array is None else [list(array.shape), array.tobytes().hex()]


def basis(model: Model, metric: str = "") -> Basis:
    """Return what variants of `model` are judged on; UsageError if the measure `metric` lacks what it needs.

    The labelled inputs are the model's own, or the gate's if these have labels.
    """
    gate = gate_samples(model)
    labelled = model.samples(Purpose.LABELLED, TRAINED_FRAMES)
    if labelled is None and (gate.labels is not None or gate.boxes is not None):
        labelled = gate
    unlabelled = labelled is None and model.info.trained and model.info.task not in DENSE
    known = metric == "agreement" or unlabelled
    measure = measure_of(model, labelled, metric)
    if isinstance(measure, BoxAgreement):
        labelled = gate  # the boxes of fp32 on them stand for the labels
    return Basis(gate, labelled, measure, named(metric), known)


def agreement_floor(precision: str) -> float:
    """Return the least lower bound of top1_agreement: one for fp32 in another engine, one for all else."""
    return FP32_FLOOR if precision == "fp32" else REDUCED_FLOOR


def required_agreement(precision: str, min_agreement: float | None) -> float:
    """Return the required lower bound of top1_agreement: `min_agreement`, or the precision's floor if it is None.

    UsageError if it lies below that floor: the gate can be made stricter, never laxer.
    """
    floor = agreement_floor(precision)
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

    400 for a trained classifier, and for a trained detector whose boxes can be read; for others 32, or as many as hold
    VALUES, at least FEWEST.
    """
    telling = model.info.trained and (model.info.task not in DENSE or isinstance(model, Decodes))
    one = sum(math.prod(spec.shape) for spec in model.inputs)
    samples = model.samples(Purpose.GATE, TRAINED_FRAMES if telling else fitting(UNTRAINED_INPUTS, one))
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
    WrongOutputError at the first output that is no tensor of numbers, has no row per sample, or is not finite. What one
    sample alone gives is its row, whatever its shape.
    """
    kept = _Outputs(len(samples))
    for _, got in _chunks(run, samples, batch):
        if not kept.add(got):
            break
    return kept.whole


def answers(run: Run, of: Basis, batch: int) -> tuple[Outputs, Tally | str | None]:
    """Return run's outputs over the gate's inputs, and what the measure keeps of the labelled ones.

    In place of the latter, why the measure does not apply; None if nothing is labelled. Inputs that are both run once.
    UsageError if the trial names a measure that does not apply.
    """
    if of.measure is None or of.labelled is None:
        return outputs(run, of.gate, batch), None
    alike = of.labelled.digests == of.gate.digests
    kept, parts, why = _Outputs(len(of.gate)), list[Tally](), ""
    for start, got in _chunks(run, of.labelled, batch):
        if alike:
            kept.add(got)
        try:
            parts.append(of.measure.tally(got, slice(start, start + len(got[0]))))
        except ValueError as error:
            if of.metric:
                raise lacking(of.measure.name, str(error)) from error
            why = str(error)
            break
    tally = why or tuple(np.concatenate(column) for column in zip(*parts, strict=True))
    return kept.whole if alike and not why else outputs(run, of.gate, batch), tally


class _Outputs:
    """Outputs of one chunk after another, as many samples as `fitting` says."""

    def __init__(self, most: int) -> None:
        self._parts: list[list[NDArray[Any]]] = []
        self._most, self._n = most, 0

    def add(self, got: Sequence[NDArray[Any]]) -> bool:
        """Keep what is needed of a chunk; return whether more is."""
        self._most = min(self._most, fitting(self._most, _values(got)))
        if self._n < self._most:
            self._parts.append([array[: self._most - self._n].copy() for array in got])
            self._n += len(self._parts[-1][0])
        return self._n < self._most

    @property
    def whole(self) -> Outputs:
        """All of it; WrongOutputError if shapes differ."""
        _same_shapes(self._parts)
        return tuple(np.concatenate(column) for column in zip(*self._parts, strict=True))


def _chunks(run: Run, samples: Samples, batch: int) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Yield (number of the first sample, outputs) of one batch after another, good until the next is asked for."""
    for start in range(0, len(samples), batch):
        rows = np.minimum(np.arange(start, start + batch), len(samples) - 1)
        given = {name: np.ascontiguousarray(array[rows]) for name, array in samples.arrays.items()}
        got = _numbers(run(given))
        if batch == 1:
            got = [array if array.ndim and len(array) == 1 else array[None] for array in got]
        _check(got, batch, start)
        yield start, [array[: len(samples) - start] for array in got]


def numeric(output: object) -> bool:
    """Return whether an output is a tensor of real numbers, and no text, sequence or map."""
    if isinstance(output, list | tuple | dict | str | bytes):
        return False
    return np.asarray(output).dtype.kind in "biuf"


def _numbers(outputs: Sequence[Any]) -> list[NDArray[Any]]:
    for index, output in enumerate(outputs):
        if not numeric(output):
            raise WrongOutputError(
                "E-GATE-9",
                f"output {index} is no tensor of numbers",
                evidence=f"it is {_kind(output)}",
                fix="export it with tensors of numbers as its outputs (skl2onnx: zipmap=False), or leave text out",
            )
    return [np.asarray(output) for output in outputs]


def _kind(output: object) -> str:
    """Return `a sequence of 3 dict`, or `text` and other types of values."""
    if isinstance(output, list | tuple):
        return f"a sequence of {len(output)} {type(output[0]).__name__ if output else 'values'}"
    if isinstance(output, dict):
        return "a map"
    kind = np.asarray(output).dtype
    return "text" if kind.kind in "OSU" else f"of type {kind.name}"


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
                fix="--batch 1, or let every output keep the batch as its first axis",
            )
        bad = array.size - int(np.count_nonzero(np.isfinite(array)))
        if bad:
            raise WrongOutputError(
                "E-GATE-4",
                f"output {index} holds NaN or infinity",
                evidence=f"{bad} of {array.size} values, inputs {start} to {start + batch - 1}",
                fix="--precision fp32; if that gives NaN too, real inputs (--data FOLDER)",
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
    min_accuracy: float | None = None,
    metric: str = "",
    known: tuple[Outputs, Tally | None] | None = None,
) -> tuple[Verification, Outputs | None]:
    """Return the gate's answer for one variant, and its outputs on the gate's inputs (None where unusable).

    `known` holds its outputs and their tally where they need not be computed.
    `min_agreement` raises the required lower bound of top1_agreement (or of rank_agreement if that method applies and
    it lies above RANK_FLOOR), and lets these judge whatever labels there are; UsageError if it lies below the floor of
    the precision. `min_accuracy` is the share of fp32's value that a measure must reach, ACCURACY_FLOOR if None.
    """
    required_agreement(precision, min_agreement)
    of = basis(model, metric)
    try:
        got, kept = known or answers(run, of, batch)
    except WrongOutputError as error:
        return refused(str(error), precision, reference.origin), None
    answer = judge(
        got,
        reference,
        precision=precision,
        min_agreement=min_agreement,
        min_accuracy=min_accuracy,
        told=told(of, kept, reference),
        groups=of.gate.groups,
        classifier=of.classifier,
    )
    return _of_itself(answer, reference), got


def _of_itself(answer: Verification, reference: Reference) -> Verification:
    """Return the answer in other words where there is no fp32 network: the file was compared with itself."""
    if not reference.written:
        return answer
    text = answer.detail.replace("fp32", f"the file's own in {reference.origin.partition(' ')[0]}")
    what = "quantised" if reference.written.startswith("int") else reference.written
    return replace(answer, detail=f"{text}; the file is {what} already: not verified against fp32")


Told = Sequence[Compared] | Measured | Absent | str
"""What a measure says of a variant, the one that judges first; how well its boxes agree with fp32's; or why neither."""


def told(of: Basis, kept: Tally | str | None, reference: Reference) -> Told:
    """Return what the measure (and those beside it) says of a variant's tally, or why it says nothing."""
    if of.measure is None or isinstance(kept, str) or kept is None or reference.tally is None:
        return kept if isinstance(kept, str) else "nothing tells the right answers"
    if isinstance(of.measure, BoxAgreement):
        return agreed(of.measure, kept, reference.tally, of.gate.groups)
    groups = of.labelled.groups if of.labelled else None
    first = compared(of.measure, kept, reference.tally, groups)
    beside = (compared(each, kept, reference.tally, groups, drawn=False) for each in of.measure.others)
    return [first, *beside]


def refused(why: str, precision: str, origin: str) -> Verification:
    """Return the Verification for outputs that cannot be compared."""
    return Verification(False, "none", {}, agreement_floor(precision), why, origin)


def judge(
    got: Outputs,
    reference: Reference,
    *,
    precision: str,
    min_agreement: float | None = None,
    min_accuracy: float | None = None,
    told: Told = "nothing tells the right answers",
    groups: NDArray[np.int64] | None = None,
    classifier: bool = False,
) -> Verification:
    """Return the gate's answer for outputs already computed; `told` is what a measure says, the one that judges first.

    `groups` are those of the gate's samples; `classifier`: its top class means something though no label shows it.
    UsageError if `min_agreement` lies below the floor of the precision.
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
    if isinstance(told, Measured | Absent):
        fields["box_agreement"] = boxes = told
        told = "nothing tells the right boxes"
        if isinstance(boxes, Measured) and boxes.n >= MIN_FRAMES:
            return _judge_boxes(reference, fields | absent(told), boxes, (precision, floor))
    fields |= absent(told) if isinstance(told, str) else _told(told)
    first = None if isinstance(told, str) else told[0]
    if first is not None and first.telling and first.ours.n >= MIN_FRAMES and min_agreement is None:
        return _judge_measure(
            reference, fields, first, ACCURACY_FLOOR if min_accuracy is None else min_accuracy
        )
    knows = first is not None and first.telling and first.measure.name.startswith("top")
    classes = knows or (classifier and _varied(reference.gate[0]))
    if classes and len(got[0]) >= MIN_FRAMES:
        return _judge_top1((got[0], reference), fields, (precision, floor), groups)
    few = f"{len(got[0])} inputs are too few to judge by top class" if classes else ""
    return _judge_l2(reference, fields, max(RANK_FLOOR, min_agreement or 0.0), first, few)


def _told(told: Sequence[Compared]) -> dict[str, Field]:
    """Return the figures of the measures; `accuracy` is the one that judges."""
    first = told[0]
    fields: dict[str, Field] = {"accuracy": first.ours, "reference_accuracy": first.theirs}
    fields["accuracy_difference"] = first.difference
    for each in told:
        fields |= each.fields()
    return fields


def _varied(scores: NDArray[Any]) -> bool:
    """Return whether fp32 tells the inputs apart by their top class, so that agreement with it can fail."""
    if scores.ndim != 2 or scores.shape[1] < 2:
        return False
    return float(np.bincount(scores.argmax(axis=1)).max()) <= VARIED * len(scores)


def _judge_measure(
    reference: Reference, fields: dict[str, Field], found: Compared, share: float
) -> Verification:
    """Return the Verification by a measure, which may lose what `share` of fp32's value leaves."""
    lost = (1 - share) * abs(found.theirs.value)
    apart, n = found.difference, found.ours.n
    worst = apart.lo if apart.lo is not None else -math.inf
    sure = worst >= -REACH * lost
    enough = apart.value >= -lost - 1e-12
    detail = f"{found.sentence(-lost)}, on {n} labelled inputs"
    if enough and not sure:
        close = _close(fields)
        detail += f"; they leave open a loss of {REACH:g} times the floor, and the outputs are"
        detail += " close to fp32's" if close else " not close to fp32's: more labelled inputs would tell"
        enough = close
    return Verification(enough, found.measure.name, fields, share, detail, reference.origin)


def _close(fields: dict[str, Field]) -> bool:
    return _value(fields["centred_l2"]) <= L2_CEILING and _value(fields["rank_agreement"]) >= RANK_FLOOR


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
    worth = "" if groups is None else f", worth {interval.n_eff:.0f} independent ones"
    lo, hi = (100 * (end or 0.0) for end in (found.lo, found.hi))
    fields = {"top1_agreement": found, **fields}
    accuracy, of_reference = (fields[name] for name in ("accuracy", "reference_accuracy"))
    labelled = isinstance(accuracy, Measured)
    detail = (
        f"top-1 agreement {100 * found.value:.1f} % ({int(same.sum())}/{n}{worth}, 95 % CI {lo:.1f}-{hi:.1f};"
        f" min {100 * floor:.0f} % for {precision})"
        + (
            f"; labelled inputs: {_printed(accuracy)} right, fp32 {_printed(of_reference)}"
            if labelled
            else ""
        )
    )
    passed = found.lo is not None and found.lo >= floor
    return Verification(passed, "top1_agreement", fields, floor, detail, reference.origin)


def _judge_boxes(
    reference: Reference, fields: dict[str, Field], found: Measured, needed: tuple[str, float]
) -> Verification:
    """Return the Verification by the agreement of boxes; `needed` is (precision, floor)."""
    precision, floor = needed
    lo = found.lo if found.lo is not None else -math.inf
    ends = f"95 % CI {100 * lo:.1f}-{100 * found.hi:.1f}" if found.hi is not None else "no interval"
    detail = (
        f"box agreement {100 * found.value:.1f} % (mAP at overlap 0.5 against the boxes of fp32 on {found.n} images,"
        f" {ends}; min {100 * floor:.0f} % for {precision})"
    )
    return Verification(lo >= floor, "box_agreement", fields, floor, detail, reference.origin)


def _judge_l2(
    reference: Reference, fields: dict[str, Field], floor: float, first: Compared | None, few: str
) -> Verification:
    l2, rank = (_value(fields[name]) for name in ("centred_l2", "rank_agreement"))
    reason = "no task accuracy: the network is untrained, or its task is not known"
    if first is not None:
        few = f"{first.ours.n} labelled inputs are too few to judge by, {MIN_FRAMES} would do"
        if first.ours.n >= MIN_FRAMES:
            few = "judged by agreement, as --min-agreement asks"
        chance = "fp32 is no better than chance on the labelled inputs: are these the network's own labels?"
        reason = f"{first.sentence(0.0).partition('; floor')[0]}); {few if first.telling else chance}"
    elif isinstance(told := fields["accuracy"], Absent) and (few or not told.reason.startswith("nothing")):
        reason = f"no task accuracy: {told.reason}" + (f"; {few}, {MIN_FRAMES} would do" if few else "")
    if first is None or not first.telling:
        why = Absent(reason)
        fields = fields | dict.fromkeys(("accuracy", "reference_accuracy", "accuracy_difference"), why)
    fields = fields | {"top1_agreement": Absent(few or "the top class is not known to mean anything")}
    detail = (
        f"centred outputs differ from fp32 by {l2:.3g} (at most {L2_CEILING:g}), {rank:.1%} of input pairs in"
        f" the same order (at least {floor:.0%}), on {len(reference.gate[0])} inputs; {reason}"
    )
    passed = l2 <= L2_CEILING and rank >= floor
    doubt = _doubt(first)
    return Verification(passed, "centred_l2", fields, L2_CEILING, detail, reference.origin, doubt)


def _doubt(first: Compared | None) -> str:
    """Return why labels, of which there are enough, tell nothing; '' where they do."""
    if first is None or first.telling or first.ours.n < MIN_FRAMES:
        return ""
    theirs, chance = (f"{100 * x:.1f} %" for x in (first.theirs.value, first.measure.chance))
    return f"{first.measure.title} of fp32 is {theirs} on {first.ours.n} labelled inputs, chance is {chance}"


def _value(field: Field) -> float:
    return field.value if isinstance(field, Measured) else float("nan")


def _printed(field: Field) -> str:
    return f"{round(field.value * field.n)}/{field.n}" if isinstance(field, Measured) else "n/a"
