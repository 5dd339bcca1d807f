"""OpenVINO's performance counters: the means over all inferences of a compiled model, read as those of a few of them.

A counter's `real_time` is the mean over every inference since the model was compiled, in whole microseconds and over
all requests. The first inference, which lays out memory, stays in it for ever. Two readings tell what lies between:
(n * mean after n - w * mean after w) / (n - w).
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WARM = 2
"""Inferences before the first reading."""


def executed(rows: Sequence[Any]) -> dict[str, float]:
    """Return the mean time in seconds of every executed node in a request's profile."""
    return {r.node_name: r.real_time.total_seconds() for r in rows if str(r.status).endswith("EXECUTED")}


def between(before: Mapping[str, float], w: int, after: Mapping[str, float], n: int) -> dict[str, float]:
    """Return each node's mean over the inferences after the w-th up to the n-th; never below 0 (means are rounded)."""
    return {name: max(0.0, (n * mean - w * before.get(name, 0.0)) / (n - w)) for name, mean in after.items()}


class Profile:
    """The counters of a session: what its first WARM inferences left in the means is taken out of them."""

    def __init__(self) -> None:
        self.n, self.warm = 0, dict[str, float]()

    def note(self, request: Any) -> None:
        """Count an inference that has just ended; after the WARM-th read the means."""
        self.n += 1
        if self.n == WARM:
            self.warm = executed(request.get_profiling_info())

    def write(self, request: Any, path: Path) -> None:
        """Write each layer's mean time over the inferences after the first ones, in benchmark_app's format."""
        rows = request.get_profiling_info()
        means = executed(rows)
        if self.n > WARM:
            means = between(self.warm, WARM, means, self.n)
        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter=";")
            writer.writerow(("layerName", "execStatus", "layerType", "execType", "realTime (ms)"))
            for row in rows:
                time = means.get(row.node_name, 0.0) * 1e3
                writer.writerow((row.node_name, str(row.status), row.node_type, row.exec_type, time))


def times(request: Any, inputs: Any, runs: int) -> dict[str, float]:
    """Return each executed node's mean over `runs` inferences of a request on a model compiled just before."""
    for _ in range(WARM):
        request.infer(inputs)
    warm = executed(request.get_profiling_info())
    for _ in range(runs):
        request.infer(inputs)
    return between(warm, WARM, executed(request.get_profiling_info()), WARM + runs)
