"""The cache of verification between processes: the fp32 outputs, and the full gate's answer for a variant.

The fp32 outputs are computed once per model, by the backend that the model names, and kept. A variant goes
through the full gate once per artifact, settings and versions; a later replicate is only checked on the first 16
inputs for the outputs that were judged then. If they differ, the full gate runs again.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache, registry
from edgescope.errors import WrongOutputError
from edgescope.models.base import MIN_FRAMES, TRAINED_FRAMES, Model, Purpose, Samples
from edgescope.records import Json, Verification, digest
from edgescope.records.codec import field_from_json, to_plain
from edgescope.verify import judge
from edgescope.verify.judge import Outputs, Reference, Run

VERSION = 3  # raise this when the comparison changes
JUDGING = "by scenes"  # change this when the same outputs may be judged otherwise; the fp32 outputs are kept
QUICK = 16
QUICK_VALUES = 2**21
"""Most output values kept for these inputs, 8 MB; if that is too little for 16 inputs, fewer are kept, at least two."""
QUICK_CEILING = 0.02
"""Centred L2 allowed between two runs of one variant; another order of summation in bf16 changes it by less."""


def known(model: Model) -> bool:
    """Return whether the fp32 outputs of this model are cached."""
    return _read(_path(model)) is not None


def reference(model: Model, open_run: Callable[[], Run], *, batch: int = 1) -> Reference:
    """Return the fp32 outputs of `model`, computed with `open_run()` the first time, then read from the cache.

    `open_run` is called only if they are not cached, and returns the model's reference backend as a function of one
    batch of `batch`. WrongOutputError if fp32 itself gives unusable outputs, NaN for example.
    """
    path, origin = _path(model), f"{model.reference} fp32"
    found = _read(path)
    if found is None:
        run = open_run()
        try:
            found = {"gate": judge.outputs(run, judge.gate_samples(model), batch)}
            labelled = _labelled(model)
            if labelled is not None:
                found["labelled"] = judge.outputs(run, labelled, batch)
        except WrongOutputError as error:
            raise WrongOutputError(
                "E-GATE-6",
                f"the fp32 network {model.info.name} itself gives no usable output",
                evidence=str(error),
                effect="No variant of it can be judged",
                fix="repair the model first",
            ) from error
        _write(path, found, {})
    return Reference(found["gate"], found.get("labelled"), origin)


def verified(
    run: Run,
    model: Model,
    truth: Reference,
    *,
    precision: str,
    batch: int = 1,
    min_agreement: float | None = None,
    facts: Mapping[str, Json],
) -> Verification:
    """Return the gate's answer: from the full gate the first time, then cached while 16 inputs give the same outputs.

    `facts` holds everything else that may change the outputs: artifact digest, backend, options, engine versions.
    """
    samples = judge.gate_samples(model)
    bounds = [judge.L2_CEILING, judge.RANK_FLOOR, judge.TOP1_FLOOR[precision], MIN_FRAMES, JUDGING]
    key = digest(
        [VERSION, bounds, dict(facts), model.info.digest, precision, batch, min_agreement, samples.digests]
    )
    path = cache.folder("judged") / f"{key}.npz"
    earlier = _earlier(path)
    if earlier and unchanged(run, samples, earlier[1], batch):
        note = f"; accuracy check reused: {len(earlier[1][0])} outputs checked again, unchanged"
        return replace(earlier[0], detail=earlier[0].detail + note)
    answer, got = judge.verify(
        run, model, truth, precision=precision, batch=batch, min_agreement=min_agreement
    )
    if got is not None:
        few = min(QUICK, max(2, QUICK_VALUES // max(1, sum(array[0].size for array in got))))
        _write(path, {"first": tuple(array[:few] for array in got)}, to_plain(answer))
    return answer


def unchanged(run: Run, samples: Samples, first: Outputs, batch: int) -> bool:
    """Return whether `run` still gives the outputs `first` on the first inputs: a replicate's quick check."""
    n = len(first[0])
    try:
        got = judge.outputs(run, samples.first(n), batch)
    except WrongOutputError:
        return False
    same_shapes = [array.shape for array in got] == [array.shape for array in first]
    return same_shapes and judge.centred_l2(got, first) <= QUICK_CEILING


def _labelled(model: Model) -> Samples | None:
    return model.samples(Purpose.LABELLED, TRAINED_FRAMES) if model.info.trained else None


def _path(model: Model) -> Path:
    labelled = _labelled(model)
    inputs = judge.gate_samples(model).digests, labelled.digests if labelled else ()
    known = model.reference in registry.BACKENDS
    made_with = cache.versions(registry.about(model.reference).PACKAGES if known else ())
    key = digest([VERSION, model.info.digest, model.reference, made_with, inputs])
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
