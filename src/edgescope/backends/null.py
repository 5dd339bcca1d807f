"""An engine that answers in known time, for measuring the cost of a trial without an engine.

`delay_us` sleeps that long in every call, which makes it a stand-in of known speed for tests of the harness.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgescope.backends.base import Artifact, Spec, checked
from edgescope.models.base import Batch, Model
from edgescope.records import Effective

_NOTHING: tuple[NDArray[Any], ...] = (np.zeros((1, 1), dtype=np.float32),)


class NullSession:
    """Answers with one zero."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.delay_s = float(spec.options.get("delay_us", 0)) / 1e6

    def __call__(self, batch: Batch) -> Sequence[NDArray[Any]]:
        """Return a (1, 1) zero, after the delay."""
        if self.delay_s:
            time.sleep(self.delay_s)
        return _NOTHING

    def lanes(self, n: int, batch: Batch, *, owned: bool = False) -> None:
        """Do nothing: threads share nothing and sleep in parallel."""

    def effective(self) -> Effective:
        """Return exactly the requested settings."""
        return Effective(self.spec.device, self.spec.precision, 1, "the null backend computes nothing")

    def close(self) -> None:
        """Do nothing: there is nothing to free."""


class NullBackend:
    """Accepts any model and precision."""

    OPTIONS: ClassVar[dict[str, str]] = {"delay_us": "microseconds each call sleeps (0)"}

    def prepare(self, model: Model, spec: Spec, folder: Path) -> Artifact:
        """Return an artifact without a file."""
        return Artifact(model, checked("null", spec, self.OPTIONS))

    def load(self, artifact: Artifact) -> NullSession:
        """Return a session."""
        return NullSession(artifact.spec)
