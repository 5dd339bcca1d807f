"""How often edgescope's intervals and verdicts are right, simulated: nothing is measured.

    python benchmarks/intervals.py COMMAND --help

The commands: verdicts of `compare` (compare), the interval between fresh processes (fresh_means), the gate's interval
of agreement (gate), that of p99 (p99), and a machine's states of speed (speeds).
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import Pool
from pathlib import Path
from statistics import NormalDist
from typing import Any

import facts
import numpy as np
from facts import publish

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from numpy.typing import NDArray

import traces
from edgescope.analysis.cells.replicates import spread
from edgescope.analysis.run.summary import metrics
from edgescope.models.image.photos import SCENE
from edgescope.records import Absent, Measured
from edgescope.scenarios.closed import SingleStream
from edgescope.stats import (
    Interval,
    StopRule,
    clustered_share,
    judge_pairs,
    mean_interval,
    needed,
    percentile,
    quantile_effective_n,
    reach,
    states,
    tau,
    upper_bound,
    upper_rank,
    wilson,
)
from edgescope.wings.recommend.candidates import CONFIDENCE, PRIOR_DOF, fresh, pooled
from fake_time import drive, trial

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


def compare_coverage(rng: np.random.Generator, runs: int) -> dict[str, float]:
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


def compare() -> None:
    """How often `compare` is wrong, simulated: A/A pairs called different, and real slowdowns found.

    Each replicate is a fresh process (log-normal, SD 1 % between them); within, AR(1), rho 0.9, CV 10 %.
    Ten pairs make one comparison, judged just as `edgescope.analysis.cells.compare` does. Also simulated: coverage of
    the mean's 95 % interval with the stop rule active, and of the p99 bound at rho 0.9.

        python benchmarks/intervals.py compare     # 25 seconds; writes published/intervals.json
    """
    parser = argparse.ArgumentParser(description=facts.summary(compare))
    parser.add_argument("--comparisons", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=20)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    a, b = replicates(rng, args.comparisons), replicates(rng, args.comparisons)
    slowdowns = (1.0, 1.01, 1.02, 1.03, 1.05)
    figures = {
        "judgements": {m: {f"{s:g}": verdicts(a[m], b[m], s) for s in slowdowns} for m in a},
        "mean_interval_with_stop_rule": compare_coverage(rng, COVERAGE_RUNS),
        "p99_bound": [tail(rng, 500, n) for n in (3000, 9000, 12_000, 20_000)],
    }
    setup = {"pairs": PAIRS, "queries": QUERIES, "process_sd": PROCESS_SD, "rho": RHO, "cv": CV}
    aa, slower = (figures["judgements"]["mean"][k] for k in ("1", "1.03"))
    false = aa.get("FASTER", 0) + aa.get("SLOWER", 0)
    found = slower.get("SLOWER", 0)
    record = {"false_verdicts": false, "found_3_percent": found, "n": args.comparisons, "seed": args.seed}
    publish("intervals/compare", record | figures | {"setup": setup}, met=false <= 0.065 and found >= 0.9)


FRESH_GOAL, FRESH_ERRORS = 0.94, 2.0
FRESH_SD = 0.03
"""Standard deviation of the logs of a cell's processes where it is 1."""
MOST = 5.0
CASES = {
    "alike": (1.0, 1.0),
    "2 up": (2.0, 1.0),
    "3 up": (3.0, 1.0),
    "5 up": (5.0, 1.0),
    "5 down": (1.0, 5.0),
}
"""Spread of this cell and of the others, in SD."""
OTHERS = {"one of 3": [3], "seven of 2": [2] * 7, "seven of 3": [3] * 7}
PROCESSES = (1, 2, 3, 5)


def spreads(rng: np.random.Generator, case: str, others: int) -> tuple[float, list[float]]:
    """Return the spread of this cell and those of the others."""
    if case == "drawn":
        drawn = FRESH_SD * np.exp(rng.uniform(0, math.log(MOST), others + 1))
        return float(drawn[0]), drawn[1:].tolist()
    mine, its = CASES[case]
    return FRESH_SD * mine, [FRESH_SD * its] * others


