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

from edgescope.search.gp import EVERY, Floats, Rows

#: What two runs of one mode differ by, in logarithms, as far as the fit of the parameters is concerned.
NOISE = 0.06
#: Residuals beyond this many times NOISE count less.
HUBER = 3.0
ROUNDS, STARTS = 40, 3


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
    """Parameters (count, points) -> log value of these modes, (points, modes)."""
    also: Callable[[Floats], Floats] = lambda at: np.zeros((at.shape[1], 0))
    """Parameters (count, points) -> log values of parts of it that were measured by themselves, (points, parts)."""
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

    def at(z: Floats) -> Floats:
        return np.asarray(mean[:, None] + sd[:, None] * z)

    def every(z: Floats) -> Floats:
        return np.hstack([curve.of(at(z), rows), curve.also(at(z))])

    tried = [_descend(every, np.concatenate([y, curve.measured]), z) for z in starts]
    best = min(tried, key=lambda found: found[0])[1]
    value, slopes = _linear(lambda z: curve.of(at(z), EVERY), best)
    known, root = _known(lambda z: curve.also(at(z)), np.array(curve.measured), best)
    return Fit(mean + sd * best, value, value + slopes @ (known - best), slopes @ root), best


def _known(also: Callable[[Floats], Floats], measured: Floats, best: Floats) -> tuple[Floats, Floats]:
    """Return what the parts alone tell of the parameters: (mean, root of the covariance), near the best fit."""
    now, jacobian = _linear(also, best)
    gap = measured - now
    weight = np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(gap), 1e-12)) / NOISE**2
    precision = (jacobian.T * weight) @ jacobian + np.eye(len(best))
    mean = np.linalg.solve(precision, (jacobian.T * weight) @ (gap + jacobian @ best))
    return np.asarray(mean), np.asarray(np.linalg.inv(np.linalg.cholesky(precision)).T)


def _descend(of: Callable[[Floats], Floats], y: Floats, z: Floats) -> tuple[float, Floats]:
    """Return (cost, point) of the least squares of y - of(z) and of z itself, from one start."""
    damping = 1.0
    now, jacobian = _linear(of, z)
    cost = _cost(y - now, z)
    for _ in range(ROUNDS):
        gap = y - now
        weight = np.minimum(1.0, HUBER * NOISE / np.maximum(np.abs(gap), 1e-12)) / NOISE**2
        left = (jacobian.T * weight) @ jacobian + np.eye(len(z)) * (1 + damping)
        step = np.linalg.solve(left, (jacobian.T * weight) @ gap - z)
        found = _cost(y - of((z + step)[:, None])[0], z + step)
        if found < cost:
            done = cost - found < 1e-4 * cost
            z, cost, damping = z + step, found, damping / 3
            if done:
                break
            now, jacobian = _linear(of, z)
        else:
            damping *= 4
            if damping > 1e4:
                break
    return cost, z


def _cost(gap: Floats, z: Floats) -> float:
    size = np.abs(gap) / NOISE
    robust = np.where(size < HUBER, size**2, 2 * HUBER * size - HUBER**2)
    return float(robust.sum() + z @ z)


def _linear(of: Callable[[Floats], Floats], z: Floats) -> tuple[Floats, Floats]:
    """Return (value, slopes) of `of` at a point: shapes (values,), (values, parameters)."""
    step = 1e-5
    found = of(z[:, None] + step * np.eye(len(z), len(z) + 1, 1))
    return found[0], (found[1:] - found[0]).T / step
