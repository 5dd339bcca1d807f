"""Time and power of every mode as a roofline: a few physical parameters, fitted to the profiled modes.

Seconds of one sample, with every clock as a share of its highest value in the grid:

    gpu     = g / (gpu_hz x gpu_sm_share x gpu_power_w)
    memory  = m / memory_hz
    cpu     = c / (cpu_hz x amdahl(cpu_cores, threads)), the loader's part divided by its workers
    quota   = q / (cpu_quota x cpu_hz): CPU seconds that the quota hands out
    launch  = l / (cpu_hz x batch x processes x in_flight): what each query waits for alone
    latency = s / (batch x processes x in_flight): what a query waits for whatever the clocks are
    rest    = what no knob changes
    seconds = (gpu^p + memory^p + cpu^p + ...)^(1/p), 1 <= p: 1 adds them up, a large p hides the shorter
              behind the longest; without loader workers (workers = 0) loading is added instead

Watts, with V the voltage at a clock relative to that at its highest, V(f) = v + (1 - v) f:

    watts = static + sum over CPU cores, GPU, memory of (on f V^2 + joules of one sample V^2 / seconds)

A term exists only if a knob of it differs between modes. Every coefficient is positive, so a faster clock never
makes a mode slower. A word (a precision, a way of sharing) scales each term by a factor of its own. The parameters
are logarithms with a normal prior as wide as what is known of them; the fit is the largest posterior (Levenberg
and Marquardt), and residuals beyond three standard deviations count less (Huber). The fit is handed on as slopes
(`Fit`), so that the Gaussian process knows how sure each parameter is. Sources: Williams, Waterman, Patterson,
CACM 52(4), 2009; for power over modes, Pagoda (arXiv 2509.20189).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.predict.modes import Floats, ModeGrid

Rows = slice | NDArray[np.int64]
EVERY = slice(None)
#: What two runs of one mode differ by, in logarithms, as far as the fit of the parameters is concerned.
NOISE = 0.03
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
    """Parameters (count,) -> log value of these modes."""

    def only(self, modes: NDArray[np.int64]) -> Curve:
        """Return the curve over these modes alone."""
        return Curve(self.priors, lambda at, rows: self.of(at, modes[rows]))


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
    """The log value of every mode at the prior's means, if the curve were straight."""
    slopes: Floats
    """Change of the log value of every mode for one standard deviation of each parameter's prior, (modes,
    parameters)."""


def share(knob: Floats | None, modes: int) -> Floats:
    """Return a knob as a share of its highest value; ones if the grid has no such knob."""
    return np.ones(modes) if knob is None else np.asarray(knob / knob.max())


@dataclass(frozen=True)
class _Knobs:
    """The knobs of a grid as the physical models use them, each of shape (modes,)."""

    grid: ModeGrid

    def share(self, name: str) -> Floats:
        return share(self.grid.numbers(name), len(self.grid))

    def plain(self, name: str) -> Floats:
        """Return a knob's values; where it is the same everywhere, that number; 1 if there is none."""
        found, fixed = self.grid.numbers(name), self.grid.fixed.get(name)
        if found is not None:
            return found
        usable = isinstance(fixed, int | float) and not isinstance(fixed, bool) and fixed > 0
        return np.full(len(self.grid), float(fixed) if usable else 1.0)  # type: ignore[arg-type]

    def vary(self, *names: str) -> bool:
        return any(self.grid.numbers(name) is not None for name in names)

    @property
    def cores(self) -> Floats:
        """Return the cores that an engine can use."""
        cores = self.plain("cpu_cores")
        if not self.vary("threads"):
            return cores
        return np.minimum(cores, self.plain("threads")) if self.vary("cpu_cores") else self.plain("threads")

    @property
    def alone(self) -> NDArray[np.bool_]:
        """Return whether the training process loads its own data."""
        workers = self.grid.numbers("workers")
        return np.zeros(len(self.grid), dtype=bool) if workers is None else workers == 0

    @property
    def loaders(self) -> Floats:
        """Return how many processes load data, at most one a core."""
        workers = self.grid.numbers("workers")
        if workers is None:
            return np.ones(len(self.grid))
        return np.maximum(1.0, np.minimum(workers, self.cores) if self.vary("cpu_cores") else workers)

    def words(self) -> dict[str, Floats]:
        """Return a column of 0 and 1 for each value of each word but its first: `sharing mps`."""
        axes = [a for a in self.grid.axes() if not a.ordinal]
        pairs = [(a, level) for a in axes for level in range(1, len(a.levels))]
        return {f"{a.name} {a.levels[n]}": (a.at == n).astype(np.float64) for a, n in pairs}

    @property
    def lanes(self) -> Floats:
        """Return the samples that are under way at once."""
        return self.plain("batch") * self.plain("processes") * self.plain("in_flight")


