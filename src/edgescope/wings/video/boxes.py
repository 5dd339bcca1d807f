"""How alike two sets of detections of the same frames are: a pipeline made faster must find the same boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edgescope.models.base import Detections
from edgescope.stats import Interval
from edgescope.stats.shares import clustered_share
from edgescope.verify.measures.mean_ap import overlap

IOU = 0.5
"""Least intersection over union of two boxes that count as the same."""


def matched_share(ours: Sequence[Detections], theirs: Sequence[Detections], *, iou: float = IOU) -> Interval:
    """Return the share of boxes that both have, of all boxes of either, over frames; a frame without any counts as 1.

    Its interval takes the boxes of a frame together. Raises ValueError if the two have different numbers of frames.
    """
    hits: list[int] = []
    frames: list[int] = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        both = 2 * _matched(a, b, iou)
        rows = [1] * both + [0] * (len(a) + len(b) - both) or [1]
        hits += rows
        frames += [number] * len(rows)
    return clustered_share(hits, frames)


def _matched(ours: Detections, theirs: Detections, iou: float) -> int:
    """Return how many boxes of one class lie on each other; the pairs that overlap most are matched first."""
    shared = overlap(ours.boxes, theirs.boxes)
    shared[ours.classes[:, None] != theirs.classes[None]] = -1.0
    count = 0
    while shared.size and shared.max() >= iou:
        i, j = np.unravel_index(shared.argmax(), shared.shape)
        shared[i], shared[:, j] = -1.0, -1.0
        count += 1
    return count
