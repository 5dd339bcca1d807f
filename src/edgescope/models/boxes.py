"""How detectors' outputs become boxes: a decoder for each family of detectors, and the suppression that they share.

A family says how outputs are read: `candidates` in operations on whole arrays, which numpy and torch name alike, and
`one_by_one` in Python loops. Candidates are computed in float64, so that all ways agree on which score is higher.

Suppression is greedy (non-maximum suppression), in plain Python, in numpy, and in torch where the outputs lie: the best
box is kept, all boxes of its group that overlap it by more than a threshold are dropped, and so on. Boxes of different
classes, or of different images of a batch, do not compete. `groups` numbers these pairs so that no two share a number:
class + image * classes. The product class * image, which a study of the Jetson Nano used, does not: class 2 of image 3
and class 3 of image 2 would suppress each other, and so would all classes of image 0.

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
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgescope.models.base import Detections, Fit
from edgescope.registry import need

if TYPE_CHECKING:
    import torch

Box = tuple[float, float, float, float]
TINY = float(np.finfo(np.float64).tiny)


def groups(classes: Any, images: Any, count: int) -> Any:
    """Return the group of each box from its class, below `count`, and its image; arrays or tensors."""
    return classes + images * count


def overlap(a: Box, b: Box) -> float:
    """Return intersection over union of two boxes."""
    wide = min(a[2], b[2]) - max(a[0], b[0])
    high = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(wide, 0.0) * max(high, 0.0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / max(union, TINY)


def by_element(
    boxes: Sequence[Box], scores: Sequence[float], of: Sequence[int], threshold: float
) -> list[int]:
    """Return the numbers of the boxes that are kept, best first, comparing every two in Python."""
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        if all(of[i] != of[j] or overlap(boxes[i], boxes[j]) <= threshold for j in kept):
            kept.append(i)
    return kept


def suppressed(
    boxes: NDArray[Any], scores: NDArray[Any], threshold: float, of: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the numbers (int64) of the boxes (n, 4) that are kept, best first; `of` is the group of each, or None."""
    x1, y1, x2, y2 = boxes.astype(np.float64).T.reshape(4, -1)
    area = (x2 - x1) * (y2 - y1)
    order = np.argsort(-scores, kind="stable")
    kept: list[int] = []
    while order.size:
        best, rest = order[0], order[1:]
        kept.append(int(best))
        wide = np.minimum(x2[best], x2[rest]) - np.maximum(x1[best], x1[rest])
        high = np.minimum(y2[best], y2[rest]) - np.maximum(y1[best], y1[rest])
        shared = np.maximum(wide, 0) * np.maximum(high, 0)
        free = shared <= threshold * np.maximum(area[best] + area[rest] - shared, TINY)
        order = rest[free if of is None else free | (of[rest] != of[best])]
    return np.asarray(kept, dtype=np.int64)


def suppressed_on_device(
    boxes: torch.Tensor, scores: torch.Tensor, threshold: float, of: torch.Tensor
) -> torch.Tensor:
    """Return the numbers of the boxes (n, 4) that are kept, best first, within the groups `of`.

    Sorted by group, a box competes with the few before it only, so n times the largest group are compared and not n
    times n. Each round drops the boxes that a box kept by the last round overlaps; the first i boxes of a group are
    right after i rounds at the latest, and usually all are after a few (Zheng et al., arXiv 2005.03572, section 3.4).
    """
    import torch

    if not len(boxes):
        return torch.zeros(0, dtype=torch.int64, device=boxes.device)
    best = torch.argsort(scores, descending=True, stable=True)
    by_group = torch.argsort(of[best], stable=True)
    order = best[by_group]
    some, of = boxes[order].double(), of[order]
    most = int(torch.unique_consecutive(of, return_counts=True)[1].max())
    before = torch.arange(len(of), device=of.device)[:, None] - torch.arange(1, most, device=of.device)
    rival = before.clamp(min=0)
    same = (before >= 0) & (of[rival] == of[:, None])
    others, mine = some[rival], some[:, None]
    shared = (
        torch.minimum(others[..., 2:], mine[..., 2:]) - torch.maximum(others[..., :2], mine[..., :2])
    ).clamp(min=0)
    area = (some[:, 2:] - some[:, :2]).prod(1)
    both = shared.prod(2)
    drops = same & (both > threshold * (area[rival] + area[:, None] - both).clamp(min=TINY))
    kept = torch.ones(len(some), dtype=torch.bool, device=some.device)
    while True:
        after = ~(drops & kept[rival]).any(1)
        if torch.equal(after, kept):
            break
        kept = after
    return best[torch.sort(by_group[kept]).values]


SLACK = 1e-2
"""How far below its threshold a 16-bit value may lie that reaches it in float64."""


class Candidate(NamedTuple):
    """One box before suppression, in pixels of the input."""

    box: Box
    score: float
    kind: int


class Candidates(NamedTuple):
    """All boxes of a batch before suppression: arrays, or tensors of a device."""

    images: Any
    """(k,) numbers of the images, in order."""
    boxes: Any
    """(k, 4) float64: x1, y1, x2, y2 in pixels of the input."""
    scores: Any
    """(k,) float64."""
    classes: Any
    """(k,)."""


