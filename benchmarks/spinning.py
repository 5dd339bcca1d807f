"""What an engine's threads, which spin on after its last answer, cost the other side of a pair that does not wait.

Two processes take turns: PyTorch eager, and an engine. Before every second turn of PyTorch the engine's threads are
waited for (edgescope.process.threads), before the others they are not. `longer` is how many times as long PyTorch takes
where they are not, with the interval over pairs of processes; `waited_s` is what the wait takes. `met` is whether
ONNX Runtime's threads surely cost it time.

    python benchmarks/spinning.py [--pairs 5] [--blocks 16]     3 minutes
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
from typing import Any

import numpy as np
import peers_turn
from facts import publish

from edgescope import cache
from edgescope.models import zoo
from edgescope.process.threads import until_asleep
from edgescope.stats.alternation import BASE, OURS, Turns, alternation_ratio

MODEL, TURN_S, WARM_S = "efficientnet_lite0", 0.05, 0.5
ENGINES = ("onnxruntime", "openvino", "torch")


def run_of(arm: str) -> peers_turn.Run:
    """Return one engine's call of the network in fp32."""
    if arm == "torch":
        return peers_turn.network()
    file = str(zoo.get(MODEL).onnx(cache.folder("artifacts")))
    return (
        peers_turn.openvino(file)
        if arm == "openvino"
        else peers_turn.onnxruntime(file, ["CPUExecutionProvider"])
    )


class Side:
    """A process of this script that has its turn when it is told to."""

    def __init__(self, arm: str) -> None:
        command = [sys.executable, __file__, "--arm", arm]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.turn(WARM_S)

    def turn(self, seconds: float) -> float:
        """Return the mean time of a call in a turn."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(f"{seconds}\n")
        self.process.stdin.flush()
        return float(json.loads(self.process.stdout.readline()))

    def end(self) -> None:
        """Let it end."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait()


def pair(engine: str, count: int) -> tuple[Turns, float]:
    """Return PyTorch's turns, unwaited (the baseline) and waited for, and the median wait in seconds."""
    eager, other = Side("torch"), Side(engine)
    waits, order, times = list[float](), list[int](), list[float]()
    for number in range(2 * count):
        waited = number % 4 in (0, 3)
        other.turn(TURN_S)
        if waited:
            waits.append(until_asleep(other.process.pid))
        order.append(OURS if waited else BASE)
        times.append(math.log(eager.turn(TURN_S)))
        until_asleep(eager.process.pid)
    eager.end()
    other.end()
    return Turns(order, times), statistics.median(waits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--blocks", type=int, default=16)
    parser.add_argument("--arm", choices=ENGINES)
    args = parser.parse_args()
    if args.arm:
        run, batch = run_of(args.arm), np.zeros((1, 3, 224, 224), np.float32)
        for line in sys.stdin:
            print(peers_turn.mean_s(run, [batch], float(line)), flush=True)
        return
    figures: dict[str, Any] = {}
    for engine in ENGINES:
        found = [pair(engine, args.blocks) for _ in range(args.pairs)]
        ratio = alternation_ratio([turns for turns, _ in found])
        ends = {"lo": ratio.lo, "hi": ratio.hi} if ratio.reliable else {"absent": ratio.note}
        figures[engine] = {
            "longer": {"value": ratio.value, **ends, "n": ratio.n},
            "waited_s": statistics.median(wait for _, wait in found),
        }
        print(engine, figures[engine], file=sys.stderr, flush=True)
    publish("spinning", figures, met=figures["onnxruntime"]["longer"].get("lo", 0.0) > 1)


if __name__ == "__main__":
    main()
