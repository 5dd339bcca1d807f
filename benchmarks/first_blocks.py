"""Whether the first turns of a pair tell the same as its later ones: whether the sides are warm by then.

Pairs of PyTorch eager fp32 and a candidate run as `edgescope optimize` runs them. Reported: the speed-up of a pair's
first block over that of its other blocks, over pairs, and what that does to a pair's speed-up, which is of all blocks.
Target: the latter is within CLOSE of 1.

    python benchmarks/first_blocks.py [--pairs 24]     2 minutes
    python benchmarks/first_blocks.py --device cuda --model resnet50 --backend torch_eager --precision fp16
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace

from facts import publish

from edgescope.analysis.cells import alternation
from edgescope.bench.turns import WARM_S
from edgescope.isolate import fresh
from edgescope.isolate.persistent import PersistentChild
from edgescope.records import Result
from edgescope.stats.pairs import paired_log_ratio
from edgescope.verbs import optimize

CLOSE = 0.01


def time_of(side: Result, *, first: bool) -> float:
    """Return the geometric mean of the times of a side's first block, or of its others."""
    assert side.alternation is not None
    logs = [math.log(turn.time_s) for turn in side.alternation.turns if (turn.block == 0) is first]
    return math.exp(sum(logs) / len(logs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="openvino")
    parser.add_argument("--precision", default="int8")
    args = parser.parse_args()
    base = replace(optimize.base(args.model, {"device": args.device}), backend="torch_eager")
    ours = replace(base, backend=args.backend, precision=args.precision)
    for trial in (base, ours):
        if (failed := fresh.prepare(trial)) is not None:
            raise SystemExit(str(failed.reason))
    early, later, blocks = list[float](), list[float](), 0
    with PersistentChild() as leader:
        for number in range(args.pairs):
            sides = replace(base, replicate=number), replace(ours, replicate=number)
            theirs, mine = leader.pair(sides, alternation.CONFIRMING)
            if theirs.alternation is None or mine.alternation is None:
                raise SystemExit(str(theirs.reason or mine.reason))
            early.append(time_of(theirs, first=True) / time_of(mine, first=True))
            later.append(time_of(theirs, first=False) / time_of(mine, first=False))
            blocks += 1 + max(turn.block for turn in mine.alternation.turns)
            print(number, f"{early[-1]:.3f} {later[-1]:.3f}", file=sys.stderr, flush=True)
    ratio, share = paired_log_ratio(early, later), args.pairs / blocks
    figures = {
        "model": args.model,
        "baseline": base.label,
        "candidate": ours.label,
        "warm_s": WARM_S,
        "pairs": args.pairs,
        "blocks": blocks,
        "first_over_later": {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi},
        "on_a_pair": {"value": ratio.value**share, "lo": ratio.lo**share, "hi": ratio.hi**share},
    }
    name = "first_blocks" if args.device == "cpu" else f"first_blocks_{args.device}"
    publish(name, figures, met=abs(math.log(ratio.value)) * share <= CLOSE)


if __name__ == "__main__":
    main()
