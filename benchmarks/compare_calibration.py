"""How often `compare` is wrong, simulated: A/A pairs called different, and real slowdowns found.

Each replicate is a fresh process (log-normal, SD 1 % between them); within, AR(1), rho 0.9, CV 10 %.
Ten pairs make one comparison, judged just as `edgescope.analysis.cells.compare` does. Also simulated: coverage of
the mean's 95 % interval with the stop rule active, and of the p99 bound at rho 0.9.

    python benchmarks/compare_calibration.py     # 25 seconds; writes published/compare_calibration.json
"""

from __future__ import annotations

import argparse
import math
from collections import Counter

import numpy as np
from facts import publish
from numpy.typing import NDArray

from edgescope.records import Absent
from edgescope.stats import StopRule, judge_pairs, mean_interval, upper_bound

RHO, CV, PROCESS_SD, PAIRS = 0.9, 0.10, 0.01, 10
QUERIES, COVERAGE_RUNS = 3000, 5000

Floats = NDArray[np.float64]


def ar1(rng: np.random.Generator, runs: int, n: int) -> Floats:
    """`runs` stationary AR(1) series of mean 1, shape (runs, n)."""
    x = rng.normal(size=(n, runs))
    x[1:] *= math.sqrt(1 - RHO**2)
    for i in range(1, n):
        x[i] += RHO * x[i - 1]
    return np.ascontiguousarray(1 + CV * x.T)


def replicates(rng: np.random.Generator, comparisons: int) -> dict[str, Floats]:
    """Mean and median latency of each process; shapes (comparisons, PAIRS)."""
    shape = (comparisons, PAIRS)
    parts = [ar1(rng, 1000, QUERIES) for _ in range(comparisons * PAIRS // 1000)]
    process = np.exp(rng.normal(0, PROCESS_SD, shape))
    means = np.concatenate([p.mean(axis=1) for p in parts]).reshape(shape)
    medians = np.concatenate([np.median(p, axis=1) for p in parts]).reshape(shape)
    return {"mean": process * means, "p50": process * medians}


def verdicts(a: Floats, b: Floats, slowdown: float) -> dict[str, float]:
    """Share of each judgement over the comparisons."""
    counts = Counter(judge_pairs(slowdown * y, x)[1].value for x, y in zip(a, b, strict=True))
    return {word: count / len(a) for word, count in sorted(counts.items())}


def stopped(latencies: Floats) -> int:
    """Queries a closed loop has done when the shipped stop rule (1 %, min 3.3 s) stops it."""
    rule, done, n = StopRule(0.01, int(3.3e9), 10**12), np.cumsum(latencies), 0
    reason = None
    while reason is None:
        n = int(np.searchsorted(done, rule.next_check_ns)) + 1
        reason = rule.decide(int(done[n - 1]) + 1, latencies[:n])
    return n


def coverage(rng: np.random.Generator, runs: int) -> dict[str, float]:
    """Coverage and median width / oracle's of the mean's interval when the stop rule ends the run."""
    covered, widths, lengths = [], [], []
    for x in (row * 1e6 for _ in range(runs // 1000) for row in ar1(rng, 1000, 26_000)):
        n = stopped(x)
        interval = mean_interval(x[:n])
        oracle = 1.96 * CV * 1e6 * math.sqrt((1 + RHO) / (1 - RHO) / n)
        covered.append(interval.lo <= 1e6 <= interval.hi)
        widths.append(interval.half_width / oracle)
        lengths.append(n)
    return {
        "runs": runs,
        "covered": float(np.mean(covered)),
        "median_width_over_oracle": float(np.median(widths)),
        "min_n": min(lengths),
        "median_n": float(np.median(lengths)),
    }


def tail(rng: np.random.Generator, runs: int, n: int) -> dict[str, float | None]:
    """Coverage of the 99 % bound of p99 at n correlated samples, where it is not refused."""
    truth = 1 + CV * 2.3263478740408408
    bounds = [upper_bound(x, 0.99) for x in ar1(rng, runs, n)]
    given = [b for b in bounds if not isinstance(b, Absent)]
    share = float(np.mean([b >= truth for b in given])) if given else None
    return {"n": n, "given": len(given) / runs, "covered_where_given": share}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    a, b = replicates(rng, args.comparisons), replicates(rng, args.comparisons)
    slowdowns = (1.0, 1.01, 1.02, 1.03, 1.05)
    figures = {
        "judgements": {m: {f"{s:g}": verdicts(a[m], b[m], s) for s in slowdowns} for m in a},
        "mean_interval_with_stop_rule": coverage(rng, COVERAGE_RUNS),
        "p99_bound": [tail(rng, 500, n) for n in (3000, 9000, 12_000, 20_000)],
    }
    setup = {"pairs": PAIRS, "queries": QUERIES, "process_sd": PROCESS_SD, "rho": RHO, "cv": CV}
    aa, slower = (figures["judgements"]["mean"][k] for k in ("1", "1.03"))
    false = aa.get("FASTER", 0) + aa.get("SLOWER", 0)
    found = slower.get("SLOWER", 0)
    record = {"false_verdicts": false, "found_3_percent": found, "n": args.comparisons, "seed": args.seed}
    publish("compare_calibration", record | figures | {"setup": setup}, met=false <= 0.065 and found >= 0.9)


if __name__ == "__main__":
    main()
