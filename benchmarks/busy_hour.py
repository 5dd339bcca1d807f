"""How turns without a break go in a busy hour: what ninety seconds could know if nothing else took time.

Pairs of a demo's pick and its baseline, whose turns go on for --seconds each. What fifty seconds of them say, which is
what a budget of ninety leaves after building, is pairs_needed.py's question; this page holds the turns.

    python benchmarks/busy_hour.py [--pairs 24] [--seconds 5.6] [--like demo_runs_slowed.json]     10 minutes
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import replace

import numpy as np
from facts import PUBLISHED, publish

from edgescope.analysis.cells import alternation
from edgescope.isolate import fresh
from edgescope.isolate.persistent import PersistentChild
from edgescope.records import Trial
from edgescope.stats.alternation import BASE, OURS, Turns, by_speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=24)
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
    ratios = np.array([pair.mixed_ratio for pair in pairs])
    figures = {
        "pairs": len(pairs),
        "seconds": float(np.mean(seconds)),
        "turn_s": float(sum(seconds)) / sum(map(len, pairs)),
        "slowed": by_speed(pairs).slowed_share,
        "ratios": np.exp(ratios).tolist(),
        "differ": float(ratios.std(ddof=1)),
        "base": [[round(log, 4) for log in pair.of(BASE)] for pair in pairs],
        "ours": [[round(log, 4) for log in pair.of(OURS)] for pair in pairs],
    }
    publish("busy_hour", figures, met=True)


if __name__ == "__main__":
    main()
