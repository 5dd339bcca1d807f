"""Whether two pipelines find the same things: boxes matched frame by frame."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgescope.models.base import Detections
from edgescope.stats import Interval
from edgescope.stats.shares import clustered_share

OVERLAP = 0.5
"""Least intersection over union of two boxes of one class that count as the same."""


def matched(found: Sequence[Detections], wanted: Sequence[Detections]) -> Interval:
    """Return the share of boxes that both have, of all boxes of either, over frames; 1 if neither has any."""
    hits: list[int] = []
    frames: list[int] = []
    for number, (a, b) in enumerate(zip(found, wanted, strict=False)):
        same = pairs(a, b)
        rows = [1] * 2 * same + [0] * (len(a) + len(b) - 2 * same)
        hits += rows or [1]
        frames += [number] * (len(rows) or 1)
    return clustered_share(hits, frames)


def pairs(a: Detections, b: Detections) -> int:
    """Return how many boxes of `a` are also in `b`: each takes the best free box of its class."""
    free, count = np.ones(len(b), dtype=bool), 0
    overlaps = overlap(a.boxes, b.boxes)
    for row, kind in enumerate(a.classes):
        fits = np.where(free & (b.classes == kind), overlaps[row], 0.0)
        if len(fits) and fits.max() >= OVERLAP:
            free[int(fits.argmax())] = False
            count += 1
    return count


def overlap(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the intersection over union of each box of `a` (n, 4) with each of `b` (m, 4): (n, m)."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = (high - low).clip(min=0).prod(2)
    area_a, area_b = ((some[:, 2:] - some[:, :2]).prod(1) for some in (a, b))
    union = area_a[:, None] + area_b[None] - shared
    return np.asarray(shared / np.maximum(union, 1e-9), dtype=np.float64)
