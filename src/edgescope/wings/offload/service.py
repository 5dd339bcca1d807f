"""How long one machine takes to answer a query: its measured service times, resampled, and the queue before it.

A service time runs from issued to done of a query in the measured window, so time in the queue is not in it. Draws are
taken from the raw rows, never from percentiles: the sum of two p99 is no p99. Neighbouring rows resemble each other,
so rows are drawn in blocks (moving blocks: Kuensch, Annals of Statistics 17, 1989); replicates are drawn first,
because fresh processes differ by more than the rows within one.

Waiting is Lindley's recursion on the draws, one FIFO server: finish_k = max(arrive_k, finish_(k-1)) + service_k.
Several servers are taken in turn. It is monotone: a longer service or an earlier arrival never ends anything sooner.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.records import QUERY_OK, Result
from edgescope.stats import tau

Floats = NDArray[np.float64]

MOST_UTILISED = 0.95
"""Utilisation of a server or link from which no steady tail can be given: the queue's memory gets too long."""


@dataclass(frozen=True)
class Service:
    """The service times of one cell in seconds, an array for each replicate, and its worker slots."""

    replicates: tuple[Floats, ...]
    slots: int = 1
    """Queries that the machine serves at once, as it was measured: processes x in_flight."""

    @property
    def n(self) -> int:
        """Raw rows behind it."""
        return sum(len(r) for r in self.replicates)

    @property
    def mean_s(self) -> float:
        """Mean service time."""
        return float(np.concatenate(self.replicates).mean())


def service(results: Sequence[Result]) -> Service | None:
    """Return the service times of a cell's finished replicates (with raw rows), or None if none has rows."""
    found = tuple(x for x in (_times_s(r) for r in results) if len(x))
    if not found:
        return None
    trial = results[0].trial
    return Service(found, trial.processes * trial.in_flight)


def _times_s(result: Result) -> Floats:
    if result.queries is None or result.window is None:
        return np.zeros(0)
    c = result.queries.rows(result.window).columns
    ok = (c["status"] == QUERY_OK) & (c["worker"] < result.trial.processes)  # colocated models have rows too
    return np.asarray((c["done_ns"] - c["issued_ns"])[ok] * 1e-9, dtype=np.float64)


def plain(of: Service, rng: np.random.Generator, n: int) -> Floats:
    """Return n service times drawn from all rows, (1, n)."""
    return _drawn(of.replicates, rng, n)[None, :]


def bootstrapped(of: Service, rng: np.random.Generator, rows: int, n: int) -> Floats:
    """Return (rows, n) service times; each row is drawn from its own resample of replicates and of their rows."""
    out = np.empty((rows, n))
    for row in out:
        chosen = [of.replicates[i] for i in rng.integers(0, len(of.replicates), len(of.replicates))]
        row[:] = _drawn([x[_blocks(x, rng, len(x))] for x in chosen], rng, n)
    return out


def _drawn(replicates: Sequence[Floats], rng: np.random.Generator, n: int) -> Floats:
    """Return n values, in blocks of one replicate after the other, every row equally likely."""
    whole = np.concatenate(replicates)
    return whole[_blocks(whole, rng, n)]


def _blocks(x: Floats, rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """Return n indices into x: blocks much longer than its correlation, wrapped at the end."""
    length = max(1, min(len(x) // 8, math.ceil(4 * tau(x)) if len(x) > 1 else 1))
    starts = rng.integers(0, len(x), math.ceil(n / length))
    return np.asarray((starts[:, None] + np.arange(length)).ravel()[:n] % len(x), dtype=np.int64)


def fifo(arrive: Floats, serve: Floats, servers: int = 1) -> Floats:
    """Return when each query is done, (rows, n), in seconds; queries take the servers in turn."""
    out = np.empty(arrive.shape)
    for lane in range(servers):
        mine = serve[:, lane::servers]
        total = np.cumsum(mine, axis=1)
        start = np.maximum.accumulate(arrive[:, lane::servers] - (total - mine), axis=1)
        out[:, lane::servers] = start + total
    return out
