"""What the decoders of all detectors share: three ways of reading outputs, suppression, and the way to the frame.

A family says how outputs are read: `candidates` in operations on whole arrays, which numpy and torch name alike, and
`one_by_one` in Python loops. Candidates are computed in float64, so that all ways agree on which score is higher.

Suppression is greedy (non-maximum suppression), in plain Python and in numpy: the best box is kept, all boxes of its
group that overlap it by more than a threshold are dropped, and so on. Boxes of different classes, or of different
images of a batch, do not compete. `groups` numbers these pairs so that no two share a number: class + image * classes.
The product class * image, which a study of the Jetson Nano used, does not: class 2 of image 3 and class 3 of image 2
would suppress each other, and so would all classes of image 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgescope.models.base import Detections, Fit
from edgescope.registry import need

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
        found = need("edgescope.models.boxes.on_device:found", "torch", "pip install 'edgescope[torch]'")
        return self._in_frames(found(self, outputs, len(fits)), outputs, fits)

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
