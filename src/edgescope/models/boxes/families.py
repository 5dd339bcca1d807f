"""One decoder for each family of detectors: SSD300, YOLOv8's export, CenterFace.

SSD300 (Liu et al., arXiv 1512.02325) has 8,732 default boxes, which the network moves and scales. The figures are those
of NVIDIA's SSD300 for PyTorch (torch hub `nvidia_ssd`). Per feature map the boxes go by shape, then by row, then by
column. Class 0 of the network is the background: the class numbers of detections start at 0 with the class after it.

YOLOv8's export gives boxes already: (N, 4 + classes, points).

CenterFace (Xu et al., arXiv 1911.03599) gives a map of how likely a face's centre lies in each cell. Its outputs, for
cells of 4 x 4 pixels: the probability, the logarithm of height and width in cells, the offset of the centre within its
cell (y, then x), and five landmarks, which are not read here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from edgescope.models.boxes.decoder import SLACK, Candidate, Candidates, GreedyDecoder, corners, per_class

SSD_SIZE = 300
CELLS = (38, 19, 10, 5, 3, 1)
STEPS = (8, 16, 32, 64, 100, 300)
SCALES = (21, 45, 99, 153, 207, 261, 315)
RATIOS = ((2,), (2, 3), (2, 3), (2, 3), (2,), (2,))
XY, WH = 0.1, 0.2
"""Variances: what the network's moves and logarithmic scales are multiplied by."""


def shapes(level: int) -> list[tuple[float, float]]:
    """Return width and height, in pixels, of the default boxes of one feature map."""
    small, between = SCALES[level], math.sqrt(SCALES[level] * SCALES[level + 1])
    found = [(float(small), float(small)), (between, between)]
    for ratio in RATIOS[level]:
        wide, high = small * math.sqrt(ratio), small / math.sqrt(ratio)
        found += [(wide, high), (high, wide)]
    return found


BOXES_PER_CELL = tuple(len(shapes(level)) for level in range(len(CELLS)))


@functools.cache
def default_boxes() -> NDArray[np.float64]:
    """Return (8732, 4): centre x, y, width, height as shares of the image's side, none above 1."""
    found = []
    for level, (cells, step) in enumerate(zip(CELLS, STEPS, strict=True)):
        along = (np.arange(cells) + 0.5) * step
        y, x = np.meshgrid(along, along, indexing="ij")
        for wide, high in shapes(level):
            sizes = np.full(cells * cells, wide), np.full(cells * cells, high)
            found.append(np.stack([x.ravel(), y.ravel(), *sizes], 1))
    return np.concatenate(found).clip(0, SSD_SIZE) / SSD_SIZE


@dataclass(frozen=True)
class SsdDecoder(GreedyDecoder):
    """Reads moves (N, 4, 8732) and logits (N, 81, 8732)."""

    score: float = 0.4
    overlap: float = 0.7
    classes: int = 80

    def sides(self, outputs: Sequence[Any]) -> tuple[int, int]:
        """Return 300 x 300."""
        return SSD_SIZE, SSD_SIZE

    def candidates(self, outputs: Sequence[Any], xp: Any) -> Candidates:
        """Return all boxes and classes whose softmax lies above the score.

        A class of probability p leaves the background 1 - p at most, so few boxes need a softmax.
        """
        moves, logits = outputs
        lead = xp.amax(logits[:, 1:], 1) - logits[:, 0]
        image, box = xp.where(lead > math.log(self.score / (1 - self.score)) - SLACK)
        some = xp.asarray(logits[image, :, box], dtype=xp.float64)
        shares = xp.exp(some - xp.amax(some, 1)[:, None])
        shares = shares / shares.sum(1)[:, None]
        row, kind = per_class(shares[:, 1:], xp, self.score)
        image, box = image[row], box[row]
        move = xp.asarray(moves[image, :, box], dtype=xp.float64)
        base = _placed(xp, None if xp is np else moves.device)[box]
        centre = move[:, :2] * XY * base[:, 2:] + base[:, :2]
        size = xp.exp(move[:, 2:] * WH) * base[:, 2:]
        boxes = SSD_SIZE * corners(centre[:, 0], centre[:, 1], size[:, 0], size[:, 1], xp)
        return Candidates(image, boxes, shares[row, kind + 1], kind)

    def one_by_one(self, outputs: Sequence[Any], image: int) -> Iterator[Candidate]:
        """Yield the boxes of one image, one default box after another: one column of logits is read at a time."""
        moves, logits = outputs
        for box, (x, y, wide, high) in enumerate(default_boxes().tolist()):
            column = logits[image, :, box].tolist()
            most = max(column)
            powers = [math.exp(value - most) for value in column]
            total = math.fsum(powers)
            for kind, power in enumerate(powers[1:]):
                if power / total > self.score:
                    dx, dy, dw, dh = (float(moves[image, side, box]) for side in range(4))
                    centre_x, centre_y = x + dx * XY * wide, y + dy * XY * high
                    half_w, half_h = math.exp(dw * WH) * wide / 2, math.exp(dh * WH) * high / 2
                    sides = (centre_x - half_w, centre_y - half_h, centre_x + half_w, centre_y + half_h)
                    x1, y1, x2, y2 = (SSD_SIZE * side for side in sides)
                    yield Candidate((x1, y1, x2, y2), power / total, kind)