def fresh_coverage(
    rng: np.random.Generator, case: str, processes: int, others: list[int], runs: int
) -> dict[str, object]:
    """Return how often a further process of the cell stayed below its bound, and how far off that lay."""
    held, wide = 0, []
    for _ in range(runs):
        sd, its = spreads(rng, case, len(others))
        mine = np.exp(rng.normal(0, sd, processes))
        groups = [np.exp(rng.normal(0, s, k)).tolist() for s, k in zip(its, others, strict=True)]
        ends = fresh(mine.tolist(), pooled([mine.tolist(), *groups]))
        assert ends is not None
        held += math.exp(rng.normal(0, sd)) <= ends[1]
        wide.append(math.log(ends[1]) / sd)
    return {"processes": processes, "covered": held / runs, "median_over_sd": float(np.median(wide))}


def fresh_means() -> None:
    """How often a fresh process stays below the bound that `recommend` judges a constraint on, simulated.

    A cell of a few processes stands among others on its machine, and each cell has a spread of its own: the logs
    of its processes are normal about its mean. The bound is analysis.bounds.fresh, from the cell's processes and
    all cells' pooled spread, as `recommend` makes it. Wanted are 95 %, and at least 94 % in each case.

        alone         no other cell is replicated
        alike         all cells spread alike
        drawn         every cell's spread is drawn: up to 5 times the least, uniform in logs
        2, 3, 5 up    this cell spreads by so many times what every other does
        5 down        every other cell spreads 5 times as much

    A single process says nothing of its cell's spread, so that of one that spreads by more than the cells it
    borrows from is published and not asked for.

        python benchmarks/intervals.py fresh_means     # two minutes; writes published/intervals.json
    """
    parser = argparse.ArgumentParser(description=facts.summary(fresh_means))
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=16)
    args = parser.parse_args()
    rng, rows = np.random.default_rng(args.seed), []
    for processes in PROCESSES:
        if processes > 1:
            row = fresh_coverage(rng, "alike", processes, [], args.runs)
            rows.append({"case": "alone", "others": "none", "asked": True, **row})
        for case in ("drawn", *CASES):
            asked = processes > 1 or not case.endswith("up")
            for name, others in OTHERS.items():
                row = fresh_coverage(rng, case, processes, others, args.runs)
                rows.append({"case": case, "others": name, "asked": asked, **row})
    least = min(row["covered"] for row in rows if row["asked"])
    slack = FRESH_ERRORS * math.sqrt(FRESH_GOAL * (1 - FRESH_GOAL) / args.runs)
    setup = {
        "sd": FRESH_SD,
        "most": MOST,
        "confidence": CONFIDENCE,
        "prior_dof": PRIOR_DOF,
        "goal": FRESH_GOAL,
    }
    figures = {"least_covered": least, "cells": rows, "runs": args.runs, "seed": args.seed, "setup": setup}
    publish("intervals/fresh_means", figures, met=least >= FRESH_GOAL - slack)


FILMS = (250, 120)
SHARES, CORRELATIONS = (0.75, 0.9, 0.94, 0.97, 0.985), (0.0, 0.3, 0.5, 0.7)
GATE_GOAL, GATE_ERRORS = 0.93, 2.0
"""Wanted coverage, and by how many standard errors of the simulation a case may fall short of it."""


def agreement(rng: np.random.Generator, n: int, share: float, correlation: float) -> NDArray[np.bool_]:
    """Whether a variant agrees, frame by frame of one film."""
    chance, found = rng.random(n), np.empty(n, dtype=bool)
    found[0] = chance[0] < share
    for i in range(1, n):
        found[i] = chance[i] < share * (1 - correlation) + correlation * found[i - 1]
    return found


