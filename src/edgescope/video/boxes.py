"""How alike two sets of detections of the same frames are: matched boxes, and mean average precision with an interval.

A pipeline that is made faster step by step must find the same boxes at every step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.models.base import Detections
from edgescope.records import Absent, Measured
from edgescope.stats import Interval
from edgescope.stats.shares import clustered_share
from edgescope.verify.measure import agreed
from edgescope.verify.measures.boxes import BoxAgreement
from edgescope.verify.measures.mean_ap import Found, overlap

IOU = 0.5
"""Least intersection over union of two boxes that count as the same."""


@dataclass(frozen=True)
class Sameness:
    """How the boxes of one set of frames compare with those of another."""

    frames: int
    matched: int
    """Boxes of both sets that lie on each other and have the same class."""
    missed: int
    """Boxes of the second set that the first lacks."""
    extra: int
    """Boxes of the first set that the second lacks."""
    mean_iou: float
    """Mean intersection over union of the matched boxes; NaN if there are none."""
    worst_px: float
    """Largest distance between the sides of two matched boxes, in pixels; NaN if there are none."""
    agreement: Measured | Absent
    """Mean average precision at overlap 0.5 of the first set against the second, with an interval over frames."""

    @property
    def identical(self) -> bool:
        """Return whether every box has its match and none is left over."""
        return not self.missed and not self.extra


def same_detections(
    ours: Sequence[Detections],
    theirs: Sequence[Detections],
    *,
    iou: float = IOU,
    scenes: NDArray[np.int64] | None = None,
) -> Sameness:
    """Return how the detections of the same frames compare; `theirs` are taken as right.

    `scenes` has one number per frame: frames with equal numbers are alike, so the interval draws them together. Raises
    ValueError if the two have different numbers of frames.
    """
    pairs = [_matches(a, b, iou) for a, b in zip(ours, theirs, strict=True)]
    shared = np.concatenate([found for found, _ in pairs]) if pairs else np.zeros(0)
    apart = np.concatenate([distance for _, distance in pairs]) if pairs else np.zeros(0)
    count, n = len(shared), len(pairs)
    return Sameness(
        frames=n,
        matched=count,
        missed=sum(map(len, theirs)) - count,
        extra=sum(map(len, ours)) - count,
        mean_iou=float(shared.mean()) if count else float("nan"),
        worst_px=float(apart.max()) if count else float("nan"),
        agreement=agreement(ours, theirs, scenes) if n else Absent("there are no frames"),
    )


def matched_share(ours: Sequence[Detections], theirs: Sequence[Detections], *, iou: float = IOU) -> Interval:
    """Return the share of boxes that both have, of all boxes of either, over frames; a frame without any counts as 1.

    Its interval takes the boxes of a frame together. Raises ValueError if the two have different numbers of frames.
    """
    hits: list[int] = []
    frames: list[int] = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        both = 2 * len(_matches(a, b, iou)[0])
        rows = [1] * both + [0] * (len(a) + len(b) - both) or [1]
        hits += rows
        frames += [number] * len(rows)
    return clustered_share(hits, frames)


def agreement(
    ours: Sequence[Detections], theirs: Sequence[Detections], scenes: NDArray[np.int64] | None = None
) -> Measured | Absent:
    """Return the mean average precision at overlap 0.5 of `ours` against `theirs`, with its interval over frames."""
    measure = BoxAgreement(lambda _: [], 0.0)
    return agreed(measure, measure.kept(_plain(ours)), measure.kept(_plain(theirs)), scenes)


def _plain(found: Sequence[Detections]) -> list[Found]:
    return [(image.boxes, image.scores, image.classes) for image in found]


def _matches(
    ours: Detections, theirs: Detections, iou: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return overlap and largest distance of each matched pair; the pairs that overlap most are matched first."""
    shared = overlap(ours.boxes, theirs.boxes)
    shared[ours.classes[:, None] != theirs.classes[None]] = -1.0
    found, distances = [], []
    for flat in np.argsort(-shared, axis=None, kind="stable"):
        i, j = np.unravel_index(flat, shared.shape)
        best = float(shared[i, j])
        if best < iou:
            if (shared < iou).all():
                break
            continue
        found.append(best)
        distances.append(float(np.abs(ours.boxes[i].astype(np.float64) - theirs.boxes[j]).max()))
        shared[i], shared[:, j] = -1.0, -1.0
    return np.array(found, dtype=np.float64), np.array(distances, dtype=np.float64)
