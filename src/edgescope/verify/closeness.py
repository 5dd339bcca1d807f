"""How far a variant's outputs lie from fp32's where there are no classes to compare.

Outputs of a random network hardly depend on its input, so plain closeness proves nothing: both figures measure
only what an input changes. `judge` decides by them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    rows = [_apart(a, b, mean) for a, b in zip(got, wanted, strict=True)]
    difference, spread = (math.sqrt(sum(column)) for column in zip(*rows, strict=True))
    if difference == 0.0:
        return 0.0
    return difference / spread if spread > 0.0 else float("inf")


def _apart(got: NDArray[Any], wanted: NDArray[Any], mean: NDArray[np.float64]) -> tuple[float, float]:
    """Return two squared distances of one row: of the outputs from the wanted ones, and of these from their mean."""
    exact = wanted.astype(np.float64)
    return float(np.square(got - exact).sum()), float(np.square(exact - mean).sum())


def rank_agreement(got: Outputs, wanted: Outputs) -> float:
    """Return the share of (output element, pair of inputs) ordered as in fp32, the worst of all outputs.

    Looks at up to 64 inputs and about 2,000 elements; pairs that are equal in fp32 are left out. 0.5 is
    chance.
    """
    return min(_rank(a, b) for a, b in zip(got, wanted, strict=True))


def _rank(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    n = min(64, len(wanted))
    step = max(1, wanted[0].size // 2000)
    a, b = (array[:n].reshape(n, -1)[:, ::step].astype(np.float64) for array in (got, wanted))
    first, second = np.triu_indices(n, k=1)
    order, truth = (np.sign(x[first] - x[second]) for x in (a, b))
    nonzero = truth != 0
    return float((order == truth)[nonzero].mean()) if nonzero.any() else 1.0
