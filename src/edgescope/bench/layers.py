"""Opens a trial's network in its engine and asks for the time of every operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgescope.analysis.predict.layers import Exported, Layer
from edgescope.backends.base import Layered, spec_of
from edgescope.bench.parts import HERE
from edgescope.errors import UnsupportedError
from edgescope.records import Trial
from edgescope.workloads.base import Parts
from edgescope.workloads.inference import batches_of


def layers(trial: Trial, parts: Parts = HERE) -> Sequence[Layer]:
    """Return every operator of a trial's network in its engine; UnsupportedError if the engine tells none."""
    model, backend = parts.model(trial), parts.backend(trial.backend)
    if not isinstance(backend, Layered):
        raise UnsupportedError(
            "E-LAYER-1",
            f"{trial.backend} tells no times of its operators",
            effect="Nothing was measured",
            fix="--backend torch_eager, onnxruntime or openvino",
        )
    artifact = backend.prepare(model, spec_of(trial), parts.folder)
    return backend.layers(artifact, batches_of(model, trial)[0])


def exported(files: Sequence[Path], trial: Trial) -> Exported:
    """Return the layers in trtexec's files; if the trial's model is an ONNX file, its nodes name their modules."""
    from edgescope.artifacts.onnx_names import ModulePaths
    from edgescope.backends.trtexec import layer_times

    name = trial.model.partition("#")[0]
    return layer_times.read(files, ModulePaths(Path(name), trial.batch) if name.endswith(".onnx") else None)
