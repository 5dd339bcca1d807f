"""How a network wants its pictures: as the trial says, as its data or its own files say, or as its labels show.

Where nobody says it and there are labels, the fp32 network answers a few labelled pictures under each usual
normalisation, and the one that it knows most of is taken: told with the figures of all. Without labels it is not
guessed: ranges found on wrongly prepared pictures would be wrong, and so would every agreement.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edgescope import cache, options
from edgescope.data import opening, samples
from edgescope.data.base import Found, Record
from edgescope.data.samples import Wanted, picture_input
from edgescope.errors import UsageError
from edgescope.models.base import Configured, Model, Purpose, SeesImages, TensorSpec, usual_batch
from edgescope.models.image import preprocess
from edgescope.models.image.preprocess import NAMED, Preprocess
from edgescope.records import Json, Trial, digest
from edgescope.records.lazy import NDArray, np
from edgescope.verify import judge, reference
from edgescope.verify.judge import Run

VERSION = 2  # raise this when the same pictures may show another normalisation
TRIED = 64
"""Most labelled pictures that show it."""
BESIDE = ("preprocessor_config.json", "preprocess.toml", "preprocess.json", "config.json")
"""Files beside a model that may say it: transformers', one's own, timm's."""


@dataclass(frozen=True)
class Known:
    """How pictures are prepared, and who says so."""

    preprocess: Preprocess
    origin: str


def beside(model: str) -> str:
    """Return the file beside a model's file that says how pictures are prepared, or ''."""
    path = Path(model.rpartition("@")[2])
    if not os.path.isfile(path):  # False, too, of a name that is too long for one
        return ""
    files = [path.with_name(name) for name in BESIDE]
    return next((str(f) for f in files if f.is_file() and preprocess.config(f) is not None), "")


def pinned(text: str, model: str = "", data: str = "") -> str:
    """Return --preprocess as a Trial carries it: a file is pinned; '' becomes the file beside the data or the model."""
    bare = opening.bare(text)
    if not bare:
        rules = opening.read(data).rules if data else ""
        bare = rules or (beside(model) if data else "")
    words = not bare or "=" in bare or bare.partition(",")[0] in NAMED
    if words:
        return bare
    preprocess.check_there(bare)
    return options.pinned(bare)


def known(model: Model, trial: Trial) -> Known | None:
    """Return how a trial's pictures are prepared, as the trial or the model says; None where neither does."""
    spec = picture_input(model.inputs)
    if spec is None:
        return None
    own, name = _of_model(model, spec), trial.preprocess
    if not name:
        return own
    text = str(options.unpinned(name)) if options.PIN.search(name) else name
    said = f"--preprocess {opening.bare(name)}"
    if own is None or not (keys := preprocess.beside_a_normalisation(text)):
        return Known(preprocess.read(text, spec.shape), said)
    return Known(
        preprocess.made({**asdict(own.preprocess), **keys}, spec.shape), f"{own.origin}, with {said}"
    )


def _of_model(model: Model, spec: TensorSpec) -> Known | None:
    """Return what the model itself says of its pictures, or None."""
    if isinstance(model, SeesImages) and isinstance(model.preprocess, Preprocess):
        return Known(model.preprocess, f"as {model.info.name} is known to want them")
    if isinstance(model, Configured) and model.config is not None:
        return Known(
            preprocess.of_config(model.config, spec.shape), f"as {model.info.name}'s own config says"
        )
    return None


def ready(data: str, spec: TensorSpec) -> bool:
    """Return whether the data hold no pictures but inputs as the network takes them: float arrays of its shape."""
    path = cache.folder("data") / f"ready-{digest([VERSION, data, list(spec.shape)])}.json"
    about = cache.read_json(path)
    if about is None:
        about = {"ready": _is_input(opening.read(data).records, spec)}
        cache.write_json(path, about)
    return bool(about["ready"])


