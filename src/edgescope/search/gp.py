"""Predict the unmeasured cells of a grid, with the uncertainty of each prediction, from a few measured cells.

Logarithms of throughput, power and memory are guessed, because an axis mostly changes them by a factor (twice the
batch, 1.3 times the throughput): on a log scale factors add. A guess is a Gaussian process whose covariance is a sum
over the axes (each alone, and a smaller part for each pair), so that one cell teaches about every cell that shares a
level with it; numbers (batch, processes, threads) lie on a log2 scale and neighbours resemble each other, words
(precision, sharing) are alike or not. Its mean is a sum of slopes from physics, each with an uncertainty.

The strength of each axis cannot be fitted to five points. So some dozens of settings are drawn once and averaged, each
weighted by how well it explains the measured cells. numpy alone; a grid of a thousand cells takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgescope.records import ROLES, TABLES, Json, Role, Scalar, Trial

Floats = NDArray[np.float64]
Rows = slice | NDArray[np.int64]
EVERY = slice(None)
#: Keys of a Trial that are not axes of the grid: they say how a cell is measured, or follow from another key.
NO_AXES = {
    *(n for n, role in ROLES.items() if role in Role.EFFORT | Role.REPEAT | Role.JUDGING | Role.TRACING),
    *("shapes", *TABLES),
}
#: A setting that explains the measured cells so much worse than the best is left out.
UNLIKELY = 1e-3
#: Covariances of cells with measured ones that are held in memory at once: 8 MB.
AT_ONCE = 1_000_000
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

    def alike(self, cells: Rows, rows: NDArray[np.int64], reach: Floats) -> Floats:
        """Return the similarity of `cells` to the cells `rows`, shape (reach, cells, rows); 1 at equal levels."""
        apart = np.abs(self.at[cells, None] - self.at[rows])[None]
        if self.ordinal:
            return np.asarray(np.exp(-0.5 * (apart / reach[:, None, None]) ** 2))
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
class Spread:
    """What is known of a quantity before anything is measured: medians, with the standard deviations of their
    logarithms.
    """

    scale: tuple[float, float] = (1.0, 0.0)
    """How much it varies relative to throughput, which varies the most."""
    noise: tuple[float, float] = (0.02, 0.5)
    """Standard deviation between two processes of one cell."""
    settings: int = 32
    """How many settings are drawn; the wider the rest, the more it takes."""


USUAL = Spread()


@dataclass(frozen=True)
class _Settings:
    """Draws of how strong and how smooth everything is, each of shape (settings,)."""

    single: Floats
    """Variance of each axis alone, (settings, axes)."""
    pairs: Floats
    """Variance of each pair of axes."""
    reach: Floats
    """Octaves over which neighbouring numbers resemble each other."""
    noise: Floats
    """Standard deviation between two processes of one cell."""

    def only(self, which: Rows) -> _Settings:
        """Return these draws alone."""
        return _Settings(self.single[which], self.pairs[which], self.reach[which], self.noise[which])


def _drawn(axes: int, spread: Spread) -> _Settings:
    rng, count = np.random.default_rng(0), spread.settings
    sds = [*[0.8] * axes, 0.7, 0.4, spread.noise[1]]
    medians = [*[ALONE] * axes, TOGETHER, 2.5, spread.noise[0]]
    drawn = np.array(medians) * np.exp(rng.normal(0, sds, (count, axes + 3)))
    scale = spread.scale[0] * np.exp(rng.normal(0, spread.scale[1], count))
    single, pairs = drawn[:, :axes] * scale[:, None], drawn[:, axes] * scale
    return _Settings(single**2, pairs**2, *drawn.T[axes + 1 :])


class Posterior(NamedTuple):
    """The likely settings given some cells, and what each says of every cell."""

    weights: Floats
    """Shape (settings,)."""
    means: Floats
    """Log values, (settings, cells)."""
    sds: Floats
    """How unsure they are, (settings, cells)."""
    noise: Floats
    """Standard deviation of a fresh run beyond that, (settings,)."""


class Surrogate:
    """The prediction of one quantity over one grid."""

    def __init__(
        self,
        grid: Sequence[Axis],
        slopes: Sequence[Slope],
        cells: int,
        spread: Spread = USUAL,
        *,
        around: Floats | None = None,
        level_sd: float = LEVEL_SD,
    ) -> None:
        """Build the prior.

        `around`: the expected log value of each cell before the slopes, 0 by default; the whole grid may lie
        `level_sd` above or below it.
        """
        self.grid, self.cells = grid, cells
        self.settings = _drawn(len(grid), spread)
        level = np.full(cells, level_sd)
        self.features = np.stack([level, *(s.sd * s.feature for s in slopes)], axis=1)
        """What the whole grid has in common, (cells, features)."""
        self.expected = sum(
            (s.feature * s.mean for s in slopes), np.zeros(cells) if around is None else around
        )
        self.memory: tuple[dict[int, float], Posterior] | None = None
        """The last answer and its input."""

    def posterior(self, seen: Mapping[int, float]) -> Posterior:
        """Return what the likely settings say of every cell, given log values by cell."""
        if self.memory is None or self.memory[0] != seen:
            self.memory = dict(seen), self._posterior(seen)
        return self.memory[1]

    def _posterior(self, seen: Mapping[int, float]) -> Posterior:
        rows = np.array(sorted(seen), dtype=np.int64)
        y = np.array([seen[int(i)] for i in rows]) - self.expected[rows]
        noise = self.settings.noise[:, None, None]
        own = self._covariance(self.settings, rows, rows) + np.eye(len(rows)) * (noise**2 + 1e-9)
        low = np.asarray(np.linalg.cholesky(own), dtype=np.float64)
        white = np.asarray(np.linalg.solve(low, y[None, :, None])[..., 0], dtype=np.float64)
        spread = np.log(np.diagonal(low, axis1=1, axis2=2)).sum(axis=1)
        likely = -0.5 * (white**2).sum(axis=1) - spread
        weights = np.exp(likely - likely.max())
        kept = np.flatnonzero(weights >= UNLIKELY)
        at_once = max(1, AT_ONCE // max(1, self.cells * len(rows)))
        parts = [kept[i : i + at_once] for i in range(0, len(kept), at_once)]
        told = [self._told(self.settings.only(some), rows, low[some], white[some]) for some in parts]
        means, sds = (np.concatenate(found) for found in zip(*told, strict=True))
        return Posterior(weights[kept] / weights[kept].sum(), means, sds, self.settings.noise[kept])

    def _told(
        self, settings: _Settings, rows: NDArray[np.int64], low: Floats, white: Floats
    ) -> tuple[Floats, Floats]:
        """Return the mean and the standard deviation of every cell under some settings, (settings, cells)."""
        known = np.linalg.solve(low, self._covariance(settings, EVERY, rows).swapaxes(1, 2))
        left = np.maximum(self._variance(settings) - np.sum(known**2, axis=1), 1e-8)
        return self.expected + np.einsum("src,sr->sc", known, white), np.sqrt(left)

    def mean(self, seen: Mapping[int, float]) -> Floats:
        """Return the guessed log value of every cell."""
        found = self.posterior(seen)
        return np.asarray(found.weights @ found.means)

    def fresh(self, seen: Mapping[int, float]) -> tuple[Floats, Floats]:
        """Return the guessed log value of a fresh run of every cell, and its standard deviation."""
        weights, means, sds, noise = self.posterior(seen)
        mean = weights @ means
        return mean, np.sqrt(weights @ (sds**2 + noise[:, None] ** 2 + (means - mean) ** 2))

    def sample(self, seen: Mapping[int, float], rng: np.random.Generator, count: int) -> Floats:
        """Return `count` draws of the log value of every cell, each cell for itself, shape (count, cells)."""
        weights, means, sds, _ = self.posterior(seen)
        which = rng.choice(len(weights), size=count, p=weights)
        return np.asarray(means[which] + sds[which] * rng.normal(size=(count, self.cells)))

    def _covariance(self, settings: _Settings, cells: Rows, rows: NDArray[np.int64]) -> Floats:
        """Return the covariance of `cells` with the cells `rows`, shape (settings, cells, rows)."""
        common = self.features[cells] @ self.features[rows].T
        found = np.broadcast_to(common, (len(settings.noise), *common.shape)).copy()
        once, twice = np.zeros_like(found), np.zeros_like(found)
        for axis, variance in zip(self.grid, settings.single.T, strict=True):
            alike = axis.alike(cells, rows, settings.reach)
            found += variance[:, None, None] * alike
            once += alike
            twice += alike**2
        return np.asarray(found + settings.pairs[:, None, None] * (once**2 - twice) / 2)

    def _variance(self, settings: _Settings) -> Floats:
        """Return the variance of every cell before anything was seen, (settings, cells)."""
        count = len(self.grid)
        alone = settings.single.sum(axis=1) + settings.pairs * count * (count - 1) / 2
        return np.asarray(alone[:, None] + np.sum(self.features**2, axis=1))
