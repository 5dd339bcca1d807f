"""Greedy suppression of overlapping boxes (non-maximum suppression), in plain Python and in numpy.

The best box is kept, all boxes of its group that overlap it by more than a threshold are dropped, and so on. Boxes of
different classes, or of different images of a batch, do not compete. `groups` numbers these pairs so that no two share
a number: class + image * classes. The product class * image, which a study of the Jetson Nano used, does not: class 2
of image 3 and class 3 of image 2 would suppress each other, and so would all classes of image 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