@dataclass(frozen=True)
class GreedyDecoder(ABC):
    """A decoder that keeps boxes above `score`, and of those of a class that overlap the one with the best score."""

    READS: ClassVar[int | None] = None
    """How many of the outputs it reads, from the first on; None: all."""

    score: float
    overlap: float
    """Largest intersection over union of two boxes of a class that are both kept."""
    classes: int
    names: tuple[str, ...] = ()

    @abstractmethod
    def candidates(self, outputs: Sequence[Any], xp: Any) -> Candidates:
        """Return all boxes above the score, read with `xp`: numpy, or torch for tensors."""

    @abstractmethod
    def one_by_one(self, outputs: Sequence[Any], image: int) -> Iterator[Candidate]:
        """Yield the boxes of one image above the score, reading one value, or one column of values, at a time."""

    @abstractmethod
    def sides(self, outputs: Sequence[Any]) -> tuple[int, int]:
        """Return width and height of the network's input."""

    def at(self, score: float) -> GreedyDecoder:
        """Return the same decoder with another least score."""
        return replace(self, score=score)

    def elements(self, outputs: Sequence[Any], fits: Sequence[Fit]) -> list[Detections]:
        """Return the boxes of each frame, read by Python loops wherever the outputs lie."""
        rows: list[tuple[float, ...]] = []
        for image in range(len(fits)):
            found = list(self.one_by_one(outputs, image))
            of = [each.kind for each in found]
            kept = by_element([c.box for c in found], [c.score for c in found], of, self.overlap)
            rows += [(image, *found[i].box, found[i].score, found[i].kind) for i in kept]
        return self._in_frames(np.array(rows, dtype=np.float64).reshape(-1, 7), outputs, fits)

    def host(self, outputs: Sequence[Any], fits: Sequence[Fit]) -> list[Detections]:
        """Return the boxes of each frame, computed with numpy after one copy of the outputs to the host."""
        rows = self.candidates([output[: len(fits)] for output in on_host(outputs)], np)
        of = groups(rows.classes, rows.images, self.classes)
        kept = suppressed(rows.boxes, rows.scores, self.overlap, of)
        columns = (rows.images[:, None], rows.boxes, rows.scores[:, None], rows.classes[:, None])
        return self._in_frames(np.hstack([c[kept] for c in columns]), outputs, fits)

    def device(self, outputs: Sequence[Any], fits: Sequence[Fit]) -> list[Detections]:
        """Return the boxes of each frame, computed with torch where the outputs lie."""
        torch = need("torch", "torch", "pip install 'edgescope[torch]'")
        with torch.inference_mode():
            rows = self.candidates([torch.as_tensor(output)[: len(fits)] for output in outputs], torch)
            of = groups(rows.classes, rows.images, self.classes)
            kept = suppressed_on_device(rows.boxes, rows.scores, self.overlap, of)
            columns = (rows.images[:, None], rows.boxes, rows.scores[:, None], rows.classes[:, None])
            table = torch.cat([c[kept].double() for c in columns], 1).cpu().numpy()
        return self._in_frames(table, outputs, fits)

    def _in_frames(
        self, table: NDArray[np.float64], outputs: Sequence[Any], fits: Sequence[Fit]
    ) -> list[Detections]:
        """Return rows (image, x1, y1, x2, y2, score, class) as detections: cut at the input, mapped to the frames."""
        width, height = self.sides(outputs)
        table = table[np.argsort(table[:, 0], kind="stable")]
        of = table[:, 0].astype(np.int64)
        offset = np.array([(fit.offset_x, fit.offset_y) * 2 for fit in fits])
        scale = np.array([(fit.scale_x, fit.scale_y) * 2 for fit in fits])
        boxes = table[:, 1:5].clip(0, [width, height, width, height])
        boxes = ((boxes - offset[of]) / scale[of]).astype(np.float32)
        scores, classes = table[:, 5].astype(np.float32), table[:, 6].astype(np.int64)
        ends = np.searchsorted(of, np.arange(1, len(fits) + 1)).tolist()
        return [
            Detections(boxes[start:end], scores[start:end], classes[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        ]


def on_host(outputs: Sequence[Any]) -> list[NDArray[Any]]:
    """Return outputs as numpy arrays: arrays as they are, tensors of any device after one copy."""
    return [output if isinstance(output, np.ndarray) else _copied(output) for output in outputs]


def _copied(tensor: Any) -> NDArray[Any]:
    plain = tensor.detach().cpu()
    array: NDArray[Any] = (plain if plain.dtype.itemsize > 2 else plain.float()).numpy()
    return array


def per_class(rows: Any, xp: Any, score: float) -> tuple[Any, Any]:
    """Return (row, class) numbers of all values of `rows` (k, classes) above the score."""
    found: tuple[Any, Any] = xp.where(rows > score)
    return found


def corners(centre_x: Any, centre_y: Any, width: Any, height: Any, xp: Any) -> Any:
    """Return boxes (k, 4) of centres and sizes."""
    half_w, half_h = width / 2, height / 2
    return xp.stack([centre_x - half_w, centre_y - half_h, centre_x + half_w, centre_y + half_h], 1)


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
