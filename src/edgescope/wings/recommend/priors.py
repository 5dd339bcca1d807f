"""Expected slopes of a grid from physics, before any cell is measured, each with its uncertainty.

The slopes are rough, general knowledge and are fitted to no grid: a larger batch and more workers fill a device up to
its limit, fewer bits are faster if the hardware has them, the time of a network grows with its multiply-accumulates,
memory with P x (model + 2 x batch) (the rule of arXiv 2508.08430). The standard deviations are as large as the slopes
themselves: two or three measured cells outweigh any of it.

Latency is not guessed on its own. In a closed loop of N queries in flight, N = throughput in queries x mean latency
(Little's law), so only the ratio of a percentile to that mean is left to guess, and it hardly varies over a grid.
Energy is power over throughput, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgescope.records import Trial
from edgescope.search.gp import Floats, Slope

#: Precision -> log of the expected speed-up over fp32, before any hardware is known.
SPEED = {"fp32": 0.0, "tf32": 0.2, "fp16": 0.4, "bf16": 0.3, "int8": 0.6}
BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0}


def throughput(trials: Sequence[Trial], macs: Mapping[str, float], cores: int) -> list[Slope]:
    """Return the expected slopes of log samples/s; `macs` is per sample of a model, if known."""
    known = all(t.model in macs for t in trials)
    here = [t.device == "cpu" for t in trials]
    apart = _feature(trials, lambda t: float(t.sharing.startswith("mps") and t.processes > 1))
    out = [
        Slope(_feature(trials, lambda t: np.log2(t.batch)), 0.05 if all(here) else 0.12, 0.12),
        Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.05 if all(here) else 0.12, 0.18),
        Slope(_feature(trials, lambda t: SPEED[t.precision]), 1.0, 0.8),
        Slope(apart, 0.3, 0.3),
        Slope(_feature(trials, lambda t: np.log(macs[t.model]) if known else 0.0), -0.7, 0.4),
    ]
    if any(here):  # work spreads over cores until all are in use; beyond that, workers hinder each other
        used = [np.log2(threads_in_use(t, cores) / cores) for t in trials]
        out.append(Slope(_less_mean(np.minimum(0.0, used) * here), 0.65, 0.3))
        out.append(Slope(_less_mean(np.maximum(0.0, used) * here), -0.08, 0.12))
    return out


def tail(trials: Sequence[Trial]) -> list[Slope]:
    """Return the expected slopes of log (a latency percentile / the mean from Little's law)."""
    return [Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.05, 0.08)]


def power(trials: Sequence[Trial]) -> list[Slope]:
    """Return the expected slopes of log watts."""
    return [
        Slope(_feature(trials, lambda t: np.log2(t.batch)), 0.03, 0.06),
        Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.04, 0.08),
    ]


def memory(trials: Sequence[Trial]) -> list[Slope]:
    """Return the expected slopes of log bytes."""
    return [
        Slope(_feature(trials, lambda t: np.log2(t.processes)), 0.5, 0.25),
        Slope(_feature(trials, lambda t: np.log2(t.batch)), 0.12, 0.12),
        Slope(_feature(trials, lambda t: np.log(BYTES[t.precision])), 0.2, 0.3),
    ]


def in_flight(trial: Trial) -> float:
    """Return the samples that are under way at once in a closed loop: Little's N in samples."""
    return float(trial.processes * trial.in_flight * trial.batch)


def _workers(trial: Trial) -> float:
    return float(trial.processes * trial.in_flight)


def threads_in_use(trial: Trial, cores: int) -> float:
    """Return the engine's threads in all workers together; an engine without a thread option takes every core."""
    found = trial.options.get("threads", cores)
    each = float(found) if isinstance(found, int | float) and found >= 1 else float(cores)
    return each * _workers(trial)


def _feature(trials: Sequence[Trial], read: Callable[[Trial], float]) -> Floats:
    """Return one number per cell, minus their mean."""
    return _less_mean(np.array([float(read(t)) for t in trials]))


def _less_mean(found: Floats) -> Floats:
    return np.asarray(found - found.mean())
