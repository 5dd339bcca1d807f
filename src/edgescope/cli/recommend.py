"""Say which engine, precision, batch and number of processes to use: the best that keeps every constraint.

From the cells that the store holds. Where it holds none, or with --search, a model-based search measures a few cells of
the grid that the flags or --study describe, and confirms its pick in fresh processes. A constraint is judged on the end
that hurts (an upper bound of p99 that covers other processes too). Each model, and each rate or other load, is a
question of its own; several models that are named compete in one. Flags that say what runs hold for stored cells too.

  edgescope recommend --objective throughput --constraint "p99<=33ms" --constraint "memory<=2GB"
  edgescope recommend resnet50 --search --backend onnxruntime,openvino --precision fp32,int8 --batch 1,4,16
  edgescope recommend --study study.toml
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edgescope.cli import opened, trial_flags
from edgescope.cli.waiting import waiting

#: Flags that say which cells are meant; those that are not typed leave stored cells free.
TYPED = (
    *("backend", "precision", "batch", "device", "processes", "sharing", "colocated"),
    *("mode", "io", "scenario", "rate", "in_flight"),
)
HELP = "the best of the measured cells that keeps every constraint, or a search for it"
INTERRUPTED = "What was finished is stored; the same command goes on where it was."
OBJECTIVE = "what to be best at: throughput, latency, energy, watts (throughput)"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "models", nargs="*", metavar="MODEL", help="whose cells; several compete in one question"
    )
    group = sub.add_argument_group("what is wanted")
    group.add_argument("--objective", default=None, metavar="WORD", help=OBJECTIVE)
    trial_flags.add_constraint(group, "p99<=33ms, power<=10W, memory<=2GB, top1>=0.98ref, throughput>=30")
    text = "study file: take the grid, [objective] and [[constraint]] from it"
    group.add_argument("--study", type=Path, default=None, metavar="FILE", help=text)
    group = sub.add_argument_group("which results")
    trial_flags.add_machine(group, "whose results are weighed")
    group.add_argument("--all", action="store_true", help="show everything, not the Pareto set alone")
    opened.add_verbose(sub)
    _add_search(sub.add_argument_group("search"))
    trial_flags.add_load(sub, lists=True, processes="1,2,4")
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)
    sub.set_defaults(**dict.fromkeys(TYPED))


def _add_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--search", action="store_true", help="measure what is promising, stored results or not"
    )
    group.add_argument(
        "--budget", default="10%", metavar="N|10%", help="cells to measure, at least 6 of a share (10%%)"
    )
    text = "further fresh processes of the pick (3 of a search, none of stored results)"
    group.add_argument("--confirm-runs", type=int, default=None, metavar="N", help=text)
    about = (
        "; of stored cells those alone (a search tries what is installed, in fp32 where one is named, 1,4,16)"
    )
    trial_flags.add_what(group, lists=True, usual=(None, None, None), about=about)


def run(args: argparse.Namespace) -> int:
    """Answer from the store, or search; exit 1 when a question has no pick."""
    from edgescope.search import candidates
    from edgescope.verbs.recommend import recommend

    if args.search and not args.backend and args.study is None:
        with waiting("asking which engines are here"):
            candidates.installed()
    answers = recommend(
        *args.models,
        objective=args.objective or "",
        constraints=args.constraint,
        study=args.study,
        search=args.search,
        budget=args.budget,
        confirm=args.confirm_runs,
        machine=args.machine,
        store=args.store,
        setup=opened.setup(args),
        **_keys(args),
    )
    from edgescope.report.recommendation import document
    from edgescope.report.render import json as as_json
    from edgescope.report.render import terminal

    pages = [document(a, everything=args.all) for a in answers]
    if args.json:
        print(as_json.joined("answers", pages))
    for number, page in enumerate(() if args.json else pages):
        print("\n" * (number > 0), end="")
        terminal.show(page, verbose=args.verbose, limit=None if args.all else terminal.LINES)
    return 0 if all(a.pick for a in answers) else 1


def _keys(args: argparse.Namespace) -> dict[str, Any]:
    """Return the Trial keys of the flags, without those that were not typed."""
    keys = trial_flags.keys(args)
    keys |= {name: keys[name] if isinstance(keys[name], list) else [keys[name]] for name in trial_flags.WHAT}
    return {k: v for k, v in keys.items() if k not in TYPED or getattr(args, k) is not None}
