"""The cache of verification between processes: the fp32 outputs, and the full gate's answer for a variant.

The fp32 outputs are computed once per model, by the backend that the model names, and kept. A variant goes
through the full gate once per artifact, settings and versions. Of the outputs that were judged then 16 are kept, and a
later replicate is only checked for four of them, the next one for the next four. If they differ, the full gate runs
again.

fp32's answers also show whether labels can be those of the network's classes: none beyond them, and not all of them one
off. A network of TensorFlow's has a background before its 1000 classes; with labels from 0 to 999 it then looks
useless, and every variant of it as right as the next.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgescope import cache, registry
from edgescope.errors import Message, UsageError, WrongOutputError
from edgescope.models.base import MIN_FRAMES, Model, Samples, written
from edgescope.records import Json, Verification, digest
from edgescope.records.codec import field_from_json, to_plain
from edgescope.records.lazy import NDArray, np
from edgescope.stats.pairs import wilson
from edgescope.verify import judge, measures
from edgescope.verify.judge import Basis, Reference, Run
from edgescope.verify.measure import called
from edgescope.verify.measures import Outputs, centred_l2

VERSION = 5  # raise this when the comparison changes
JUDGING = "by measures, doubts told"
"""Changed when the same outputs may be judged otherwise; the fp32 outputs are kept."""
SHOWING = 64
"""Labelled inputs that show whether the labels are the network's own."""
QUICK, FEW = 16, 4
"""Outputs kept of a variant, and how many of them a replicate is checked for."""
AGAIN = 4
"""Inputs on which fp32 is asked twice."""
QUICK_VALUES = 2**21
"""Most output values kept for these inputs, 8 MB; if that is too little for 16 inputs, fewer are kept, at least two."""
QUICK_CEILING = 0.02
"""Centred L2 allowed between two runs of one variant; another order of summation in bf16 changes it by less."""


def known(model: Model, metric: str = "") -> bool:
    """Return whether the fp32 outputs of this model are cached, and what the measure keeps of them."""
    return _read(_path(model, judge.basis(model, metric))) is not None


def reference(
    model: Model, open_run: Callable[[], Run], *, batch: int = 1, metric: str = "", alone: bool = False
) -> Reference | Message:
    """Return the fp32 outputs of `model`, computed with `open_run()` the first time, then read from the cache.

    `open_run` is called only if they are not cached, and returns the model's reference backend as a function of one
    batch of `batch`. `alone`: the answers to inputs that come one by one. A Message says why nothing can be judged by
    the outputs: fp32 itself gives NaN, as many rows as it finds, or no numbers. ModelError if the measure gives no
    number for them: no minutes are spent on variants that nothing can judge.
    """
    of = judge.basis(model, metric)
    path, origin = _path(model, of, alone), f"{model.reference} {written(model) or 'fp32'}"
    found = _read(path)
    if found is None:
        with cache.alone(path):  # what is built beside this needs the same outputs
            found = _read(path)
            if found is None:
                found, why = _computed(open_run(), of, 1 if alone else batch, model.info.name)
                _write(path, found, to_plain(why) if why else {})
                found = _read(path) or found
    if "gate" not in found:
        return Message(**json.loads(bytes(found["about"][0]).decode()))
    return Reference(found["gate"], found.get("tally"), origin, written(model))


def _computed(run: Run, of: Basis, batch: int, name: str) -> tuple[dict[str, Outputs], Message | None]:
    """Return the outputs on the gate's inputs and what the measure keeps of labelled ones, or why there are none."""
    try:
        _labels_fit(run, of, batch, name)
        gate, kept = judge.answers(run, of, batch)
        _something(gate)
        _steady(run, of.gate, gate, batch)
    except WrongOutputError as error:
        return {}, Message(
            "E-GATE-6",
            f"{name} cannot be judged: {error.what}",
            evidence=error.evidence,
            effect="It is timed, and whether its outputs are right is not known",
            fix=error.fix,
        )
    if not isinstance(kept, tuple) or of.measure is None:
        return {"gate": gate}, None
    called(of.measure, kept, np.arange(len(kept[0])))
    return {"gate": gate, "tally": kept}, None


