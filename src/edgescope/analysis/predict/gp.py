"""Predict the unmeasured cells of a grid, with the uncertainty of each prediction, from a few measured cells.

Logarithms of throughput, power and memory are guessed, because an axis mostly changes them by a factor (twice the
batch, 1.3 times the throughput): on a log scale factors add. A guess is a Gaussian process whose covariance is a sum
over the axes (each alone, and a smaller part for each pair), so that one cell teaches about every cell that shares a
level with it; numbers (batch, processes, threads) lie on a log2 scale and neighbours resemble each other, words
(precision, sharing) are alike or not. Its mean is a sum of slopes from physics (priors.py), each with an uncertainty.

The strength of each axis cannot be fitted to five points. So some dozens of settings are drawn once and averaged, each
weighted by how well it explains the measured cells. numpy alone; a grid of a thousand cells takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgescope.records import ROLES, TABLES, Json, Role, Scalar, Trial

Floats = NDArray[np.float64]
#: Keys of a Trial that are not axes of the grid: they say how a cell is measured, or follow from another key.
NO_AXES = {
    *(n for n, role in ROLES.items() if role in Role.EFFORT | Role.REPEAT | Role.JUDGING | Role.TRACING),
    *("shapes", *TABLES),
}
#: How many settings of the covariance are averaged.
SETTINGS = 32
#: Log units: the usual strength of one axis alone, and of a pair beyond its two.
ALONE, TOGETHER = 0.3, 0.05
#: Log units: a whole grid may lie at any level.
LEVEL_SD = 4.0


def coordinates(trial: Trial) -> dict[str, Json]:
    """Return a trial's coordinates in a grid: its keys, and its options as `options.threads`."""
    plain = {k: v for k, v in trial.to_json().items() if k not in NO_AXES}
    tables = {name: getattr(trial, name) for name in TABLES}
    inner = ((f"{table}.{name}", value) for table, given in tables.items() for name, value in given.items())
    return plain | dict(inner)


@dataclass(frozen=True)
class Axis:
    """One property that differs within a grid, with its level in each cell as log2 or as a code."""

    name: str
    levels: tuple[Scalar | None, ...]
    """In order; numbers rising."""
    at: Floats
    """Shape (cells,): log2 of the number, or the index of the word."""
    ordinal: bool

    def only(self, cells: NDArray[np.int64]) -> Axis:
        """Return the axis of these cells alone."""
        return replace(self, at=self.at[cells])

    def alike(self, rows: NDArray[np.int64], reach: float) -> Floats:
        """Return the similarity of every cell to the cells `rows`, shape (cells, rows); 1 at equal levels."""
        apart = np.abs(self.at[:, None] - self.at[rows][None, :])
        if self.ordinal:
            return np.asarray(np.exp(-0.5 * (apart / reach) ** 2))
        return np.asarray(apart == 0, dtype=np.float64)


def axes(trials: Sequence[Trial]) -> tuple[Axis, ...]:
    """Return an axis for each property that differs within these trials."""
    plain = [coordinates(t) for t in trials]
    names = dict.fromkeys(name for p in plain for name in p)
    found = (_axis(name, [p.get(name) for p in plain]) for name in names)
    return tuple(a for a in found if len(a.levels) > 1)


def product(name: str, values: Sequence[float]) -> Axis:
    """Return the product of several axes as one further axis: cells with the same product are alike.

    A device is filled by processes x batch alike, cores are taken by processes x threads alike.
    """
    return _axis(name, list(values))


def _axis(name: str, values: Sequence[Scalar | None]) -> Axis:
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool) and v > 0]
    if len(numbers) == len(values):
        return Axis(name, tuple(sorted(set(numbers))), np.log2(np.array(numbers, dtype=np.float64)), True)
    levels = tuple(dict.fromkeys(values))
    return Axis(name, levels, np.array([levels.index(v) for v in values], dtype=np.float64), False)


@dataclass(frozen=True)
class Slope:
    """The expected slope along one feature before anything is measured, in log units per unit of the feature."""

    feature: Floats
    """Shape (cells,)."""
    mean: float
    sd: float


@dataclass(frozen=True)
class _Setting:
    """One draw of how strong and how smooth everything is."""

    single: Floats
    """Variance of each axis alone."""
    pairs: float
    """Variance of each pair of axes."""
    reach: float
    """Octaves over which neighbouring numbers resemble each other."""
    noise: float
    """Standard deviation between two processes of one cell."""


def _drawn(count: int, scale: float) -> list[_Setting]:
    rng = np.random.default_rng(0)
    return [
        _Setting(
            single=(scale * ALONE * np.exp(rng.normal(0, 0.8, count))) ** 2,
            pairs=float((scale * TOGETHER * np.exp(rng.normal(0, 0.7))) ** 2),
            reach=float(2.5 * np.exp(rng.normal(0, 0.4))),
            noise=float(0.02 * np.exp(rng.normal(0, 0.5))),
        )
        for _ in range(SETTINGS)
    ]


