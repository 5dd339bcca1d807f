"""Thin out points but keep the extremes, so that the page stays small.

A hundred thousand latencies drawn on a thousand pixels show at most a few thousand points. Picking every n-th
would lose exactly the outliers that a reader looks for, so each stretch keeps its lowest and highest point.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_POINTS = 2000
"""Points drawn for one variant."""


def by_time(value: NDArray[Any], limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return rising indices, at most `limit` (4 or more): both ends, and each stretch's extremes."""
    n = len(value)
    if n <= limit:
        return np.arange(n)
    edges = np.linspace(0, n, (limit - 2) // 2 + 1).astype(int)
    kept = [0, n - 1]
    for first, stop in itertools.pairwise(edges):
        kept += [first + int(np.argmin(value[first:stop])), first + int(np.argmax(value[first:stop]))]
    return np.unique(np.array(kept))


def by_rank(n: int, limit: int = MAX_POINTS) -> NDArray[np.int64]:
    """Return rising ranks 0 .. n-1, at most `limit`, denser towards the slow end, with both ends."""
    if n <= limit:
        return np.arange(n)
    body = np.linspace(0, n - 1, limit // 2).astype(int)
    tail = n - np.unique(np.geomspace(1, n, limit - limit // 2).astype(int))
    return np.unique(np.concatenate([body, tail]))
