"""Opens a trial's network in its engine and asks for the time of every operator."""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.analysis.predict.layers import Layer
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