def under_way(grid: ModeGrid) -> Floats:
    """Return how many samples are under way at once in each mode."""
    return _Knobs(grid).lanes


CPU = ("cpu_hz", "cpu_cores", "threads", "workers")
GPU = ("gpu_hz", "gpu_sm_share", "gpu_power_w")
LOADING = (("item", -1.2), ("minibatch", -2.0), ("handover", -2.0), ("host", -1.2))
"""Parts of loading, with what is expected of each relative to the fastest mode."""
LANES = ("batch", "processes", "in_flight")


def seconds(grid: ModeGrid, level: float) -> Curve:
    """Return the curve of log seconds of one sample; `level`: the log seconds that the fastest profiled mode took."""
    k = _Knobs(grid)
    terms, lanes = _terms(k), np.log(k.lanes / k.lanes.max())
    batch = np.log(k.plain("batch"))
    wide = lanes - (batch - batch.max())
    names, words = list(terms), k.words()
    logs = np.log(np.stack(list(terms.values())))
    together = np.array([name in ("launch", "latency") for name in names])
    at_words = slice(len(names) + 2, len(names) + 2 + len(words) * (len(names) + 1))
    priors = [Prior(name, level - 1.2, 1.5) for name in names]
    priors += [Prior("overlap", 1.0, 0.7), Prior("side by side", 1.0, 1.5)]
    for word in words:
        priors += [Prior(f"{word} {name}", 0.0, 0.7) for name in names] + [
            Prior(f"{word} side by side", 0.0, 2.0)
        ]
    with_cpu, with_loader = k.vary(*CPU), k.vary("workers")
    here = len(priors)
    if with_cpu:
        priors += [Prior("cpu", level - 1.2, 1.5), Prior("serial", -1.5, 1.2)]
    if with_loader:
        priors += [Prior(name, level + mean, 1.5) for name, mean in LOADING] + [Prior("hidden", 1.5, 0.7)]
    flags = np.stack(list(words.values())) if words else np.zeros((0, len(grid)))
    cpu_hz, cores, loaders, alone = k.share("cpu_hz"), k.cores, k.loaders, k.alone

    def of(at: Floats, rows: Rows) -> Floats:
        power = 1 + np.exp(at[len(names)])
        by_word = at[at_words].reshape(len(words), len(names) + 1).T @ flags[:, rows]
        beside = 1 / (1 + np.exp(-at[len(names) + 1] - by_word[-1]))
        found = logs[:, rows] + at[: len(names), None] + by_word[:-1]
        found = found - together[:, None] * ((batch - batch.max())[rows] + beside * wide[rows])
        busy = np.zeros(1)
        if with_cpu:
            part = 1 / (1 + np.exp(-at[here + 1]))
            busy = np.exp(at[here]) / cpu_hz[rows]
            scaled = busy * (part + (1 - part) / cores[rows] * cores.max())
            found = np.vstack([found, np.log(scaled)])
        if not with_loader:
            return _pnorm(found, power)
        item, minibatch, handover, host = np.exp(at[-5:-1])
        each = np.exp(batch.max() - batch[rows])
        loading = (item + minibatch * each) / cpu_hz[rows]
        device = np.exp(_pnorm(found, power))
        shared = (loading + host * each / cpu_hz[rows] + busy * cores.max()) / cores[rows]
        ahead = np.stack([device + handover * each, loading / loaders[rows], shared])
        together_s = np.exp(_pnorm(np.log(ahead), 1 + np.exp(at[-1])))
        return np.asarray(np.log(np.where(alone[rows], device + loading, together_s)))

    return Curve(tuple(priors), of)


