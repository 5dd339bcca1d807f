"""Time and power of every mode as a roofline: a few physical parameters, fitted to the profiled modes.

Seconds of one sample, with every clock as a share of its highest value in the grid:

    work    = 1 + w / batch + s batch: the weights are read once a query, and a large batch leaves the caches
    gpu     = g work / (gpu_hz x gpu_sm_share x gpu_power_w)
    memory  = m / memory_hz
    cpu     = c work / (cpu_hz x amdahl(cpu_cores, threads)); of more cores than threads, as many as there are
              threads, which the fit finds where no knob says it
    quota   = q / (cpu_quota x cpu_hz): CPU seconds that the quota hands out
    launch  = l / (cpu_hz x batch x processes x in_flight): what each query waits for alone
    latency = s / (batch x processes x in_flight): what a query waits for whatever the clocks are
    rest    = what no knob changes
    device  = (gpu^p + memory^p + cpu^p + ...)^(1/p), 1 <= p: 1 adds them up, a large p hides the shorter
              behind the longest
    loading = (i + b / batch) / cpu_hz: of an item, and of a minibatch
    seconds = device; with a loader device + loading without workers, else a norm as above, of device + handover /
              batch, of loading / min(workers, cores), and of all that the CPU does / cores

Watts, with V the voltage at a clock relative to that at its highest, V(f) = v up to a knee k, then v + (1 - v)
(f - k) / (1 - k), bent smoothly:

    watts = static + sum over CPU cores, GPU, memory of (on f V^2 + joules of one sample V^2 / seconds)

A term exists only if a knob of it differs between modes. Every coefficient is positive, so a faster clock never
makes a mode slower. A word (a precision, a way of sharing) scales each term by a factor of its own. Sources: Williams,
Waterman, Patterson, CACM 52(4), 2009; for power over modes, Pagoda (arXiv 2509.20189).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from edgescope.search.gp import Rows
from edgescope.wings.predict.modes import Floats, ModeGrid
from edgescope.wings.predict.surfaces import Curve, Prior


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
LOADING = (("item", -1.2), ("minibatch", -3.5), ("handover", -3.0), ("host", -1.2))
"""Parts of loading, with what is expected of each relative to the fastest mode."""
WEIGHTS, SPILLED = 8.0, 0.03
"""What is expected of w, in samples, and of s, as the share of its work by which the largest batch costs more."""
SHARP = 8.0
"""How sharply more cores than threads cease to help."""
LANES = ("batch", "processes", "in_flight")


@dataclass(frozen=True)
class Parts:
    """What a sample of a training step took, in seconds."""

    loading: float
    """Of the process that loaded it."""
    device: float
    """Everything but the wait for the loader."""


def seconds(grid: ModeGrid, level: float, parts: Mapping[int, Parts] = MappingProxyType({})) -> Curve:
    """Return the curve of log seconds of one sample; `level`: the log seconds that the fastest profiled mode took.

    `parts` of profiled modes are explained by the same parameters, if each process had a core of its own.
    """
    k = _Knobs(grid)
    found = _Seconds(k, level)
    own = [m for m in sorted(parts) if k.alone[m] or k.plain("workers")[m] < k.cores[m]]
    if not (found.with_loader and own):
        return Curve(tuple(found.priors), found.whole)
    rows = np.array(own, dtype=np.int64)
    measured = [parts[m].loading for m in own] + [parts[m].device for m in own]

    def also(at: Floats) -> Floats:
        return np.hstack([np.log(found.loading(at, rows)), found.device(at, rows)])

    return Curve(tuple(found.priors), found.whole, also, tuple(np.log(measured).tolist()))


class _Seconds:
    """The seconds of one sample in every mode, by its parts, as functions of the parameters.

    Parameters are (parameters, points), what is returned is (points, modes).
    """

    def __init__(self, k: _Knobs, level: float) -> None:
        terms, lanes = _terms(k), np.log(k.lanes / k.lanes.max())
        batch, words = np.log(k.plain("batch")), k.words()
        self.names, self.words = list(terms), len(words)
        self.logs = np.log(np.stack(list(terms.values())))
        self.together = np.array([name in ("launch", "latency") for name in self.names])[:, None, None]
        self.on_gpu = np.array([name == "gpu" for name in self.names])[:, None, None]
        self.batch = batch - batch.max()
        self.wide = lanes - self.batch
        self.flags = np.stack(list(words.values())) if words else np.zeros((0, len(k.grid)))
        self.with_cpu, self.with_loader = k.vary(*CPU), k.vary("workers")
        self.priors = [Prior(name, level - 1.2, 1.5) for name in self.names]
        self.priors += [Prior("overlap", 0.0, 1.0), Prior("side by side", 1.0, 1.5)]
        for word in words:
            self.priors += [Prior(f"{word} {name}", 0.0, 0.7) for name in self.names]
            self.priors += [Prior(f"{word} side by side", 0.0, 2.0)]
        self.at_weights, self.with_batch = len(self.priors), k.vary("batch")
        if self.with_batch:
            self.priors += [Prior("weights", math.log(WEIGHTS) - float(batch.max()), 1.0)]
            self.priors += [Prior("spilled", math.log(SPILLED), 1.5)]
        self.at_cpu = len(self.priors)
        if self.with_cpu:
            self.priors += [Prior("cpu", level - 1.2, 1.5), Prior("serial", -1.5, 1.2)]
        self.with_threads = self.with_cpu and k.vary("cpu_cores") and not k.vary("threads", "workers")
        if self.with_threads:
            self.priors += [Prior("threads", math.log(float(k.cores.max())), 1.0)]
        if self.with_loader:
            self.priors += [Prior(name, level + mean, 1.5) for name, mean in LOADING]
            self.priors += [Prior("hidden", 1.5, 0.7)]
        self.cpu_hz, self.cores, self.loaders, self.alone = k.share("cpu_hz"), k.cores, k.loaders, k.alone

    def device(self, at: Floats, rows: Rows) -> Floats:
        """Return the log seconds of everything but the loader."""
        count, points = len(self.names), at.shape[1]
        table = at[count + 2 : count + 2 + self.words * (count + 1)].reshape(self.words, count + 1, points)
        by_word = np.einsum("wtp,wm->tpm", table, self.flags[:, rows])
        beside = 1 / (1 + np.exp(-at[count + 1, :, None] - by_word[-1]))
        found = self.logs[:, None, rows] + at[:count, :, None] + by_word[:-1]
        found = found - self.together * (self.batch[rows] + beside * self.wide[rows])
        found += self.on_gpu * np.log(self.work(at, rows))
        if self.with_cpu:
            part = 1 / (1 + np.exp(-at[self.at_cpu + 1, :, None]))
            scaled = self.busy(at, rows) * (part + (1 - part) / self.usable(at, rows) * self.cores.max())
            found = np.concatenate([found, np.log(scaled)[None]])
        return _pnorm(found, 1 + np.exp(at[count, :, None]))

    def usable(self, at: Floats, rows: Rows) -> Floats:
        """Return the cores that the operators can use: no more than they have threads, smoothly."""
        cores = self.cores[rows]
        if not self.with_threads:
            return cores
        threads = np.exp(at[self.at_cpu + 2, :, None])
        return np.asarray((cores**-SHARP + threads**-SHARP) ** (-1 / SHARP))

    def busy(self, at: Floats, rows: Rows) -> Floats:
        """Return the seconds of the operators on the CPU, on all of its cores."""
        if not self.with_cpu:
            return np.zeros((1, 1))
        return np.asarray(np.exp(at[self.at_cpu, :, None]) / self.cpu_hz[rows] * self.work(at, rows))

    def work(self, at: Floats, rows: Rows) -> Floats:
        """Return the work of a sample, relative to that of its operators alone."""
        if not self.with_batch:
            return np.ones((1, 1))
        weights, spilled = np.exp(at[self.at_weights : self.at_weights + 2, :, None])
        return np.asarray(1 + weights * np.exp(-self.batch[rows]) + spilled * np.exp(self.batch[rows]))

    def loading(self, at: Floats, rows: Rows) -> Floats:
        """Return the seconds of the loader, in one process."""
        item, minibatch = np.exp(at[-5:-3, :, None])
        return np.asarray((item + minibatch * np.exp(-self.batch[rows])) / self.cpu_hz[rows])

    def whole(self, at: Floats, rows: Rows) -> Floats:
        """Return the log seconds of a sample, with what is loaded ahead hidden behind the device."""
        device = self.device(at, rows)
        if not self.with_loader:
            return device
        loading, cores = self.loading(at, rows), self.cores[rows]
        handover, host = np.exp(at[-3:-1, :, None] - self.batch[rows])
        work = loading + host / self.cpu_hz[rows] + self.busy(at, rows) * self.cores.max()
        ahead = np.stack([np.exp(device) + handover, loading / self.loaders[rows], work / cores])
        hidden = _pnorm(np.log(ahead), 1 + np.exp(at[-1, :, None]))
        return np.where(self.alone[rows], np.log(np.exp(device) + loading), hidden)


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


def _pnorm(logs: Floats, power: Floats) -> Floats:
    """Return log of (sum of exp(logs)^power)^(1/power) over the first axis."""
    top = logs.max(axis=0)
    return np.asarray(top + np.log(np.exp(power * (logs - top)).sum(axis=0)) / power)


SOFT = 0.06
"""How far below and above its knee, as a share of the highest clock, the voltage bends."""


def _above(clock: Floats, knee: Floats) -> Floats:
    """Return how far clocks lie above the knee, as a share of the way from there to their highest, smoothly."""
    return np.asarray(np.logaddexp(0.0, (clock - knee) / SOFT) / np.logaddexp(0.0, (1 - knee) / SOFT))


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
    scaled = k.vary("cpu_hz", "gpu_hz", "memory_hz")
    priors += [Prior("knee", -0.5, 1.0)] if scaled else []
    count, end = len(terms), 2 + len(terms)

    def of(at: Floats, rows: Rows) -> Floats:
        low = 1 / (1 + np.exp(-at[1, :, None]))
        table = at[end : end + len(words) * len(work)].reshape(len(words), len(work), at.shape[1])
        found = logs[:, None, rows] + at[2:end, :, None]
        if scaled:  # without a clock to change, every voltage is the highest
            knee = 1 / (1 + np.exp(-at[-1, :, None]))
            found += 2 * np.log(low + (1 - low) * _above(clock[:, None, rows], knee))
        found[count - len(work) :] += np.einsum("wtp,wm->tpm", table, flags[:, rows])
        return np.asarray(np.log(np.exp(at[0, :, None]) + np.exp(found).sum(axis=0)))

    return Curve(tuple(priors), of)
