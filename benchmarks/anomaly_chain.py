"""Measures the whole anomaly detector: by engine, snippets x frames, crops, and the lighter chains.

    python benchmarks/anomaly_chain.py --device cuda --seconds 480 --json published/anomaly_cuda.json

The cells are those of `edgescope study anomaly --run`; each runs in a process of its own. After each cell the page so
far is written, so a run that is cut short leaves what it measured. About 30 s a cell on a GPU (27 cells), minutes on a
small CPU; --part engines measures the study's own table only, --part watch the rate of watching beside that of the same
pipeline without a head.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import facts

from edgescope import bench
from edgescope.errors import EdgescopeError
from edgescope.isolate.fresh import Limits
from edgescope.models import zoo
from edgescope.papers.anomaly_detection import chain, report
from edgescope.papers.paper import papers
from edgescope.report.render import json as as_json
from edgescope.runner.setup import Setup
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.verbs import watch


def page(results: list, device: str, left: int) -> dict:
    """The study's page as data."""
    document = report.document(papers()["anomaly"], results, device=device)
    found = json.loads(as_json.text(document))
    cells = [cell for cell in found["cells"] if cell["runs"]]
    failed = [
        {"trial": r.trial.label, "reason": str(r.reason)} for r in results if r.status not in chain.GOOD
    ]
    return {
        "device": device,
        "cells_left": left,
        "cells": cells,
        "failed": failed,
        "claims": found.get("claims", []),
    }


def met(found: dict) -> bool:
    """Whether watching keeps 0.9 of the rate of extraction."""
    return found["watch"].get("watch_over_extraction", 0.0) >= 0.9


def watching(device: str, features: str, head: str, seconds: float) -> dict:
    """The rate of a watch over a film that repeats, beside that of the same pipeline without head and alarm."""
    engine = {"cuda": ("torch_eager", "fp16", 8), "cpu": ("onnxruntime", "fp32", 1)}[device]
    backend, precision, batch = engine
    keys = {
        "backend": backend,
        "precision": precision,
        "device": device,
        "batch": batch,
        "options": {"loop": True},
    }
    trial = watch.chain("", features=features, head=head, **keys)
    with watch.opened(trial) as session:
        warm = time.monotonic() + 3.0
        marks: list[tuple[float, int]] = []

        def stop() -> bool:
            now = time.monotonic()
            if now >= warm and not marks:
                marks.append((now, session.flow.counts.done))
            return bool(marks) and now >= marks[0][0] + seconds

        session.run(stop, trial.in_flight)
        took, done = time.monotonic() - marks[0][0], session.flow.counts.done - marks[0][1]
    options = {k: v for k, v in trial.workload_options.items() if k not in ("head", "alarm")}
    bare = replace(trial, workload_options=options, warmup=3.0, min_s=seconds, max_s=seconds)
    result = bench.run(bare, hz=0)
    extraction = result.value("throughput_sps")
    return {
        "features": features,
        "head": head,
        "engine": f"{backend} {precision}",
        "batch": batch,
        "watch_fps": done / took,
        "extraction_fps": extraction,
        "watch_over_extraction": done / took / extraction,
        "times_real_time_at_30": done / took / 30,
    }


def main() -> None:
    """Measure the planned trials until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--part", default="all", choices=("all", *chain.PARTS, "watch"))
    parser.add_argument("--features", default="i3d_r50_nl", help="of the part watch")
    parser.add_argument("--head", default="rtfm", help="of the part watch")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--store", type=Path, default=None, help="keep the results here, and go on from them")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    end, watched = time.monotonic() + args.seconds, {}
    if args.part in ("all", "watch"):
        try:
            watched = watching(args.device, args.features, args.head, min(10.0, args.seconds / 4))
        except EdgescopeError as error:
            watched = {"failed": str(error)}
        print(json.dumps({"watch": watched}), file=sys.stderr)
    place = args.store or Path(tempfile.mkdtemp(prefix="anomaly-chain-"))
    trials = (
        [] if args.part == "watch" else chain.planned(papers()["anomaly"], device=args.device, part=args.part)
    )
    trials.sort(key=lambda trial: trial.replicate)  # every cell once before any for a second time
    results: list = []
    limits = Limits(timeout_s=max(60.0, min(300.0, args.seconds)))
    cells = Setup(limits=limits, tell=lambda what: print(what, file=sys.stderr)).cells(Store(place))
    for number, trial in enumerate(trials):
        if time.monotonic() > end:
            break
        try:
            results.append(cells.run(grid.pinned(trial, zoo.pin)))
        except EdgescopeError as error:
            print(f"{trial.label}: {error}", file=sys.stderr)
        found = page(results, args.device, len(trials) - number - 1) | {"watch": watched}
        if args.json:
            args.json.write_text(json.dumps(facts.page(found, met=met(found)), indent=1) + "\n")
    found = page(results, args.device, len(trials) - len(results)) | {"watch": watched}
    if args.json:
        args.json.write_text(json.dumps(facts.page(found, met=met(found)), indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
