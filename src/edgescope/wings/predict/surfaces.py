"""Models of a quantity over a grid of modes: each predicts every mode from a few profiled ones, with its uncertainty.

    linear    the baseline: multivariate linear regression on the knobs (arXiv 2509.20160, as far as its abstract says)
    roofline  physical terms with a few parameters (roofline_modes.py), and a Gaussian process on the logarithm for what
              they get wrong
    transfer  a Gaussian process with the surface of another workload or device as its mean

All work on logarithms and are fitted with log values by mode; `choose` averages them, each weighted by the inverse
square of its errors when it predicts each profiled mode from the others (leave-one-out), and widens or narrows the
intervals to what the errors of the average were.

The parameters of a physical curve are logarithms with a normal prior as wide as what is known of them; the fit is the
largest posterior (Levenberg and Marquardt), and residuals beyond three standard deviations count less (Huber). The fit
is handed on as slopes (`Fit`), so that the Gaussian process knows how sure each parameter is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgescope.search.gp import EVERY, Axis, Rows, Slope, Spread, Surrogate
from edgescope.stats.intervals import t_quantile
from edgescope.wings.predict.modes import Floats, Ints, ModeGrid

Seen = Mapping[int, float]
"""Mode -> log value."""
#: How far modes may lie from a roofline, and two runs of one mode apart: both are weighed by what explains the modes.
BESIDE_ROOFLINE = Spread(scale=(0.1, 1.0), noise=(0.03, 0.7), settings=256)
CONFIDENCE = 0.90
#: How much wider an interval is that no left-out mode has checked.
UNCHECKED = 1.5
#: Fewest profiled modes whose leave-one-out errors say anything.
LEAST = 4


@dataclass(frozen=True)
class Guess:
    """The logarithm of a fresh run's value in every mode: its mean and its standard deviation."""

    mean: Floats
    sd: Floats
    factor: float = 1.64
    """Standard deviations on each side of the mean that hold 90 % of fresh runs."""

    @property
    def value(self) -> Floats:
        """Return the predicted value of every mode."""
        return np.asarray(np.exp(self.mean))

    def ends(self) -> tuple[Floats, Floats]:
        """Return the lower and the upper end of the 90 % prediction interval of every mode."""
        half = self.factor * self.sd
        return np.exp(self.mean - half), np.exp(self.mean + half)


class Surface(Protocol):
    """One model of one quantity over one grid."""

    @property
    def name(self) -> str:
        """The model's name."""

    def fit(self, seen: Seen) -> Guess:
        """Return the prediction of every mode from the log values of the profiled ones."""

    def only(self, modes: Ints) -> Surface:
        """Return the model over these modes alone, numbered from 0."""


@dataclass(frozen=True)
class Linear:
    """Linear regression of the value on every knob; a word is one column for each of its values but the first."""

    columns: Floats
    """Shape (modes, columns), each from 0 to 1."""
    name: str = "linear"

    @classmethod
    def over(cls, grid: ModeGrid) -> Linear:
        """Return the model of a grid."""
        out = [np.ones(len(grid))]
        for axis in grid.axes():
            if (numbers := grid.numbers(axis.name)) is not None:
                out.append(numbers / numbers.max())
            elif axis.name in grid.knobs:
                out += [(axis.at == level).astype(np.float64) for level in range(1, len(axis.levels))]
        return cls(np.stack(out, axis=1))

    def only(self, modes: Ints) -> Linear:
        """Return the model over these modes alone."""
        return replace(self, columns=self.columns[modes])

    def fit(self, seen: Seen) -> Guess:
        """Return the least-squares plane; where there are fewer modes than knobs, the flattest one."""
        rows = list(seen)
        x, y = self.columns, np.exp([seen[i] for i in rows])
        plane, _, rank, _ = np.linalg.lstsq(x[rows], y, rcond=None)
        found = np.maximum(x @ plane, y.min() / 10)  # a plane may become negative, a time cannot
        left = float(np.sqrt(np.sum((x[rows] @ plane - y) ** 2) / max(1, len(rows) - int(rank))))
        return Guess(np.log(found), 0.01 + np.log1p(left / found))


@dataclass(frozen=True)
class Roofline:
    """A Gaussian process on the logarithm, with a physical curve as its mean.

    The curve's parameters are as sure as the profiled modes make them.
    """

    axes: tuple[Axis, ...]
    curve: Fitter
    name: str = "roofline"

    def only(self, modes: Ints) -> Roofline:
        """Return the model over these modes alone."""
        return replace(self, axes=tuple(a.only(modes) for a in self.axes), curve=self.curve.only(modes))

    def fit(self, seen: Seen) -> Guess:
        """Return the fitted curve with the Gaussian process beside it."""
        found = self.curve.fit(seen)
        slopes = [Slope(column, 0.0, 1.0) for column in found.slopes.T]
        around, cells = found.expected, len(found.value)
        beside = Surrogate(self.axes, slopes, cells, BESIDE_ROOFLINE, around=around, level_sd=0.02)
        return Guess(*beside.fresh(seen))


