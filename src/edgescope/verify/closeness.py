"""How far a variant's outputs lie from the fp32 network's, where neither has a class to name: two figures of arrays.

Outputs of a random network hardly depend on its input, so plain closeness proves nothing: both figures look only
at what an input changes. verify judges them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Outputs = tuple[NDArray[Any], ...]


def centred_l2(got: Outputs, wanted: Outputs) -> float:
    """Return |got - wanted| / |wanted - its mean over inputs| (Euclidean), the worst of all outputs.

    0 where both are equal; infinity where fp32 does not depend on the input at all and the variant differs.
    """
    return max(_centred_l2(a, b) for a, b in zip(got, wanted, strict=True))


def _centred_l2(got: NDArray[Any], wanted: NDArray[Any]) -> float:
    """Return it of one output; row by row, because in float64 a few outputs with a value a pixel fill a board."""
    mean = wanted.mean(axis=0, dtype=np.float64)
    rows = [_apart(a, b, mean) for a, b in zip(got, wanted, strict=True)]
    difference, spread = (math.sqrt(sum(column)) for column in zip(*rows, strict=True))
    if difference == 0.0:
        return 0.0
    return difference / spread if spread > 0.0 else float("inf")


def _apart(got: NDArray[Any], wanted: NDArray[Any], mean: NDArray[np.float64]) -> tuple[float, float]:
    """Return the squared distances of one row's outputs, and of the wanted ones from their mean."""
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
    told = truth != 0
    return float((order == truth)[told].mean()) if told.any() else 1.0
