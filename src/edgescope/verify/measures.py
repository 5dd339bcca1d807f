"""Measures of right answers and of closeness to fp32, in numpy alone: `--save` puts this file beside run.py.

    TopK           share of inputs whose label is among the k best classes
    MeanIou        overlap of class maps, the mean over classes, as PASCAL VOC counts it
    MeanAp         mean average precision of boxes as COCO defines it
    BoxAgreement   how well a variant's boxes agree with those of fp32, where no label tells the right ones
    Own            a function of the user's
    Closeness      how far outputs lie from fp32's, where there are no classes to compare

A measure first keeps of every input what its value is made of (`tally`), so that outputs of a million numbers need not
be held, and then says the value over any set of inputs, as often as an interval needs.

COCO's precision is written here and not taken from pycocotools, because run.py must judge with numpy alone and an
interval asks for the value of a thousand sets of images; a test holds it to pycocotools. It has ten overlaps from 0.5
to 0.95, 101 recalls, 100 boxes a class; boxes are x1, y1, x2, y2. Regions to ignore are as there: a box found in one is
neither right nor a false alarm, one that is also a true box's is right. A crowd takes any number of boxes, by the share
of each that lies in it; another region takes one, by overlap.

The boxes that fp32 finds stand for the labels in BoxAgreement: it is the mean average precision at overlap 0.5 of the
variant's boxes against them. The variant's boxes count from a low score on, the surest first, so no box is lost because
its score fell just below the threshold.

Outputs of a random network hardly depend on its input, so plain closeness proves nothing: both figures of Closeness
measure only what an input changes. `judge` decides by them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from edgescope.records.lazy import NDArray, np

Floats = NDArray[Any]
Tally = tuple[NDArray[Any], ...]
Found = tuple[Floats, Floats, Floats]
"""Boxes, scores and classes of one image."""

OVERLAPS = (*(0.5 + i * ((0.95 - 0.5) / 9) for i in range(9)), 0.95)
RECALLS = (*(i * 0.01 for i in range(100)), 1.0)
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
        overlaps: Sequence[float] = OVERLAPS,
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


class TopK:
    """The share of inputs whose label is among the k best; of equal scores the lower class is the better."""

    share = True

    def __init__(self, labels: NDArray[np.int64], k: int = 1) -> None:
        self.labels, self.k = labels, k
        self.name, self.title = f"top{k}", f"top-{k}"

    @property
    def chance(self) -> float:
        """What a network reaches that always gives the same answer; 0.01 at least."""
        often = np.sort(np.bincount(self.labels))[-self.k :].sum()
        return max(0.01, float(often) / len(self.labels))

    @property
    def others(self) -> tuple[TopK, ...]:
        """Measures of the same tally that are told beside this one."""
        return (TopK(self.labels, 5),) if self.k == 1 and self.labels.max() >= 5 else ()

    def tally(self, outputs: Sequence[NDArray[Any]], rows: slice) -> Tally:
        """Return the rank of the right class of each input; ValueError where these are no scores of the labels."""
        scores, labels = outputs[0], self.labels[rows]
        if scores.ndim != 2 or scores.shape[1] < 2:
            raise ValueError(f"the first output has shape {scores.shape[1:]} an input, not one score a class")
        if self.labels.ndim != 1:
            raise ValueError(
                f"labels of shape {self.labels.shape[1:]} an input are neither numbers nor one-hot"
            )
        if self.labels.min() < 0 or self.labels.max() >= scores.shape[1]:
            low, high = self.labels.min(), self.labels.max()
            raise ValueError(f"labels from {low} to {high} for {scores.shape[1]} classes")
        own = np.take_along_axis(scores, labels[:, None], 1)
        before = (scores == own) & (np.arange(scores.shape[1]) < labels[:, None])
        return (((scores > own) | before).sum(1),)

    def value(self, tally: Tally, rows: NDArray[np.intp]) -> float:
        """Return the measure over these inputs."""
        return float((tally[0][rows] < self.k).mean())

    def right(self, tally: Tally) -> NDArray[np.bool_]:
        """Return whether each input is answered rightly."""
        right: NDArray[np.bool_] = tally[0] < self.k
        return right


UNJUDGED = 255
"""The label of a pixel that nobody judges (VOC, Cityscapes); so is any negative one."""


class MeanIou:
    """The mean over the classes that occur of common pixels / pixels of either map."""

    name, title, share = "miou", "mIoU", True
    others, chance = (), 0.01

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self.labels = labels

    def tally(self, outputs: Sequence[NDArray[Any]], rows: slice) -> Tally:
        """Return each input's common pixels and pixels of either map by class, (n, classes, 2).

        The first output holds scores (n, classes, h, w) or classes (n, h, w); one of another size than the labels is
        sampled at their pixels (nearest). ValueError where it is neither, or a label is no class.
        """
        found, labels = outputs[0], self.labels[rows]
        if found.ndim not in (3, 4) or self.labels.ndim != 3:
            raise ValueError(
                f"the first output has shape {found.shape[1:]} an input, not a class or scores a pixel"
            )
        judged = (self.labels != UNJUDGED) & (self.labels >= 0)
        most = int(self.labels[judged].max()) + 1 if judged.any() else 0
        classes = found.shape[1] if found.ndim == 4 else most
        if most > classes or not most:
            raise ValueError(f"labels up to {most - 1} for {classes} classes")
        maps = found.argmax(1) if found.ndim == 4 else found
        down, across = (np.arange(n) * m // n for n, m in zip(labels.shape[1:], maps.shape[1:], strict=True))
        maps = maps[:, down][:, :, across].astype(np.int64)
        return (np.stack([_pixels(a, b, classes) for a, b in zip(maps, labels, strict=True)]),)

    def value(self, tally: Tally, rows: NDArray[np.intp]) -> float:
        """Return the measure over these inputs."""
        common, either = tally[0][rows].sum(0).T
        return float((common / np.maximum(either, 1))[either > 0].mean()) if either.any() else float("nan")


def _pixels(found: NDArray[Any], label: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Return common pixels and pixels of either map, a row a class."""
    judged = (label != UNJUDGED) & (label >= 0)
    found, label = found[judged], label[judged]
    inside = (found >= 0) & (found < classes)
    common = np.bincount(label[found == label], minlength=classes)
    either = np.bincount(label, minlength=classes) + np.bincount(found[inside], minlength=classes) - common
    return np.stack([common, either], 1)


