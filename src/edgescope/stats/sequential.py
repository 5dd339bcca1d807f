"""A run as it goes: at how many speeds the machine runs, when to stop measuring, how much of the start to throw away.

Looking at an interval after every query and stopping as soon as it looks narrow picks lucky moments, so the
interval then covers less than it says. The stop rule looks only at moments whose distance grows
geometrically: a run of any length has only a few checkpoints. Warm-up is decided from the data as well: online
by whether the last windows agree, afterwards by the cut that makes the mean of the rest most certain
(MSER, White 1997).

A host may run at one of a few speeds for seconds at a time (a neighbour on its caches, a clock, a power limit): a run
of one second sees one of them, and no interval from within it knows of the others. Changes of level are found by
optimal partitioning (Jackson et al. 2005, the search that PELT prunes) of block medians, which lone spikes and short
bursts do not move. The penalty is calibrated on quiet, correlated and bursty series
(benchmarks/intervals.py speeds). Stretches whose levels are within STATE_STEP of each other are one state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from edgescope.records.lazy import ArrayLike, np
from edgescope.stats.intervals import Floats, Interval, mean_interval, t_cdf, t_quantile, tau

LONGEST_S = 10.0
"""Seconds for which a host was seen to stay at one speed: a shorter window may have met only one of several."""
ENOUGH_CHANGES = 20
"""Number of changes from which the mean over several speeds has an interval: ten visits to each."""
STATE_STEP = 0.10
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
    n, noise = len(y), max(_state_noise(y, 1), _state_noise(y, shortest))
    if noise == 0:
        noise = STATE_STEP / 1000  # a clock without jitter: any step counts
    penalty = _PENALTY * noise**2 * math.log(n)
    sums, squares = np.concatenate([[0.0], np.cumsum(y)]), np.concatenate([[0.0], np.cumsum(y * y)])
    best, came = np.full(n + 1, np.inf), np.zeros(n + 1, dtype=np.int64)
    best[0], at = -penalty, np.arange(n + 1)
    for end in range(shortest, n + 1):
        begin = slice(end - shortest + 1)
        total = sums[end] - sums[begin]
        cost = best[begin] + squares[end] - squares[begin] - total**2 / (end - at[begin]) + penalty
        came[end] = least = int(cost.argmin())
        best[end] = cost[least]
    line = np.linspace(-1, 1, n)
    rest = y - y.mean() - line * float(line @ y) / float(line @ line)
    if float(rest @ rest) + penalty <= best[n]:  # a slope, which is a drift's to tell, not several speeds
        return [0]
    edges, edge = [], n
    while edge > 0:
        edge = int(came[edge])
        edges.append(edge)
    return edges[::-1]


def _state_noise(y: Floats, lag: int) -> float:
    """Return the standard deviation of blocks about their level, from differences at a lag (robust to few steps)."""
    return float(np.median(np.abs(y[lag:] - y[:-lag]))) / (0.6745 * math.sqrt(2))


def _joined(x: Floats, stretches: Sequence[slice]) -> States:
    """Return the states of the stretches, by level; a new state begins where a level is STATE_STEP above the last."""
    levels = [float(np.median(x[s])) for s in stretches]
    state_of, top, number = {}, 0.0, -1
    for i in sorted(range(len(levels)), key=levels.__getitem__):
        if number < 0 or levels[i] > top * (1 + STATE_STEP):
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


GROWTH = 1.4
"""Elapsed time between two checkpoints of a run, as a factor."""


@dataclass
class StopRule:
    """Stops a run once its mean latency is known well enough, and at the latest at `max_ns` or `max_queries`.

    A run that has seen two speeds goes on: its mean depends on how long the machine stays at each (stats.states). A
    run that has seen a single speed ends early, and may have met one of several: its mean then has no interval.

    A load generator compares its clock with `next_check_ns` (and its count with `max_queries`) after each
    query, and only then calls `decide`, which costs about a millisecond whatever the number of queries.
    """

    rel_width: float
    """Stop when the 95 % half-width is this share of the mean."""
    min_ns: int
    max_ns: int
    max_queries: int | None = None
    start_ns: int = 0
    next_check_ns: int = field(init=False)
    interval: Interval | None = field(init=False, default=None)
    """Interval of the mean latency (ns) at the last checkpoint."""

    def __post_init__(self) -> None:
        """Put the first checkpoint at the shortest run."""
        self.next_check_ns = self.start_ns + min(self.min_ns, self.max_ns)

    def decide(self, now_ns: int, latencies_ns: ArrayLike) -> str | None:
        """Return why to stop (`max_queries`, `max_s` or `rel_width`), or None to go on."""
        elapsed = now_ns - self.start_ns
        if self.max_queries is not None and np.size(latencies_ns) >= self.max_queries:
            return "max_queries"
        if elapsed >= self.max_ns:
            return "max_s"
        if now_ns < self.next_check_ns:
            return None
        self.next_check_ns = self.start_ns + min(max(int(elapsed * GROWTH), elapsed + 1), self.max_ns)
        self.interval = mean_interval(latencies_ns)
        narrow = self.interval.half_width <= self.rel_width * abs(self.interval.value)
        if not (self.interval.reliable and narrow):
            return None
        seen = states(np.asarray(latencies_ns, dtype=np.float64) * 1e-9)
        return None if seen.several and not seen.known_over(elapsed * 1e-9) else "rel_width"


@dataclass(frozen=True)
class Drift:
    """A straight line through the run: how far the mean moves over the window, and whether by chance."""

    share: float
    """Change over the whole window as a share of the mean; +0.05 is 5 % slower at the end."""
    significant: bool
    p: float
    """Two-sided probability of a slope this large without any drift."""
    lo: float
    hi: float
    """95 % interval of `share`; infinite where there are too few blocks."""
    n_blocks: int


def drift(x: ArrayLike, alpha: float = 0.01) -> Drift:
    """Return the drift from the slope of block means and its standard error; blocks are longer than the correlation.

    Never significant with fewer than 8 blocks: p is then 1.
    """
    data = np.asarray(x, dtype=np.float64)
    mean = float(data.mean()) if len(data) else math.nan
    blocks = _blocks(data)
    k = len(blocks)
    if k < 8 or mean == 0 or np.ptp(blocks) == 0:
        wide = 0.0 if k >= 8 and np.ptp(blocks) == 0 else math.inf  # all zeros do not drift
        return Drift(0.0, False, 1.0, -wide, wide, k)
    at = np.linspace(-0.5, 0.5, k) * (k - 1) / k  # block centres, the window being 1 long
    power = float(at @ at)
    slope = float(at @ blocks) / power
    rest = blocks - blocks.mean() - slope * at
    error = math.sqrt(float(rest @ rest) / (k - 2) / power)
    p = 2.0 * t_cdf(-abs(slope) / error, k - 2) if error > 0 else 0.0
    half = t_quantile(0.975, k - 2) * error / abs(mean)
    return Drift(slope / mean, p < alpha, p, slope / mean - half, slope / mean + half, k)


def _blocks(data: Floats) -> Floats:
    """Return up to 32 block means; the block length comes from the correlation after a line is removed."""
    n = len(data)
    if n < 16:
        return data
    at = np.arange(n) - (n - 1) / 2
    rest = data - data.mean() - at * (float(at @ data) / float(at @ at))
    length = max(n // 32, min(math.ceil(4 * tau(rest)), n // 8), 1)
    whole = n // length * length
    return np.asarray(data[n - whole :].reshape(-1, length).mean(axis=1), dtype=np.float64)


def warmup_length(x: ArrayLike) -> int:
    """Return how many leading samples to discard, at most half of them, by MSER on a clipped series.

    MSER cuts where the standard error of what is left is smallest. Latencies have lone spikes that would pull
    the cut behind them, so values are first clipped to the middle 98 % of the second half, which leaves a
    slow start visible and a spike harmless. A cut of half the series means that it has not settled.
    """
    data = np.asarray(x, dtype=np.float64)
    n = len(data)
    if n < 10:
        return 0
    low, high = np.quantile(data[n // 2 :], (0.01, 0.99))
    block = max(1, min(5, n // 20), n // 20_000)
    whole = n // block
    means = np.clip(data, low, high)[: whole * block].reshape(whole, block).mean(axis=1)
    left = np.arange(whole, 0, -1)
    centred = means - means[whole // 2 :].mean()  # cancellation would otherwise eat a small variance
    sums = np.cumsum(centred[::-1])[::-1]
    squares = np.cumsum((centred**2)[::-1])[::-1]
    error = (squares - sums**2 / left) / left.astype(np.float64) ** 2
    return int(np.argmin(error[: whole // 2 + 1])) * block


def warm(latencies: ArrayLike, tolerance: float = 0.02, min_window: int = 10) -> bool:
    """Return whether a warm-up in progress has settled: the medians of its last three windows agree.

    The windows are thirds of the later half of the samples so far, at least `min_window` long. They agree
    when their medians lie within +-tolerance, or closer than the jitter between neighbouring samples can
    explain (a transient smaller than the noise costs nothing).
    """
    data = np.asarray(latencies, dtype=np.float64)
    window = len(data) // 6
    if window < min_window:
        return False
    late = data[len(data) - 3 * window :]
    medians = np.median(late.reshape(3, window), axis=1)
    jitter = float(np.median(np.abs(np.diff(late)))) / (0.6745 * math.sqrt(2))
    noise = 4 * 1.2533 * jitter / math.sqrt(window)
    return float(np.ptp(medians)) <= max(2 * tolerance * float(np.median(medians)), noise)
