"""Measures the whole anomaly detector: by engine, snippets x frames, crops, and the lighter chains.

    python benchmarks/anomaly_chain.py --device cuda --part quick --seconds 150 --json published/anomaly_cuda.json

The cells are those of `edgescope study anomaly --run`; each runs in a process of its own. After each cell the page so
far is written, so a run that is cut short leaves what it measured. About 30 s a cell on a GPU (27 cells), minutes on a
small CPU. --part engines measures the study's own table only, --part watch the rate of watching beside that of
extraction. --part quick measures watching, and then chains, crops and shapes one after the other in this process: their
memory is not that of a process of their own, and is left out.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import facts

from edgescope import bench
from edgescope.anomaly.extract import Progress, extract
from edgescope.anomaly.features import Engine
from edgescope.anomaly.preparation import preparation
from edgescope.anomaly.videos import Video
from edgescope.errors import EdgescopeError
from edgescope.isolate.fresh import Limits
from edgescope.models import zoo
from edgescope.models.image.photos import located
from edgescope.papers.anomaly_detection import chain, report
from edgescope.papers.paper import papers
from edgescope.records import Result, Trial
from edgescope.report.render import json as as_json
from edgescope.runner.setup import Setup
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.verbs import watch
from edgescope.workloads.pipeline import FILM

ROUNDS = 2
QUICK = ("chains", "views", "shapes")
"""The parts of `quick`, in this order, all in this process."""
SHARED = "not stated: several cells shared one process"
SHORT = {"warmup": 0.5, "min_s": 2.0, "max_s": 3.0}


def page(results: list[Result], device: str, left: int, *, together: bool) -> dict[str, Any]:
    """The study's page as data; a cell that shared this process has no memory of its own."""
    document = report.document(papers()["anomaly"], results, device=device)
    found = json.loads(as_json.text(document))
    cells = [cell for cell in found["cells"] if cell["runs"]]
    for cell in cells if together else ():
        cell.update({name: SHARED for name in cell if name.endswith("memory_bytes")})
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
    return min(found["watch"].get(f"watch_over_{over}", 0.0) for over in ("pipeline", "extract")) >= 0.9


def watching(device: str, features: str, head: str, seconds: float) -> dict[str, Any]:
    """The rate of a watch over a film that repeats, beside those of two ways that have no head and raise no alarm.

    One is the same pipeline, the other `anomaly extract` with one decoding thread, because a watch has one stream. The
    three take turns, so that what else the machine does meets all of them.
    """
    backend, precision, batch = {"cuda": ("torch_eager", "fp16", 8), "cpu": ("onnxruntime", "fp32", 1)}[
        device
    ]
    keys = {"backend": backend, "precision": precision, "device": device, "batch": batch}
    trial = watch.chain("", features=features, head=head, options={"loop": True}, **keys)
    options = {k: v for k, v in trial.workload_options.items() if k not in ("head", "alarm")}
    share = seconds / (ROUNDS * 3)
    bare = replace(trial, workload_options=options, warmup=1.0, min_s=share, max_s=share)
    engine = Engine(backend, device, precision, batch)
    arms: dict[str, Callable[[], float]] = {
        "watch": lambda: watched(trial, share),
        "pipeline": lambda: bench.run(bare, hz=0).value("throughput_sps"),
        "extract": lambda: extracted(features, engine, share),
    }
    rates: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(ROUNDS):
        for name, arm in arms.items():
            rates[name].append(arm())
    fps = {name: statistics.median(found) for name, found in rates.items()}
    return {
        "features": features,
        "head": head,
        "engine": f"{backend} {precision}",
        "batch": batch,
        "decoding_threads": 1,
        "frames_per_s": rates,
        "watch_fps": fps["watch"],
        "watch_over_pipeline": fps["watch"] / fps["pipeline"],
        "watch_over_extract": fps["watch"] / fps["extract"],
        "times_real_time_at_30": fps["watch"] / 30,
    }