class Own:
    """metric(outputs, labels), outputs being an array, or a tuple of them where the network has several.

    It returns one number, or one for each input, whose mean counts.
    """

    share, others, chance = None, (), float("-inf")

    def __init__(self, metric: Callable[..., Any], truth: Any, name: str) -> None:
        self.metric, self.truth, self.name = metric, truth, name
        self.title = name.partition("#")[0].rpartition(":")[2]

    def tally(self, outputs: Sequence[NDArray[Any]], rows: slice) -> Tally:
        """Return the outputs: what the function looks at is not known."""
        return tuple(np.asarray(part) for part in outputs)

    def value(self, tally: Tally, rows: NDArray[np.intp]) -> float:
        """Return the measure over these inputs; TypeError where the function returns no number."""
        parts = tuple(part[rows] for part in tally)
        truth = self.truth
        if isinstance(truth, np.ndarray):
            truth = truth[rows]
        elif truth is not None:
            truth = [truth[i] for i in rows]
        found = np.asarray(self.metric(parts[0] if len(parts) == 1 else parts, truth))
        if found.dtype.kind not in "biuf" or found.shape not in ((), (1,), (len(rows),)):
            raise TypeError(
                f"it returned {found.dtype} of shape {found.shape}, not a number or one for each input"
            )
        return float(found.mean())


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
        return MeanAp(labels, lambda tally: [_unpadded(image) for image in tally[0]], OVERLAPS[:1])


def _unpadded(image: NDArray[Any]) -> Found:
    kept = image[~np.isnan(image[:, 4])]
    return kept[:, :4], kept[:, 4], kept[:, 5].astype(np.int64)


Outputs = tuple[NDArray[Any], ...]


class Closeness:
    """One of the two figures as a measure, of which more is better: rank agreement, or minus the centred distance."""

    def __init__(self, truth: Outputs, *, ranks: bool) -> None:
        self.truth, self.ranks = truth, ranks

    def tally(self, outputs: Sequence[NDArray[Any]], rows: slice) -> Outputs:
        """Return the outputs: both figures need all of them."""
        return tuple(np.asarray(part) for part in outputs)

    def value(self, tally: Outputs, rows: NDArray[np.intp]) -> float:
        """Return the figure over these inputs: 1 or 0 for fp32's own outputs."""
        got, wanted = (tuple(part[rows] for part in side) for side in (tally, self.truth))
        return rank_agreement(got, wanted) if self.ranks else 0.0 - centred_l2(got, wanted)


def centred_l2(got: Outputs, wanted: Outputs) -> float:
    """Return |got - wanted| / |wanted - its mean over inputs| (Euclidean), the worst of all outputs.

    0 if both are equal; infinity if fp32 does not depend on the input at all and the variant differs.
    """
    return max(_centred_l2(a, b) for a, b in zip(got, wanted, strict=True))


def _centred_l2(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Return the centred L2 of one output, row by row: dense outputs in float64 would not fit a board's memory."""
    mean = wanted.mean(axis=0, dtype=np.float64)
    rows = [_distances(a, b, mean) for a, b in zip(got, wanted, strict=True)]
    difference, spread = (math.sqrt(sum(column)) for column in zip(*rows, strict=True))
    if difference == 0.0:
        return 0.0
    return difference / spread if spread > 0.0 else float("inf")


def _distances(got: NDArray[Any], wanted: NDArray[Any], mean: NDArray[np.float64]) -> tuple[float, float]:
    """Return two squared distances of one row: of the outputs from the wanted ones, and of these from their mean."""
    exact = wanted.astype(np.float64)
    return float(np.square(got - exact).sum()), float(np.square(exact - mean).sum())


def rank_agreement(got: Outputs, wanted: Outputs) -> float:
    """Return the share of (output element, pair of inputs) ordered as in fp32, the worst of all outputs.

    Looks at up to 64 inputs and about 2,000 elements; pairs that are equal in fp32 are left out. 0.5 is
    chance.
    """
    return min(_rank_agreement(a, b) for a, b in zip(got, wanted, strict=True))


def _rank_agreement(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    n = min(64, len(wanted))
    step = max(1, wanted[0].size // 2000)
    a, b = (array[:n].reshape(n, -1)[:, ::step].astype(np.float64) for array in (got, wanted))
    first, second = np.triu_indices(n, k=1)
    order, truth = (np.sign(x[first] - x[second]) for x in (a, b))
    nonzero = truth != 0
    return float((order == truth)[nonzero].mean()) if nonzero.any() else 1.0
