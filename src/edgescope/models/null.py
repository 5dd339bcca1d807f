"""A model without a network, for measuring the cost of the harness itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.errors import UnsupportedError
from edgescope.models import synthetic
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.records import ModelInfo

if TYPE_CHECKING:
    import torch


class NullModel:
    """A model that takes one number and does nothing with it."""

    def __init__(self, name: str = "null", shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        self.info = ModelInfo(name, "unknown", False, "nothing", digest="null", params=0, macs=0)
        self.inputs = (TensorSpec("input", (1,), "float32"),)
        self.reference = "null"

    def module(self) -> torch.nn.Module:
        """Raise UnsupportedError: there is no network."""
        raise UnsupportedError(
            "E-NULL-1", "the null model has no network", fix="--backend null, or name a real model"
        )

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Raise UnsupportedError: there is no file."""
        self.module()
        return folder

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return n single numbers."""
        return synthetic.samples(self.inputs, purpose, n)
