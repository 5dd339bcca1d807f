"""A measure of the user's own: any function of outputs and labels that returns a number, of which more is better."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tally = tuple[NDArray[Any], ...]


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
