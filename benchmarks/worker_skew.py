"""How well two workers agree on a start, and whether their rows and the shared counter tell the same story.

Two questions, over runs of two workers on the CPU: how far apart are the first measured queries of the workers (target:
at most 1 ms where there is a core for each), and by how many queries do a worker's raw rows and the counter that all
share differ within the window (target: at most one, in every run). Each run goes through the whole measuring path
(sampler, probes, window, gate), in reused workers, with the null engine, whose queries take a microsecond, and with a
small network, whose threads fill all cores.

    python benchmarks/worker_skew.py     # 2 to 3 minutes; writes published/worker_skew.json
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace

import numpy as np
from facts import publish

from edgescope import bench
from edgescope.isolate import fresh
from edgescope.isolate.pool import WorkerPools
from edgescope.records import Json, Measured, Result, Status, Trial

SKEW_S, GAP = 1e-3, 1
WORKERS = 2
TRIALS = (
    Trial(model="null", backend="null", processes=WORKERS, warmup=0.05, min_s=0.3, max_s=0.3),
    Trial(
        model="squeezenet1_1",
        backend="onnxruntime",
        processes=WORKERS,
        warmup=0.2,
        min_s=0.3,
        max_s=0.3,
        options={"threads": 1},
    ),
)


def value(result: Result, name: str) -> float:
    """A metric that must have been measured."""
    field = result.metrics[name]
    assert isinstance(field, Measured), f"{name}: {field.reason}"
    return field.value


def runs(trial: Trial, count: int, pools: WorkerPools) -> list[Result]:
    """`count` measured results of the trial, one after the other in the same workers."""
    devices, found = bench.present(), []
    for number in range(count):
        pools.begin({})
        begun = bench.begin(replace(trial, replicate=number), bench.here())
        result = bench.answer(begun, devices=devices, pools=pools)
        if result.status not in (Status.OK, Status.UNSTABLE):
            raise SystemExit(f"{trial.model}: {result.status.value}: {result.reason}")
        found.append(result)
        print(f"{trial.model} {number + 1}: {value(result, 'start_skew_s') * 1e6:.0f} us", file=sys.stderr)
    return found


def figures(results: list[Result]) -> dict[str, Json]:
    """Quantiles of the skews and the largest gap of some runs."""
    start = np.array([value(r, "start_skew_s") for r in results])
    stop = np.array([value(r, "stop_skew_s") for r in results])
    gaps = [int(value(r, "counter_gap_queries")) for r in results]
    return {
        "runs": len(results),
        "start_skew_s": {q: float(np.quantile(start, p)) for q, p in QUANTILES},
        "stop_skew_s": {q: float(np.quantile(stop, p)) for q, p in QUANTILES},
        "runs_within_1_ms": int(np.count_nonzero(start <= SKEW_S)),
        "counter_gap_queries": {"max": max(gaps), "runs_with_none": gaps.count(0)},
        "queries_per_run": int(np.median([value(r, "queries") for r in results])),
        "start_skews_s": [float(s) for s in start],
    }


QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="runs of each workload")
    args = parser.parse_args()
    for trial in TRIALS:
        fresh.prepare(trial)
    with WorkerPools() as pools:
        found = {t.model: figures(runs(t, args.runs, pools)) for t in TRIALS}
    met = all(
        f["runs_within_1_ms"] == f["runs"] and f["counter_gap_queries"]["max"] <= GAP for f in found.values()
    )
    publish(
        "worker_skew",
        {
            "workers": WORKERS,
            "cores": len(os.sched_getaffinity(0)),
            "targets": {"start_skew_s": SKEW_S, "counter_gap_queries": GAP},
            **found,
        },
        met=met,
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
