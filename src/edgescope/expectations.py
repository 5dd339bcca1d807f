"""What physics expects of a grid before any of it is measured: slopes with how unsure they are.

Only rough, general knowledge stands here, none of it fitted to a grid of ours: a larger batch and more workers fill a
device up to what it has, fewer bits are faster where the hardware has them, the time of a network goes with its
multiply-accumulates, memory with P x (model + 2 x batch) (the rule of arXiv 2508.08430). The standard deviations are as
large as the slopes themselves: two or three measured cells outweigh any of it.

Latency is not guessed on its own. In a closed loop of N queries in flight, N = throughput in queries x mean latency
(Little's law), so only the ratio of a percentile to that mean is left to guess, and it hardly varies over a grid.
Energy is power over throughput, in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from edgescope.records import Trial
from edgescope.surrogate import Floats, Slope

#: Bits less: log of the speed-up over fp32 that is expected, before any hardware is known.
SPEED = {"fp32": 0.0, "tf32": 0.2, "fp16": 0.4, "bf16": 0.3, "int8": 0.6}
BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0}


def throughput(trials: Sequence[Trial], macs: Mapping[str, float], cores: int) -> list[Slope]:
    """Return what is expected of log samples/s; `macs` of a model's sample where it is known."""
    apart = _feature(trials, lambda t: float(t.sharing.startswith("mps") and t.processes > 1))
    known = all(t.model in macs for t in trials)
    return [
        Slope(_feature(trials, lambda t: np.log2(t.batch)), 0.12, 0.15),
        Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.12, 0.2),
        Slope(_feature(trials, lambda t: max(0.0, np.log2(_threads(t) * _workers(t) / cores))), -0.1, 0.15),
        Slope(_feature(trials, lambda t: min(0.0, np.log2(_threads(t) / cores))), 0.25, 0.3),
        Slope(_feature(trials, lambda t: SPEED[t.precision]), 1.0, 0.8),
        Slope(apart, 0.3, 0.3),
        Slope(_feature(trials, lambda t: np.log(macs[t.model]) if known else 0.0), -0.7, 0.4),
    ]


def tail(trials: Sequence[Trial]) -> list[Slope]:
    """Return what is expected of log (a percentile of latency / the mean that Little's law gives)."""
    return [Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.05, 0.08)]


def power(trials: Sequence[Trial]) -> list[Slope]:
    """Return what is expected of log watts."""
    return [
        Slope(_feature(trials, lambda t: np.log2(t.batch)), 0.03, 0.06),
        Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.04, 0.08),
    ]


def memory(trials: Sequence[Trial]) -> list[Slope]:
    """Return what is expected of log bytes."""
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


def _threads(trial: Trial) -> float:
    """Return the threads of one worker's engine where its options say so, else 1."""
    found = trial.options.get("threads", 1)
    return max(1.0, float(found)) if isinstance(found, int | float) else 1.0


def _feature(trials: Sequence[Trial], read: Callable[[Trial], float]) -> Floats:
    """Return one number a cell, less their mean."""
    found = np.array([float(read(t)) for t in trials])
    return np.asarray(found - found.mean())
