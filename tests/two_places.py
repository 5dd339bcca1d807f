"""Places of an offload question made by hand: two machines with known service times."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from edgescope.analysis.cells.objective import wanted
from edgescope.analysis.run.summary import metrics
from edgescope.records import Absent, Machine, Measured, ModelInfo, Result, Trial, Window
from edgescope.wings.offload.model import Model, Place, Request
from edgescope.wings.offload.verb import place
from making import queries, result


def measured(machine: str, times_s, replicate: int = 0, *, idle_w: float | None = None, **trial) -> Result:
    """A result whose queries took these service times, one after another."""
    took = (np.asarray(times_s) * 1e9).astype(np.int64)
    n = len(took)
    rows = queries(n, 1)
    start = np.concatenate([[0], np.cumsum(took)[:-1]])
    rows.columns["issued_ns"], rows.columns["done_ns"] = start, start + took
    window = Window(0, n, 0, int(took.sum()))
    asked = Trial(
        **{"model": "squeezenet1_1", "backend": "onnxruntime", "precision": "int8", "replicate": replicate}
        | trial
    )
    energy = {"energy_per_sample_j": Measured(0.2, "J", 0.19, 0.21, 50), "power_w": Measured(7.0, "W", n=50)}
    energy["idle_power_w"] = Absent("no idle stretch") if idle_w is None else Measured(idle_w, "W", n=50)
    info = ModelInfo("squeezenet1_1", "classify", True, "made", "d1", 1, 1)
    where = Machine({"cpu": {"model": machine, "cores": 4}}, {})
    found = result(asked, machine=where, queries=rows, window=window, model=info)
    return replace(found, metrics=metrics(rows, window) | energy)


def spread(mean_s: float, n: int = 600, seed: int = 0):
    """n service times around a mean, with a right tail."""
    draws = np.random.default_rng(seed).gamma(4.0, 0.25, n)
    return mean_s * (0.9 + 0.1 * draws)


@cache
def board(mean_s: float = 0.030, **keys) -> Place:
    return place([measured("a board", spread(mean_s, seed=r), r, **keys) for r in range(3)], "EDGE", "edge")


@cache
def server(mean_s: float = 0.002, **keys) -> Place:
    return place(
        [measured("a server", spread(mean_s, seed=9 + r), r, **keys) for r in range(3)], "CLOUD", "cloud"
    )


def model(constraints=(), *, objective="latency", local=None, remote=None, **request) -> Model:
    asked = Request(**{"up_bytes": 40e3, "down_bytes": 4e3} | request)
    return Model(local or board(), remote or server(), asked, wanted(objective, constraints))
