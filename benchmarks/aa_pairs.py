"""How often does this tool see a difference where there is none, on this machine? 40 real A/A pairs.

Both arms are the same trial (ONNX Runtime, MobileNetV2, batch 1) in fresh processes, in pairs that take turns.
Reported: the judgement over all pairs, over each ten of them, and the noise floor (half-width of the ratio's interval).

    python benchmarks/aa_pairs.py [--pairs 40]
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace

from facts import publish

from edgescope.analysis.cells import alternation
from edgescope.isolate import fresh
from edgescope.isolate.persistent import PersistentChild
from edgescope.records import Trial
from edgescope.stats import Interval, Judgement, judge
from edgescope.stats.alternation import Turns, alternation_ratio


def judged(pairs: list[Turns]) -> tuple[Interval, Judgement]:
    """Return the ratio of these pairs with its interval, and the judgement on it."""
    sure, likely = (alternation_ratio(pairs, level) for level in (0.95, 0.90))
    return sure, judge(sure, likely, higher_is_better=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    args = parser.parse_args()
    trial = Trial(model="mobilenet_v2", backend="onnxruntime", min_s=1.0, max_s=1.0, turn_s=0.1)
    fresh.prepare(trial)
    found: list[Turns] = []
    with PersistentChild() as leader:
        for number in range(args.pairs):
            a, b = leader.pair((replace(trial, replicate=number),) * 2, alternation.CONFIRMING)
            found.append(alternation.turns(b, a))
            if not found[-1]:
                raise SystemExit(f"{b.status.value}: {a.reason or b.reason}")
            print(number, math.exp(found[-1].ratio), file=sys.stderr, flush=True)
    tens = [judged(found[i : i + 10])[1].value for i in range(0, args.pairs - 9, 10)]
    ratio, verdict = judged(found)
    figures: dict[str, object] = {
        "pairs": args.pairs,
        "ratios": [math.exp(p.ratio) for p in found],
        "judgement": verdict.value,
        "ratio": {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi},
        "judgements_of_ten_pairs": tens,
        "false_verdicts_of_ten_pairs": sum(v in ("FASTER", "SLOWER") for v in tens),
        "noise_floor": (ratio.hi - ratio.lo) / 2,
    }
    publish("aa_pairs", figures, met=verdict.value not in ("FASTER", "SLOWER"))


if __name__ == "__main__":
    main()
