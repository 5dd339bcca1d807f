"""Mean average precision of boxes as COCO defines it: ten overlaps from 0.5 to 0.95, 101 recalls, 100 boxes a class.

Written here and not taken from pycocotools, because run.py must judge with numpy alone and an interval asks for the
value of a thousand sets of images; a test holds it to pycocotools. Boxes are x1, y1, x2, y2.

Regions to ignore are as there: a box found in one is neither right nor a false alarm, one that is also a true box's is
right. A crowd takes any number of boxes, by the share of each that lies in it; another region takes one, by overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
Tally = tuple[NDArray[Any], ...]
Found = tuple[Floats, Floats, Floats]
"""Boxes, scores and classes of one image."""

OVERLAPS = np.linspace(0.5, 0.95, 10)
RECALLS = np.linspace(0, 1, 101)
BEST, KEPT = 100, 300
"""Boxes that count in one image, the best ones: of one class, and of all."""
JUDGED, CROWD, IGNORED = 0, 1, 2
"""What a region is: a box to find, a region of many, another region in which nothing is judged."""
RIGHT, WRONG, NEITHER = 1.0, 0.0, -1.0
"""What a found box is at one overlap."""


class MeanAp:
    """The mean over classes and overlaps of the area below precision over recall.

    `boxes` holds (k, 5) of each image: x1, y1, x2, y2, class; or (k, 6), the last JUDGED, CROWD or IGNORED.
    `detections` turns outputs into boxes (k, 4),
    scores (k,), negative for a box that does not count, and classes (k,) of each image.
    """

    share, chance = True, 0.01

    def __init__(
        self,
        boxes: Sequence[Floats],
        detections: Callable[[Sequence[NDArray[Any]]], Sequence[Found]],
        overlaps: Floats = OVERLAPS,
    ) -> None:
        self.boxes, self.detections, self.overlaps = boxes, detections, overlaps
        self.name, self.title = ("map", "mAP") if len(overlaps) > 1 else ("map50", "mAP at overlap 0.5")
        self.classes = 1 + max((int(b[:, 4].max()) for b in boxes if len(b)), default=-1)

    @property
    def others(self) -> tuple[MeanAp, ...]:
        """Measures of the same tally that are told beside this one."""
        return (MeanAp(self.boxes, self.detections, OVERLAPS[:1]),) if len(self.overlaps) > 1 else ()

    def tally(self, outputs: Sequence[NDArray[Any]], rows: slice) -> Tally:
        """Return each image's best boxes, (score, class, RIGHT, WRONG or NEITHER at each overlap), and its true boxes a
        class.
        """
        found, truth = self.detections(outputs), self.boxes[rows]
        kept = [_matched(*image, boxes) for image, boxes in zip(found, truth, strict=True)]
        counts = [np.bincount(b[~_ignored(b), 4].astype(int), minlength=self.classes) for b in truth]
        return np.stack(kept), np.stack(counts)

    def value(self, tally: Tally, rows: NDArray[np.intp]) -> float:
        """Return the measure over these images; NaN where they hold no true box."""
        found, total = tally[0][rows], tally[1][rows].sum(0)
        found = found[~np.isnan(found[:, :, 0])]
        found = found[np.argsort(-found[:, 0], kind="stable")]
        hits = found[:, 2 : 2 + len(self.overlaps)]
        each = [_precision(hits[found[:, 1] == c], total[c]) for c in np.flatnonzero(total)]
        return float(np.mean(each)) if each else float("nan")


def overlap(a: Floats, b: Floats) -> Floats:
    """Return intersection over union of every box of `a` with every box of `b`."""
    common, one, other = _areas(a, b)
    shared: Floats = common / np.maximum(one[:, None] + other - common, 1e-12)
    return shared


def _areas(a: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the common area of every box of `a` with every box of `b`, and the area of each."""
    low, high = np.maximum(a[:, None, :2], b[None, :, :2]), np.minimum(a[:, None, 2:4], b[None, :, 2:4])
    common = np.prod(np.maximum(high - low, 0), axis=2, dtype=np.float64)
    one, other = (np.prod(np.maximum(x[:, 2:4] - x[:, :2], 0), axis=1, dtype=np.float64) for x in (a, b))
    return common, one, other


def _ignored(truth: Floats) -> NDArray[np.bool_]:
    """Return which regions of an image are not judged."""
    ignored: NDArray[np.bool_] = (
        truth[:, 5] != JUDGED if truth.shape[1] > 5 else np.zeros(len(truth), dtype=bool)
    )
    return ignored


def _shared(boxes: Floats, classes: Floats, truth: Floats) -> Floats:
    """Return how much every found box shares with every region: of a crowd the share of the box; -1: another class."""
    shared = overlap(boxes, truth)
    if truth.shape[1] > 5:
        common, one, _ = _areas(boxes, truth)
        crowds = truth[:, 5] == CROWD
        shared[:, crowds] = (common / np.maximum(one, 1e-12)[:, None])[:, crowds]
    shared[classes[:, None] != truth[:, 4]] = -1.0
    return shared


def _matched(boxes: Floats, scores: Floats, classes: Floats, truth: Floats) -> Floats:
    """Return (KEPT, 2 + overlaps) of one image: score, class, what it is at each overlap; NaN for no box."""
    order = _best(scores, classes)
    out = np.full((KEPT, 2 + len(OVERLAPS)), np.nan, dtype=np.float32)
    out[: len(order), 0], out[: len(order), 1], out[: len(order), 2:] = scores[order], classes[order], WRONG
    if not len(truth):
        return out
    shared, ignored = _shared(boxes[order], classes[order], truth), _ignored(truth)
    many = ignored & (truth[:, 5] == CROWD) if truth.shape[1] > 5 else ignored
    free = np.ones((len(OVERLAPS), len(truth)), dtype=bool)
    kinds = [
        (~ignored, RIGHT),
        *[(ignored, NEITHER)] * bool(ignored.any()),
    ]  # a true box first, as COCO has it
    for i in np.flatnonzero(shared.max(axis=1) >= OVERLAPS[0] - 1e-9):
        for kind, word in kinds:
            left = np.where(free & kind, shared[i], -1.0)
            match = len(truth) - 1 - left[:, ::-1].argmax(axis=1)  # of equals the last, as COCO has it
            hit = np.take_along_axis(left, match[:, None], 1)[:, 0] >= OVERLAPS
            hit &= out[i, 2:] == WRONG
            out[i, 2:][hit] = word
            free[hit, match[hit]] = many[match[hit]]
    return out


def _best(scores: Floats, classes: Floats) -> NDArray[np.intp]:
    """Return the boxes that count, the best first: BEST of a class, KEPT of all."""
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= 0]
    alike = np.argsort(classes[order], kind="stable")
    _, first, size = np.unique(classes[order][alike], return_index=True, return_counts=True)
    rank = np.empty(len(order), dtype=int)
    rank[alike] = np.arange(len(order)) - np.repeat(first, size)
    return order[rank < BEST][:KEPT]


def _precision(hits: Floats, total: int) -> float:
    """Return the mean over overlaps of precision at 101 recalls; `hits` of one class, the best box first."""
    if not len(hits):
        return 0.0
    right, judged = (np.cumsum(x, axis=0, dtype=np.float64) for x in (hits == RIGHT, hits != NEITHER))
    precision = right / np.maximum(judged, 1)
    precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
    places = [np.searchsorted(column, RECALLS) for column in (right / total).T]
    sums = [precision[place[place < len(hits)], at].sum() for at, place in enumerate(places)]
    return float(np.sum(sums)) / len(RECALLS) / len(sums)
