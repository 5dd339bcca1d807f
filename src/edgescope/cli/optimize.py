"""Find the fastest way to run a model on this machine that still gives the right answers.

Every candidate (engine and precision) is run in fresh processes, interleaved in random order, verified against the
fp32 reference, and compared with PyTorch as it is. A candidate with wrong outputs is shown struck out and can
never be the pick.

  edgescope optimize efficientnet_lite0
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.cli import opened, trial_flags

if TYPE_CHECKING:
    from edgescope.records import Result

HELP = "try engines and precisions on a model, verify each, pick one"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("model", help="zoo name, NAME@weights.pth, file.onnx or module:callable")
    add(sub)


def add(sub: argparse.ArgumentParser) -> None:
    """Add the flags that optimize and demo share."""
    sub.add_argument("--batch", type=int, default=1, help="samples in one query (1)")
    sub.add_argument("--rounds", type=int, default=5, help="fresh processes of each candidate (5)")
    sub.add_argument("--objective", default="latency", choices=("latency", "throughput", "energy"))
    sub.add_argument(
        "--report", default=None, metavar="FILE", help="also write the report (.html, .md, .csv)"
    )
    sub.add_argument("--fresh", action="store_true", help="measure again what the store already holds")
    trial_flags.add_load(sub)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Run the rounds, print the table and the pick; exit 1 when nothing may be recommended."""
    if args.report:
        from edgescope.report import writable

        writable(Path(args.report))  # before minutes are spent
    results = _measure(args)
    from edgescope.analysis import variants

    found = variants.table(results)
    best = variants.pick(found, args.objective)
    if args.json:
        from edgescope.cli import variants_view

        print(json.dumps(variants_view.to_json(found, best, results), indent=1))
    else:
        from edgescope.cli import variants_view

        variants_view.show(found, best)
    if args.report:
        from edgescope.report import write

        path = write(results, Path(args.report), objective=args.objective)
        if not args.json:
            print(f"report: {path}")
    return 0 if best.row is not None else 1


def _measure(args: argparse.Namespace) -> list[Result]:
    from edgescope import optimize
    from edgescope.models import zoo
    from edgescope.records import Trial

    keys = trial_flags.keys(args)
    if args.duration is None:
        keys |= {"min_s": 1.0, "max_s": 2.5}
    if args.fresh:
        import time

        keys["seed"] = time.time_ns() // 1_000_000  # another question, so nothing stored answers it
    base = Trial(model=zoo.pin(args.model), batch=args.batch, **keys)
    store = opened.store(args)
    cells = opened.cells(args, store)
    known = cells.finished()
    results = []
    rounds = optimize.Rounds(args.rounds, base.seed)
    for result in optimize.optimize(optimize.candidates(base), cells, rounds=rounds, tell=opened.tell):
        results.append(result)
        if result.trial.id in known and known[result.trial.id].id == result.id:
            print(f"  from the store, measured {result.started_at}; --fresh measures again", file=sys.stderr)
    return store.fulls(results)
