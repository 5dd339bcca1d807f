"""How well ninety seconds can know a ratio while a neighbour comes and goes, however they are spent.

Pairs of a demo's pick and its baseline, whose turns go on for --seconds each: what such a pair says is as good as
turns without a break can be. If the ratio did not change, its mean over a stretch would differ as the mean of so many
independent blocks does; how much more it differs, between stretches of a pair and between pairs, is the ratio itself
that changes. `best` is the half-width, at 95 %, of a run that did nothing but take turns for the 50 s that a budget of
90 s leaves for pairs, were the pairs of this hour independent and their spread known.

    python benchmarks/busy_hour.py [--pairs 12] [--seconds 5.6] [--like demo_runs_slowed.json]     5 minutes
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np
from facts import PUBLISHED, publish
from numpy.typing import NDArray

from edgescope.analysis.cells import alternation
from edgescope.isolate import fresh
from edgescope.isolate.persistent import PersistentChild
from edgescope.records import Trial
from edgescope.stats.alternation import BASE, Turns, by_speed

WITHIN = 0.05
LEFT_S = 50.0
"""Seconds of a budget of 90 s that are left for pairs."""
STRETCHES = (1, 4, 7, 13, 26)
"""Blocks of a stretch; seven are those of a usual pair."""


def blocks(pair: Turns) -> NDArray[np.float64]:
    """Return the log of the ratio that each whole block of a pair says."""
    whole = len(pair) // 4 * 4
    signed = [log if side == BASE else -log for side, log in zip(pair.sides, pair.logs, strict=True)]
    found: NDArray[np.float64] = np.array(signed[:whole]).reshape(-1, 4).sum(axis=1) / 2
    return found


def figures(pairs: list[Turns], seconds: float) -> dict[str, Any]:
    """Return how much the ratio differs between stretches and pairs; `seconds` are those of a pair's turns."""
    found = [blocks(pair) for pair in pairs]
    means = np.array([each.mean() for each in found])
    length = seconds / float(np.mean([len(each) for each in found]))
    stretches = {}
    for count in STRETCHES:
        cut = [each[: len(each) // count * count].reshape(-1, count).mean(axis=1) for each in found]
        spread = math.sqrt(float(np.mean([each.var(ddof=1) for each in cut if len(each) > 1])))
        alone = math.sqrt(float(np.mean([each.var(ddof=1) for each in found])) / count)
        stretches[str(count)] = {"seconds": count * length, "differ": spread, "independent": alone}
    parts = by_speed(pairs)
    differ = float(means.std(ddof=1))
    return {
        "pairs": len(pairs),
        "seconds": seconds,
        "slowed": sum(map(len, parts.slowed)) / sum(map(len, pairs)),
        "ratios": np.exp(means).tolist(),
        "differ": differ,
        "stretches": stretches,
        "best": math.expm1(1.96 * differ / math.sqrt(LEFT_S / seconds)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5.6, help="of each side's turns")
    parser.add_argument("--like", default="demo_runs_slowed.json")
    args = parser.parse_args()
    pick = json.loads((PUBLISHED / args.like).read_text())["figures"]["runs"][0]["trial"]
    ours = Trial.from_json(pick | {"min_s": args.seconds, "max_s": args.seconds})
    eager = Trial(**{name: getattr(ours, name) for name in ("model", "turn_s", "min_s", "max_s")})
    pairs, seconds = list[Turns](), list[float]()
    for side in (eager, ours):
        fresh.prepare(side)
    with PersistentChild() as leader:
        for number in range(args.pairs):
            sides = replace(eager, replicate=number), replace(ours, replicate=number)
            first, second = leader.pair(sides, alternation.CONFIRMING)
            if first.window is None or second.window is None:
                raise SystemExit(f"a pair did not finish: {second.reason or first.reason}")
            pairs.append(alternation.turns(second, first))
            seconds.append((second.window.stop_ns - first.window.start_ns) * 1e-9)
            print(number, f"{math.exp(pairs[-1].mixed_ratio):.2f}", file=sys.stderr)
    found = figures(pairs, float(np.mean(seconds)))
    publish("busy_hour", found, met=found["best"] <= WITHIN)


if __name__ == "__main__":
    main()
