"""Top-k accuracy: on how many inputs is the label among the k classes that score best."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = Sequence[NDArray[Any]]
Tally = tuple[NDArray[Any], ...]


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

    def tally(self, outputs: Outputs, rows: slice) -> Tally:
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
