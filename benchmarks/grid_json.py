"""A measured grid as one small file: each cell's keys, status, and its figures, a value a process.

    python benchmarks/grid_json.py STORE NAME [--study FILE] [--machine ID]      writes published/NAME.json
    python benchmarks/grid_json.py STORE --out FILE                              writes FILE

{"cells": [{"trial": {what differs within the grid}, "status": "ok", "reason": "",
            "metrics": {"throughput_sps": [value of each process], "latency_p99_s": [...], "memory_bytes": [...]}}],
 "common": {the keys that all cells share},
 "target": {how much of the study's grid finished, the ratio that is aimed at, and why the target is not met}}

The target is that of the GPU grid: every cell of the study finished, each that it replicates in a fresh process, too,
and ResNet50 fp16 batch 1 in 8 processes does 3 times as much through MPS as sliced in time. Without --study nothing is
claimed.

search_regret.py replays searches on such files, or on a store itself.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

from facts import publish

from edgescope.analysis.cells.concurrency import axes, setup
from edgescope.analysis.run.usage import GPU, HOST
from edgescope.models import zoo
from edgescope.records import Measured, Result, Status, Trial
from edgescope.store.results import Store
from edgescope.study import grid

METRICS = (
    "throughput_sps",
    "latency_p50_s",
    "latency_p95_s",
    "latency_p99_s",
    "latency_p99_bound_s",
    "power_w",
    "energy_per_sample_j",
    "counter_gap_queries",
    "start_skew_s",
)
AIMED_AT = {"model": "resnet50", "precision": "fp16", "batch": 1, "processes": 8}
TIMES = 3.0
"""Throughput through MPS over that of time slicing which is aimed at, at the cell above."""


@dataclass(frozen=True)
class Cell:
    """One cell of a measured grid; `metrics`: a value a process, in the order of their replicate numbers."""

    trial: Trial
    status: Status
    reason: str
    metrics: dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("store", type=Path)
    parser.add_argument("name", nargs="?", default=None)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--machine", default="")
    parser.add_argument("--study", type=Path, default=None)
    args = parser.parse_args()
    results = [r for r in Store(args.store).results() if r.machine.id.startswith(args.machine)]
    cells = of_results(results)
    page = packed(cells)
    if args.out:
        args.out.write_text(json.dumps(page) + "\n")
    elif args.name:
        page["target"] = target(cells, args.study)
        met = not page["target"]["not_met"]
        publish(args.name, page, met=met, source=max(results, key=lambda r: r.started_at))
    else:
        parser.error("NAME or --out FILE")


def of_results(results: Sequence[Result]) -> list[Cell]:
    """Return the cells of results of one machine, each metric by rising replicate."""
    if len({r.machine.id for r in results}) > 1:
        raise SystemExit("results of several machines: --machine ID")
    groups: dict[str, list[Result]] = {}
    for r in sorted(results, key=lambda r: (r.trial.replicate, r.started_at)):
        groups.setdefault(r.trial.variant, []).append(r)
    return [_cell(group) for group in groups.values()]


def _cell(group: Sequence[Result]) -> Cell:
    done = [r for r in group if r.status is Status.OK]
    end = done[0] if done else group[-1]
    found = {name: [_value(r, (name,)) for r in done] for name in METRICS}
    found["memory_bytes"] = [_value(r, GPU if r.trial.device == "cuda" else HOST) for r in done]
    metrics = {name: [v for v in values if v is not None] for name, values in found.items()}
    kept = {name: values for name, values in metrics.items() if values}
    return Cell(replace(end.trial, replicate=0), end.status, str(end.reason or "") if not done else "", kept)


def _value(result: Result, names: Sequence[str]) -> float | None:
    found = (result.metrics.get(n) for n in names)
    return next((float(f"{f.value:.6g}") for f in found if isinstance(f, Measured)), None)


def target(cells: Sequence[Cell], path: Path | None) -> dict[str, Any]:
    """Return what of the target is there, and under `not_met` each thing that is not."""
    if path is None:
        return {
            "not_met": ["no study is named (--study FILE), so it is not known how many cells there should be"]
        }
    trials = grid.read(path, zoo.pin).trials
    runs = Counter(axes(t) for t in trials)
    done = {axes(c.trial): c for c in cells if c.status is Status.OK}
    counted = {a: len(c.metrics.get("throughput_sps", ())) for a, c in done.items()}
    lost = sum(max(0, n - counted[a]) for a, n in runs.items() if a in done)
    stale = sum(n > 1 and counted[a] < 2 for a, n in runs.items() if a in done)
    other = sorted({setup(c.trial) for c in cells} - {setup(t) for t in trials})
    ratio = mps_over_slicing(list(done.values()))
    finished = sum(a in done for a in runs)
    problems = {
        f"{len(runs) - finished} of {len(runs)} cells did not finish": finished < len(runs),
        f"{stale} cells to be replicated have no fresh process": stale > 0,
        f"measured as {'; '.join(other)}, which is not the study's setup": bool(other),
        f"MPS over time slicing is {ratio}, not {TIMES:g}": ratio is None or ratio < TIMES,
    }
    return {
        "study": path.name,
        "cells_asked": len(runs),
        "cells_finished": finished,
        "replicates_missing": lost,
        "mps_over_time_slicing": ratio,
        "not_met": [words for words, so in problems.items() if so],
    }


def mps_over_slicing(cells: Sequence[Cell]) -> float | None:
    """Return the ratio of total throughputs at the cell AIMED_AT, means over processes; None without both cells."""
    there = [c for c in cells if all(getattr(c.trial, k) == v for k, v in AIMED_AT.items())]
    found = {c.trial.sharing: c.metrics["throughput_sps"] for c in there if c.metrics.get("throughput_sps")}
    if not {"mps", "time_slicing"} <= found.keys():
        return None
    return float(f"{mean(found['mps']) / mean(found['time_slicing']):.4g}")


def packed(cells: Sequence[Cell]) -> dict[str, Any]:
    """Return the cells as plain values, what all share apart."""
    trials = [c.trial.to_json() for c in cells]
    common = {k: v for k, v in trials[0].items() if all(t[k] == v for t in trials)} if trials else {}
    rows = [
        {
            "trial": {k: v for k, v in t.items() if k not in common},
            "status": c.status.value,
            "reason": c.reason,
            "metrics": c.metrics,
        }
        for c, t in zip(cells, trials, strict=True)
    ]
    return {"cells": rows, "common": common}


def unpacked(page: dict[str, Any]) -> list[Cell]:
    """Return the cells of a packed grid; of a published one its figures are read."""
    page = page.get("figures", page)
    return [
        Cell(
            Trial.from_json(page["common"] | row["trial"]),
            Status(row["status"]),
            row["reason"],
            {name: list(values) for name, values in row["metrics"].items()},
        )
        for row in page["cells"]
    ]


def read(path: Path) -> list[Cell]:
    """Return the cells of a packed grid, or of a store."""
    if path.is_dir():
        return of_results(list(Store(path).results()))
    return unpacked(json.loads(path.read_text()))


if __name__ == "__main__":
    main()
