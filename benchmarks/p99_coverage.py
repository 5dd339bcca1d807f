"""How often the 99 % bound of p99 holds, simulated: independent and correlated latencies, stalls, two states.

Latencies are log-normal (SD of logs 0.2). Correlated ones have the logs of an AR(1) process. With stalls, a
share of the queries is 1.3 or 3 times as slow, in stalls whose length is geometric about a mean: a two-state
process, with dwells of up to 200 queries (a second at 5 ms). The share lies above 1 %, so that the true p99
is a stall's.

`false` is how many of all runs gave a bound that lies below the truth, and `covered` is of the runs that gave
one. A run too short to meet a stall cannot know of it, whatever is done with its numbers: `missed` is how
many never did. So the goal is asked of the cells whose mean stall is within the run's reach (n / 459 queries,
stats.reach): at most 5 % false, and 95 % covered where at least a tenth of the runs gave a bound. The others
are published beside them. `before` is the rule without clusters, autocorrelation times alone.

    python benchmarks/p99_coverage.py     # five minutes on two cores; writes published/p99_coverage.json
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pool
from statistics import NormalDist

import numpy as np
from facts import publish
from numpy.typing import NDArray

from edgescope.stats import needed, percentile, quantile_effective_n, reach, tau, upper_rank

Q, CONFIDENCE, SD = 0.99, 0.99, 0.2
GOAL, ERRORS = 0.95, 2.0
"""Wanted coverage, and by how many standard errors of the simulation a cell may fall short of it."""
GIVEN = 0.1
"""Share of runs that give a bound from which on the coverage of those alone is judged."""
LENGTHS = {1_000: 600, 2_000: 600, 5_000: 600, 20_000: 300, 100_000: 100}
"""Queries of a run: runs."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Family:
    """A law of latencies."""

    name: str
    rho: float = 0.0
    stall: int = 0
    """Mean length of a stall in queries; 0: none."""
    share: float = 0.0
    """Share of the queries that are in stalls."""
    slow: float = 1.0
    """By how much those are slower."""

    def series(self, rng: np.random.Generator, n: int) -> tuple[Floats, bool]:
        """Return the latencies of one run of n queries, and whether it met a stall (or has none to meet)."""
        logs = SD * _correlated(rng, n, self.rho)
        if not self.stall:
            return np.exp(logs), True
        inside = _stalls(rng, n, self.stall, self.share)
        return np.exp(logs) * np.where(inside, self.slow, 1.0), bool(inside.any())

    def truth(self) -> float:
        """Return the true p99."""
        lo, hi = 0.0, 100.0
        for _ in range(100):
            middle = (lo + hi) / 2
            lo, hi = (middle, hi) if self._below(middle) < Q else (lo, middle)
        return hi

    def _below(self, x: float) -> float:
        law = NormalDist(0, SD)
        return (1 - self.share) * law.cdf(math.log(x)) + self.share * law.cdf(math.log(x / self.slow))


FAMILIES = (
    Family("independent"),
    *(Family(f"AR(1) {rho:g}", rho) for rho in (0.5, 0.9, 0.99)),
    *(Family(f"stalls of {s}, x3, 1.2 %", 0.0, s, 0.012, 3.0) for s in (10, 50, 200)),
    *(Family(f"stalls of {s}, x1.3, 2 %", 0.0, s, 0.02, 1.3) for s in (10, 50, 200)),
    Family("two states, dwell 200, x2, 20 %", 0.0, 200, 0.2, 2.0),
)


def _correlated(rng: np.random.Generator, n: int, rho: float) -> Floats:
    noise = rng.normal(size=n)
    if rho:
        noise[1:] *= math.sqrt(1 - rho**2)
        for i in range(1, n):
            noise[i] += rho * noise[i - 1]
    return noise


def _stalls(rng: np.random.Generator, n: int, stall: int, share: float) -> NDArray[np.bool_]:
    """Return which of n queries are in a stall: a stationary two-state process with geometric dwells."""
    apart = stall * (1 - share) / share
    cycles = math.ceil(3 * n / (stall + apart)) + 20
    inside = rng.random() < share
    first, second = (stall, apart) if inside else (apart, stall)
    dwells = np.empty(2 * cycles, np.int64)
    dwells[0::2], dwells[1::2] = rng.geometric(1 / first, cycles), rng.geometric(1 / second, cycles)
    states = (np.arange(2 * cycles) % 2 == 0) == inside
    return np.repeat(states, dwells)[:n]


def bound(x: Floats, worth: float) -> float:
    """Return the bound from so many effective samples, nan where it is refused."""
    rank = upper_rank(math.floor(worth), Q, CONFIDENCE)
    if rank is None:
        return math.nan
    index = min(len(x), math.ceil(rank * len(x) / worth)) - 1
    return float(np.partition(x, index)[index])


def autocorrelation(x: Floats) -> float:
    """Return the effective samples by autocorrelation times alone."""
    return len(x) / max(tau(x), tau(x > percentile(x, Q)))


def judged(found: Floats, truth: float) -> dict[str, float | None]:
    """Return what the bounds of many runs of one cell (nan: refused) came to."""
    given = found[np.isfinite(found)]
    covered = float(np.mean(given >= truth)) if len(given) else None
    median = float(np.median(given)) / truth if len(given) else None
    false = float(np.sum(given < truth)) / len(found)
    return {"given": len(given) / len(found), "false": false, "covered": covered, "median_over_truth": median}


def cell(task: tuple[Family, int, int, int]) -> dict[str, object]:
    """Simulate one family at one length."""
    family, n, runs, seed = task
    rng, truth = np.random.default_rng([seed, n]), family.truth()
    series = [family.series(rng, n) for _ in range(runs)]
    rules: tuple[Callable[[Floats], float], ...] = (lambda x: quantile_effective_n(x, Q), autocorrelation)
    now, before = (judged(np.array([bound(x, rule(x)) for x, _ in series]), truth) for rule in rules)
    return {
        **{
            "family": family.name,
            "n": n,
            "runs": runs,
            "within_reach": family.stall <= reach(n, Q, CONFIDENCE),
        },
        **{"missed": float(np.mean([not met for _, met in series])), **now, "before": before},
    }


def kept(row: dict[str, object]) -> bool:
    """Return whether one cell within reach meets the goal."""
    runs, given, false, covered = (row[k] for k in ("runs", "given", "false", "covered"))
    assert isinstance(runs, int) and isinstance(given, float) and isinstance(false, float)
    slack = ERRORS * math.sqrt(GOAL * (1 - GOAL) / runs)
    if false > 1 - GOAL + slack:
        return False
    return given < GIVEN or (isinstance(covered, float) and covered >= GOAL - slack / math.sqrt(given))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=99)
    args = parser.parse_args()
    tasks = [(f, n, runs, args.seed + i) for i, f in enumerate(FAMILIES) for n, runs in LENGTHS.items()]
    with Pool(2) as pool:
        rows = pool.map(cell, tasks, chunksize=1)
    inside = [row for row in rows if row["within_reach"]]
    figures = {
        "within_reach": {
            "cells": len(inside),
            "most_false": max(row["false"] for row in inside),
            "least_covered": min(row["covered"] for row in inside if row["given"] >= GIVEN),
        },
        "cells": rows,
        "setup": {"quantile": Q, "confidence": CONFIDENCE, "sd": SD, "needed": needed(Q, CONFIDENCE)},
        "seed": args.seed,
    }
    publish("p99_coverage", figures, met=all(map(kept, inside)))


if __name__ == "__main__":
    main()