class Surrogate:
    """The prediction of one quantity over one grid."""

    def __init__(
        self,
        grid: Sequence[Axis],
        slopes: Sequence[Slope],
        cells: int,
        scale: float = 1.0,
        *,
        around: Floats | None = None,
        level_sd: float = LEVEL_SD,
    ) -> None:
        """Build the prior. `scale`: how much the quantity varies relative to throughput, which varies the most.

        `around`: the expected log value of each cell before the slopes, 0 by default; the whole grid may lie
        `level_sd` above or below it.
        """
        self.grid, self.slopes, self.cells, self.level_sd = grid, slopes, cells, level_sd
        self.settings = _drawn(len(grid), scale)
        self.expected = sum(
            (s.feature * s.mean for s in slopes), np.zeros(cells) if around is None else around
        )
        self.memory: tuple[dict[int, float], tuple[Floats, Floats, Floats]] | None = None
        """The last answer and its input."""

    def posterior(self, seen: Mapping[int, float]) -> tuple[Floats, Floats, Floats]:
        """Return (weights, means, sds) of the settings given log values by cell.

        Shapes (settings,), (settings, cells), (settings, cells).
        """
        if self.memory is None or self.memory[0] != seen:
            self.memory = dict(seen), self._posterior(seen)
        return self.memory[1]

    def _posterior(self, seen: Mapping[int, float]) -> tuple[Floats, Floats, Floats]:
        rows = np.array(sorted(seen), dtype=np.int64)
        y = np.array([seen[int(i)] for i in rows]) - self.expected[rows]
        fits = [self._fit(s, rows, y) for s in self.settings]
        likely = np.array([f[0] for f in fits])
        weights = np.exp(likely - likely.max())
        return weights / weights.sum(), np.array([f[1] for f in fits]), np.array([f[2] for f in fits])

    def mean(self, seen: Mapping[int, float]) -> Floats:
        """Return the guessed log value of every cell."""
        weights, means, _ = self.posterior(seen)
        return np.asarray(weights @ means)

    def fresh(self, seen: Mapping[int, float]) -> tuple[Floats, Floats]:
        """Return the guessed log value of a fresh run of every cell, and its standard deviation."""
        weights, means, sds = self.posterior(seen)
        noise = np.array([s.noise for s in self.settings])[:, None]
        mean = weights @ means
        return mean, np.sqrt(weights @ (sds**2 + noise**2 + (means - mean) ** 2))

    def sample(self, seen: Mapping[int, float], rng: np.random.Generator, count: int) -> Floats:
        """Return `count` draws of the log value of every cell, each cell for itself, shape (count, cells)."""
        weights, means, sds = self.posterior(seen)
        which = rng.choice(len(weights), size=count, p=weights)
        return np.asarray(means[which] + sds[which] * rng.normal(size=(count, self.cells)))

    def _fit(self, setting: _Setting, rows: NDArray[np.int64], y: Floats) -> tuple[float, Floats, Floats]:
        """Return the log likelihood of the measured values, with the mean and standard deviation of every cell."""
        every = self._covariance(setting, rows)
        variance = self._variance(setting)
        if not len(rows):
            return 0.0, self.expected, np.sqrt(variance)
        own = every[rows] + np.eye(len(rows)) * (setting.noise**2 + 1e-9)
        low = np.linalg.cholesky(own)
        white = np.linalg.solve(low, y)
        known = np.linalg.solve(low, every.T)
        mean = self.expected + known.T @ white
        left = np.maximum(variance - np.sum(known**2, axis=0), 1e-8)
        return float(-0.5 * white @ white - np.log(np.diag(low)).sum()), mean, np.sqrt(left)

    def _covariance(self, setting: _Setting, rows: NDArray[np.int64]) -> Floats:
        """Return the covariance of every cell with the cells `rows`."""
        found = np.full((self.cells, len(rows)), self.level_sd**2)
        for slope in self.slopes:
            found += slope.sd**2 * np.outer(slope.feature, slope.feature[rows])
        once, twice = np.zeros_like(found), np.zeros_like(found)
        for axis, variance in zip(self.grid, setting.single, strict=True):
            alike = axis.alike(rows, setting.reach)
            found += variance * alike
            once += alike
            twice += alike**2
        return np.asarray(found + setting.pairs * (once**2 - twice) / 2)

    def _variance(self, setting: _Setting) -> Floats:
        """Return the variance of every cell before anything was seen."""
        count = len(self.grid)
        every = self.level_sd**2 + setting.single.sum() + setting.pairs * count * (count - 1) / 2
        found = np.full(self.cells, every)
        for slope in self.slopes:
            found += (slope.sd * slope.feature) ** 2
        return np.asarray(found)
