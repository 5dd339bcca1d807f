"""How often the gate's interval of a variant's agreement with fp32 holds, simulated: frames that answer alike.

Two films of 250 and 120 frames, as the gate has them. Whether a variant agrees on a frame is a two-state
Markov chain: the true share s of frames on which it does, and the correlation of neighbours. The interval is
the gate's own, by scenes of models.photos.SCENE frames; `wilson` is the one that takes every frame for an
opinion of its own.

    python benchmarks/gate_coverage.py     # one minute; writes published/gate_coverage.json
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from facts import publish
from numpy.typing import NDArray

from edgescope.models.image.photos import SCENE
from edgescope.stats import Interval, clustered_share, wilson

FILMS = (250, 120)
SHARES, CORRELATIONS = (0.75, 0.9, 0.94, 0.97, 0.985), (0.0, 0.3, 0.5, 0.7)
GOAL, ERRORS = 0.93, 2.0
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    rows = [case(rng, s, c, args.runs) for c in CORRELATIONS for s in SHARES]
    least = min(row["covered"] for row in rows)
    setup = {"frames": sum(FILMS), "scene_frames": SCENE, "goal": GOAL}
    figures = {"least_covered": least, "cases": rows, "runs": args.runs, "seed": args.seed, "setup": setup}
    publish("gate_coverage", figures, met=least >= GOAL - ERRORS * math.sqrt(GOAL * (1 - GOAL) / args.runs))


if __name__ == "__main__":
    main()
