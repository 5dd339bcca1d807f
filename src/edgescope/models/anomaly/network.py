"""Networks of video anomaly detection as models: features of a snippet of frames, and heads that score snippets.

    i3d_r50_nl, i3d_r50              I3D ResNet-50 with and without non-local blocks, the form of RTFM's features
    i3d_r50_nl_8x8, i3d_r50_8x8      the same in PySlowFast's form, with frames of a snippet kept apart for longer
    s3d                              S3D, with separable convolutions
    frames_lite0                     EfficientNet-Lite0 with real ImageNet weights over each frame: a stand-in
    rtfm, mil_ranking, light_head    heads: features of 32 snippets -> 32 scores

All but frames_lite0 are untrained here: `i3d_r50_nl@weights.pth` gives a network the weights of a published checkpoint
(checkpoints.py maps the names), `rtfm@head.pth` those of a published head.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.artifacts import onnx_export
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.image.network import NOISE, SEED
from edgescope.records import ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

VERSION = 2  # raise this when a network of models/anomaly changes


class AnomalyNetwork:
    """A network of the zoo, `name` or `name@weights.pth`: float32 `input`, one output.

    features: (3, frames, height, width) -> one row; score: (snippets, width) -> one score per snippet.
    """

    def __init__(self, name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        base, _, weights = name.partition("@")
        self.entry: dict[str, Any] = zoo.table()[base]
        self._weights = Path(weights) if weights else None
        self.inputs = (TensorSpec("input", tuple(self.entry["input"]), "float32"),)
        self.reference = "torch_eager"
        zoo.check_shapes(name, self.inputs, shapes or {})
        self.info = self._info(base)

    def _info(self, name: str) -> ModelInfo:
        pretrained = self.entry.get("pretrained")
        if self._weights:
            identity = zoo.file_digest(self._weights)
            source = f"weights given by the user: {self._weights.name}; judged by how close its outputs are to fp32"
        elif pretrained:
            source, identity = pretrained["source"], pretrained["sha256"]
        else:
            source = identity = f"untrained: random weights, seed {SEED}"
        return ModelInfo(
            name=name,
            task=self.entry["task"],
            trained=bool(self._weights or pretrained),
            source=source,
            digest=digest([VERSION, self.entry["definition"], identity]),
            params=self.entry["params"],
            macs=self.entry["macs"],
        )

    def module(self) -> torch.nn.Module:
        """Return the network in eval mode with its weights; ModelError if the weights do not fit."""
        make = need(
            "edgescope.models.anomaly.torch_networks:network",
            self.info.name,
            "pip install 'edgescope[torch]'",
        )
        module: torch.nn.Module = make(self.entry, self._weights, seed=SEED)
        return module

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the network as ONNX with an open batch axis, exported once."""
        return onnx_export.onnx_file(self.info, self.inputs, self.module, folder, opset=opset)

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return seeded noise, at most 16 inputs, because a snippet is large; None for LABELLED."""
        return synthetic.samples(self.inputs, purpose, min(n, NOISE))
