"""How well scores rank positives above negatives: ROC and precision-recall curves, their areas, thresholds.

Every function takes rows: a score, and how many positive and how many negative samples have it. A snippet's score holds
for all its frames, so a million frames are some ten thousand rows, and drawing videos anew for an interval only changes
the counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """The counts at each threshold, from the highest score down; a sample is positive from its threshold on."""

    thresholds: Floats
    true: Floats
    """Positives at or above each threshold."""
    false: Floats
    """Negatives at or above each threshold."""

    @property
    def tpr(self) -> Floats:
        """Return the share of positives found, from 0 on; nan without positives."""
        return _share(self.true)

    @property
    def fpr(self) -> Floats:
        """Return the share of negatives taken for positives, from 0 on; nan without negatives."""
        return _share(self.false)

    @property
    def precision(self) -> Floats:
        """Return the share of what is taken for positive that is, from 1 on, before anything is."""
        found = self.true + self.false
        return np.concatenate([[1.0], np.divide(self.true, found, out=np.ones_like(found), where=found > 0)])

    @property
    def roc_auc(self) -> float:
        """Return the area under the ROC curve: the chance that a positive has the higher score, ties half."""
        return area(self.fpr, self.tpr)

    @property
    def pr_auc(self) -> float:
        """Return the area under the precision-recall curve by trapezoids, from precision 1 on, as the field does."""
        return area(self.tpr, self.precision)

    @property
    def youden(self) -> float:
        """Return the threshold at which true less false positive rate is largest."""
        return float(self.thresholds[int(np.argmax((self.tpr - self.fpr)[1:]))])


def curve(scores: ArrayLike, positives: ArrayLike, negatives: ArrayLike) -> Curve:
    """Return the curve of rows with these scores and counts; equal scores are one threshold."""
    return Ranked(np.asarray(scores, dtype=np.float64)).curve(
        np.asarray(positives, dtype=np.float64), np.asarray(negatives, dtype=np.float64)
    )


class Ranked:
    """Scores that are sorted once, for many sets of counts."""

    def __init__(self, scores: Floats) -> None:
        if not np.isfinite(scores).all():
            raise ValueError("a score is no number")
        self.order = np.argsort(-scores, kind="stable")
        ordered = scores[self.order]
        self.last = (
            np.flatnonzero(np.append(np.diff(ordered) != 0, True)) if len(ordered) else np.zeros(0, int)
        )
        self.thresholds: Floats = ordered[self.last]

    def curve(self, positives: Floats, negatives: Floats) -> Curve:
        """Return the curve with these counts per row."""
        true, false = (np.cumsum(counts[self.order])[self.last] for counts in (positives, negatives))
        return Curve(self.thresholds, true, false)


def area(x: ArrayLike, y: ArrayLike) -> float:
    """Return the area under points in order of x, by trapezoids."""
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    return float(np.sum(np.diff(across) * (up[1:] + up[:-1]) / 2))


def _share(counts: Floats) -> Floats:
    whole = counts[-1] if len(counts) and counts[-1] > 0 else float("nan")
    return np.concatenate([[0.0], counts]) / whole
