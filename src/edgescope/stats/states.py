"""Speed states: whether a run stays at one speed, or the machine moves it between several.

A host may run at one of a few speeds for seconds at a time (a neighbour on its caches, a clock, a power limit): a run
of one second sees one of them, and no interval from within it knows of the others. Changes of level are found by
optimal partitioning (Jackson et al. 2005, the search that PELT prunes) of block medians, which lone spikes and short
bursts do not move. The penalty is calibrated on quiet, correlated and bursty series
(benchmarks/intervals.py speeds). Stretches whose levels are within STEP of each other are one state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from edgescope.records.lazy import ArrayLike, NDArray, np

Floats: TypeAlias = "NDArray[np.float64]"

LONGEST_S = 10.0
"""Seconds for which a host was seen to stay at one speed: a shorter window may have met only one of several."""
ENOUGH_CHANGES = 20
"""Number of changes from which the mean over several speeds has an interval: ten visits to each."""
STEP = 0.10
"""Levels that differ by less than this share of the lower one are the same state."""
LEAST_SHARE = 0.05
"""Share of the run's time below which a level is a burst, not a state."""
LEAST_BLOCKS, BLOCKS, MOST_BLOCKS = 16, 128, 512
"""Number of blocks of a run: at least, usually, and at most in a long one."""
BLOCK_S = 0.08
"""Seconds of a block in a run of more than ten seconds."""
_LEAST_SAMPLES = 4
"""Least samples of a block: with fewer, its median follows a spike."""
SHORTEST_S, _SHORTEST = 0.25, 3
"""Seconds, and blocks, of the shortest stretch: a shorter one is noise, or a burst."""
_PENALTY = 10.0
"""Cost of a change in units of the blocks' variance times log(blocks); 2 to 3 is usual for independent blocks."""


@dataclass(frozen=True)
class State:
    """One speed at which a run stayed for a while, maybe more than once."""

    level: float
    """Median of its samples."""
    share: float
    """Share of the run's time."""


@dataclass(frozen=True)
class States:
    """The speeds of a run, and when it changed between them."""

    found: tuple[State, ...]
    """Fastest first; one state if the speed did not change, none if there were too few samples."""
    changes: tuple[int, ...] = ()
    """Index of the first sample of each new stretch."""

    @property
    def several(self) -> bool:
        """Whether the run had more than one speed."""
        return len(self.found) > 1

    def known_over(self, seconds: float) -> bool:
        """Return whether a window of `seconds` shows how long the machine stays at each speed, and so its mean."""
        return len(self.changes) >= ENOUGH_CHANGES if self.several else seconds >= LONGEST_S


def states(latencies_s: ArrayLike) -> States:
    """Return the speed states of latencies (in seconds, in time order); the sum of the latencies is their time."""
    x = np.asarray(latencies_s, dtype=np.float64).ravel()
    total_s = float(x.sum())
    count = min(max(BLOCKS, min(int(total_s / BLOCK_S), MOST_BLOCKS)), len(x) // _LEAST_SAMPLES)
    if count < LEAST_BLOCKS or not np.all(x > 0):
        return States(())
    length = len(x) // count
    whole = x[: count * length].reshape(count, length)
    shortest = max(_SHORTEST, math.ceil(SHORTEST_S * count / total_s))
    if count < 2 * shortest:
        return States(())
    edges = [*_partition(np.log(np.median(whole, axis=1)), shortest), count]
    stretches = [slice(a * length, b * length if b < count else len(x)) for a, b in pairwise(edges)]
    return _joined(x, stretches)


def _partition(y: Floats, shortest: int) -> list[int]:
    """Return where the stretches of a series begin: the cheapest cut, a change costing the penalty."""
    n, noise = len(y), max(_noise(y, 1), _noise(y, shortest))
    if noise == 0:
        noise = STEP / 1000  # a clock without jitter: any step counts
    penalty = _PENALTY * noise**2 * math.log(n)
    sums, squares = np.concatenate([[0.0], np.cumsum(y)]), np.concatenate([[0.0], np.cumsum(y * y)])
    best, came = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=np.int64)
    best[0] = -penalty
    for end in range(shortest, n + 1):
        begin = np.arange(0, end - shortest + 1)
        total = sums[end] - sums[begin]
        cost = best[begin] + squares[end] - squares[begin] - total**2 / (end - begin) + penalty
        came[end] = int(np.argmin(cost))
        best[end] = cost[came[end]]
    line = np.linspace(-1, 1, n)
    rest = y - y.mean() - line * float(line @ y) / float(line @ line)
    if float(rest @ rest) + penalty <= best[n]:  # a slope, which is a drift's to tell, not several speeds
        return [0]
    edges, at = [], n
    while at > 0:
        at = int(came[at])
        edges.append(at)
    return edges[::-1]


def _noise(y: Floats, lag: int) -> float:
    """Return the standard deviation of blocks about their level, from differences at a lag (robust to few steps)."""
    return float(np.median(np.abs(y[lag:] - y[:-lag]))) / (0.6745 * math.sqrt(2))


def _joined(x: Floats, stretches: Sequence[slice]) -> States:
    """Return the states of the stretches, by level; a new state begins where a level is STEP above the last."""
    levels = [float(np.median(x[s])) for s in stretches]
    state_of, top, number = {}, 0.0, -1
    for i in sorted(range(len(levels)), key=levels.__getitem__):
        if number < 0 or levels[i] > top * (1 + STEP):
            number, top = number + 1, levels[i]
        state_of[i] = number
    time = np.array([x[s].sum() for s in stretches])
    shares = [
        float(time[[i for i in state_of if state_of[i] == k]].sum() / time.sum()) for k in range(number + 1)
    ]
    kept = [k for k in range(number + 1) if shares[k] >= LEAST_SHARE]
    rows = {k: np.concatenate([x[stretches[i]] for i in state_of if state_of[i] == k]) for k in kept}
    run = [i for i in range(len(stretches)) if state_of[i] in kept]
    changes = tuple(stretches[b].start for a, b in pairwise(run) if state_of[a] != state_of[b])
    return States(tuple(State(float(np.median(rows[k])), shares[k]) for k in kept), changes)
