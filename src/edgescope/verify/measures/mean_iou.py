"""Mean intersection over union of class maps, as PASCAL VOC counts it: over all pixels, then the mean over classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = Sequence[NDArray[Any]]
Tally = tuple[NDArray[Any], ...]

IGNORED = 255
"""The label of a pixel that nobody judges (VOC, Cityscapes); so is any negative one."""


class MeanIou:
    """The mean over the classes that occur of common pixels / pixels of either map."""

    name, title, share = "miou", "mIoU", True
    others, chance = (), 0.01

    def __init__(self, labels: NDArray[np.int64]) -> None:
        self.labels = labels

    def tally(self, outputs: Outputs, rows: slice) -> Tally:
        """Return each input's common pixels and pixels of either map by class, (n, classes, 2).

        The first output holds scores (n, classes, h, w) or classes (n, h, w); one of another size than the labels is
        sampled at their pixels (nearest). ValueError where it is neither, or a label is no class.
        """
        found, labels = outputs[0], self.labels[rows]
        if found.ndim not in (3, 4) or self.labels.ndim != 3:
            raise ValueError(
                f"the first output has shape {found.shape[1:]} an input, not a class or scores a pixel"
            )
        judged = (self.labels != IGNORED) & (self.labels >= 0)
        most = int(self.labels[judged].max()) + 1 if judged.any() else 0
        classes = found.shape[1] if found.ndim == 4 else most
        if most > classes or not most:
            raise ValueError(f"labels up to {most - 1} for {classes} classes")
        maps = found.argmax(1) if found.ndim == 4 else found
        down, across = (np.arange(n) * m // n for n, m in zip(labels.shape[1:], maps.shape[1:], strict=True))
        maps = maps[:, down][:, :, across].astype(np.int64)
        return (np.stack([_counted(a, b, classes) for a, b in zip(maps, labels, strict=True)]),)

    def value(self, tally: Tally, rows: NDArray[np.intp]) -> float:
        """Return the measure over these inputs."""
        common, either = tally[0][rows].sum(0).T
        return float((common / np.maximum(either, 1))[either > 0].mean()) if either.any() else float("nan")


def _counted(found: NDArray[Any], label: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Return common pixels and pixels of either map, a row a class."""
    judged = (label != IGNORED) & (label >= 0)
    found, label = found[judged], label[judged]
    inside = (found >= 0) & (found < classes)
    common = np.bincount(label[found == label], minlength=classes)
    either = np.bincount(label, minlength=classes) + np.bincount(found[inside], minlength=classes) - common
    return np.stack([common, either], 1)
