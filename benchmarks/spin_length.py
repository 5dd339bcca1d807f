"""Does the spin probe need rounds of 30 ms, or are 10 ms enough? Both, before and after the same pause, many times.

A probe alarms where its second look takes over 10 % longer than its first. `still`: nothing is started in the pause, so
alarms are what others do to this machine. `loaded`: two endless loops for each core begin in the pause, so a probe
should alarm. Which length looks first alternates.

    python benchmarks/spin_length.py [--times 40]     2 minutes
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from facts import publish

from edgescope.devices import spin
from edgescope.telemetry.verdict import LIMITS

LENGTHS_S = (0.03, 0.01)
PAUSE_S = 0.3
LIKE = 0.15
"""Shares of alarms that differ by no more are taken to be alike: the standard error of 40 of each is 0.11 at most."""


@contextmanager
def loops(count: int) -> Iterator[None]:
    """Keep so many endless loops running."""
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()


def slowdowns(work: list[int], order: list[int], neighbours: int) -> list[float]:
    """Return by how much each length finds the core slowed over a pause; `work` is in loops."""
    before = {i: spin.spin(work[i]) for i in order}
    with loops(neighbours):
        time.sleep(PAUSE_S)
        after = {i: spin.spin(work[i]) for i in order}
    return [spin.slowdown(before[i], after[i]) for i in range(len(work))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=40)
    args = parser.parse_args()
    work = [spin.calibrate(seconds) for seconds in LENGTHS_S]
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
    publish("spin_length", figures, met=still[1] <= still[0] + LIKE and loaded[1] >= loaded[0] - LIKE)


if __name__ == "__main__":
    main()