@dataclass(frozen=True)
class Transfer:
    """A Gaussian process around another surface: the same modes under another workload, or on another device."""

    axes: tuple[Axis, ...]
    other: Floats
    """Log values of every mode there."""
    name: str = "transfer"

    def only(self, modes: Ints) -> Transfer:
        """Return the model over these modes alone."""
        return replace(self, axes=tuple(a.only(modes) for a in self.axes), other=self.other[modes])

    def fit(self, seen: Seen) -> Guess:
        """Return the other surface, shifted and stretched to the profiled modes, and corrected near them."""
        slopes = [Slope(self.other - self.other.mean(), 1.0, 0.3)]
        return Guess(*Surrogate(self.axes, slopes, len(self.other)).fresh(seen))


@dataclass(frozen=True)
class Chosen:
    """The average of the models, the best of them, and the leave-one-out error of each."""

    model: str
    """The model with the smallest error."""
    guess: Guess
    errors: Mapping[str, float]
    """Model -> mean absolute error of a left-out mode, as a share; empty with fewer than LEAST modes."""
    left_out: Seen
    """Profiled mode -> the log value that the others predict for it."""
    gaps: Seen = field(default_factory=dict)
    """Profiled mode -> how far that lies from its own log value."""


def choose(surfaces: Sequence[Surface], seen: Seen, *, check: bool = True) -> Chosen:
    """Return the average of the surfaces' predictions, weighted by how well each predicts left-out modes.

    With too few modes to tell, or without `check`, it is the prediction of the first.
    """
    if len(seen) < LEAST or not check:
        guess = surfaces[0].fit(seen)
        return Chosen(surfaces[0].name, replace(guess, factor=guess.factor * UNCHECKED), {}, {})
    left = {surface.name: left_out(surface, seen) for surface in surfaces}
    errors = {name: float(np.mean(np.abs(np.expm1(gap)))) for name, (gap, _) in left.items()}
    share = _shares([gap for gap, _ in left.values()])
    gaps, sds = _averaged([gap for gap, _ in left.values()], [sd for _, sd in left.values()], share)
    off = {mode: float(gap) for mode, gap in zip(seen, gaps, strict=True)}
    predicted = {mode: seen[mode] + gap for mode, gap in off.items()}
    guesses = [surface.fit(seen) for surface in surfaces]
    whole = Guess(*_averaged([g.mean for g in guesses], [g.sd for g in guesses], share))
    best = min(errors, key=lambda name: errors[name])
    return Chosen(best, calibrated(whole, gaps, sds), errors, predicted, off)


def _shares(gaps: Sequence[Floats]) -> Floats:
    """Return the weight of each model in the average: the inverse of the square of its left-out errors."""
    weight = 1 / np.array([float(np.mean(gap**2)) + 1e-12 for gap in gaps])
    return np.asarray(weight / weight.sum())


def _averaged(means: Sequence[Floats], sds: Sequence[Floats], share: Floats) -> tuple[Floats, Floats]:
    """Return (mean, standard deviation) of a mixture of models."""
    each, spread = np.stack(means), np.stack(sds)
    mean = share @ each
    return mean, np.sqrt(share @ (spread**2 + (each - mean) ** 2))


def left_out(surface: Surface, seen: Seen) -> tuple[Floats, Floats]:
    """Return (error, standard deviation) of the log value of each profiled mode, predicted from the others."""
    inside = surface.only(np.array(list(seen), dtype=np.int64))
    values, gaps, sds = dict(enumerate(seen.values())), [], []
    for mode, value in values.items():
        guess = inside.fit({i: v for i, v in values.items() if i != mode})
        gaps.append(guess.mean[mode] - value)
        sds.append(guess.sd[mode])
    return np.array(gaps), np.array(sds)


#: Modes for which the model's own standard deviation counts beside the left-out errors.
OWN_WEIGHT = 4.0


def calibrated(guess: Guess, gaps: Floats, sds: Floats) -> Guess:
    """Return the guess with an interval that would have held the left-out modes (conformal prediction).

    Left-out errors in standard deviations are ranked, and the factor is the one at 90 % of their number and one
    more, between two ranks in proportion: the next rank up alone would hold 94 % with 15 modes. Where so few modes
    have no such rank, it is at least Student's factor on the size of those errors.
    """
    ratio = np.sort(np.abs(gaps / sds))
    rank = CONFIDENCE * (len(ratio) + 1)
    if rank <= len(ratio):
        return replace(guess, factor=float(np.interp(rank, np.arange(1, len(ratio) + 1), ratio)))
    scale = float(np.sqrt((np.sum(ratio**2) + OWN_WEIGHT) / (len(ratio) + OWN_WEIGHT)))
    student = scale * t_quantile((1 + CONFIDENCE) / 2, len(ratio) + OWN_WEIGHT)
    return replace(guess, factor=max(student, float(ratio[-1])))


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
