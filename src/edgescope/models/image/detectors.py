"""Two object detectors in PyTorch, written from published architectures: one of YOLOv8n's size and shape, and SSD300.

The sources of the first are public: the published layer table and multiples of the architecture (a stem and four
stages of widths 16, 32, 64, 128, 256, each halving the image; 1, 2, 2, 1 bottlenecks in them), cross-stage partial
blocks (Wang et al., arXiv 1911.11929) whose every bottleneck is kept and concatenated, pooling of growing reach at the
end (He et al., arXiv 1406.4729), features passed down and up again (Liu et al., arXiv 1803.01534), one head for classes
and one for boxes (Ge et al., arXiv 2107.08430), without anchor shapes, and each side of a box as the mean of a
distribution over 16 distances (Li et al., arXiv 2006.04388). No weights and no line of the usual implementation are in
it: that is AGPL-3.0, and a user who has it gives edgescope its .onnx file or a callable. Its outputs are boxes in
pixels and scores, and an engine computes all of them.

SSD300 (Liu et al., arXiv 1512.02325, and the table in NVIDIA's model card) is ResNet-50 up to its fourth stage, whose
first block keeps the size and gives 1024 channels of 38 x 38; five more blocks give 19, 10, 5, 3 and 1 cells a side.
Two convolutions per map give the moves of its default boxes and 81 logits of each. Its images are float32 RGB,
2 * (x / 255) - 1.

Decoding and suppressing overlapping boxes depend on the data and stay outside (models/boxes.py).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from edgescope.models.boxes import BOXES_PER_CELL
from edgescope.models.image import torchvision_compat

DETECTOR_SIZE = 640
STRIDES = (8, 16, 32)
DISTANCES = 16
"""Number of distances, in strides, from a point to a side of its box that the box head weighs."""
PRIOR = 0.01
"""Score of every class before training (Lin et al., arXiv 1708.02002, section 4.1)."""


class Convolved(nn.Module):
    """A convolution that keeps the size (apart from its stride), with normalisation and SiLU."""

    def __init__(self, inside: int, outside: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.BatchNorm2d(outside, eps=1e-3)
        self.activation = nn.SiLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.activation(self.norm(self.convolution(x)))
        return out


class Bottleneck(nn.Module):
    """Two 3x3 convolutions of one width; in the backbone the input is added to the output."""

    def __init__(self, width: int, *, shortcut: bool) -> None:
        super().__init__()
        self.first, self.second = Convolved(width, width, 3), Convolved(width, width, 3)
        self.shortcut = shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.second(self.first(x))
        return x + out if self.shortcut else out


class Stage(nn.Module):
    """Half of the channels go through `depth` bottlenecks in turn; all results are concatenated."""

    def __init__(self, inside: int, outside: int, depth: int = 1, *, shortcut: bool = False) -> None:
        super().__init__()
        half = outside // 2
        self.split = Convolved(inside, outside)
        self.blocks = nn.ModuleList(Bottleneck(half, shortcut=shortcut) for _ in range(depth))
        self.join = Convolved((2 + depth) * half, outside)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        halves = self.split(x).chunk(2, 1)
        parts = [halves[0], halves[1]]  # by index, which torch.fx can follow
        for block in self.blocks:
            parts.append(block(parts[-1]))
        out: torch.Tensor = self.join(torch.cat(parts, 1))
        return out


class Pooling(nn.Module):
    """Concatenates each value with the largest within 5, 9 and 13 pixels, from three successive poolings of 5."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.narrow, self.join = Convolved(width, width // 2), Convolved(2 * width, width)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.narrow(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        out: torch.Tensor = self.join(torch.cat(parts, 1))
        return out


class Backbone(nn.Module):
    """Returns features at strides 8, 16 and 32: 64, 128 and 256 channels."""

    def __init__(self) -> None:
        super().__init__()
        self.to_4 = nn.Sequential(Convolved(3, 16, 3, 2), Convolved(16, 32, 3, 2), _kept(32, 1))
        self.to_8 = nn.Sequential(Convolved(32, 64, 3, 2), _kept(64, 2))
        self.to_16 = nn.Sequential(Convolved(64, 128, 3, 2), _kept(128, 2))
        self.to_32 = nn.Sequential(Convolved(128, 256, 3, 2), _kept(256, 1), Pooling(256))

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        at_8 = self.to_8(self.to_4(images))
        at_16 = self.to_16(at_8)
        return at_8, at_16, self.to_32(at_16)


