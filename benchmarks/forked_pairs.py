"""Measure a forked process against a started one of the same program, in turns, and tell what a fork saves.

Both sides of a pair are the same trial (batch 1; PyTorch eager unless it is said) and take turns. The process of one
is started, that of the other forked, and they change places from pair to pair. Reported: the ratio of their times with
its interval, which should hold 1, and how long pairs of two started and of two forked processes take, alternating.

    python benchmarks/forked_pairs.py [--pairs 16] [--device cuda] [--model resnet50] [--backend openvino ...]
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from facts import publish

from edgescope import bench
from edgescope.analysis.cells import alternation
from edgescope.bench import alternation as turns
from edgescope.bench.run import SAMPLER_HZ
from edgescope.devices import manifest
from edgescope.isolate import fresh, warden
from edgescope.isolate.forks import Forks
from edgescope.isolate.worker import Placement, WorkerProcess
from edgescope.records import Result, Trial
from edgescope.stats.alternation import Turns, alternation_ratio


class Chosen(Forks):
    """Forks the worker of the sides in `forked`, and starts the other's."""

    forked: tuple[int, ...] = ()

    def worker(self, number: int, trial: Trial) -> WorkerProcess:
        """Return the worker of a side."""
        return super().worker(number, trial) if number in self.forked else WorkerProcess(number, Placement())


def measured(trial: Trial, source: Chosen, forked: tuple[int, ...]) -> tuple[tuple[Result, Result], float]:
    """Return a pair of one trial, and the seconds that it took."""
    devices = bench.present()
    machine = manifest.machine(devices)
    source.forked = forked
    begun = time.monotonic()
    ends = turns.measure(
        (bench.begin(trial, machine), bench.begin(trial, machine)), devices, SAMPLER_HZ, forks=source
    )
    took = time.monotonic() - begun
    if any((end.process == "forked") != (side in forked) for side, end in enumerate(ends)):
        raise SystemExit(f"not forked as asked: {ends[0].reason or ends[1].reason or source.pids}")
    return ends, took


def ratio_of(count: int, pair: Callable[[int, tuple[int, ...]], tuple[Result, Result]]) -> dict[str, Any]:
    """Return how many times longer a forked process takes than a started one, from `count` pairs."""
    found: list[Turns] = []
    for number in range(count):
        side = number % 2
        ends = pair(number, (side,))
        found.append(alternation.turns(ends[1 - side], ends[side]))
        print(number, f"{math.exp(found[-1].ratio):.3f}", file=sys.stderr, flush=True)
    ratio = alternation_ratio(found)
    return {"value": ratio.value, "lo": ratio.lo, "hi": ratio.hi, "pairs": count}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="efficientnet_lite0")
    parser.add_argument("--backend", default="torch_eager")
    parser.add_argument("--precision", default="fp32")
    args = parser.parse_args()
    warden.adopt()
    window = {"turn_s": 0.1, "min_s": 1.0, "max_s": 1.0}
    of = {name: getattr(args, name) for name in ("model", "backend", "device", "precision")}
    trial = Trial(**of, **window)
    if failed := fresh.prepare(trial):
        raise SystemExit(str(failed.reason))
    seconds: dict[str, list[float]] = {"started": [], "forked": []}
    with Chosen() as source:
        measured(trial, source, ())
        measured(trial, source, (0, 1))  # the server has its imports from now on
        ratio = ratio_of(
            args.pairs, lambda n, forked: measured(replace(trial, replicate=n), source, forked)[0]
        )
        for _ in range(max(3, args.pairs // 4)):
            for name, forked in (("started", ()), ("forked", (0, 1))):
                seconds[name].append(measured(trial, source, forked)[1])
    figures = {
        "trial": f"{trial.model} {trial.label}",
        "forked_over_started": ratio,
        "pair_s": seconds,
        "median_pair_s": {name: statistics.median(taken) for name, taken in seconds.items()},
    }
    said = [value for value in (args.backend, args.device) if value not in ("torch_eager", "cpu")]
    publish("_".join(["forked_pairs", *said]), figures, met=ratio["lo"] <= 1 <= ratio["hi"])


if __name__ == "__main__":
    main()
