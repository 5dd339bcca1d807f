"""Regenerate the table of "Benchmarking Deep Learning Models on NVIDIA Jetson Nano" (arXiv 2406.17749) on this machine.

Eleven networks before and after optimisation, each timed cold, first, warm and steady, from stored results or by
measuring, beside the study's own figures with its misprints marked.

  edgescope study nano_table --run --models mobilenet_v2,squeezenet1_1 --output table.html
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.cli import opened, trial_flags

if TYPE_CHECKING:
    from edgescope.analysis.predict.roofline import Ceilings
    from edgescope.papers.jetson_nano.table import NanoTable
    from edgescope.store.results import Store

HELP = "eleven networks before and after optimisation, four ways of timing (arXiv 2406.17749)"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this study's flags."""
    sub.add_argument("--device", default="cpu", choices=("cpu", "cuda"), help="cpu or cuda (cpu)")
    sub.add_argument("--models", type=_words, default=(), metavar="NAME,..", help="some of the models (all)")
    sub.add_argument("--run", action="store_true", help="measure what the store does not hold")
    sub.add_argument(
        "--rounds", type=int, default=5, help="final rounds, fresh processes of each variant, with --run (5)"
    )
    trial_flags.add_output(sub, "file to write, too: the table (.html, .md, .csv)")
    text = "what benchmarks/ceilings.py wrote here: adds the physical limit of each model"
    sub.add_argument("--ceilings", type=Path, default=None, metavar="FILE", help=text)
    trial_flags.add_machine(sub, "where the store holds several")
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def run(args: argparse.Namespace) -> int:
    """Measure if asked, print the table, write the file; exit 1 when no row could be filled."""
    from edgescope.analysis.predict import roofline

    if args.output:
        from edgescope.report import writable

        writable(args.output)  # before hours are spent
    ceilings = roofline.read(args.ceilings) if args.ceilings else None
    store = opened.store(args)
    if args.run:
        _measure(args, store)
    found = _table(args, store, ceilings)
    _tell(args, found)
    return 0 if found.measured else 1


def _measure(args: argparse.Namespace, store: Store) -> None:
    """Optimise each model into the store; one that fails is told and does not end the study."""
    from edgescope.errors import EdgescopeError
    from edgescope.papers.jetson_nano.paper import study
    from edgescope.verbs.optimize import optimize

    keys, setup = trial_flags.timing_keys(args) | {"device": args.device}, opened.setup(args)
    for model in args.models or [r.ours for r in study().rows]:
        try:
            optimize(model, rounds=args.rounds, store=store, setup=setup, **keys)
        except EdgescopeError as error:
            opened.say(f"{model}: {error}")


def _table(args: argparse.Namespace, store: Store, ceilings: Ceilings | None) -> NanoTable:
    """Return the table of what the store holds for these models and this device."""
    from edgescope.analysis.cells import machines
    from edgescope.papers.jetson_nano.table import nano_table, wanted

    found = [r for r in store.results() if wanted(r.trial, args.models, args.device)]
    results = store.fulls(machines.one(found, opened.machine(args.machine)))
    for problem in store.problems:
        print(problem, file=sys.stderr)
    return nano_table(results, args.models, device=args.device, ceilings=ceilings)


def _tell(args: argparse.Namespace, found: NanoTable) -> None:
    from edgescope.papers.jetson_nano import view

    if args.output:
        from edgescope.papers.jetson_nano import report

        report.write(found, args.output, opened.command())  # first: what prints may be a pipe that is closed
    if args.json:
        print(json.dumps(view.to_json(found), indent=1))
    else:
        view.show(found)
        if args.output:
            print(f"written to {args.output}")