def _something(gate: Outputs) -> None:
    """Raise WrongOutputError if an output is empty for every input."""
    for index, array in enumerate(gate):
        if not array.size:
            raise WrongOutputError(
                "E-GATE-10",
                f"output {index} of fp32 is empty for every input",
                evidence=f"shape {'x'.join(map(str, array.shape[1:]))} on {len(array)} inputs",
                fix="real inputs (--data FOLDER): what finds things finds none in random numbers",
            )


def _labels_fit(run: Run, of: Basis, batch: int, name: str) -> None:
    """Raise UsageError where class numbers cannot be those of the network."""
    if of.labelled is None or of.labelled.labels is None or of.labelled.labels.ndim != 1:
        return
    if of.metric and ":" in of.metric:
        return  # a function of the user's may read labels as it likes
    some = of.labelled.first(SHOWING)
    check_labels(judge.outputs(run, some, batch)[0], some.labels, name)


def _steady(run: Run, inputs: Samples, first: Outputs, batch: int) -> None:
    """Raise WrongOutputError if the same batch, or the same inputs among others, give other outputs."""
    some = min(AGAIN, len(first[0]))
    again = _apart(run, inputs.first(max(some, min(batch, len(first[0])))), first, batch)
    if again > QUICK_CEILING:
        raise WrongOutputError(
            "E-GATE-8",
            "fp32 is not deterministic",
            evidence=_changed("a second call on the same inputs", again),
            fix="call eval() before exporting it, and leave out or seed what draws random numbers",
        )
    among = _apart(run, inputs.first(some), first, batch) if batch > some else 0.0
    if among > QUICK_CEILING:
        raise WrongOutputError(
            "E-GATE-11",
            "its answers depend on the other inputs of their batch",
            evidence=_changed(f"{some} inputs in other company", among),
            fix="--batch 1, where an input has no company",
        )


def _apart(run: Run, inputs: Samples, first: Outputs, batch: int) -> float:
    got = judge.outputs(run, inputs, batch)
    n = min(len(got[0]), len(first[0]))
    return centred_l2(tuple(array[:n] for array in got), tuple(array[:n] for array in first))


def _changed(what: str, apart: float) -> str:
    return (
        f"{what} changed its outputs by {apart:.2g} of what another input changes,"
        f" at most {QUICK_CEILING:g} is allowed"
    )


def verified(
    run: Run,
    model: Model,
    truth: Reference,
    *,
    precision: str,
    batch: int = 1,
    min_agreement: float | None = None,
    min_accuracy: float | None = None,
    metric: str = "",
    facts: Mapping[str, Json],
    own: bool = False,
    replicate: int = 0,
) -> Verification:
    """Return the gate's answer: from the full gate the first time, then cached while four inputs give the same outputs.

    `own`: the variant is the one that computed the reference, so its outputs are known once 16 inputs give the same.
    `facts` holds everything else that may change the outputs: artifact digest, backend, options, engine versions.
    `replicate` is the number of this process: it chooses the four of 16.
    """
    of = judge.basis(model, metric)
    samples, floors = of.gate, [judge.agreement_floor(precision), judge.ACCURACY_FLOOR, judge.REACH]
    bounds = [judge.L2_CEILING, judge.RANK_FLOOR, floors, MIN_FRAMES, JUDGING, min_agreement, min_accuracy]
    key = digest([VERSION, bounds, dict(facts), model.info.digest, precision, batch, of.key])
    path = cache.folder("judged") / f"{key}.npz"
    earlier = _earlier(path)
    if earlier:
        rows = _some(len(earlier[1][0]), max(FEW, batch), replicate)
        if unchanged(run, samples, earlier[1], batch, rows):
            return _noted(earlier[0], f"accuracy check reused: {rows.stop - rows.start}")
    whole = of.measure is None or truth.tally is not None
    known = own and whole and unchanged(run, samples, _first(truth.gate), batch)
    answer, got = judge.verify(
        run,
        model,
        truth,
        precision=precision,
        batch=batch,
        min_agreement=min_agreement,
        min_accuracy=min_accuracy,
        metric=metric,
        known=(truth.gate, truth.tally) if known else None,
    )
    if got is not None:
        _write(path, {"first": _first(got)}, to_plain(answer))
    return _noted(answer, f"it computed the reference: {len(_first(truth.gate)[0])}") if known else answer


def _noted(answer: Verification, what: str) -> Verification:
    return replace(answer, detail=f"{answer.detail}; {what} outputs checked again, unchanged")


