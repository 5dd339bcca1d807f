"""The interval of a mean when neighbouring samples are correlated, and the point, interval and bound of a percentile.

Latencies of one run are correlated: a busy moment slows the next hundred queries too. The integrated
autocorrelation time tau says how many samples are worth one independent sample; n / tau is the effective
count. The interval of a mean comes from batch means (Law & Kelton, ch. 9): the run is cut into batches much
longer than tau, whose means are nearly independent, and Student's t applies to those. Below a floor of effective
samples the interval is marked unreliable.

Points of percentiles follow numpy's `linear` rule on raw samples. Intervals and bounds are order statistics: the number
of samples below the true q-quantile is binomial(n, q), whatever the latencies' distribution, so a rank can be
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

The special functions that this needs stand at the end, without SciPy. The regularised incomplete beta function
I_x(a, b) is the one root: the binomial distribution's tail is I_x at whole numbers, and Student's t is I_x at halves.
It is evaluated by its continued fraction (DLMF 8.17.22) with Lentz's method, which takes about sqrt(max(a, b)) steps,
so ranks among 10^6 samples cost microseconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import TypeAlias

from edgescope.records import Absent, Field, Measured
from edgescope.records.lazy import ArrayLike, NDArray, np

Floats: TypeAlias = "NDArray[np.float64]"

MIN_EFFECTIVE = 100
"""Effective samples below which an interval of a mean is called unreliable."""
BATCH_TAUS = 8
"""Batch length in units of tau: their variance is then some 6 % too small, and corrected."""
MAX_BATCHES = 64
"""More batches would narrow Student's t by less than 2 %; longer ones forgive an underestimated tau."""
_MIN_BATCHES = 8
_FFT_POINTS = 8192
"""Longer series are averaged down to this many points before the FFT: a checkpoint must cost about 1 ms."""
_NOISE = 10.0
"""An iid series of n samples shows a tau below 1 + _NOISE / sqrt(n) 98 times in 100 (simulated)."""


@dataclass(frozen=True)
class Interval:
    """A value with its interval, the samples behind it, and whether the interval can be relied on."""

    lo: float
    hi: float
    value: float
    n: int
    n_eff: float
    reliable: bool = True
    note: str = ""

    @property
    def half_width(self) -> float:
        """Return half of hi - lo, in the value's unit."""
        return (self.hi - self.lo) / 2

    def measured(self, unit: str, scale: float = 1.0) -> Measured:
        """Return the value and its interval times `scale` in `unit`; without the interval if it is unreliable."""
        sure = self.reliable and math.isfinite(self.lo) and math.isfinite(self.hi)
        lo, hi = (self.lo * scale, self.hi * scale) if sure else (None, None)
        return Measured(self.value * scale, unit, lo, hi, self.n)


def autocovariance(x: ArrayLike) -> Floats:
    """Return the biased autocovariance at lags 0..n-1, by FFT."""
    data = _floats(x)
    n = len(data)
    padded = np.fft.rfft(data - data.mean(), 1 << (2 * n - 1).bit_length())
    return np.asarray(np.fft.irfft(padded * np.conj(padded))[:n] / n, dtype=np.float64)


def tau(x: ArrayLike) -> float:
    """Return the integrated autocorrelation time in samples, at least 1.

    Geyer's initial monotone sequence (Statistical Science 7, 1992): sums of adjacent lags are added while
    they stay positive, each capped by the one before. Exactly 1.0 if iid samples would look no different.
    """
    data = _floats(x)
    if len(data) < 4 or np.ptp(data) == 0:
        return 1.0
    spread = float(data.var())
    block = math.ceil(len(data) / _FFT_POINTS)
    points = _averaged(data, block)
    covariance = autocovariance(points)
    if min(covariance[0], spread) <= 0:  # what alternates may be averaged away
        return 1.0
    # variance of the mean is var(points) tau_points / len(points); tau is that over the iid var(x) / n
    estimate = _geyer(covariance) * float(covariance[0]) * block / spread
    return estimate if estimate > 1.0 + _NOISE / math.sqrt(len(points)) else 1.0


def _geyer(covariance: Floats) -> float:
    """Return the integrated autocorrelation time of a series with these autocovariances."""
    even = len(covariance) // 2 * 2
    pairs = covariance[:even].reshape(-1, 2).sum(axis=1) / covariance[0]
    negative = np.flatnonzero(pairs <= 0)
    pairs = pairs[: negative[0]] if len(negative) else pairs
    return max(1.0, 2.0 * float(np.minimum.accumulate(pairs).sum()) - 1.0) if len(pairs) else 1.0


def effective_n(x: ArrayLike) -> float:
    """Return the number of independent samples with the same information about the mean: n / tau."""
    return np.size(x) / tau(x)


def mean_interval(x: ArrayLike, level: float = 0.95) -> Interval:
    """Return the mean of a stationary, possibly autocorrelated series with its two-sided `level` interval.

    Unreliable, with a note that says why, below MIN_EFFECTIVE effective samples.
    """
    data = _floats(x)
    n = len(data)
    if n < 2:
        value = float(data[0]) if n else math.nan
        return Interval(-math.inf, math.inf, value, n, n, False, f"interval unreliable: {n} samples")
    value, correlation_time = float(data.mean()), tau(data)
    n_eff = n / correlation_time
    means, block = _batches(data, correlation_time)
    # batches of m samples miss the covariance across their edges: E[var] is short by about tau / 2m
    missing = max(0.5, 1.0 - 0.5 * correlation_time / block) if correlation_time > 1.0 else 1.0
    error = float(means.std(ddof=1)) / math.sqrt(len(means) * missing)
    half = t_quantile(0.5 + level / 2, len(means) - 1) * error
    reliable = n_eff >= MIN_EFFECTIVE
    note = "" if reliable else f"interval unreliable: {n_eff:.0f} effective samples, need {MIN_EFFECTIVE}"
    return Interval(value - half, value + half, value, n, n_eff, reliable, note)


