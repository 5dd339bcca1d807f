"""The ladder of a video pipeline, all levels measured in one process: for machines that are lent for minutes.

`edgescope study ladder --run` starts a fresh process for every run. Here every level is opened in this process, and the
rounds follow one another; the levels, what is kept, the checks and the page are the same. Targets: on a GPU the top is
72 times the first level, on a CPU 4 times, with the same detections at every level; and the top reaches 0.9 of what
its slowest stage does alone.

    python benchmarks/ladder.py --device cuda --source clip.mp4 [--model ssd300] [--page ladder.html] [--store DIR]
"""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from dataclasses import replace
from pathlib import Path

from facts import publish

from edgescope import bench
from edgescope.bench.run import begin
from edgescope.devices.manifest import machine
from edgescope.models import zoo
from edgescope.options import pinned
from edgescope.papers.paper import papers
from edgescope.papers.video_ladder import climb, report
from edgescope.records import Measured, Result, Status, Trial
from edgescope.report import save
from edgescope.store.results import Store
from edgescope.study import grid
from edgescope.video import what_if

TARGETS, REACHED, SAME = {"cuda": 72.0, "cpu": 4.0}, 0.9, 0.9
HANGS_S = 150
"""A run that takes longer prints where each thread is, and ends the program."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="")
    parser.add_argument("--source", default="")
    parser.add_argument("--page", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--seconds", type=float, default=480.0, help="no new run begins after this time")
    parser.add_argument("--brief", action="store_true", help="stub each stage in two or three rounds only")
    parser.add_argument("--ends", action="store_true", help="rounds of the first level and the top alone")
    parser.add_argument(
        "--rounds", type=int, default=climb.ROUNDS, help="rounds of all levels after the first look"
    )
    args = parser.parse_args()
    if args.brief:
        what_if.ROUNDS, what_if.FEWEST, what_if.LONGEST_S = 3, 2, 12.0
    model, film = args.model or report.MODELS[args.device], pinned(args.source) if args.source else ""
    paper = papers()[report.NAME]
    steps, start = climb.levels(paper, args.device), time.monotonic()
    store = Store(args.store) if args.store else None
    seen = {result.trial.id: result for result in store.results()} if store else {}
    running = (args.store or Path("ladder")).with_suffix(".running")
    faulthandler.enable()

    def known(trial: Trial) -> Result | None:
        return seen.get(grid.pinned(trial, zoo.pin).id)

    while (
        found := climb.climb(steps, model, args.device, film, known, rounds=args.rounds, ends=args.ends)
    ).wants is not None:
        if time.monotonic() - start > args.seconds:
            break
        trial = grid.pinned(found.wants, zoo.pin)
        if store and running.exists() and running.read_text() == trial.id:
            bare = begin(trial, machine(bench.present()))
            result = replace(bare, status=Status.CRASHED, reason="an earlier try ended or hung the program")
        else:
            if store:
                running.write_text(trial.id)
            faulthandler.dump_traceback_later(HANGS_S, exit=True)
            result = bench.run(trial)
            faulthandler.cancel_dump_traceback_later()
        seen[trial.id] = result
        if store:
            store.save(result)
        told = (
            f"{time.monotonic() - start:5.0f} s  {trial.label}: {result.status.value} {climb.rate_of(result)}"
        )
        print(f"{told} {result.reason or ''}", file=sys.stderr, flush=True)
    if args.page:
        save(report.of(paper, found, model, args.device), args.page)
    first, top = found.rungs[0], found.kept[-1]
    whole = report.gain(found, top, first)
    rows = report.records(found)
    alone = [rows[top.level.number][f"{name}_alone_fps"] for name in report.STAGES]
    rate = report.metric(top, "pipeline_fps")
    engine = rows[top.level.number]["infer_alone_fps"]
    known = [each for each in alone if each]
    reached = rate.value / min(known) if known and isinstance(rate, Measured) else None
    same = all((row["agreement"] or 0) >= SAME for row in rows if row["fps"])
    met = (
        isinstance(whole, Measured)
        and whole.value >= TARGETS[args.device]
        and (reached or 0) >= REACHED
        and same
    )
    figures = {
        "model": model,
        "levels": rows,
        "batches": found.batches,
        "knee": found.knee,
        "over_the_first": [whole.value, whole.lo, whole.hi] if isinstance(whole, Measured) else None,
        "top_over_its_slowest_stage": reached,
        "top_over_its_engine": rate.value / engine if engine and isinstance(rate, Measured) else None,
        "same_detections": same,
    }
    publish(f"ladder_{args.device}", figures, met=met)


if __name__ == "__main__":
    main()
