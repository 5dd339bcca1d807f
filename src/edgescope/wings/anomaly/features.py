"""Features of snippets by a feature network on any engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope import cache
from edgescope.backends.base import Backend, Session, Spec
from edgescope.models import zoo
from edgescope.records import Scalar
from edgescope.registry import BACKENDS, home, load
from edgescope.wings.anomaly.preparation import Frames, Preparation

Features = NDArray[np.float32]
"""(snippets, crops, width)."""


@dataclass(frozen=True)
class Engine:
    """The engine that computes features: its name, device, precision, the snippets of one call, and its options."""

    backend: str = "torch_eager"
    device: str = ""
    """'': the engine's own default."""
    precision: str = "fp32"
    batch: int = 1
    options: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def spec(self) -> Spec:
        """Return the settings in the form that engines take."""
        return Spec(
            precision=self.precision,
            batch=self.batch,
            device=self.device or home(self.backend),
            options=dict(self.options),
        )


DEFAULT = Engine()


class Extractor:
    """Computes features: frames or prepared inputs in, arrays out. It holds the engine's memory until `close`."""

    def __init__(self, preparation: Preparation, engine: Engine = DEFAULT) -> None:
        self.preparation, self.engine = preparation, engine
        backend: Backend = load(BACKENDS, engine.backend, "backend")()
        model = zoo.get(preparation.network)
        self._name = model.inputs[0].name
        self.model = model.info
        artifact = backend.prepare(model, engine.spec, cache.folder("artifacts"))
        self._session: Session = backend.load(artifact)

    def __call__(self, frames: Frames) -> Features:
        """Return (ceil(n / snippet), crops, width) of n frames of any size."""
        prepared = self.preparation
        snippets = prepared.snippets(prepared.scaled(frames))
        return self.run(prepared.inputs(snippets)).reshape(len(snippets), prepared.crops, prepared.width)

    def run(self, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the network's output (n, width) of n prepared inputs, in batches of the engine's size."""
        size = self.engine.batch
        found = np.empty((len(inputs), self.preparation.width), dtype=np.float32)
        for start in range(0, len(inputs), size):
            rows = inputs[start : start + size]
            if len(rows) < size:
                rows = rows[np.minimum(np.arange(size), len(rows) - 1)]
            output = self._session({self._name: rows})[0]
            found[start : start + size] = output[: len(found) - start]
        return found

    def effective(self) -> Any:
        """Return the device and precision that the engine ran with; valid after the first call."""
        return self._session.effective()

    def close(self) -> None:
        """Free the engine."""
        self._session.close()
