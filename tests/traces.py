"""Latency traces of hosts whose truth is known, seeded: quiet, correlated, bursty, and of two speed states.

Latencies are seconds in the order in which a closed loop would see them. `service` makes one a Work's fake time.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FAST_S, SLOW_S = 1.08e-3, 1.72e-3
DWELL_S = (1.0, 10.0)


def quiet(seconds: float, seed: int, *, level_s: float = FAST_S, cv: float = 0.03) -> Floats:
    """Independent latencies of one speed."""
    n = int(seconds / level_s * 1.05) + 10
    return level_s * (1 + cv * np.random.default_rng(seed).normal(size=n))


def correlated(
    seconds: float, seed: int, *, level_s: float = FAST_S, cv: float = 0.1, rho: float = 0.9
) -> Floats:
    """AR(1) around one speed: a busy moment slows the next queries too."""
    rng = np.random.default_rng(seed)
    noise = (rng.normal(size=int(seconds / level_s * 1.05) + 10) * np.sqrt(1 - rho**2)).tolist()
    out, last = [], rng.normal()
    for step in noise:
        last = rho * last + step
        out.append(last)
    return level_s * np.maximum(1 + cv * np.array(out), 0.1)


def bursty(
    seconds: float, seed: int, *, level_s: float = FAST_S, every_s: float = 2.5, burst_s: float = 0.05
) -> Floats:
    """One speed, with bursts three times as slow: `burst_s` long, `every_s` apart in the mean, and lone spikes."""
    rng, x = np.random.default_rng(seed), quiet(seconds, seed, level_s=level_s)
    at, length = 0, max(1, int(burst_s / level_s / 3))
    while (at := at + 1 + int(rng.exponential(every_s) / level_s)) < len(x):
        x[at : at + length] *= 3
    return x * np.where(rng.random(len(x)) < 1e-3, 10, 1)


def dwells(
    seconds: float, seed: int, *, levels_s: tuple[float, float] = (FAST_S, SLOW_S)
) -> list[tuple[float, float]]:
    """Return (level, seconds) of a host that changes between two speeds every 1 to 10 s, met at a random moment."""
    rng, left = np.random.default_rng([seed, 1]), seconds
    state, first, out = int(rng.integers(2)), True, []
    while left > 0:
        dwell = rng.uniform(*DWELL_S)
        while first and rng.random() > dwell / DWELL_S[1]:  # a longer dwell is met more often
            dwell = rng.uniform(*DWELL_S)
        dwell, first = (dwell * rng.random() if first else dwell), False
        out.append((levels_s[state], min(dwell, left)))
        left, state = left - dwell, 1 - state
    return out


def two_state(
    seconds: float, seed: int, *, cv: float = 0.03, levels_s: tuple[float, float] = (FAST_S, SLOW_S)
) -> Floats:
    """Latencies of such a host, `seconds` long."""
    rng = np.random.default_rng([seed, 2])
    parts = [
        level * (1 + cv * rng.normal(size=int(dwell / level) + 1))
        for level, dwell in dwells(seconds, seed, levels_s=levels_s)
    ]
    return np.concatenate(parts)


TWO_STATE_MEAN_S = 2 / (1 / FAST_S + 1 / SLOW_S)
"""Long-run mean latency over queries: half of the time at each speed, so more queries at the fast one."""


def service(latencies_s: Floats):
    """Return service_ns(query_id) for fake_time.FakeWork."""
    ns = (latencies_s * 1e9).astype(np.int64)
    return lambda query_id: int(ns[query_id])
