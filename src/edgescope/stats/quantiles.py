"""Percentiles: a point, an interval, and a bound that holds whatever the distribution is.

Points follow numpy's `linear` rule on raw samples. Intervals and bounds are order statistics: the number of
samples below the true q-quantile is binomial(n, q), whatever the latencies' distribution, so a rank can be
chosen that lies above the quantile with the wanted confidence. Correlated samples count for less: ranks are
chosen among the effective samples and mapped back onto the whole run. If no rank is high enough the answer
is a refusal, `n/a: have 300, need 459`, never a weaker bound. The last function repeats MLPerf LoadGen's
early stopping.

A tail has two effective counts, and the smaller one decides. The autocorrelation time measures correlation over the
whole run. Rare stalls hardly move it, so the slowest samples are also counted in clusters: k samples in c clusters
are c independent samples. Cluster sizes are taken as geometric, so c of k is a binomial share, whose exact lower end
(Clopper-Pearson) is used as the extremal index theta: few clusters prove little. A mean size of 1 / theta spreads the
count of slow samples by E[size^2] / E[size] = 2 / theta - 1, by which the samples are divided.

No run can show a stall that it never met. A state that takes a share 1 - q of all samples in stalls
of s samples is missed by n samples with probability q**(n / s): a bound at confidence 1 - q**m covers stalls
of up to n / m samples (`reach`), n / 459 of p99 at 99 %. How often the bound holds is simulated in
benchmarks/intervals.py p99.
"""

from __future__ import annotations

import math
from functools import lru_cache

from edgescope.records import Absent, Field, Measured
from edgescope.records.lazy import ArrayLike, NDArray, np
from edgescope.stats.intervals import Interval, tau
from edgescope.stats.special import beta_inc, beta_quantile, binomial_cdf

TAIL = 0.9
"""From this quantile on, the clusters of the slowest samples are counted."""
FEWEST = 10
"""Least number of slowest samples whose clusters are counted: fewer do not show how stalls cluster."""
NEAR = 0.1
"""Slow samples closer together than this share of their mean distance are one cluster."""
MISSED = 0.05
"""Probability that the true extremal index lies below the one that is used."""


def percentile(x: ArrayLike, q: float) -> float:
    """Return the point estimate of the q-quantile (q in 0..1) in x's unit, by numpy's `linear` rule."""
    return float(np.quantile(np.asarray(x, dtype=np.float64), q))


@lru_cache(maxsize=4096)
def upper_rank(n: int, q: float, confidence: float) -> int | None:
    """Return the smallest rank r (1..n) with P(r-th smallest of n iid samples >= q-quantile) >= confidence, or None.

    The event is that fewer than r samples lie below the quantile: binomial_cdf(r - 1, n, q).
    """
    if n < 1 or binomial_cdf(n - 1, n, q) < confidence:
        return None
    lo, hi = 1, n
    while lo < hi:
        middle = (lo + hi) // 2
        if binomial_cdf(middle - 1, n, q) >= confidence:
            hi = middle
        else:
            lo = middle + 1
    return lo


def needed(q: float, confidence: float) -> int:
    """Return the effective samples needed to bound a q-quantile: the smallest n with q**n <= 1 - confidence."""
    n = max(1, math.ceil(math.log1p(-confidence) / math.log(q)))
    while binomial_cdf(n - 1, n, q) < confidence:  # log and ceil may be one off
        n += 1
    return n


def refusal(have: float, need: int) -> Absent:
    """Return the sentence for too few samples: `n/a: have 300, need 459`."""
    return Absent(f"n/a: have {math.floor(have)}, need {need}")


def quantile_effective_n(x: ArrayLike, q: float) -> float:
    """Return the effective number of independent samples of `x` for its q-quantile.

    n / tau, with the larger tau of the series and of its indicator `above the quantile`: bursts that hardly
    move the mean can still make the tail come in clusters. For a tail at most the number that its clusters allow.
    """
    data = np.asarray(x, dtype=np.float64)
    if len(data) < 2:
        return float(len(data))
    above = data > np.quantile(data, q)
    theta = extremal_index(data, q) if q >= TAIL else 1.0
    return len(data) * min(1.0 / max(tau(data), tau(above)), theta / (2.0 - theta))


def extremal_index(x: ArrayLike, q: float) -> float:
    """Return clusters per slow sample, in 0..1: the lower 95 % end, the least over thresholds up to 2 (1 - q).

    1.0 if there are too few samples to look at the slowest ten.
    """
    data = np.asarray(x, dtype=np.float64)
    n, beyond = len(data), len(data) * (1.0 - q)
    counts = [FEWEST * 2**i for i in range(64) if FEWEST * 2**i <= max(FEWEST, 2 * beyond)]
    counts = [k for k in counts if k >= beyond / 20 and k <= n / FEWEST]
    limits = np.partition(data, [n - k for k in counts]) if counts else data
    return min((_theta(np.flatnonzero(data >= limits[n - k]), n) for k in counts), default=1.0)


