"""Regenerate the figures of "Profiling Concurrent Vision Inference Workloads on NVIDIA Jetson" (arXiv 2508.08430).

From stored results of a sweep over models, precisions, batch sizes, processes and ways of sharing the device: its
figures with intervals, its rules checked one by one, its recovered numbers beside this machine's.

  edgescope sweep --model resnet50 --precision fp32,int8 --backend onnxruntime --batch 1,4 --processes 1,2
  edgescope study concurrent --output concurrent.html
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.cli import opened, trial_flags

if TYPE_CHECKING:
    from edgescope.papers.concurrent_inference.table import Concurrent
    from edgescope.records import Trial

HELP = "precision x batch x processes x sharing, its rules checked here (arXiv 2508.08430)"
SHOWN = ("throughput", "per_process", "p99", "memory", "power", "energy", "fairness", "skew")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this study's flags."""
    trial_flags.add_store(sub)
    sub.add_argument("--models", type=_words, default=(), metavar="NAME,..", help="some of the models (all)")
    trial_flags.add_machine(sub, "where the store holds several")
    text = "engine and options, or a part of them, where the store holds several"
    sub.add_argument("--setup", default="", metavar="WORDS", help=text)
    text = "study file: says which of its cells are missing"
    sub.add_argument("--study", type=Path, default=None, metavar="FILE", help=text)
    text = "what the grid on the terminal shows (throughput)"
    sub.add_argument("--show", choices=SHOWN, default="throughput", help=text)
    trial_flags.add_output(sub, "file to write, too: the answer (.html, .md, .csv, .json)")
    trial_flags.add_json(sub)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def run(args: argparse.Namespace) -> int:
    """Print what stands out, the grid and the rules; write the file; exit 1 when no cell finished."""
    if args.output:
        from edgescope.papers.concurrent_inference import report
        from edgescope.report import writable

        writable(args.output, report.FORMATS)
    found = _read(args)
    if args.output:
        report.write(found, args.output, opened.command())  # first: what prints may be a pipe that is closed
    if args.json:
        from edgescope.papers.concurrent_inference.report_json import plain

        print(json.dumps(plain(found), indent=1))
    else:
        from edgescope.papers.concurrent_inference import view

        view.show(found, args.show)
        if args.output:
            print(f"written to {args.output}")
    return 0 if found.measured else 1


def _read(args: argparse.Namespace) -> Concurrent:
    """Return the table of what the store holds; raw rows are read for the cells that it shows alone."""
    from edgescope.analysis.cells import machines
    from edgescope.analysis.cells.concurrency import wanted
    from edgescope.papers.concurrent_inference.table import concurrent

    store = opened.store(args)
    found = [r for r in store.results() if not args.models or r.trial.model.startswith(args.models)]
    mine = machines.one([r for r in found if wanted(r.trial)], opened.machine(args.machine))
    others = len(found) - sum(wanted(r.trial) for r in found)
    full = store.fulls(mine)
    for problem in store.problems:
        print(problem, file=sys.stderr)
    return concurrent(full, of_setup=args.setup, left_out=others, asked=_asked(args))


def _asked(args: argparse.Namespace) -> tuple[Trial, ...]:
    """Return the study's cells, of the models that are shown."""
    if args.study is None:
        return ()
    from edgescope.models import zoo
    from edgescope.study import grid

    trials = grid.read(args.study, zoo.pin).trials
    return tuple(t for t in trials if not args.models or t.model.startswith(args.models))
