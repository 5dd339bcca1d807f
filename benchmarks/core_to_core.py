"""What a small network loses where a hypervisor has the CPUs of a virtual machine apart, and which probe sees it.

Every few seconds for `--minutes`: the core-to-core latency, the spin probe, the memory probe, and PyTorch eager
(EfficientNet-Lite0, fp32) on one thread and on all. Samples that follow each other on the same side of the limit
(analysis.run.apart) are a stretch. `longer` is how many times as long each takes where the CPUs are apart: the
geometric mean of the stretches' medians there over that of the others, None where one of the two was not met. Run it
for long enough to meet both; nothing brings either about.

`--cpus NAME` measures how far each CPU is from the first one instead, five times each, and publishes that by NAME.

    python benchmarks/core_to_core.py [--minutes 15] [--cpus NAME]
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from contextlib import ExitStack
from itertools import groupby
from typing import Any

import numpy as np
import peers_turn
import torch
from facts import publish

from edgescope.analysis.run.apart import LIMIT_S, METRIC
from edgescope.devices import core_to_core, spin, walk
from edgescope.devices.prober import Prober

EVERY_S, CALLS, LEAST = 2.0, 15, 3
BATCH = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
MEASURED = ("spin_s", "memory_s", "one_thread_s", "all_threads_s")


class Sampler:
    """Takes one sample of everything."""

    def __init__(self, stack: ExitStack) -> None:
        self.passed = stack.enter_context(Prober(core_to_core.__name__))
        self.walked = stack.enter_context(Prober(walk.__name__))
        self.loops, self.network, self.threads = (
            spin.calibrate(),
            peers_turn.network(),
            torch.get_num_threads(),
        )

    def sample(self) -> dict[str, float | None]:
        """Return the seconds of each, the latency before and after: the longer one counts."""
        before = self.passed.seconds()
        found = {
            "spin_s": spin.spin(self.loops).best_s,
            "memory_s": self.walked.seconds(),
            "one_thread_s": self._call_s(1),
            "all_threads_s": self._call_s(self.threads),
        }
        ways = [way for way in (before, self.passed.seconds()) if way is not None]
        return {METRIC: max(ways, default=None), **found}

    def _call_s(self, threads: int) -> float:
        torch.set_num_threads(threads)
        times = []
        for _ in range(CALLS):
            start = time.perf_counter()
            self.network(BATCH)
            times.append(time.perf_counter() - start)
        return statistics.median(times)


def distances() -> dict[str, Any]:
    """Return the five latencies from the first CPU to each other one, and the longest median."""
    first, *others = sorted(os.sched_getaffinity(0))
    found = {}
    for other in others:
        os.sched_setaffinity(0, {first, other})
        with Prober(core_to_core.__name__) as prober:
            found[str(other)] = [prober.seconds() for _ in range(5)]
    os.sched_setaffinity(0, {first, *others})
    medians = [statistics.median(s for s in each if s is not None) for each in found.values()]
    return {"seconds": found, "shortest_median_s": min(medians), "longest_median_s": max(medians)}


def stretches(samples: list[dict[str, float | None]]) -> list[dict[str, Any]]:
    """Return the medians of samples that follow each other on one side of the limit, of three at least."""
    known = [s for s in samples if s[METRIC] is not None]
    found = [list(group) for _, group in groupby(known, key=lambda s: s[METRIC] > LIMIT_S)]
    return [
        {"samples": len(group), "apart": group[0][METRIC] > LIMIT_S}
        | {name: statistics.median(s[name] for s in group) for name in (METRIC, *MEASURED)}
        for group in found
        if len(group) >= LEAST
    ]


def longer(found: list[dict[str, Any]]) -> dict[str, float | None]:
    """Return for each how many times as long it takes where the CPUs are apart."""
    sides = [[s for s in found if s["apart"] is apart] for apart in (True, False)]
    if not all(sides):
        return dict.fromkeys(MEASURED)
    means = [{n: statistics.geometric_mean(s[n] for s in side) for n in MEASURED} for side in sides]
    return {name: means[0][name] / means[1][name] for name in MEASURED}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--cpus", metavar="NAME")
    args = parser.parse_args()
    if args.cpus:
        publish(args.cpus, figures := distances(), met=figures["longest_median_s"] < LIMIT_S)
        return
    until, samples = time.monotonic() + 60 * args.minutes, list[dict[str, float | None]]()
    with ExitStack() as stack:
        sampler = Sampler(stack)
        while time.monotonic() < until:
            samples.append(sampler.sample())
            time.sleep(EVERY_S)
    found = stretches(samples)
    ratios = longer(found)
    figures = {"samples": len(samples), "stretches": found, "longer": ratios}
    publish("core_to_core", figures, met=ratios["all_threads_s"] is not None)


if __name__ == "__main__":
    main()