def _terms(k: _Knobs) -> dict[str, Floats]:
    """Return each term that the grid's knobs change, apart from its coefficient, the queries under way and the
    CPU's.
    """
    ones = np.ones(len(k.grid))
    found = {
        "gpu": (GPU, 1 / (k.share("gpu_hz") * k.share("gpu_sm_share") * k.share("gpu_power_w"))),
        "memory": (("memory_hz",), 1 / k.share("memory_hz")),
        "quota": (("cpu_quota",), 1 / (k.share("cpu_quota") * k.share("cpu_hz"))),
        "launch": (("cpu_hz",), 1 / k.share("cpu_hz")),
        "latency": (LANES, ones),
    }
    return {name: values for name, (knobs, values) in found.items() if k.vary(*knobs)} | {"rest": ones}


def _pnorm(logs: Floats, power: float) -> Floats:
    """Return log of (sum of exp(logs)^power)^(1/power) over the first axis."""
    top = logs.max(axis=0)
    return np.asarray(top + np.log(np.exp(power * (logs - top)).sum(axis=0)) / power)


def watts(grid: ModeGrid, log_seconds: Floats, level: float) -> Curve:
    """Return the curve of log watts, given the log seconds of one sample; `level`: log watts of a usual
    profiled mode.
    """
    k = _Knobs(grid)
    rate = np.exp(log_seconds.min() - log_seconds)
    clocks: dict[str, Floats] = {
        "cpu": k.share("cpu_hz"),
        "gpu": k.share("gpu_hz"),
        "memory": k.share("memory_hz"),
    }
    online = {
        "cpu": k.share("cpu_cores") * k.share("cpu_quota"),
        "gpu": k.share("gpu_sm_share"),
        "memory": np.ones(len(grid)),
    }
    has = {"cpu": k.vary(*CPU, "cpu_quota"), "gpu": True, "memory": k.vary("memory_hz")}
    on: dict[str, Floats] = {
        f"{part} on": clocks[part] * online[part] for part, there in has.items() if there
    }
    work = {f"{part} work": rate for part, there in has.items() if there}
    work |= {"query": rate / k.lanes * k.lanes.min()} if k.vary(*LANES) else {}
    if k.vary("memory_hz") and k.vary("gpu_hz"):
        work["gpu stalled"] = clocks["gpu"] * rate / clocks["memory"] * clocks["memory"].min()
    terms, words = on | work, k.words()
    logs = np.log(np.stack(list(terms.values())))
    clock = np.stack([clocks.get(name.split()[0], clocks["gpu"]) for name in terms])
    flags = np.stack(list(words.values())) if words else np.zeros((0, len(grid)))
    priors = [Prior("static", level - 1.0, 1.0), Prior("volts", 0.3, 0.8)]
    priors += [Prior(name, level - 2.0, 1.5) for name in terms]
    priors += [Prior(f"{word} {name}", 0.0, 0.5) for word in words for name in work]
    count, end = len(terms), 2 + len(terms)

    def of(at: Floats, rows: Rows) -> Floats:
        low = 1 / (1 + np.exp(-at[1]))
        by_word = at[end:].reshape(len(words), len(work)).T @ flags[:, rows]
        found = logs[:, rows] + at[2:end, None] + 2 * np.log(low + (1 - low) * clock[:, rows])
        found[count - len(work) :] += by_word
        return np.asarray(np.log(np.exp(at[0]) + np.exp(found).sum(axis=0)))

    return Curve(tuple(priors), of)


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
    tried = [_descend(lambda z: curve.of(mean + sd * z, rows), y, at) for at in starts]
    best = min(tried, key=lambda found: found[0])[1]
    value = curve.of(mean + sd * best, EVERY)
    slopes = _jacobian(lambda z: curve.of(mean + sd * z, EVERY), best, value)
    return Fit(mean + sd * best, value, value - slopes @ best, slopes), best


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
