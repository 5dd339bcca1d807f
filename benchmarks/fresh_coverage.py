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

    python benchmarks/fresh_coverage.py     # two minutes; writes published/fresh_coverage.json
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from facts import publish

from edgescope.analysis.cells.bounds import CONFIDENCE, PRIOR_DOF, fresh, pooled

GOAL, ERRORS = 0.94, 2.0
SD = 0.03
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
        drawn = SD * np.exp(rng.uniform(0, math.log(MOST), others + 1))
        return float(drawn[0]), drawn[1:].tolist()
    mine, its = CASES[case]
    return SD * mine, [SD * its] * others


def coverage(
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=16)
    args = parser.parse_args()
    rng, rows = np.random.default_rng(args.seed), []
    for processes in PROCESSES:
        if processes > 1:
            row = coverage(rng, "alike", processes, [], args.runs)
            rows.append({"case": "alone", "others": "none", "asked": True, **row})
        for case in ("drawn", *CASES):
            asked = processes > 1 or not case.endswith("up")
            for name, others in OTHERS.items():
                row = coverage(rng, case, processes, others, args.runs)
                rows.append({"case": case, "others": name, "asked": asked, **row})
    least = min(row["covered"] for row in rows if row["asked"])
    slack = ERRORS * math.sqrt(GOAL * (1 - GOAL) / args.runs)
    setup = {"sd": SD, "most": MOST, "confidence": CONFIDENCE, "prior_dof": PRIOR_DOF, "goal": GOAL}
    figures = {"least_covered": least, "cells": rows, "runs": args.runs, "seed": args.seed, "setup": setup}
    publish("fresh_coverage", figures, met=least >= GOAL - slack)


if __name__ == "__main__":
    main()