def _batches(data: Floats, correlation_time: float) -> tuple[Floats, int]:
    """Return the means of nearly independent batches, and the batch length in samples."""
    n = len(data)
    want = 1 if correlation_time <= 1.0 and n < 2 * MAX_BATCHES else math.ceil(BATCH_TAUS * correlation_time)
    block = min(max(want, n // MAX_BATCHES), max(1, n // _MIN_BATCHES))
    means = _averaged(data, block)
    while len(means) >= 2 * _MIN_BATCHES and _lag1(means) > normal_quantile(0.99) / math.sqrt(len(means)):
        block *= 2
        means = _averaged(data, block)
    return means, block


def _lag1(x: Floats) -> float:
    """Return the lag-1 autocorrelation."""
    centred = x - x.mean()
    power = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / power if power else 0.0


def _averaged(data: Floats, block: int) -> Floats:
    """Return the means of consecutive blocks; a remainder shorter than a block is left out at the start."""
    if block <= 1:
        return data
    whole = len(data) // block * block
    return np.asarray(data[len(data) - whole :].reshape(-1, block).mean(axis=1), dtype=np.float64)


def _floats(x: ArrayLike) -> Floats:
    return np.asarray(x, dtype=np.float64).ravel()


def times(ratio: float) -> str:
    """Return `5.03x`, `1,667x` or `below 0.001x`."""
    if not 1e-3 <= ratio < 1e6:
        return "below 0.001x" if ratio < 1 else "above a million x"
    return f"{ratio:,.0f}x" if ratio >= 100 else f"{ratio:.3g}x"


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


_TINY = 1e-300
_EPS = 1e-15


def beta_inc(a: float, b: float, x: float) -> float:
    """Return the regularised incomplete beta function I_x(a, b), for a, b > 0 and x in [0, 1]."""
    if not (a > 0 and b > 0 and 0 <= x <= 1):
        raise ValueError(f"need a, b > 0 and 0 <= x <= 1, not {a}, {b}, {x}")
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side of the mean only
        return 1.0 - beta_inc(b, a, 1.0 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """Return the denominator 1 + d1/(1 + d2/(1 + ...)) of DLMF 8.17.22, by modified Lentz."""
    f, c, d = 1.0, 1.0, 0.0
    for i in range(1, 100_000):
        m, odd = divmod(i, 2)
        if odd:
            term = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            term = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1.0 / (1.0 + term * d or _TINY)
        c = 1.0 + term / c or _TINY
        f *= c * d
        if abs(c * d - 1.0) < _EPS:
            return f
    raise ArithmeticError(f"incomplete beta did not converge at a={a}, b={b}, x={x}")


def binomial_cdf(k: int, n: int, p: float) -> float:
    """Return the probability of at most `k` successes in `n` independent trials of probability `p`."""
    if k < 0:
        return 0.0
    if k >= n:
        return 1.0
    return beta_inc(n - k, k + 1, 1.0 - p)


def t_cdf(t: float, df: float) -> float:
    """Return the probability that Student's t with `df` degrees of freedom is at most `t`."""
    square = t * t
    if square < 1.0:  # the tail below is one minus nearly one here
        return 0.5 + math.copysign(0.5 * beta_inc(0.5, df / 2, square / (df + square)), t)
    tail = 0.5 * beta_inc(df / 2, 0.5, df / (df + square))
    return 1.0 - tail if t > 0 else tail


@lru_cache(maxsize=4096)
def beta_quantile(p: float, a: float, b: float) -> float:
    """Return the p-quantile of a beta variable with parameters a, b > 0."""
    lo, hi = 0.0, 1.0
    while hi - lo > 1e-12:
        middle = 0.5 * (lo + hi)
        lo, hi = (middle, hi) if beta_inc(a, b, middle) < p else (lo, middle)
    return 0.5 * (lo + hi)


@lru_cache(maxsize=4096)
def t_quantile(p: float, df: float) -> float:
    """Return the p-quantile of Student's t with `df` degrees of freedom."""
    if not (0 < p < 1 and df > 0):
        raise ValueError(f"need 0 < p < 1 and df > 0, not {p} and {df}")
    if p < 0.5:
        return -t_quantile(1.0 - p, df)
    lo, hi = 0.0, max(2.0, 2.0 * normal_quantile(p))
    while t_cdf(hi, df) < p:
        lo, hi = hi, 2.0 * hi
    for _ in range(200):
        middle = 0.5 * (lo + hi)
        lo, hi = (middle, hi) if t_cdf(middle, df) < p else (lo, middle)
        if hi - lo <= 1e-13 * hi:
            break
    return 0.5 * (lo + hi)


def normal_quantile(p: float) -> float:
    """Return the p-quantile of a standard normal variable."""
    return NormalDist().inv_cdf(p)
