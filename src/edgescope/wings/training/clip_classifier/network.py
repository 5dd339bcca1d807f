"""Classifiers of clips: sixteen frames in, one of a few actions out.

The three networks of the zoo are untrained until `edgescope train clips` has written weights for them; then
`har_cnn3d@weights.pth` is a trained classifier. A file next to the weights names their training data
(sidecar.py): it gives the classes, and the clips that a variant is judged with. Those come from videos
that training never saw; int8 ranges are found on clips of training videos.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.artifacts import onnx_export
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import ModelInfo, digest
from edgescope.registry import need
from edgescope.wings.training.clip_classifier import dataset, sidecar
from edgescope.wings.training.clip_classifier import samples as clip_samples

if TYPE_CHECKING:
    import torch

SEED = 0
VERSION = 1  # raise this when a network in torch_networks.py changes


class ClipClassifier:
    """A network of the zoo: float32 `input` (3, 16, 64, 64), one logit per class; `name` or `name@weights.pth`."""

    def __init__(self, name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        base, _, weights = name.partition("@")
        self._entry: dict[str, Any] = zoo.table()[base]
        self._weights = Path(weights) if weights else None
        self._about = sidecar.read(self._weights) if self._weights else None
        self.inputs = (TensorSpec("input", tuple(self._entry["input"]), "float32"),)
        self.reference = "torch_eager"
        zoo.check_shapes(name, self.inputs, shapes or {})
        self.info = self._info(base)

    def _info(self, name: str) -> ModelInfo:
        about, entry = self._about, self._entry
        identity = zoo.file_digest(self._weights) if self._weights else f"seed {SEED}"
        return ModelInfo(
            name=name,
            task="classify",
            trained=about is not None and about.enough,
            source=self._source(),
            digest=digest([VERSION, entry["definition"], identity, about.origin.digest if about else ""]),
            params=about.params if about else entry["params"],
            macs=about.macs if about else entry["macs"],
        )

    def _source(self) -> str:
        if self._about:
            return self._about.source
        if self._weights:
            return (
                f"weights given by the user: {self._weights.name}; no {self._weights.name}.json next to them says"
                " what they were trained on, so no accuracy is claimed"
            )
        return f"untrained: random weights, seed {SEED}"

    def module(self) -> torch.nn.Module:
        """Return the network in eval mode with its weights; ModelError if the weights do not fit."""
        make = need(
            "edgescope.wings.training.clip_classifier.torch_networks:network",
            self.info.name,
            "pip install 'edgescope[torch]'",
        )
        module: torch.nn.Module = make(self._entry, self._weights, classes=self.width, seed=SEED)
        return module

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the network as ONNX with an open batch axis, exported once."""
        return onnx_export.onnx_file(self.info, self.inputs, self.module, folder, opset=opset)

    @property
    def frame_preprocess(self) -> Preprocess:
        """Return how one frame becomes one slice of the input."""
        mean, std = (tuple(self._entry[key]) for key in ("mean", "std"))
        return Preprocess(self.inputs[0].shape[-1], mean=mean, std=std, interpolation="bilinear")

    @property
    def frame_step(self) -> int:
        """Return the step between the frames of a clip."""
        return dataset.EVERY

    @property
    def width(self) -> int:
        """Return the number of classes."""
        return len(self._about.origin.classes) if self._about else int(self._entry["classes"])

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return real clips for weights of `edgescope train clips`, seeded noise for any others.

        UnavailableError if the videos are gone, ModelError if they are no longer those of the training.
        LABELLED is None if there are too few held-out clips to judge with.
        """
        if self._about is None:
            return synthetic.samples(self.inputs, purpose, n)
        if purpose is Purpose.LABELLED and not self.info.trained:
            return None
        return clip_samples.samples(self._about.origin, purpose, n, self._entry)