def _first(got: Outputs) -> Outputs:
    """Return the outputs by which a replicate is checked."""
    few = min(QUICK, max(2, QUICK_VALUES // max(1, sum(array[0].size for array in got))))
    return tuple(array[:few] for array in got)


def _some(n: int, few: int, replicate: int) -> slice:
    """Return the rows of n that a replicate is checked for: `few` of them, other ones than its neighbour's."""
    start = max(0, min(replicate * few % n, n - few))
    return slice(start, min(n, start + few))


def unchanged(run: Run, samples: Samples, first: Outputs, batch: int, rows: slice = slice(None)) -> bool:
    """Return whether `run` still gives the outputs `first` on the first inputs, or on some of them."""
    asked, then = samples.first(len(first[0])).where(rows), tuple(array[rows] for array in first)
    try:
        got = judge.outputs(run, asked, batch)
    except WrongOutputError:
        return False
    same_shapes = [array.shape for array in got] == [array.shape for array in then]
    return same_shapes and measures.centred_l2(got, then) <= QUICK_CEILING


def _path(model: Model, of: Basis, alone: bool = False) -> Path:
    known = model.reference in registry.BACKENDS
    made_with = cache.versions(registry.about(model.reference).PACKAGES if known else ())
    key = digest(
        [VERSION, model.info.digest, model.reference, made_with, of.key, *(["alone"] if alone else [])]
    )
    return cache.folder("references") / f"{key}.npz"


def _earlier(path: Path) -> tuple[Verification, Outputs] | None:
    found = _read(path)
    if not found or "first" not in found:
        return None
    answer = json.loads(bytes(found["about"][0]).decode())
    fields = {name: field_from_json(value) for name, value in answer["fields"].items()}
    return Verification(**(answer | {"fields": fields})), found["first"]


def _write(path: Path, groups: Mapping[str, Sequence[NDArray[Any]]], about: Json) -> None:
    named: dict[str, Any] = {
        f"{group}.{i}": array for group, arrays in groups.items() for i, array in enumerate(arrays)
    }
    named["about.0"] = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    with cache.writing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **named)


def _read(path: Path) -> dict[str, Outputs] | None:
    """Return the arrays of each group in order, or None if the file is missing or damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    groups: dict[str, list[NDArray[Any]]] = {}
    for name, array in sorted(arrays.items(), key=lambda item: int(item[0].rpartition(".")[2])):
        groups.setdefault(name.rpartition(".")[0], []).append(array)
    return {group: tuple(members) for group, members in groups.items()}


SHIFTS = (1, -1)


def check_labels(answer: NDArray[Any], labels: NDArray[np.int64] | None, name: str) -> None:
    """Raise UsageError for labels that name no class of the network, or that fit surely better one class on.

    Shifted labels must also be right more often than by always naming the most frequent of them.

    `answer` holds fp32's first output, (n, classes); anything else is no classifier's and is not checked.
    """
    if labels is None or answer.ndim != 2 or labels.ndim != 1 or len(labels) != len(answer):
        return
    given, classes = count_right(answer, labels), answer.shape[1]
    n = len(labels)
    chance = max(1 / classes, float(np.unique(labels, return_counts=True)[1].max() / n))
    for shift in SHIFTS:
        other = count_right(answer, labels + shift)
        if wilson(other, n).lo > max(wilson(given, n).hi, chance):
            raise UsageError(
                "E-LABEL-2",
                f"the labels are shifted by one against the {classes} classes of {name}",
                evidence=f"fp32 is right on {given}/{n} as given, on {other}/{n} with each label {shift:+d}",
                effect="Every accuracy would be wrong",
                fix=f"--preprocess label_offset={shift}, beside what else it says",
            )
    beyond = labels[(labels < 0) | (labels >= classes)]
    if len(beyond):
        some = ", ".join(map(str, sorted(set(beyond.tolist()))[:5]))
        raise UsageError(
            "E-LABEL-1",
            f"{len(beyond)} of {n} labels name classes that {name} does not have",
            evidence=f"it has {classes}: 0 to {classes - 1}; found {some}",
            effect="No answer to these inputs can be right",
            fix="give the labels of this network's classes, by folders 0, 1, 2 ... or a classes.txt in its order",
        )


def count_right(answer: NDArray[Any], labels: NDArray[np.int64]) -> int:
    """Return on how many inputs the highest class is the label."""
    return int((answer.argmax(axis=1) == labels).sum())
