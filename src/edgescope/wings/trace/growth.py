"""How EC, CS and launching grow from trace to trace: with processes, with batch; and where preemption sets in."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.analysis.kernels.account import Account
from edgescope.analysis.kernels.inferences import Budget

#: The onset needs a quarter of the inferences beyond three quarters of those before it, and a median this much higher.
CLEAR = 1.5


@dataclass(frozen=True)
class Level:
    """One trace of a series: medians over its inferences in nanoseconds."""

    label: str
    processes: int
    ec_ns: float
    cs_ns: float
    total_ns: float
    launch_ns: float | None
    """Median length of a launching call; None if the trace has none."""
    off_cpu: float | None
    """Share of EC in which the thread was off the CPU; None without scheduling events."""
    busy: float | None
    """Share of the time in which a GPU was busy, the mean over GPUs; None if nothing ran on a GPU."""


@dataclass(frozen=True)
class Growth:
    """A series of traces in order of their number of processes."""

    levels: tuple[Level, ...]
    onset: int | None
    """The smallest number of processes at which EC is clearly longer than with fewer; None if it never is."""
    cores: int | None
    """CPU cores of the machine, if the traces say."""


def growth(accounts: Sequence[tuple[str, Account]]) -> Growth:
    """Return how a series of traces grows; traces without a budget are left out."""
    known = [(label, a, a.budget) for label, a in accounts if a.budget is not None]
    known.sort(key=lambda item: len(np.unique(item[2].inferences.process)))
    cores = next((int(a.trace.facts["cpu_cores"]) for _, a, _ in known if "cpu_cores" in a.trace.facts), None)
    levels = tuple(_level(label, a, b) for label, a, b in known)
    return Growth(
        levels,
        _onset([(level.processes, b.ec) for level, (_, _, b) in zip(levels, known, strict=True)]),
        cores,
    )


def _level(label: str, a: Account, found: Budget) -> Level:
    ec = float(found.ec.sum())
    return Level(
        label,
        len(np.unique(found.inferences.process)),
        float(np.median(found.ec)),
        float(np.median(found.cs)),
        float(np.median(found.total)),
        a.launches.api.quantile_ns(0.5) if a.launches and a.launches.api.count else None,
        float(found.parts["rescheduled"].sum()) / ec if found.scheduled and ec else None,
        float(np.mean([g.busy for g in a.gpus])) if a.gpus else None,
    )


def _onset(series: Sequence[tuple[int, NDArray[np.int64]]]) -> int | None:
    """Return the first number of processes whose EC is clearly longer than that of the one before."""
    for (_, fewer), (count, more) in itertools.pairwise(series):
        longer = np.quantile(more, 0.75) > np.quantile(fewer, 0.75)
        if longer and np.median(more) > CLEAR * np.median(fewer):
            return count
    return None
