"""Spans that lie within each other, as calls do: how long each took beside those within it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def own_ns(c: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Return the nanoseconds of each span without those of the spans directly within it, in the same thread.

    The columns are sorted by start. Of spans that start together, the longer one holds the other.
    """
    length = np.asarray(c["end_ns"] - c["start_ns"], "int64")
    own = length.copy()
    place = np.stack([c["process"], c["thread"]]) if len(length) else np.empty((2, 0), "int64")
    for process, thread in np.unique(place, axis=1).T.tolist():
        mine = np.flatnonzero((c["process"] == process) & (c["thread"] == thread))
        mine = mine[np.lexsort((-c["end_ns"][mine], c["start_ns"][mine]))]
        start, end = c["start_ns"][mine], c["end_ns"][mine]
        depth = np.arange(len(mine)) - np.searchsorted(np.sort(end), start, side="right")
        depth = np.maximum(depth, 0)
        levels = [np.flatnonzero(depth == d) for d in range(int(depth.max()) + 1)]
        for outer, inner in itertools.pairwise(levels):
            at = np.searchsorted(outer, inner) - 1
            held = (at >= 0) & (end[outer[np.maximum(at, 0)]] >= end[inner])
            np.subtract.at(own, mine[outer[at[held]]], length[mine[inner[held]]])
    return np.asarray(np.maximum(own, 0), "int64")
