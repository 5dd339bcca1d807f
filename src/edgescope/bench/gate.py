"""Verification of a running trial: the fp32 reference, made once, and the full gate, passed once for each variant.

The reference is computed by another backend in the `prepare` process and kept on disk. The gate's answer is kept
under everything that could change it; later processes of the same variant then prove on sixteen inputs that
they give the outputs that passed, and any that do not go through the whole gate again.
"""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache, codec, registry, verify
from edgescope.backends.base import Spec
from edgescope.models.base import Model, Purpose, Samples
from edgescope.records import Machine, Trial, Verification, digest
from edgescope.verify import Outputs, Reference
from edgescope.workloads.base import Answer, Opened

BATCH = 8
QUICK = 16
#: Largest difference (relative L2) from the outputs that passed the gate; other thread counts change the last bits.
QUICK_CEILING = 0.01
NOTHING = Verification(True, "none", {}, 0.0, "there is nothing to verify: the null workload computes nothing")


def spec_of(trial: Trial) -> Spec:
    """Return what the backend is asked for."""
    return Spec(trial.precision, trial.batch, trial.shapes, trial.io, trial.options)


def prepare(model: Model) -> None:
    """Make the reference outputs if there is anything to compare with."""
    if model.reference != "null":
        reference(model)


def reference(model: Model) -> Reference:
    """Return the fp32 outputs on the gate's inputs, from the cache or from the model's reference backend."""
    gate = verify.gate_samples(model)
    labelled = model.samples(Purpose.LABELLED, verify.TRAINED_FRAMES) if model.info.trained else None
    key = digest([model.info.digest, gate.digests, labelled.digests if labelled else None, model.reference])
    path = cache.folder("references") / f"{key}.npz"
    kept = _arrays(path)
    if kept is None:
        kept = _compute(model, gate, labelled)
        with cache.writing(path) as temporary:
            np.savez(temporary, **kept)
    names = sorted(kept)
    return Reference(
        tuple(kept[n] for n in names if n.startswith("gate")),
        tuple(kept[n] for n in names if n.startswith("labelled")) or None,
        f"{model.reference} fp32 on {gate.origin}",
    )


def _compute(model: Model, gate: Samples, labelled: Samples | None) -> dict[str, NDArray[Any]]:
    backend = registry.load(registry.BACKENDS, model.reference, "backend")()
    session = backend.load(backend.prepare(model, Spec(batch=BATCH), cache.folder("artifacts")))
    try:
        out = {f"gate{i:03}": a for i, a in enumerate(verify.outputs(session, gate, BATCH))}
        if labelled is not None:
            out |= {f"labelled{i:03}": a for i, a in enumerate(verify.outputs(session, labelled, BATCH))}
    finally:
        session.close()
    return out


def check(trial: Trial, model: Model, opened: Opened, machine: Machine) -> Verification:
    """Return the gate's answer for the open session."""
    if opened.answer is None or model.reference == "null":
        return NOTHING
    note = cache.folder("gates") / f"{_key(trial, model, opened, machine)}.json"
    passed = _remembered(note, model, opened.answer, trial.batch)
    if passed is not None:
        return passed
    answer, outputs = verify.verify(
        opened.answer, model, reference(model), precision=trial.precision, batch=trial.batch, gate=trial.gate
    )
    if outputs is not None and answer.passed:
        with cache.writing(note.with_suffix(".npz")) as temporary:
            np.savez(temporary, **{f"gate{i:03}": a[:QUICK] for i, a in enumerate(outputs)})
        cache.write_json(note, codec.to_plain(answer))
    return answer


def _key(trial: Trial, model: Model, opened: Opened, machine: Machine) -> str:
    """Return the hash of everything that could change the gate's answer."""
    asked = {**trial.to_json(), "replicate": 0, "min_s": 0, "max_s": 0, "rel_width": 0, "warmup": 0, "max_queries": 0}
    packages = machine.state.get("packages")
    samples = verify.gate_samples(model).digests
    return digest([asked, model.info.digest, opened.artifact.get("digest"), packages, samples, machine.id])


def _remembered(note: Path, model: Model, run: Answer, batch: int) -> Verification | None:
    """Return the answer this variant passed with, if its outputs on the first inputs are still the same."""
    kept, data = _arrays(note.with_suffix(".npz")), cache.read_json(note)
    if kept is None or data is None:
        return None
    gate = verify.gate_samples(model)
    arrays = {name: array[:QUICK] for name, array in gate.arrays.items()}
    first = Samples(arrays, gate.digests[:QUICK], gate.origin)
    now, before = verify.outputs(run, first, batch), tuple(kept[name] for name in sorted(kept))
    if len(now) != len(before) or any(a.shape != b.shape for a, b in zip(now, before, strict=True)):
        return None
    if _difference(now, before) > QUICK_CEILING:
        return None
    answer = Verification(**data | {"fields": {k: codec.field_from_json(v) for k, v in data["fields"].items()}})
    return dataclasses.replace(answer, detail=f"{answer.detail}; same outputs in this process on {len(first)} inputs")


def _difference(now: Outputs, before: Outputs) -> float:
    """Return the largest relative L2 difference of any output."""
    worst = 0.0
    for a, b in zip(now, before, strict=True):
        scale = float(np.linalg.norm(b)) or 1.0
        worst = max(worst, float(np.linalg.norm(a.astype(np.float64) - b)) / scale)
    return worst


def _arrays(path: Path) -> dict[str, NDArray[Any]] | None:
    """Return the arrays in a cached file; None where there is none or it is damaged, so that it is made again."""
    try:
        with np.load(path, allow_pickle=False) as found:
            return {name: found[name] for name in found.files}
    except (OSError, ValueError, zipfile.BadZipFile):
        return None