def _kept(width: int, depth: int) -> Stage:
    return Stage(width, width, depth, shortcut=True)


class Neck(nn.Module):
    """Passes features from the coarse levels to the fine ones, and back."""

    def __init__(self) -> None:
        super().__init__()
        self.finer = nn.Upsample(scale_factor=2.0, mode="nearest")
        self.down_16, self.down_8 = Stage(256 + 128, 128), Stage(128 + 64, 64)
        self.from_8, self.up_16 = Convolved(64, 64, 3, 2), Stage(64 + 128, 128)
        self.from_16, self.up_32 = Convolved(128, 128, 3, 2), Stage(128 + 256, 256)

    def forward(
        self, at_8: torch.Tensor, at_16: torch.Tensor, at_32: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        middle = self.down_16(torch.cat([self.finer(at_32), at_16], 1))
        fine = self.down_8(torch.cat([self.finer(middle), at_8], 1))
        middle = self.up_16(torch.cat([self.from_8(fine), middle], 1))
        return fine, middle, self.up_32(torch.cat([self.from_16(middle), at_32], 1))


class Head(nn.Module):
    """The head of one stride: 4 x 16 weights of distances and one logit per class, at every pixel."""

    def __init__(self, inside: int, classes: int, boxes: int = 64, kinds: int = 80) -> None:
        super().__init__()
        self.boxes = nn.Sequential(
            Convolved(inside, boxes, 3), Convolved(boxes, boxes, 3), nn.Conv2d(boxes, 4 * DISTANCES, 1)
        )
        self.kinds = nn.Sequential(
            Convolved(inside, kinds, 3), Convolved(kinds, kinds, 3), nn.Conv2d(kinds, classes, 1)
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.boxes(x).flatten(2), self.kinds(x).flatten(2)


class Detector(nn.Module):
    """Maps images (N, 3, 640, 640) to (N, 4 + classes, 8400): centre, width, height in pixels, one score per class."""

    points: torch.Tensor
    strides: torch.Tensor
    distances: torch.Tensor

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.backbone, self.neck = Backbone(), Neck()
        self.heads = nn.ModuleList(Head(width, classes) for width in (64, 128, 256))
        points, strides = points_of_strides()
        self.register_buffer("points", points, persistent=False)
        self.register_buffer("strides", strides, persistent=False)
        self.register_buffer("distances", torch.arange(DISTANCES).float(), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return float32 boxes and scores of all 8400 points, none left out."""
        boxes, kinds = self.logits(images)
        return torch.cat([self.decoded(boxes), kinds.float().sigmoid()], 1)

    def logits(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (N, 64, points) and (N, classes, points) for images of any size divisible by 32."""
        features = self.neck(*self.backbone(images))
        found = [head(x) for head, x in zip(self.heads, features, strict=True)]
        boxes, kinds = (torch.cat(parts, 2) for parts in zip(*found, strict=True))
        return boxes, kinds

    def decoded(self, boxes: torch.Tensor) -> torch.Tensor:
        """Return float32 (N, 4, 8400), centre x, y, width, height in pixels, from logits (N, 64, 8400).

        Computed in float32 for every precision, because neighbouring 16-bit floats at 640 are a quarter of a pixel
        apart (bf16: two pixels), an error in every step. The buffers hold small halves and powers of two, which 16
        bits hold exactly.
        """
        shares = boxes.float().reshape(-1, 4, DISTANCES, boxes.shape[2]).softmax(2)
        sides = (shares * self.distances.float().view(DISTANCES, 1)).sum(2)
        before, after = sides[:, :2], sides[:, 2:]
        centre = self.points.float() + (after - before) / 2
        return torch.cat([centre, before + after], 1) * self.strides.float()


def points_of_strides() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the points' x and y in strides, (2, 8400), and their strides in pixels, (8400,), fine ones first."""
    points, strides = [], []
    for stride in STRIDES:
        along = torch.arange(DETECTOR_SIZE // stride) + 0.5
        y, x = torch.meshgrid(along, along, indexing="ij")
        points.append(torch.stack([x.flatten(), y.flatten()]))
        strides.append(torch.full((x.numel(),), float(stride)))
    return torch.cat(points, 1), torch.cat(strides)


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
