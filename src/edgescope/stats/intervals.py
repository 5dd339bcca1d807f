"""The interval of a mean when neighbouring samples are correlated.

Latencies of one run are correlated: a busy moment slows the next hundred queries too. The integrated
autocorrelation time tau says how many samples are worth one independent sample; n / tau is the effective
count. The interval of a mean comes from batch means (Law & Kelton, ch. 9): the run is cut into batches much
longer than tau, whose means are nearly independent, and Student's t applies to those. Below a floor of effective
samples the interval is marked unreliable.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

from edgescope.records import Measured
from edgescope.records.lazy import ArrayLike, NDArray, np
from edgescope.stats.special import normal_quantile, t_quantile

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