def _is_input(records: Sequence[Record], spec: TensorSpec) -> bool:
    """Return whether the first record that can be read is a float array of the input's shape."""
    for record in records:
        try:
            value = record.load()
        except samples.READ_ERRORS:
            continue
        array = next(iter(value.values()), None) if isinstance(value, Mapping) else value
        return isinstance(array, np.ndarray) and array.dtype.kind == "f" and array.shape == spec.shape
    return False


def shown_by_labels(model: Model, found: Found) -> None:
    """Raise UsageError where no label can show how pictures are prepared, before the network answers any."""
    if not any(record.label is not None for record in samples.sides(found).judged):
        raise _unknown(model, "there are no labelled pictures to show it")


def searched(model: Model, data: str, opened: Callable[[Model], Run] | None) -> Known:
    """Return the usual normalisation under which fp32 gives most labels; UsageError where there are no labels."""
    path = cache.folder("data") / f"shown-{digest([VERSION, model.info.digest, data])}.json"
    about = cache.read_json(path)
    if about is None:
        if opened is None:
            raise _unknown(model, "the search has not run")
        shown_by_labels(model, opening.read(data))
        about = _search(model, data, opened(model))
        cache.write_json(path, about)
    keys: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in about["keys"].items()}
    return Known(Preprocess(**keys), about["origin"])


def _search(model: Model, data: str, run: Run) -> Json:
    """Return the best normalisation's keys, and how all did."""
    spec = picture_input(model.inputs)
    assert spec is not None
    scores, answers = dict[str, tuple[int, float]](), dict[str, NDArray[Any]]()
    found = opening.read(data)
    once = [replace(r, load=functools.cache(r.load)) for r in found.records]  # each is decoded once
    found = replace(found, records=once)
    names = NAMED if preprocess.sides_of(spec.shape)[0] == 3 else ("unit", "half", "imagenet", "bytes")  # type: ignore[index]
    truth = np.zeros(0, dtype=np.int64)
    for name in names:
        way = preprocess.named(name, spec.shape)
        given = samples.made(found, Purpose.LABELLED, TRIED, Wanted(model.inputs, way))
        if given is None or given.labels is None or given.labels.ndim != 1:
            raise _unknown(model, "there are no labelled pictures to show it")
        answer = judge.outputs(run, given, usual_batch(model))[0]
        if answer.ndim != 2:
            raise _unknown(model, f"its output of shape {answer.shape[1:]} is no class")
        truth = given.labels
        answers[name], scores[name] = answer, _score(answer, truth)
    best = max(scores, key=lambda name: scores[name])
    shifted = {
        n: max(reference.count_right(a, truth + s) for s in reference.SHIFTS) for n, a in answers.items()
    }
    reference.check_labels(answers[max(shifted, key=lambda name: shifted[name])], truth, model.info.name)
    said = ", ".join(f"{name} {right}" for name, (right, _) in scores.items())
    origin = f"{best}, as {len(truth)} labelled pictures show (right answers: {said})"
    return {"keys": asdict(preprocess.named(best, spec.shape)), "origin": origin}


def _score(answer: NDArray[Any], labels: NDArray[np.int64]) -> tuple[int, float]:
    """Return the number of right answers, then how much the labels stand out."""
    shift = answer - answer.max(axis=1, keepdims=True)
    inside = labels < answer.shape[1]
    likely = shift - np.log(np.exp(shift).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))[inside]
    right = int((answer.argmax(axis=1) == labels).sum())
    return right, float(likely[rows, labels[inside]].sum())


def _unknown(model: Model, why: str) -> UsageError:
    return UsageError(
        "E-PREPROCESS-2",
        f"it is not known how {model.info.name} wants its pictures",
        evidence=f"{why}; it takes {', '.join('x'.join(map(str, s.shape)) for s in model.inputs)}",
        effect="Ranges and answers on wrongly prepared pictures would be wrong",
        fix=f"--preprocess {next(iter(NAMED))} (or {', '.join(list(NAMED)[1:])}, keys, or a file)",
    )
