"""Choose engine, precision, batch and number of processes: the best cell that keeps every constraint.

The answer comes from stored results. If there are none, or with --search, a model-based search measures a few cells of
the grid that the flags or --study describe, and confirms its pick in fresh processes. A constraint is judged on the
unfavourable end of the interval (for p99, an upper bound that also covers new processes). Each model and each load (for
example each rate) gets its own answer; models named together compete for one. Flags that describe a trial also filter
the stored cells.

  edgescope recommend --objective throughput --constraint "p99<=33ms" --constraint "memory<=2GB"
  edgescope recommend resnet50 --search --backend onnxruntime,openvino --precision fp32,int8 --batch 1,4,16
  edgescope recommend --study study.toml
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.commandline import context, trial_flags
from edgescope.process.said import waiting

INTERRUPTED = "Finished trials are stored; the same command goes on with the others."
OBJECTIVE = "what to optimise: throughput (or fps), latency, energy, power (throughput)"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "models", nargs="*", metavar="MODEL", help="models to choose for; several compete for one answer"
    )
    group = sub.add_argument_group("objective and constraints")
    group.add_argument("--objective", default=None, metavar="WORD", help=OBJECTIVE)
    trial_flags.add_constraint(group, "p99<=33ms, power<=10W, memory<=2GB, top1>=0.98ref, throughput>=30")
    text = "study file: take the grid, [objective] and [[constraint]] from it"
    group.add_argument("--study", type=Path, default=None, metavar="FILE", help=text)
    group = sub.add_argument_group("results")
    trial_flags.add_machine(group, "only its results")
    group.add_argument(
        "--all", action="store_true", help="show everything: every cell, not only the Pareto set"
    )
    trial_flags.add_board(group, "; its results, and a search there")
    context.add_verbose(sub)
    _add_search(sub.add_argument_group("search"))
    trial_flags.add_load(sub, lists=True, processes="1,2,4")
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)
    trial_flags.untyped(sub)


def _add_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--search", action="store_true", help="search even if the store holds results of the model"
    )
    text = "cells to measure: a number, or a share of the grid and at least 6 (10%%)"
    group.add_argument("--cells", default="10%", metavar="N|10%", help=text)
    text = (
        "runs that confirm the pick, each in a further fresh process (3 after a search, 0 for stored results)"
    )
    group.add_argument("--confirm-runs", type=trial_flags.whole, default=None, metavar="N", help=text)
    usual = ("installed ones", "those of the backends; fp32 with --backend", "1,4,16")
    about = "; also filters stored cells"
    trial_flags.add_what(
        group, lists=True, usual=(None, None, None), about=about, shown=[f"search: {text}" for text in usual]
    )


def run(args: argparse.Namespace) -> int:
    """Answer from the store, or search; return 1 if a question has no pick."""
    from edgescope.search import candidates
    from edgescope.wings.recommend.verb import recommend

    context.use_board(trial_flags.board(args))
    if args.search and not args.backend and args.study is None:
        with waiting("checking which engines are installed"):
            candidates.installed()
    answers = recommend(
        *args.models,
        objective=args.objective or "",
        constraints=args.constraint,
        study=args.study,
        search=args.search,
        cells=args.cells,
        confirm=args.confirm_runs,
        machine=args.machine,
        store=args.store,
        setup=context.setup(args),
        **trial_flags.selected(args),
    )
    from edgescope.wings.recommend.recommendation import document

    pages = [document(a, everything=args.all) for a in answers]
    context.show_each(args, pages)
    return 0 if all(a.pick for a in answers) else 1
