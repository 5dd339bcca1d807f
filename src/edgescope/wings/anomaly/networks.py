"""Networks of video anomaly detection as models: features of a snippet of frames, and heads that score snippets.

    i3d_r50_nl, i3d_r50              I3D ResNet-50 with and without non-local blocks, the form of RTFM's features
    i3d_r50_nl_8x8, i3d_r50_8x8      the same in PySlowFast's form, with frames of a snippet kept apart for longer
    s3d                              S3D, with separable convolutions
    motion                           small, edgescope's own, to be trained on own videos (wings/anomaly/pretext.py)
    frames_lite0                     EfficientNet-Lite0 with real ImageNet weights over each frame: a stand-in
    rtfm, mil_ranking, light_head    heads: features of 32 snippets -> 32 scores

All but frames_lite0 are untrained here: `i3d_r50_nl@weights.pth` gives a network the weights of a published checkpoint
(torch_networks.py maps the names), `rtfm@head.pth` those of a published head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.artifacts import onnx_export
from edgescope.models import synthetic, zoo
from edgescope.models.base import Purpose, Samples, TensorSpec
from edgescope.models.image.network import NOISE, SEED
from edgescope.models.image.preprocess import Placed, Preprocess
from edgescope.records import ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

VERSION = 2  # raise this when one of these networks changes


class AnomalyNetwork:
    """A network of the zoo, `name` or `name@weights.pth`: float32 `input`, one output.

    features: (3, frames, height, width) -> one row; score: (snippets, width) -> one score per snippet.
    """

    def __init__(self, name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        base, _, weights = name.partition("@")
        self.entry: dict[str, Any] = zoo.table()[base]
        self._weights = Path(weights) if weights else None
        self.inputs = (TensorSpec("input", self._shape(shapes or {}), "float32"),)
        self.reference = "torch_eager"
        zoo.check_shapes(name, self.inputs, shapes or {})
        self.info = self._info(base)

    def _shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """Return the input's shape: a snippet may have another number of frames, a head's input any two axes."""
        usual = tuple(self.entry["input"])
        given = tuple(shapes.get("input", (1, *usual))[1:])
        fits = len(given) == len(usual) and (
            len(usual) == 2 or (given[0], *given[2:]) == (usual[0], *usual[2:])
        )
        return given if fits else usual

    def _info(self, name: str) -> ModelInfo:
        usual = self.inputs[0].shape == tuple(self.entry["input"])
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
            digest=digest(
                [VERSION, self.entry["definition"], identity, *([] if usual else self.inputs[0].shape)]
            ),
            params=self.entry["params"],
            macs=self.entry["macs"] if usual else None,
        )

    def module(self) -> torch.nn.Module:
        """Return the network in eval mode with its weights; ModelError if the weights do not fit."""
        make = need(
            "edgescope.wings.anomaly.torch_networks:network",
            self.info.name,
            "pip install 'edgescope[torch]'",
        )
        entry = self.entry | {"input": self.inputs[0].shape}
        module: torch.nn.Module = make(entry, self._weights, seed=SEED)
        return module

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the network as ONNX with an open batch axis, exported once."""
        return onnx_export.onnx_file(self.info, self.inputs, self.module, folder, opset=opset)

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return seeded noise, at most 16 inputs, because a snippet is large; None for LABELLED."""
        return synthetic.samples(self.inputs, purpose, min(n, NOISE))


class FeatureNetwork(AnomalyNetwork):
    """A network of snippets, which knows how frames become its input."""

    @property
    def frame_preprocess(self) -> FrameInput:
        """Return how one frame becomes one slice of the input."""
        entry = self.entry
        mean, std, scaled = (tuple(entry[key]) for key in ("mean", "std", "frame_size"))
        return FrameInput(
            self.inputs[0].shape[-1], mean=mean, std=std, interpolation="bilinear", scaled=scaled
        )

    @property
    def frame_step(self) -> int:
        """Return 1: it sees every frame of a snippet."""
        return 1

    @property
    def width(self) -> int:
        """Return the number of features of a snippet."""
        return int(self.entry["feature_width"])


@dataclass(frozen=True)
class FrameInput(Preprocess):
    """Turns a frame into a slice of a snippet: scaled to one size, whatever its shape, and cut."""

    scaled: tuple[int, int] = (340, 256)
    """Width and height."""

    def placed(self, width: int, height: int) -> Placed:
        """Return where a frame comes to lie."""
        (wide, high), (below, across) = self.scaled, self.sides
        return Placed(wide, high, (wide - across) // 2, (high - below) // 2)


def network(name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> AnomalyNetwork:
    """Return the network of snippets or the head called `name`."""
    of_snippets = zoo.table()[name.partition("@")[0]]["task"] == "features"
    return (FeatureNetwork if of_snippets else AnomalyNetwork)(name, shapes)
