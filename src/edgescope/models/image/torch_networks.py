"""Builds the zoo's image networks in PyTorch: the half of network.py that needs torch, torchvision and timm.

An untrained network is initialised from a seed, so that every process builds the same one. The classifiers stay as
their library starts them; what is done to the two others, and why, is in models/image/initialisation.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgescope.models.image import initialisation, torchvision_compat
from edgescope.models.image.detector import Detector
from edgescope.models.image.lenet import LeNet5
from edgescope.models.weights import fill, read_state

torchvision_compat.ensure()

import timm  # noqa: E402
import torchvision  # noqa: E402

AUXILIARY = "aux_classifier."
"""Weights of a second head that only training uses; torchvision's own files of segmenters hold them."""


class Segmenter(nn.Module):
    """A segmentation network of torchvision that returns a tensor; its weights have the names they have there."""

    def __init__(self, name: str, **head: int) -> None:
        super().__init__()
        whole: Any = torchvision.models.get_model(name, weights=None, weights_backbone=None, **head)
        self.backbone, self.classifier = whole.backbone, whole.classifier

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return logits (N, classes, height, width) of images (N, 3, height, width)."""
        logits = self.classifier(self.backbone(images)["out"])
        return nn.functional.interpolate(logits, images.shape[-2:], mode="bilinear", align_corners=False)


def network(entry: dict[str, Any], weights: Path | None, *, seed: int, in_order: bool) -> nn.Module:
    """Return the network of a zoo entry with the weights of a file, or random ones from `seed` without one."""
    module = build(entry, seed)
    if weights:
        state = {k: v for k, v in read_state(weights).items() if not k.startswith(AUXILIARY)}
        fill(module, state, name=entry["definition"], in_order=in_order)
    elif "start" in entry:
        initialisation.settle(module, entry, seed)
    return module


def build(entry: dict[str, Any], seed: int = 0) -> nn.Module:
    """Return `library:name` as the library starts it from `seed`, in eval mode.

    `classes` of the entry is the size of the last layer; without it, the library's own, 1000.
    """
    library, name = entry["definition"].split(":")
    head = {"num_classes": entry["classes"]} if "classes" in entry else {}
    make: dict[str, Callable[[], nn.Module]] = {
        "timm": lambda: timm.create_model(name, pretrained=False, **head),
        "torchvision": lambda: torchvision.models.get_model(name, weights=None, **head),
        "torchvision segmentation": lambda: Segmenter(name, **head),
        "edgescope": lambda: LeNet5() if name == "lenet5" else Detector(entry["classes"]),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make[library]().eval()