@functools.cache
def _placed(xp: Any, device: Any) -> Any:
    """Return the default boxes as an array, or as a tensor of a device, copied there once."""
    return default_boxes() if device is None else xp.asarray(default_boxes(), device=device)


def encoded(boxes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the moves (n, 4) that turn the first n default boxes into `boxes`, in pixels: the decoder's inverse."""
    base = default_boxes()[: len(boxes)]
    low, high = boxes[:, :2] / SSD_SIZE, boxes[:, 2:] / SSD_SIZE
    centre = ((low + high) / 2 - base[:, :2]) / (XY * base[:, 2:])
    return np.hstack([centre, np.log((high - low) / base[:, 2:]) / WH])


@dataclass(frozen=True)
class PointDecoder(GreedyDecoder):
    """Reads centre x, y, width, height in pixels and one score per class of every point."""

    score: float = 0.25
    overlap: float = 0.7
    classes: int = 80
    width: int = 640
    height: int = 640

    def sides(self, outputs: Sequence[Any]) -> tuple[int, int]:
        """Return the size of the input, which the outputs do not show."""
        return self.width, self.height

    def candidates(self, outputs: Sequence[Any], xp: Any) -> Candidates:
        """Return a box for every point and class whose score lies above the threshold."""
        (rows,) = outputs
        image, point = xp.where(xp.amax(rows[:, 4:], 1) > self.score - SLACK)
        some = xp.asarray(rows[image, :, point], dtype=xp.float64)
        row, kind = per_class(some[:, 4:], xp, self.score)
        x, y, wide, high = (some[row, side] for side in range(4))
        boxes = corners(x, y, wide, high, xp)
        return Candidates(image[row], boxes, some[row, kind + 4], kind)

    def one_by_one(self, outputs: Sequence[Any], image: int) -> Iterator[Candidate]:
        """Yield the boxes of one image, reading the column of one point after another."""
        (rows,) = outputs
        for point in range(rows.shape[2]):
            x, y, wide, high, *scores = rows[image, :, point].tolist()
            for kind, score in enumerate(scores):
                if score > self.score:
                    sides = (x - wide / 2, y - high / 2, x + wide / 2, y + high / 2)
                    yield Candidate(sides, score, kind)


CELL = 4


@dataclass(frozen=True)
class CentreDecoder(GreedyDecoder):
    """Reads probabilities (N, 1, h, w), sizes (N, 2, h, w) and offsets (N, 2, h, w) of an input of 4h x 4w pixels."""

    READS: ClassVar[int | None] = 3

    score: float = 0.35
    overlap: float = 0.3
    classes: int = 1
    names: tuple[str, ...] = ("face",)

    def sides(self, outputs: Sequence[Any]) -> tuple[int, int]:
        """Return four times the sides of the map."""
        height, width = outputs[0].shape[2:]
        return CELL * int(width), CELL * int(height)

    def candidates(self, outputs: Sequence[Any], xp: Any) -> Candidates:
        """Return a box for every cell whose probability lies above the score."""
        heat, sizes, offsets = outputs[:3]
        image, y, x = xp.where(heat[:, 0] > self.score - SLACK)
        scores = xp.asarray(heat[image, 0, y, x], dtype=xp.float64)
        (over,) = xp.where(scores > self.score)
        image, y, x, scores = image[over], y[over], x[over], scores[over]
        size = CELL * xp.exp(xp.asarray(sizes[image, :, y, x], dtype=xp.float64))
        moved = xp.asarray(offsets[image, :, y, x], dtype=xp.float64)
        centre_x, centre_y = CELL * (x + moved[:, 1] + 0.5), CELL * (y + moved[:, 0] + 0.5)
        boxes = corners(centre_x, centre_y, size[:, 1], size[:, 0], xp)
        return Candidates(image, boxes, scores, xp.zeros_like(image))

    def one_by_one(self, outputs: Sequence[Any], image: int) -> Iterator[Candidate]:
        """Yield the boxes of one image, reading one cell after another."""
        heat, sizes, offsets = outputs[:3]
        for y in range(heat.shape[2]):
            for x in range(heat.shape[3]):
                score = float(heat[image, 0, y, x])
                if score > self.score:
                    high, wide = (CELL * math.exp(float(sizes[image, side, y, x])) for side in range(2))
                    dy, dx = (float(offsets[image, side, y, x]) for side in range(2))
                    centre_x, centre_y = CELL * (x + dx + 0.5), CELL * (y + dy + 0.5)
                    sides = (
                        centre_x - wide / 2,
                        centre_y - high / 2,
                        centre_x + wide / 2,
                        centre_y + high / 2,
                    )
                    yield Candidate(sides, score, 0)
