"""Fits the parameters of a physical curve to the few modes that were profiled.

The parameters are logarithms with a normal prior as wide as what is known of them; the fit is the largest posterior
(Levenberg and Marquardt), and residuals beyond three standard deviations count less (Huber). The fit is handed on as
slopes (`Fit`), so that the Gaussian process knows how sure each parameter is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.predict.modes import Floats

Rows = slice | NDArray[np.int64]
EVERY = slice(None)
#: What two runs of one mode differ by, in logarithms, as far as the fit of the parameters is concerned.
NOISE = 0.03
#: Residuals beyond this many times NOISE count less.
HUBER = 3.0
ROUNDS, STARTS = 40, 3
NOTHING: Floats = np.zeros(0)


@dataclass(frozen=True)
class Prior:
    """What is known of a parameter before anything is measured: the mean and standard deviation of its logarithm."""

    name: str
    mean: float
    sd: float


@dataclass(frozen=True)
class Curve:
    """The logarithm of a quantity in every mode, as a function of parameters."""

    priors: tuple[Prior, ...]
    of: Callable[[Floats, Rows], Floats]
    """Parameters (count,) -> log value of these modes."""
    also: Callable[[Floats], Floats] | None = None
    """Parameters -> log values of parts of it that were measured by themselves."""
    measured: tuple[float, ...] = ()
    """Those log values as measured."""

    def only(self, modes: NDArray[np.int64]) -> Curve:
        """Return the curve over these modes alone."""
        return replace(self, of=lambda at, rows: self.of(at, modes[rows]))


Shape = Callable[[Mapping[int, float]], Curve]
"""Log values by mode -> the curve, whose priors depend on their level."""


@dataclass(frozen=True)
class Fit:
    """The parameters that explain the profiled modes best, and the curve near them."""

    at: Floats
    """The fitted parameters."""
    value: Floats
    """The log value of every mode."""
    expected: Floats
    """The log value of every mode at the prior's means, if the curve were straight.

    What measured parts tell belongs to the prior."""
    slopes: Floats
    """Change of the log value of every mode for one standard deviation of each parameter's prior, (modes,
    parameters)."""


class Fitter:
    """Fits a curve; a fit is kept, and later ones begin where the last ended."""

    def __init__(
        self, shape: Shape, modes: NDArray[np.int64] | None = None, start: Floats | None = None
    ) -> None:
        self.shape, self.modes, self.start = shape, modes, start
        self.kept: dict[tuple[tuple[int, float], ...], Fit] = {}
        self.parts: dict[bytes, Fitter] = {}

    def only(self, modes: NDArray[np.int64]) -> Fitter:
        """Return the fitter of these modes alone, numbered from 0."""
        return self.parts.setdefault(modes.tobytes(), Fitter(self.shape, modes, self.start))

    def fit(self, seen: Mapping[int, float]) -> Fit:
        """Return the parameters that explain the log values of the profiled modes best."""
        key = tuple(sorted(seen.items()))
        if key not in self.kept:
            self.kept[key], self.start = fit(self._curve(seen), dict(key), self.start)
        return self.kept[key]

    def _curve(self, seen: Mapping[int, float]) -> Curve:
        if self.modes is None:
            return self.shape(seen)
        return self.shape({int(self.modes[i]): v for i, v in seen.items()}).only(self.modes)


def fit(curve: Curve, seen: Mapping[int, float], start: Floats | None = None) -> tuple[Fit, Floats]:
    """Return the parameters that explain the log values of the profiled modes best, and where another fit may
    start.
    """
    rows = np.array(list(seen), dtype=np.int64)
    y = np.array([seen[int(i)] for i in rows])
    mean = np.array([p.mean for p in curve.priors])
    sd = np.array([p.sd for p in curve.priors])
    rng = np.random.default_rng(0)
    starts = [np.zeros(len(mean)), *rng.normal(0, 0.8, (STARTS - 1, len(mean)))] if start is None else [start]
    also = curve.also or (lambda at: NOTHING)

    def every(z: Floats) -> Floats:
        return np.concatenate([curve.of(mean + sd * z, rows), also(mean + sd * z)])

    tried = [_descend(every, np.concatenate([y, curve.measured]), at) for at in starts]
    best = min(tried, key=lambda found: found[0])[1]
    value = curve.of(mean + sd * best, EVERY)
    slopes = _jacobian(lambda z: curve.of(mean + sd * z, EVERY), best, value)
    known, root = _known(lambda z: also(mean + sd * z), np.array(curve.measured), best)
    return Fit(mean + sd * best, value, value + slopes @ (known - best), slopes @ root), best


def _known(also: Callable[[Floats], Floats], measured: Floats, best: Floats) -> tuple[Floats, Floats]:
    """Return what the parts alone tell of the parameters: (mean, root of the covariance), near the best fit."""
    now = also(best)
    jacobian, gap = _jacobian(also, best, now), measured - now
    weight = np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(gap), 1e-12)) / NOISE**2
    precision = (jacobian.T * weight) @ jacobian + np.eye(len(best))
    mean = np.linalg.solve(precision, (jacobian.T * weight) @ (gap + jacobian @ best))
    return np.asarray(mean), np.asarray(np.linalg.inv(np.linalg.cholesky(precision)).T)


def _descend(of: Callable[[Floats], Floats], y: Floats, z: Floats) -> tuple[float, Floats]:
    """Return (cost, point) of the least squares of y - of(z) and of z itself, from one start."""
    damping, now = 1.0, of(z)
    cost = _cost(y - now, z)
    for _ in range(ROUNDS):
        jacobian, gap = _jacobian(of, z, now), y - now
        weight = np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(gap), 1e-12)) / NOISE**2
        left = (jacobian.T * weight) @ jacobian + np.eye(len(z)) * (1 + damping)
        step = np.linalg.solve(left, (jacobian.T * weight) @ gap - z)
        after = of(z + step)
        found = _cost(y - after, z + step)
        if found < cost:
            done = cost - found < 1e-4 * cost
            z, now, cost, damping = z + step, after, found, damping / 3
            if done:
                break
        else:
            damping *= 4
            if damping > 1e4:
                break
    return cost, z


def _cost(gap: Floats, z: Floats) -> float:
    size = np.abs(gap) / NOISE
    robust = np.where(size < HUBER, size**2, 2 * HUBER * size - HUBER**2)
    return float(robust.sum() + z @ z)


def _jacobian(of: Callable[[Floats], Floats], z: Floats, now: Floats) -> Floats:
    """Return the change of `of` for a unit of each parameter, shape (values, parameters)."""
    step = 1e-5
    return np.stack([(of(z + step * unit) - now) / step for unit in np.eye(len(z))], axis=1)
