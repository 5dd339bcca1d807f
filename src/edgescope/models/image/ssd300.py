"""SSD300 with a ResNet-50 backbone, the size and shape of NVIDIA's (torch hub `nvidia_ssd`), in PyTorch.

Written from the published architecture (Liu et al., arXiv 1512.02325, and the table in NVIDIA's model card): ResNet-50
up to its fourth stage, whose first block keeps the size, gives 1024 channels of 38 x 38; five more blocks give 19, 10,
5, 3 and 1 cells a side. Two convolutions per map give the moves of its default boxes and 81 logits of each.

Images are float32 RGB, 2 * (x / 255) - 1. Decoding and suppression stay outside (models/boxes/ssd.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edgescope.models.boxes.ssd import BOXES_PER_CELL
from edgescope.models.image import torchvision_compat

CHANNELS = (1024, 512, 512, 256, 256, 256)
"""Channels of the six feature maps."""
NARROW = (256, 256, 128, 128, 128)
"""Channels within each of the five blocks."""
SHRINKING = 3
"""Blocks that halve the map with stride 2; the last two lose its border instead."""


class Ssd300(nn.Module):
    """Maps images (N, 3, 300, 300) to moves (N, 4, 8732) and logits (N, classes, 8732), class 0 the background."""

    def __init__(self, classes: int = 81) -> None:
        super().__init__()
        self.classes = classes
        self.backbone = _backbone()
        self.blocks = nn.ModuleList(
            _block(CHANNELS[i], NARROW[i], CHANNELS[i + 1], shrinks=i < SHRINKING) for i in range(len(NARROW))
        )
        pairs = list(zip(CHANNELS, BOXES_PER_CELL, strict=True))
        self.moves = nn.ModuleList(nn.Conv2d(width, 4 * boxes, 3, padding=1) for width, boxes in pairs)
        self.logits = nn.ModuleList(nn.Conv2d(width, classes * boxes, 3, padding=1) for width, boxes in pairs)

    def features(self, images: torch.Tensor) -> list[torch.Tensor]:
        """Return the six feature maps."""
        maps = [self.backbone(images)]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        return maps

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return moves and logits of all default boxes."""
        maps, n = self.features(images), images.shape[0]
        moves = [head(x).reshape(n, 4, -1) for head, x in zip(self.moves, maps, strict=True)]
        logits = [head(x).reshape(n, self.classes, -1) for head, x in zip(self.logits, maps, strict=True)]
        return torch.cat(moves, 2), torch.cat(logits, 2)


def _backbone() -> nn.Sequential:
    """Return ResNet-50 without its last stage, the stage before it at a stride of 1."""
    whole: Any = torchvision_compat.torchvision().models.resnet50(weights=None)
    first = whole.layer3[0]
    for layer in (first.conv2, first.downsample[0]):
        layer.stride = (1, 1)
    stem = (whole.conv1, whole.bn1, whole.relu, whole.maxpool)
    return nn.Sequential(*stem, whole.layer1, whole.layer2, whole.layer3)


def _block(inside: int, narrow: int, outside: int, *, shrinks: bool) -> nn.Sequential:
    """Return a 1x1 convolution to fewer channels and a 3x3 one that makes the map smaller."""
    stride, padding = (2, 1) if shrinks else (1, 0)
    return nn.Sequential(
        nn.Conv2d(inside, narrow, 1, bias=False),
        nn.BatchNorm2d(narrow),
        nn.ReLU(inplace=True),
        nn.Conv2d(narrow, outside, 3, stride, padding, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )
