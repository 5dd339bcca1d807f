"""Simulate a first-come-first-served queue from measured service times and assumed arrivals.

A closed loop shows how long one query takes when nothing waits. Replaying those times against the arrivals of N clients
(Lindley 1952; several servers after Kiefer and Wolfowitz) shows roughly where the tail exceeds its limit, and how much
longer a run must be than its queries suggest: latencies that queue resemble their neighbours, so a thousand of them may
be worth fifty. The search takes its starting point and the length of its runs from here; no answer rests on it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.stats import needed, percentile, quantile_effective_n, upper_rank

Floats = NDArray[np.float64]

#: Queries of one forecast: enough for a p99 of strongly correlated latencies within some 5 %.
QUERIES = 20_000
CONFIDENCE = 0.99
#: A run is planned longer than the forecast by this share, because the next run's tail differs.
SPARE = 2.0
#: Beyond this utilisation a queue takes longer to fill than any run lasts.
FULL = 0.98


@dataclass(frozen=True)
class Load:
    """The load of N clients: the rate of each, the arrival pattern, and the number of servers."""

    rate: float
    """Queries per second of one client."""
    arrivals: str = "poisson"
    """poisson, even (all clients perfectly interleaved) or camera (each periodic, with its own phase)."""
    servers: int = 1


def latencies(service_s: Floats, load: Load, clients: int, *, seed: int = 0, n: int = QUERIES) -> Floats:
    """Return the seconds from due to done of `n` queries; the service times are repeated in their order."""
    rng = np.random.default_rng((seed, clients))
    due = arrivals(load, clients, n, rng)
    service = np.resize(np.roll(service_s, -int(rng.integers(len(service_s)))), n)
    if load.servers > 1:
        return _several(due, service, load.servers)
    before = np.concatenate(([0.0], np.cumsum(service[:-1])))
    return np.asarray(np.maximum.accumulate(due - before) + before + service - due, dtype=np.float64)


def arrivals(load: Load, clients: int, n: int, rng: np.random.Generator) -> Floats:
    """Return the times in seconds, in order, at which `n` queries of all clients are due."""
    total = load.rate * clients
    if load.arrivals == "poisson":
        return np.asarray(np.cumsum(rng.exponential(1 / total, n)), dtype=np.float64)
    if load.arrivals == "even":
        return np.arange(n, dtype=np.float64) / total
    phases = np.sort(rng.uniform(0, 1 / load.rate, clients))
    frames = math.ceil(n / clients)
    return np.asarray((np.arange(frames)[:, None] / load.rate + phases).ravel()[:n], dtype=np.float64)


def _several(due: Floats, service: Floats, servers: int) -> Floats:
    """Serve each query by the first of several servers that is free."""
    free = [0.0] * servers
    out = np.empty(len(due))
    for i, (t, s) in enumerate(zip(due.tolist(), service.tolist(), strict=True)):
        done = max(t, heapq.heappop(free)) + s
        heapq.heappush(free, done)
        out[i] = done - t
    return out


@dataclass(frozen=True)
class Forecast:
    """The expected result of a run of N clients for one quantile."""

    quantile_s: float
    """The quantile itself."""
    seconds: float
    """How long a run must be for its upper bound, at least the requested length."""
    over: float
    """The bound that such a run will give, as a multiple of the quantile."""


def forecast(service_s: Floats, load: Load, clients: int, q: float, at_least_s: float = 0.0) -> Forecast:
    """Return the forecast for one quantile `q`; seconds is inf where the servers cannot keep up."""
    total = load.rate * clients
    if total * float(service_s.mean()) / load.servers >= FULL:
        return Forecast(math.inf, math.inf, 1.0)
    x = latencies(service_s, load, clients, n=max(QUERIES, 20 * needed(q, CONFIDENCE)))
    share = quantile_effective_n(x, q) / len(x)
    seconds = max(at_least_s, SPARE * needed(q, CONFIDENCE) / (share * total))
    worth = share * total * seconds
    rank = upper_rank(math.floor(worth), q, CONFIDENCE)
    assert rank is not None, "twice the queries that a bound needs have one"
    point, bounded = percentile(x, q), percentile(x, rank / worth)
    return Forecast(point, seconds, max(1.0, bounded / point))


def ceiling(service_s: Floats, load: Load) -> int:
    """Return the most clients whose queries the servers can answer at all."""
    return math.floor(load.servers / float(service_s.mean()) / load.rate)


def estimate(service_s: Floats, load: Load, tails: Sequence[tuple[float, float]], confirm_s: float) -> int:
    """Return roughly how many clients fit, at least 1: the most whose forecast bounds keep every limit.

    `tails` are pairs of a quantile of the latency and the seconds below which it must lie.
    """
    most = max(1, ceiling(service_s, load))

    def fits(clients: int) -> bool:
        found = [(limit, forecast(service_s, load, clients, q, confirm_s)) for q, limit in tails]
        return all(f.quantile_s * f.over < limit for limit, f in found)

    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(1, low)
