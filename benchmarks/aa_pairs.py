"""How often does this tool see a difference where there is none, on this machine? 40 real A/A pairs.

Both arms are the same trial (ONNX Runtime, MobileNetV2, batch 1) in fresh processes, in pairs of random order.
Reported: the judgement over all pairs, over each ten of them, and the noise floor (half-width of the ratio's interval).

    python benchmarks/aa_pairs.py [--pairs 40]
"""

from __future__ import annotations

import argparse
import random
import sys
from dataclasses import replace

from facts import publish

from edgescope.isolate import fresh
from edgescope.records import Measured, Trial
from edgescope.stats import judge_pairs


def p50(trial: Trial) -> float:
    result = fresh.run(trial)
    value = result.metrics.get("latency_p50_s")
    if not isinstance(value, Measured):
        raise SystemExit(f"{result.status.value}: {result.reason}")
    return value.value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=40)
    args = parser.parse_args()
    trial = Trial(model="mobilenet_v2", backend="onnxruntime", min_s=1.0, max_s=1.0)
    fresh.prepare(trial)
    rng = random.Random(0)
    arms: dict[str, list[float]] = {"a": [], "b": []}
    for number in range(args.pairs):
        for arm in rng.sample(("a", "b"), 2):
            arms[arm].append(p50(replace(trial, replicate=number)))
        print(number, arms["a"][-1], arms["b"][-1], file=sys.stderr, flush=True)
    figures: dict[str, object] = {"pairs": args.pairs, "p50_s": arms}
    tens = [slice(i, i + 10) for i in range(0, args.pairs - 9, 10)]
    verdicts = [judge_pairs(arms["a"][s], arms["b"][s])[1].value for s in tens]
    ratio, verdict = judge_pairs(arms["a"], arms["b"])
    figures |= {
        "judgement": verdict.value,
        "ratio": {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi},
        "judgements_of_ten_pairs": verdicts,
        "false_verdicts_of_ten_pairs": sum(v in ("FASTER", "SLOWER") for v in verdicts),
        "noise_floor": (ratio.hi - ratio.lo) / 2,
    }
    publish("aa_pairs", figures, met=verdict.value not in ("FASTER", "SLOWER"))


if __name__ == "__main__":
    main()
