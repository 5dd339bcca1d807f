"""What a pipeline's own machinery costs: stages that do nothing, in sequence and in threads.

Microseconds of a frame and stage: the time of a closed loop over null stages, over frames times stages. Targets: 2 in
sequence, 20 in threads.

    python benchmarks/flow_cost.py [--rounds 7]
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from facts import publish

from edgescope.video import what_if
from edgescope.video.flow import Flow, Sequential, Stage, Threaded

STAGES, MOST = 5, {"sequence": 2.0, "threads": 20.0}


def cost_us(flow: Flow, in_flight: int, frames: int) -> float:
    """Return microseconds of a frame and stage."""
    with what_if.running(flow):
        start = time.perf_counter()
        what_if.driven(flow, in_flight, lambda number: number < frames)
        return (time.perf_counter() - start) / frames / STAGES * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    stages = [Stage(f"stage {number}", lambda item: None) for number in range(STAGES)]
    found: dict[str, list[float]] = {"sequence": [], "threads": []}
    for _ in range(args.rounds):
        found["sequence"].append(cost_us(Sequential(stages), 1, 50_000))
        found["threads"].append(cost_us(Threaded(stages), 16, 20_000))
    figures: dict[str, Any] = {
        name: {"us_median": sorted(costs)[len(costs) // 2], "us": costs} for name, costs in found.items()
    }
    publish("flow_cost", figures, met=all(max(found[name]) <= most for name, most in MOST.items()))


if __name__ == "__main__":
    main()
