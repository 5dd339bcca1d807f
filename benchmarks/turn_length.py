"""How long should a turn be? Pairs of long runs with turns of 50, 100 and 200 ms, alternating.

For each length it gives the standard error that the blocks of a pair leave, times the root of the seconds that its
turns took with the pauses between them: the smaller it is, the narrower an interval after the same time. What differs
between processes is not in it.

    python benchmarks/turn_length.py [--rounds 8]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from dataclasses import replace

import numpy as np
from facts import publish

from edgescope.analysis.cells import alternation
from edgescope.isolate import fresh
from edgescope.isolate.persistent import PersistentChild
from edgescope.records import Result, Trial
from edgescope.stats.alternation import BASE, OURS

LENGTHS_S = (0.05, 0.1, 0.2)
BASELINE = Trial(model="efficientnet_lite0", backend="torch_eager", min_s=4.0, max_s=4.0)
CANDIDATE = replace(BASELINE, backend="openvino", precision="int8", options={"qdq": "s8s8"})


def error_rate(pair: tuple[Result, Result]) -> float:
    """Return the standard error of the mean of the blocks' log ratios, times the root of the seconds they took."""
    taken = alternation.turns(pair[1], pair[0])
    base, ours = (np.reshape(taken.of(side), (-1, 2)).mean(axis=1) for side in (BASE, OURS))
    logs = list(base - ours)
    turns = [turn for result in pair if result.alternation for turn in result.alternation.turns]
    seconds = (max(t.stop_ns for t in turns) - min(t.start_ns for t in turns)) * 1e-9
    return statistics.stdev(logs) / math.sqrt(len(logs)) * math.sqrt(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    for trial in (BASELINE, CANDIDATE):
        if failed := fresh.prepare(trial):
            raise SystemExit(str(failed.reason))
    rates: dict[str, list[float]] = {f"{length:g}": [] for length in LENGTHS_S}
    with PersistentChild() as leader:
        for number in range(args.rounds):
            for length in LENGTHS_S:
                sides = (replace(t, turn_s=length, replicate=number) for t in (BASELINE, CANDIDATE))
                rates[f"{length:g}"].append(error_rate(leader.pair(tuple(sides), alternation.CONFIRMING)))
            print(number, {n: f"{r[-1]:.3f}" for n, r in rates.items()}, file=sys.stderr, flush=True)
    figures = {
        "rates": rates,
        "rms": {name: math.sqrt(statistics.fmean(r * r for r in found)) for name, found in rates.items()},
    }
    publish("turn_length", figures, met=figures["rms"]["0.05"] <= min(figures["rms"].values()))


if __name__ == "__main__":
    main()
