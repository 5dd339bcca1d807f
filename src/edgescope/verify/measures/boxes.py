"""How well the boxes of a variant agree with those of fp32 on the same images, where no label tells the right ones.

The boxes that fp32 finds stand for the labels: the agreement is the mean average precision at overlap 0.5 of the
variant's boxes against them. The variant's boxes count from a low score on, the surest first, so no box is lost because
its score fell just below the threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.verify.measures.mean_ap import KEPT, OVERLAPS, Found, MeanAp

Tally = tuple[NDArray[Any], ...]


class BoxAgreement:
    """What is kept of each image to compare its boxes with another variant's: (x1, y1, x2, y2, score, class) of each.

    `score` is the one above which a box of fp32 stands for a label.
    """

    name, title = "box_agreement", "box agreement"
    share, chance = False, 0.0
    others: tuple[BoxAgreement, ...] = ()

    def __init__(self, detections: Callable[[Sequence[NDArray[Any]]], Sequence[Found]], score: float) -> None:
        self.detections, self.score = detections, score

    def tally(self, outputs: Sequence[NDArray[Any]], rows: slice) -> Tally:
        """Return the best boxes of each image, (n, KEPT, 6), NaN where there are fewer."""
        return self.kept(self.detections(outputs))

    def kept(self, found: Sequence[Found]) -> Tally:
        """Return the tally of boxes that are read already."""
        out = np.full((len(found), KEPT, 6), np.nan, dtype=np.float32)
        for row, (boxes, scores, classes) in zip(out, found, strict=True):
            best = np.argsort(-scores, kind="stable")[:KEPT]
            row[: len(best)] = np.column_stack([boxes[best], scores[best], classes[best]])
        return (out,)

    def value(self, tally: Tally, rows: NDArray[np.intp]) -> float:
        """Return how many boxes stand for labels, the mean over images."""
        return float((tally[0][rows, :, 4] > self.score).sum() / max(len(rows), 1))

    def against(self, theirs: Tally) -> MeanAp:
        """Return the measure whose labels are the boxes of another tally."""
        labels = [image[image[:, 4] > self.score][:, [0, 1, 2, 3, 5]] for image in theirs[0]]
        return MeanAp(labels, lambda tally: [_found(image) for image in tally[0]], OVERLAPS[:1])


def _found(image: NDArray[Any]) -> Found:
    kept = image[~np.isnan(image[:, 4])]
    return kept[:, :4], kept[:, 4], kept[:, 5].astype(np.int64)