def _theta(places: NDArray[np.intp], n: int) -> float:
    """Return the lower end of the extremal index from the places of the slowest among n samples."""
    slow = len(places)
    gap = math.floor(NEAR * n / slow)
    clusters = 1 + int(np.count_nonzero(np.diff(places) > gap))
    alone = (1.0 - slow / n) ** gap  # the share of independent ones that are not this near by chance
    return min(1.0, beta_quantile(MISSED, clusters, slow - clusters + 1) / alone) if alone > 0 else 1.0


def reach(n: int, q: float, confidence: float = 0.99) -> float:
    """Return the length, in samples, of the longest stall that a bound of the q-quantile from n samples covers."""
    return n / needed(q, confidence)


def upper_bound(x: ArrayLike, q: float, confidence: float = 0.99) -> float | Absent:
    """Return the value below which the true q-quantile lies with `confidence`, in x's unit, or the refusal."""
    data = np.asarray(x, dtype=np.float64)
    have = quantile_effective_n(data, q)
    rank = upper_rank(math.floor(have), q, confidence)
    if rank is None:
        return refusal(have, needed(q, confidence))
    index = _spread(rank, have, len(data))
    return float(np.partition(data, index)[index])


def quantile_interval(x: ArrayLike, q: float, level: float = 0.95) -> Interval | Absent:
    """Return the q-quantile with its two-sided order-statistic interval, each side missed with (1 - level) / 2.

    Refused if an end needs a rank that the effective samples do not have.
    """
    data = np.asarray(x, dtype=np.float64)
    have, side = quantile_effective_n(data, q), 0.5 + level / 2
    count = math.floor(have)
    above, mirrored = upper_rank(count, q, side), upper_rank(count, 1.0 - q, side)
    if above is None or mirrored is None:
        return refusal(have, max(needed(q, side), needed(1.0 - q, side)))
    top = _spread(above, have, len(data))
    bottom = len(data) - 1 - _spread(mirrored, have, len(data))
    ordered = np.partition(data, (bottom, top))
    return Interval(float(ordered[bottom]), float(ordered[top]), percentile(data, q), len(data), have)


def quantile_metric(x: NDArray[np.float64], q: float) -> Field:
    """Return a quantile of seconds (numpy linear, raw samples), with its 95 % interval if the samples allow one.

    A point needs one sample beyond the quantile, n (1 - q) >= 1: 2 for p50, 100 for p99. Below that it is
    absent; above, without enough effective samples for both ends, it has no interval.
    """
    need = max(2, math.ceil(round(1 / (1 - q), 6)))
    if len(x) < need:
        return refusal(len(x), need)
    interval = quantile_interval(x, q)
    if isinstance(interval, Interval):
        return interval.measured("s")
    return Measured(percentile(x, q), "s", n=len(x))


def _spread(rank: int, have: float, n: int) -> int:
    """Return the 0-based index among n samples for a 1-based rank among `have` effective ones, rounded away from q."""
    return min(n, math.ceil(rank * n / have)) - 1


def early_stopping_estimate(latencies: ArrayLike, q: float = 0.99) -> float | Absent:
    """Return MLPerf LoadGen's early-stopping estimate of the q-quantile, in the latencies' unit, or the refusal.

    With n queries the t - 1 slowest are discarded, t the largest count for which n queries with t over the
    limit still pass at 99 % confidence: I_q(n - t, t + 1) < 0.01. t starts at 1, hence 662 queries for p99
    where an order statistic needs 459. Assumes independent queries, as LoadGen does. Source: MLPerf inference
    rules, appendix "Early Stopping".
    """
    data = np.asarray(latencies)
    n = len(data)
    if not _passes(n, 1, q):
        return refusal(n, _fewest(q))
    lo, hi = 1, n
    while hi - lo > 1:
        middle = (lo + hi) // 2
        lo, hi = (middle, hi) if _passes(n, middle, q) else (lo, middle)
    return float(np.partition(data, n - lo)[n - lo])


@lru_cache(maxsize=64)
def _fewest(q: float) -> int:
    """Return the fewest queries with which t = 1 passes; cached, because every short run needs it."""
    return next(n for n in range(2, 10_000_000) if _passes(n, 1, q))


def _passes(n: int, over: int, q: float) -> bool:
    """Return whether n queries, `over` of them above the limit, show at 99 % that the q-quantile is within it."""
    return n > over and beta_inc(n - over, over + 1, q) < 0.01