def watched(trial: Trial, seconds: float) -> float:
    """Return the frames per second of a watch, after its first second."""
    with watch.opened(trial) as session:
        warm = time.monotonic() + 1.0
        marks: list[tuple[float, int]] = []

        def stop() -> bool:
            now, done = time.monotonic(), session.flow.counts.done
            if now < warm or not done:
                return False
            if not marks or now >= marks[0][0] + seconds:
                marks.append((now, done))  # the units under way at the end are not counted, nor is their time
            return len(marks) > 1

        session.run(stop, trial.in_flight)
    (begin, before), (end, after) = marks
    return (after - before) / (end - begin)


def extracted(features: str, engine: Engine, seconds: float) -> float:
    """Return the frames per second of `anomaly extract` over copies of the film, for about so many seconds."""
    film, prepared = located(*FILM), preparation(features)
    with tempfile.TemporaryDirectory() as folder:
        videos = [Video(f"copy{number}", film, "test", "normal") for number in range(400)]
        begin, rate = [], [0.0]

        def tell(progress: Progress) -> None:
            begin.append((time.monotonic(), progress.done * progress.row.frames))
            (first, before), (now, done) = begin[0], begin[-1]
            if now - first >= seconds and len(begin) > 1:
                rate[0] = (done - before) / (now - first)
                raise Enough

        with suppress(Enough):
            extract(videos, Path(folder), prepared, engine=engine, tell=tell)
    return rate[0]


class Enough(Exception):
    """Enough was extracted."""


def main() -> None:
    """Measure the planned trials until the time is over."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--part", default="all", choices=("all", *chain.PARTS, "watch", "quick"))
    parser.add_argument("--features", default="i3d_r50_nl", help="of the part watch")
    parser.add_argument("--head", default="rtfm", help="of the part watch")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--store", type=Path, default=None, help="keep the results here, and go on from them")
    parser.add_argument("--json", type=Path, default=None)
    args = parser.parse_args()
    end, kept = time.monotonic() + args.seconds, dict[str, Any]()
    results: list[Result] = []

    def note(left: int) -> dict[str, Any]:
        found = page(results, args.device, left, together=args.part == "quick") | {"watch": kept}
        if args.json:
            args.json.write_text(json.dumps(facts.page(found, met=met(found)), indent=1) + "\n")
        return found

    note(0)  # a run that is cut off leaves what it has
    if args.part in ("all", "watch", "quick"):
        try:
            kept |= watching(args.device, args.features, args.head, min(36.0, args.seconds / 4))
        except Exception as error:  # what fails must not lose the cells
            kept["failed"] = f"{type(error).__name__}: {error}"[:300]
        print(json.dumps({"watch": kept}), file=sys.stderr)
        note(0)
    place = args.store or Path(tempfile.mkdtemp(prefix="anomaly-chain-"))
    limits = Limits(timeout_s=max(60.0, min(300.0, args.seconds)))
    cells = Setup(limits=limits, tell=lambda what: print(what, file=sys.stderr)).cells(Store(place))
    trials = planned(args.device, args.part)
    for number, (trial, alone) in enumerate(trials):
        note(len(trials) - number)
        if time.monotonic() > end:
            break
        try:
            asked = grid.pinned(trial, zoo.pin)
            results.append(cells.run(asked) if alone else bench.run(replace(asked, **SHORT)))
        except EdgescopeError as error:
            print(f"{trial.label}: {error}", file=sys.stderr)
    print(json.dumps(note(len(trials) - len(results)), indent=1))


def planned(device: str, part: str) -> list[tuple[Trial, bool]]:
    """Return the trials to measure, and whether each runs in a process of its own."""
    if part == "watch":
        return []
    paper = papers()["anomaly"]
    if part != "quick":
        trials = chain.planned(paper, device=device, part=part)
        return [
            (trial, True) for trial in sorted(trials, key=lambda t: t.replicate)
        ]  # every cell once, then again
    found: dict[Trial, bool] = {}
    for name in QUICK:
        for trial in chain.planned(paper, device=device, part=name):
            found.setdefault(trial, False)
    return list(found.items())


if __name__ == "__main__":
    main()
