"""What idleness costs on this machine: the first query after 0, 10, 33, 100, 1000 and 10000 ms, three fresh processes.

There is no target: the curve is a fact of the machine. `met` says whether every process measured every gap and passed
the gate.

    python benchmarks/idle_gap.py                 # efficientnet_lite0 on ONNX Runtime, about seven minutes
    python benchmarks/idle_gap.py resnet50 openvino
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import replace

from facts import publish

from edgescope.analysis.run.idle_gaps import Gap, curve
from edgescope.isolate import fresh
from edgescope.models import zoo
from edgescope.records import Measured, Status, Trial
from edgescope.scenarios.settings import GAPS_MS

PROCESSES = 3


def value(gap: Gap) -> dict[str, float | None]:
    """Return one point of one process's curve as published."""
    latency, penalty = gap.latency, gap.penalty
    assert isinstance(latency, Measured) and isinstance(penalty, Measured)
    return {
        "asked_ms": round(gap.requested_s * 1e3, 3),
        "idle_ms": round(gap.idle_s * 1e3, 3),
        "latency_p50_ms": latency.value * 1e3,
        "penalty": penalty.value,
        "lo": penalty.lo,
        "hi": penalty.hi,
        "n": latency.n,
    }


def main() -> None:
    model, backend = [*sys.argv[1:], *("efficientnet_lite0", "onnxruntime")[len(sys.argv) - 1 :]]
    trial = Trial(model=zoo.pin(model), backend=backend, scenario="idle_gap", warmup=2.0)
    failed = fresh.prepare(trial)
    if failed is not None:
        sys.exit(failed.reason)
    results = []
    for replicate in range(PROCESSES):
        result = fresh.run(replace(trial, replicate=replicate, seed=replicate))
        print(f"process {replicate + 1} of {PROCESSES}: {result.status.value}", file=sys.stderr, flush=True)
        results.append(result)
    good = [r for r in results if r.queries is not None and r.window is not None]
    curves = [[value(gap) for gap in curve(r.queries, r.window)] for r in good]
    figures = {
        "model": model,
        "backend": backend,
        "statuses": [r.status.value for r in results],
        "verdicts": [r.verdict.trust.value for r in results],
        "penalty": {
            f"{points[0]['asked_ms']:g}_ms": statistics.median(p["penalty"] for p in points)
            for points in zip(*curves, strict=True)
        },
        "processes": curves,
    }
    whole = len(curves) == PROCESSES and all(len(points) == len(GAPS_MS) for points in curves)
    publish("idle_gap_cpu", figures, met=whole and all(r.status is Status.OK for r in results))


if __name__ == "__main__":
    main()
