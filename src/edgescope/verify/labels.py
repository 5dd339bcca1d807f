"""Whether labels can be those of the network's classes: none beyond them, and not all of them one off.

A network of TensorFlow's has a background before its 1000 classes; with labels from 0 to 999 it then looks
useless, and every variant of it as right as the next. What fp32 answers shows it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import UsageError
from edgescope.stats.pairs import wilson

SHIFTS = (1, -1)


def checked(answer: NDArray[Any], labels: NDArray[np.int64] | None, name: str) -> None:
    """Raise UsageError for labels that name no class of the network, or that fit surely better one class on.

    Shifted labels must also be right more often than by always naming the most frequent of them.

    `answer` holds fp32's first output, (n, classes); anything else is no classifier's and is not checked.
    """
    if labels is None or answer.ndim != 2 or labels.ndim != 1 or len(labels) != len(answer):
        return
    given, classes = right(answer, labels), answer.shape[1]
    n = len(labels)
    chance = max(1 / classes, float(np.unique(labels, return_counts=True)[1].max() / n))
    for shift in SHIFTS:
        other = right(answer, labels + shift)
        if wilson(other, n).lo > max(wilson(given, n).hi, chance):
            raise UsageError(
                "E-LABEL-2",
                f"the labels are shifted by one against the {classes} classes of {name}",
                evidence=f"fp32 is right on {given}/{n} as given, on {other}/{n} with each label {shift:+d}",
                effect="Every accuracy would be wrong",
                fix=f"--preprocess label_offset={shift}, beside what else it says",
            )
    beyond = labels[(labels < 0) | (labels >= classes)]
    if len(beyond):
        some = ", ".join(map(str, sorted(set(beyond.tolist()))[:5]))
        raise UsageError(
            "E-LABEL-1",
            f"{len(beyond)} of {n} labels name classes that {name} does not have",
            evidence=f"it has {classes}: 0 to {classes - 1}; found {some}",
            effect="No answer to these inputs can be right",
            fix="give the labels of this network's classes, by folders 0, 1, 2 ... or a classes.txt in its order",
        )


def right(answer: NDArray[Any], labels: NDArray[np.int64]) -> int:
    """Return on how many inputs the highest class is the label."""
    return int((answer.argmax(axis=1) == labels).sum())