def scenes() -> NDArray[np.int64]:
    """The scene of each frame of both films."""
    parts, first = [], 0
    for n in FILMS:
        parts.append(first + np.arange(n) // SCENE)
        first = int(parts[-1][-1]) + 1
    return np.concatenate(parts)


def case(rng: np.random.Generator, share: float, correlation: float, runs: int) -> dict[str, float]:
    """Coverage of the intervals at one true share and one correlation."""
    of, found, naive = scenes(), list[Interval](), list[Interval]()
    for _ in range(runs):
        hits = np.concatenate([agreement(rng, n, share, correlation) for n in FILMS])
        found.append(clustered_share(hits, of))
        naive.append(wilson(int(hits.sum()), len(hits)))
    return {
        **{"share": share, "correlation": correlation},
        "covered": float(np.mean([f.lo <= share <= f.hi for f in found])),
        "lower_end_covered": float(np.mean([f.lo <= share for f in found])),
        "median_lower_end": float(np.median([f.lo for f in found])),
        "median_count_for": float(np.median([f.n_eff for f in found])),
        "wilson_covered": float(np.mean([f.lo <= share <= f.hi for f in naive])),
    }


def gate() -> None:
    """How often the gate's interval of a variant's agreement with fp32 holds, simulated: frames that answer alike.

    Two films of 250 and 120 frames, as the gate has them. Whether a variant agrees on a frame is a two-state
    Markov chain: the true share s of frames on which it does, and the correlation of neighbours. The interval is
    the gate's own, by scenes of models.photos.SCENE frames; `wilson` is the one that takes every frame for an
    opinion of its own.

        python benchmarks/intervals.py gate     # one minute; writes published/intervals.json
    """
    parser = argparse.ArgumentParser(description=facts.summary(gate))
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    rows = [case(rng, s, c, args.runs) for c in CORRELATIONS for s in SHARES]
    least = min(row["covered"] for row in rows)
    setup = {"frames": sum(FILMS), "scene_frames": SCENE, "goal": GATE_GOAL}
    figures = {"least_covered": least, "cases": rows, "runs": args.runs, "seed": args.seed, "setup": setup}
    publish(
        "intervals/gate",
        figures,
        met=least >= GATE_GOAL - GATE_ERRORS * math.sqrt(GATE_GOAL * (1 - GATE_GOAL) / args.runs),
    )


Q, P99_CONFIDENCE, P99_SD = 0.99, 0.99, 0.2
P99_GOAL, P99_ERRORS = 0.95, 2.0
"""Wanted coverage, and by how many standard errors of the simulation a cell may fall short of it."""
GIVEN = 0.1
"""Share of runs that give a bound from which on the coverage of those alone is judged."""
LENGTHS = {1_000: 600, 2_000: 600, 5_000: 600, 20_000: 300, 100_000: 100}
"""Queries of a run: runs."""


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
        logs = P99_SD * _correlated(rng, n, self.rho)
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
        law = NormalDist(0, P99_SD)
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
    rank = upper_rank(math.floor(worth), Q, P99_CONFIDENCE)
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
            "within_reach": family.stall <= reach(n, Q, P99_CONFIDENCE),
        },
        **{"missed": float(np.mean([not met for _, met in series])), **now, "before": before},
    }


def kept(row: dict[str, object]) -> bool:
    """Return whether one cell within reach meets the goal."""
    runs, given, false, covered = (row[k] for k in ("runs", "given", "false", "covered"))
    assert isinstance(runs, int) and isinstance(given, float) and isinstance(false, float)
    slack = P99_ERRORS * math.sqrt(P99_GOAL * (1 - P99_GOAL) / runs)
    if false > 1 - P99_GOAL + slack:
        return False
    return given < GIVEN or (isinstance(covered, float) and covered >= P99_GOAL - slack / math.sqrt(given))


def p99() -> None:
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

        python benchmarks/intervals.py p99     # five minutes on two cores; writes published/intervals.json
    """
    parser = argparse.ArgumentParser(description=facts.summary(p99))
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
        "setup": {
            "quantile": Q,
            "confidence": P99_CONFIDENCE,
            "sd": P99_SD,
            "needed": needed(Q, P99_CONFIDENCE),
        },
        "seed": args.seed,
    }
    publish("intervals/p99", figures, met=all(map(kept, inside)))


STEADY = {"quiet": traces.quiet, "correlated": traces.correlated, "bursty": traces.bursty}
WINDOWS_S = (1.0, 2.0, 10.0)
SLOWER = 10
"""How many times slower the network of the long windows is, for the simulation's sake."""


def false_alarms(runs: int) -> dict[str, dict[str, float]]:
    """Share of steady windows in which several speeds are found."""
    return {
        name: {
            f"{s:g} s": float(np.mean([states(make(s, i)).several for i in range(runs)])) for s in WINDOWS_S
        }
        for name, make in STEADY.items()
    }


