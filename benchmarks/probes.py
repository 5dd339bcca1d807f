"""What the probes of a machine's speed tell: how far a hypervisor has CPUs apart, how long a probe must be.

python benchmarks/probes.py distance [--minutes 15] [--cpus NAME]
python benchmarks/probes.py spin_length
python benchmarks/probes.py buffer
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from typing import Any

import facts
import numpy as np
import peers_turn
import torch
from facts import publish

from edgescope.analysis.run.slowdowns import APART_FROM_S, CORE_TO_CORE
from edgescope.devices import clocks, probes
from edgescope.devices.probes import Prober
from edgescope.stats import paired_log_ratio
from edgescope.telemetry.verdict import LIMITS

EVERY_S, CALLS, LEAST = 2.0, 15, 3
BATCH = np.random.default_rng(0).random((1, 3, 224, 224), np.float32)
MEASURED = ("spin_s", "memory_s", "one_thread_s", "all_threads_s")


class Sampler:
    """Takes one sample of everything."""

    def __init__(self, stack: ExitStack) -> None:
        self.passed = stack.enter_context(Prober("core_to_core"))
        self.walked = stack.enter_context(Prober("memory"))
        self.loops, self.network, self.threads = (
            clocks.calibrate(),
            peers_turn.network(),
            torch.get_num_threads(),
        )

    def sample(self) -> dict[str, float | None]:
        """Return the seconds of each, the latency before and after: the longer one counts."""
        before = self.passed.seconds()
        found = {
            "spin_s": clocks.spin(self.loops).best_s,
            "memory_s": self.walked.seconds(),
            "one_thread_s": self._call_s(1),
            "all_threads_s": self._call_s(self.threads),
        }
        ways = [way for way in (before, self.passed.seconds()) if way is not None]
        return {CORE_TO_CORE: max(ways, default=None), **found}

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
        with Prober("core_to_core") as prober:
            found[str(other)] = [prober.seconds() for _ in range(5)]
    os.sched_setaffinity(0, {first, *others})
    medians = [statistics.median(s for s in each if s is not None) for each in found.values()]
    return {"seconds": found, "shortest_median_s": min(medians), "longest_median_s": max(medians)}


def stretches(samples: list[dict[str, float | None]]) -> list[dict[str, Any]]:
    """Return the medians of samples that follow each other on one side of the limit, of three at least."""
    known = [s for s in samples if s[CORE_TO_CORE] is not None]
    found = [list(group) for _, group in groupby(known, key=lambda s: s[CORE_TO_CORE] > APART_FROM_S)]
    return [
        {"samples": len(group), "apart": group[0][CORE_TO_CORE] > APART_FROM_S}
        | {name: statistics.median(s[name] for s in group) for name in (CORE_TO_CORE, *MEASURED)}
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


def distance() -> None:
    """What a small network loses where a hypervisor has the CPUs of a virtual machine apart, and which probe sees it.

    Every few seconds for `--minutes`: the core-to-core latency, the spin probe, the memory probe, and PyTorch eager
    (EfficientNet-Lite0, fp32) on one thread and on all. Samples that follow each other on the same side of the limit
    (analysis.run.slowdowns) are a stretch. `longer` is how many times as long each takes where the CPUs are apart: the
    geometric mean of the stretches' medians there over that of the others, None where one of the two was not met. Run
    it for long enough to meet both; nothing brings either about.

    `--cpus NAME` measures how far each CPU is from the first one instead, five times each, and publishes that by
    NAME.

        python benchmarks/probes.py distance [--minutes 15] [--cpus NAME]
    """
    parser = argparse.ArgumentParser(description=facts.summary(distance))
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--cpus", metavar="NAME")
    args = parser.parse_args()
    if args.cpus:
        publish(f"probes/{args.cpus}", figures := distances(), met=figures["longest_median_s"] < APART_FROM_S)
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
    publish("probes/distance", figures, met=ratios["all_threads_s"] is not None)


LENGTHS_S = (0.03, 0.01)
PAUSE_S = 0.3
LIKE = 0.15
"""Shares of alarms that differ by no more are taken to be alike: the standard error of 40 of each is 0.11 at most."""


@contextmanager
def loops(count: int, code: str = "while True: pass") -> Iterator[None]:
    """Keep so many endless loops running."""
    started = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def slowdowns(work: list[int], order: list[int], neighbours: int) -> list[float]:
    """Return by how much each length finds the core slowed over a pause; `work` is in loops."""
    before = {i: clocks.spin(work[i]) for i in order}
    with loops(neighbours):
        time.sleep(PAUSE_S)
        after = {i: clocks.spin(work[i]) for i in order}
    return [clocks.slowdown(before[i], after[i]) for i in range(len(work))]


def spin_length() -> None:
    """Does the spin probe need rounds of 30 ms, or are 10 ms enough? Both, before and after the same pause, many times.

    A probe alarms where its second look takes over 10 % longer than its first. `still`: nothing is started in the
    pause, so alarms are what others do to this machine. `loaded`: two endless loops for each core begin in the pause,
    so a probe should alarm. Which length looks first alternates.

        python benchmarks/probes.py spin_length [--times 40]     2 minutes
    """
    parser = argparse.ArgumentParser(description=facts.summary(spin_length))
    parser.add_argument("--times", type=int, default=40)
    args = parser.parse_args()
    work = [clocks.calibrate(seconds) for seconds in LENGTHS_S]
    many = 2 * len(os.sched_getaffinity(0))
    found: dict[str, list[list[float]]] = {"still": [], "loaded": []}
    for number in range(args.times):
        order = [0, 1] if number % 2 else [1, 0]
        for name, neighbours in (("still", 0), ("loaded", many)):
            found[name].append(slowdowns(work, order, neighbours))
    figures: dict[str, Any] = {"times": args.times, "limit": LIMITS["spin"], "neighbours": many}
    for name, ratios in found.items():
        logs = np.log(np.array(ratios))
        for i, seconds in enumerate(LENGTHS_S):
            figures[f"{name}, {seconds * 1e3:.0f} ms"] = {
                "alarms": float((logs[:, i] > math.log(LIMITS["spin"])).mean()),
                "spread": float(logs[:, i].std(ddof=1)),
            }
    still, loaded = (
        [figures[f"{name}, {s * 1e3:.0f} ms"]["alarms"] for s in LENGTHS_S] for name in ("still", "loaded")
    )
    publish("probes/spin_length", figures, met=still[1] <= still[0] + LIKE and loaded[1] >= loaded[0] - LIKE)


SIZES = (16 << 20, 64 << 20)
STREAMS = "import numpy as np; a = np.ones(1 << 26); b = a.copy()\nwhile True: np.copyto(b, a)"
"""What takes bandwidth and evicts a shared cache: copies of 512 MiB."""


def walks_beside(looks: list[probes.Probe], order: list[int], neighbours: int) -> list[tuple[float, float]]:
    """Return the seconds of each walk before and while so many neighbours copy memory."""
    before = {i: looks[i]() for i in order}
    with loops(neighbours, STREAMS):
        time.sleep(1.0)
        after = {i: looks[i]() for i in order}
    return [(before[i], after[i]) for i in range(len(looks))]


def buffer() -> None:
    """How many bytes the walk through memory needs where the last cache is larger than any buffer: 64 MiB, or 16 MiB.

    Both, before and after the same pause, many times; which walks first alternates. `still`: nothing is started in the
    pause. `beside`: on every other CPU a process begins to copy memory. `speed`: bytes of lines read a second by the
    walk of 16 MiB over that of 64 MiB, with its interval: far above 1, the smaller one reads from a cache. `rise`: by
    how many times the walk of 16 MiB slowed down over that of 64 MiB: below 1, it sees less of the neighbour. An alarm
    is a walk that takes 1.5 times its first time. Goal: 64 MiB alarm beside a neighbour, and hardly ever else.

        python benchmarks/probes.py buffer [--times 20]     2 minutes
    """
    parser = argparse.ArgumentParser(description=facts.summary(buffer))
    parser.add_argument("--times", type=int, default=20)
    args = parser.parse_args()
    looks, others = [probes.walking(size) for size in SIZES], len(os.sched_getaffinity(0)) - 1
    figures: dict[str, Any] = {"times": args.times, "limit": LIMITS["memory"], "neighbours": others}
    for name, neighbours in (("still", 0), ("beside", others)):
        rounds = [walks_beside(looks, [0, 1] if n % 2 else [1, 0], neighbours) for n in range(args.times)]
        small, large = zip(*rounds, strict=True)
        figures[name] = told(small, large)
        print(name, figures[name], file=sys.stderr)
    alarms = [figures[name]["alarms_64"] for name in ("still", "beside")]
    publish("probes/buffer", figures, met=alarms[0] <= LIKE and alarms[1] >= 0.75)


def told(small: Sequence[tuple[float, float]], large: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return what the walks of both sizes, before and after, tell."""
    rises = [[after / before for before, after in each] for each in (small, large)]
    first = [[size / before for before, _ in each] for size, each in zip(SIZES, (small, large), strict=True)]
    pairs = {"speed": paired_log_ratio(*first), "rise": paired_log_ratio(*rises)}
    return {name: [found.value, found.lo, found.hi] for name, found in pairs.items()} | {
        f"{what}_{size >> 20}": figure
        for size, speed, rise in zip(SIZES, first, rises, strict=True)
        for what, figure in (
            ("bytes_a_second", statistics.median(speed)),
            ("median_rise", statistics.median(rise)),
            ("most_rise", max(rise)),
            ("alarms", float(np.mean(np.array(rise) > LIMITS["memory"]))),
        )
    }


if __name__ == "__main__":
    facts.chosen(distance, spin_length, buffer)
