"""Features of a video of any length -> 32 segments, as heads are trained on them.

A video of fewer snippets is scored as it was trained on, stretched to 32; a longer one with all its snippets.

Segment i is the mean of the snippets from floor(i n / 32) up to floor((i + 1) n / 32), or a copy of the first of them
if there is none between: a video shorter than 32 snippets repeats some.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

SEGMENTS = 32


def segmented(features: NDArray[Any], count: int = SEGMENTS) -> NDArray[np.float32]:
    """Return (crops, count, width) of features (snippets, crops, width)."""
    bounds = np.linspace(0, len(features), count + 1, dtype=np.int64)
    sums = np.add.reduceat(features.astype(np.float32, copy=False), bounds[:-1], axis=0)
    means = sums / np.maximum(np.diff(bounds), 1).astype(np.float32)[:, None, None]
    found: NDArray[np.float32] = np.ascontiguousarray(means.swapaxes(0, 1))
    return found


def stretched(snippets: int, count: int = SEGMENTS) -> NDArray[np.int64]:
    """Return the snippet of each segment of a video of fewer snippets than segments; all snippets of a longer one."""
    if snippets >= count:
        return np.arange(snippets)
    return np.linspace(0, snippets, count + 1, dtype=np.int64)[:-1]


def folded(scores: NDArray[np.float32], snippets: int) -> NDArray[np.float32]:
    """Return one score per snippet from those of the stretched sequence: the mean over its copies."""
    of = stretched(snippets)
    sums = np.bincount(of, weights=scores, minlength=snippets)
    return (sums / np.bincount(of, minlength=snippets)).astype(np.float32)