def one(series: np.ndarray[Any, Any], **keys: Any) -> tuple[Measured, Measured, float, bool]:
    """The mean as told, as batch means alone would tell it, the seconds, and whether several speeds were found."""
    queries, plan = drive(
        SingleStream, trial(**({"min_s": 1.0, "max_s": 10.0} | keys)), traces.service(series)
    )
    window = plan.window
    x = queries.rows(window).latency_ns() * 1e-9
    told = metrics(queries, window)["latency_mean_s"]
    assert isinstance(told, Measured)
    return told, mean_interval(x).measured("s"), (window.stop_ns - window.start_ns) * 1e-9, states(x).several


def told(found: list[tuple[Measured, Measured, float, bool]], truth: float) -> dict[str, Any]:
    """How often each interval is given and holds the long-run mean."""
    out: dict[str, Any] = {"runs": len(found), "median_s": float(np.median([f[2] for f in found]))}
    for name, column in (("told", 0), ("batch_means_alone", 1)):
        given = [f[column] for f in found if f[column].lo is not None]  # type: ignore[union-attr]
        held = [f.lo <= truth <= f.hi for f in given]  # type: ignore[union-attr,operator]
        out[name] = {
            "given": len(given) / len(found),
            "held_where_given": float(np.mean(held)) if held else None,
        }
    return out | {"several_found": float(np.mean([f[3] for f in found]))}


def processes(means: list[float], truth: float) -> dict[str, Any]:
    """How often the interval between five fresh processes, met minutes apart, holds the long-run mean."""
    groups = [means[i : i + 5] for i in range(0, len(means) - 4, 5)]
    fields = [spread(group, "s") for group in groups]
    held = [f.lo <= truth <= f.hi for f in fields if isinstance(f, Measured)]  # type: ignore[operator]
    return {"groups": len(groups), "held": float(np.mean(held))}


def speeds() -> None:
    """What a run says of a host that changes its speed, in fake time, with the shipped stop rule and a default trial.

    Traces: quiet, correlated (AR(1), rho 0.9, CV 10 %), bursty, and of two speeds (1.08 and 1.72 ms, 1 to 10 s at a
    time). Told are the share of runs in which several speeds are found (on the first three: false alarms), the length
    of a quiet run, how often the mean's interval within a run is given and holds the long-run mean, what it held
    before (batch means of whatever window there was), and how often the interval between five fresh processes holds
    it.

        python benchmarks/intervals.py speeds     # three CPU minutes; writes published/intervals.json
    """
    parser = argparse.ArgumentParser(description=facts.summary(speeds))
    parser.add_argument("--runs", type=int, default=300)
    runs = parser.parse_args().runs
    slow = (SLOWER * traces.FAST_S, SLOWER * traces.SLOW_S)
    truth = traces.TWO_STATE_MEAN_S
    short = [one(traces.two_state(12, i)) for i in range(runs)]
    long = {
        f"{s} s": told(
            [one(traces.two_state(1.2 * s, i, levels_s=slow), min_s=s, max_s=s) for i in range(runs // 3)],
            SLOWER * truth,
        )
        for s in (10, 60, 600)
    }
    calm = {
        "default": told([one(traces.quiet(12, i)) for i in range(runs)], traces.FAST_S),
        "10 s": told([one(traces.quiet(12, i), min_s=10.0) for i in range(runs)], traces.FAST_S),
    }
    figures = {
        "false_alarms": false_alarms(runs),
        "quiet": calm,
        "two_state": {"default": told(short, truth)} | long,
        "five_processes": processes([f[0].value for f in short], truth),
    }
    alarms = max(share for each in figures["false_alarms"].values() for share in each.values())
    held = [each["told"]["held_where_given"] for each in figures["two_state"].values()]
    met = alarms <= 0.05 and calm["default"]["median_s"] <= 2.0 and all(h is None or h >= 0.9 for h in held)
    publish("intervals/speeds", figures, met=met)


if __name__ == "__main__":
    facts.chosen(compare, fresh_means, gate, p99, speeds)
