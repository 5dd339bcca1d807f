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
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.cli import opened, trial_flags
from edgescope.cli.recommend_question import AXES

if TYPE_CHECKING:
    from edgescope.analysis.cells.objective import Wanted
    from edgescope.analysis.cells.recommend import Recommendation
    from edgescope.cli.recommend_question import Question
    from edgescope.records import Result, Trial
    from edgescope.search.explore import Step
    from edgescope.study.grid import Study

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
    text = "p99<=33ms, power<=10W, memory<=2GB, top1>=0.98ref, throughput>=30 ...; may be repeated"
    group.add_argument("--constraint", action="append", default=[], metavar="BOUND", help=text)
    text = "take the grid, [objective] and [[constraint]] from a study file"
    group.add_argument("--study", type=Path, default=None, metavar="FILE", help=text)
    group = sub.add_argument_group("which results")
    group.add_argument(
        "--machine", default="", metavar="ID", help="`here`, or the beginning of a machine's id"
    )
    group.add_argument("--all", action="store_true", help="show every cell, not the Pareto set alone")
    opened.add_verbose(sub)
    _add_search(sub.add_argument_group("search"))
    trial_flags.add_load(sub, lists=True, processes="1,2,4")
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)
    sub.set_defaults(**dict.fromkeys(AXES))  # None: not typed


def _add_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--search", action="store_true", help="measure what is promising, stored results or not"
    )
    group.add_argument(
        "--budget", default="10%", metavar="N|10%", help="cells to measure, at least 6 of a share (10%%)"
    )
    text = "further fresh processes of the pick (3 of a search, none of stored results)"
    group.add_argument("--confirm", type=int, default=None, metavar="N", help=text)
    text = "comma-separated; of stored cells those alone (all; a search tries what is installed)"
    group.add_argument("--backend", help=text)
    text = "likewise (all; a search fp32 of the backends that --backend names, else all that they have)"
    group.add_argument("--precision", help=text)
    group.add_argument("--batch", help="likewise (all; a search 1,4,16)")


def run(args: argparse.Namespace) -> int:
    """Answer from the store, or search; exit 1 when a question has no pick."""
    from edgescope.cli.recommend_question import questions

    study = _study(args)
    wanted = _wanted(args, study)
    if study is not None and study.store is not None and args.store is None:
        args.store = str(study.store)
    answers = [_answer(args, question, study, wanted) for question in questions(args, study)]
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


def _study(args: argparse.Namespace) -> Study | None:
    from edgescope.models import zoo
    from edgescope.study import grid as study

    if args.study is None:
        return None
    found = study.read(args.study, zoo.pin)
    for note in found.notes:
        print(note, file=sys.stderr)
    return found


def _wanted(args: argparse.Namespace, study: Study | None) -> Wanted:
    """Return the question: what is typed, else what the study says."""
    from edgescope.analysis.cells.objective import wanted

    written = (study.objective, study.constraints) if study is not None else ("", ())
    return wanted(args.objective or written[0] or "throughput", args.constraint or written[1])


def _answer(
    args: argparse.Namespace, question: Question, study: Study | None, wanted: Wanted
) -> Recommendation:
    """Return the answer to one question, measuring where nothing is stored or it is asked for."""
    from edgescope.analysis.cells.recommend import recommend
    from edgescope.cli.recommend_question import grid

    stored = list(question.stored)
    if stored and not args.search and not args.confirm:
        return recommend(_whole(args, stored, wanted), wanted)
    confirm = 3 if args.confirm is None else args.confirm
    if args.search or not stored:
        trials = grid(args, question, study)
        results = _explore(args, trials, wanted, budget=_budget(args.budget, len(trials)), confirm=confirm)
    else:
        results = _explore(args, tuple(r.trial for r in stored), wanted, budget=0, confirm=confirm)
    return recommend(results, wanted, least=confirm + 1)


def _whole(args: argparse.Namespace, stored: list[Result], wanted: Wanted) -> list[Result]:
    """Return the results, with their raw rows where a percentile or the bound of a tail needs them."""
    from edgescope.analysis.cells.choices import asks_tails
    from edgescope.analysis.cells.compare import by_cell
    from edgescope.analysis.cells.percentiles import lacks_rows

    if not asks_tails(wanted) and not any(lacks_rows(group) for group in by_cell(stored).values()):
        return stored
    store = opened.store(args)
    found = store.fulls(stored)
    for problem in store.problems:
        print(problem, file=sys.stderr)
    return found


def _budget(text: str, cells: int) -> int:
    """Return how many cells may be measured: a number, or a share of the grid and at least 6."""
    from edgescope.errors import UsageError

    number = text.removesuffix("%")
    try:
        count = max(6, round(float(number) / 100 * cells)) if text.endswith("%") else int(number)
    except ValueError:
        count = 0
    if count < 1:
        raise UsageError(
            "E-PICK-4", f"--budget takes a number of cells or a share, not {text!r}", fix="--budget 10%"
        )
    return min(count, cells)


def _explore(
    args: argparse.Namespace, trials: tuple[Trial, ...], wanted: Wanted, *, budget: int, confirm: int
) -> list[Result]:
    from edgescope.analysis.cells import machines
    from edgescope.bench import here
    from edgescope.models import zoo
    from edgescope.search.explore import Budget, explore

    opened.check_modes(trials)
    machines.unmixed(trials, opened.store(args).results(), here(), args.machine)
    if budget:
        print(
            f"searching {len(trials)} cells: {budget} of them are measured, beside those that the store holds",
            file=sys.stderr,
            flush=True,
        )
    known = {
        name: zoo.table().get(name.partition("#")[0], {}).get("macs") for name in {t.model for t in trials}
    }
    cells = opened.cells(args, opened.store(args))
    asked = Budget(budget, confirm, args.seed)
    macs = {name: float(n) for name, n in known.items() if n}
    return list(explore(trials, cells, wanted, asked, macs=macs, cores=os.cpu_count() or 1, tell=_tell))


def _tell(step: Step) -> None:
    """Print where the search stands on stderr."""
    from edgescope.units import duration

    left = "" if step.eta_s is None else f", about {duration(step.eta_s)} left"
    model = step.trial.model.partition("#")[0]
    print(
        f"[{step.stage} {step.position}/{step.total}] {model} {step.trial.label}{left}",
        file=sys.stderr,
        flush=True,
    )
