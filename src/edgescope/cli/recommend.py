"""Say which engine, precision, batch and number of processes to use: the best that keeps every constraint.

From the cells that the store holds. Where it holds none, or with --search, a model-based search measures a few cells of
the grid that the flags or --study describe, and confirms its pick in fresh processes. A constraint is judged on the end
that hurts (an upper bound of p99 that covers other processes too). Each model is a question of its own; several that
are named compete in one.

  edgescope recommend --objective throughput --constraint "p99<=33ms" --constraint "memory<=2GB"
  edgescope recommend resnet50 --search --backend onnxruntime,openvino --precision fp32,int8 --batch 1,4,16
  edgescope recommend --study study.toml
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.cli import opened, trial_flags

if TYPE_CHECKING:
    from edgescope.analysis.objective import Wanted
    from edgescope.analysis.recommend import Recommendation
    from edgescope.explore import Step
    from edgescope.records import Result, Trial
    from edgescope.study import Study

HELP = "the best of the measured cells that keeps every constraint, or a search for it"
OBJECTIVES = ("throughput", "latency", "energy", "watts")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "models", nargs="*", metavar="MODEL", help="whose cells; several compete in one question"
    )
    group = sub.add_argument_group("what is wanted")
    group.add_argument(
        "--objective", default=None, choices=OBJECTIVES, help="what to be best at (throughput)"
    )
    text = "p99<=33ms, power<=10W, memory<=2GB, top1>=0.98ref, throughput>=30 ...; may be repeated"
    group.add_argument("--constraint", action="append", default=[], metavar="BOUND", help=text)
    text = "take the grid, [objective] and [[constraint]] from a study file"
    group.add_argument("--study", type=Path, default=None, metavar="FILE", help=text)
    group = sub.add_argument_group("which results")
    group.add_argument(
        "--machine", default="", metavar="ID", help="`here`, or the beginning of a machine's id"
    )
    group.add_argument("--all", action="store_true", help="show every cell, not the Pareto set alone")
    _add_search(sub.add_argument_group("search"))
    trial_flags.add_load(sub)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)
    sub.set_defaults(processes="1,2,4")


def _add_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--search", action="store_true", help="measure what is promising, stored results or not"
    )
    group.add_argument(
        "--budget", default="10%", metavar="N|10%", help="cells in all, at least 6 of a share (10%%)"
    )
    text = "further fresh processes of the pick (3 of a search, none of stored results)"
    group.add_argument("--confirm", type=int, default=None, metavar="N", help=text)
    group.add_argument("--backend", default="", help="comma-separated (all that are installed)")
    group.add_argument("--precision", default="", help="comma-separated (all that they have)")
    group.add_argument("--batch", default="1,4,16", help="comma-separated (1,4,16)")


def run(args: argparse.Namespace) -> int:
    """Answer from the store, or search; exit 1 when a question has no pick."""
    study = _study(args)
    wanted = _wanted(args, study)
    if study is not None and study.store is not None and args.store is None:
        args.store = str(study.store)
    questions = _questions(args, study)
    answers = [_answer(args, models, study, wanted) for models in questions]
    if args.json:
        from edgescope.cli import recommend_json

        print(json.dumps({"answers": [recommend_json.answer(a) for a in answers]}, indent=1))
    else:
        from edgescope.cli import recommend_view

        for number, answer in enumerate(answers):
            print("\n" * (number > 0), end="")
            recommend_view.show(answer, everything=args.all)
    return 0 if all(a.pick for a in answers) else 1


def _study(args: argparse.Namespace) -> Study | None:
    from edgescope import study
    from edgescope.models import zoo

    if args.study is None:
        return None
    found = study.read(args.study, zoo.pin)
    for note in found.notes:
        print(note, file=sys.stderr)
    return found


def _wanted(args: argparse.Namespace, study: Study | None) -> Wanted:
    """Return the question: what is typed, else what the study says."""
    from edgescope.analysis.objective import wanted

    written = (study.objective, study.constraints) if study is not None else ("", ())
    return wanted(args.objective or written[0] or "throughput", args.constraint or written[1])


def _questions(args: argparse.Namespace, study: Study | None) -> list[tuple[str, ...]]:
    """Return the models of each question, pinned; a question without any is answered with what there is."""
    from edgescope.models import zoo

    if args.models:
        return [tuple(zoo.pin(name) for name in args.models)]
    if study is not None:
        return [(name,) for name in dict.fromkeys(t.model for t in study.trials)]
    stored = opened.store(args).results()
    found = dict.fromkeys(r.trial.model for r in stored if _asked(r, args))
    return [(name,) for name in found] or [()]


def _asked(result: Result, args: argparse.Namespace) -> bool:
    """Whether a stored result belongs to what is asked: its scenario, and the machine if one is named."""
    from edgescope.analysis.choices import belongs

    if not belongs(result.trial, args.scenario):
        return False
    if args.machine == "here":
        from edgescope.bench import here

        return result.machine.id == here().id
    return result.machine.id.startswith(args.machine)


def _answer(
    args: argparse.Namespace, models: tuple[str, ...], study: Study | None, wanted: Wanted
) -> Recommendation:
    """Return the answer to one question, measuring where nothing is stored or it is asked for."""
    from edgescope.analysis.recommend import recommend

    stored = _stored(args, models, study)
    if stored and not args.search and not args.confirm:
        return recommend(_whole(args, stored, wanted), wanted)
    confirm = 3 if args.confirm is None else args.confirm
    if args.search or not stored:
        trials = _grid(args, models, study)
        results = _explore(args, trials, wanted, budget=_budget(args.budget, len(trials)), confirm=confirm)
    else:
        results = _explore(args, tuple(r.trial for r in stored), wanted, budget=0, confirm=confirm)
    return recommend(results, wanted, least=confirm + 1)


def _stored(args: argparse.Namespace, models: tuple[str, ...], study: Study | None) -> list[Result]:
    from edgescope.analysis.variants import variant

    asked = None if study is None else {variant(t) for t in study.trials}
    found = (r for r in opened.store(args).results() if r.trial.model in models and _asked(r, args))
    return [r for r in found if asked is None or variant(r.trial) in asked]


def _whole(args: argparse.Namespace, stored: list[Result], wanted: Wanted) -> list[Result]:
    """Return the results, with their raw rows where a bound of the tail may need them."""
    from edgescope.analysis.choices import asks_tails

    if not asks_tails(wanted):
        return stored
    store = opened.store(args)
    found = store.fulls(stored)
    for problem in store.problems:
        print(problem, file=sys.stderr)
    return found


def _grid(args: argparse.Namespace, models: tuple[str, ...], study: Study | None) -> tuple[Trial, ...]:
    """Return the cells to search: of the study, else of the flags."""
    from edgescope.errors import UsageError

    if study is not None:
        return tuple(t for t in study.trials if t.model in models)
    if not models:
        raise UsageError(
            "E-PICK-2",
            "the store holds no result to choose among, and no model is named to search for",
            fix="edgescope recommend MODEL, or edgescope sweep first",
        )
    return _of_flags(args, models)


def _of_flags(args: argparse.Namespace, models: tuple[str, ...]) -> tuple[Trial, ...]:
    from edgescope import candidates, study
    from edgescope.errors import UsageError

    keys: dict[str, Any] = trial_flags.keys(args) | {"model": list(models)}
    if args.duration is None:
        keys |= {"min_s": 1.0, "max_s": 2.5}
    try:
        keys["batch"] = [int(n) for n in args.batch.split(",")]
    except ValueError as error:
        raise UsageError("E-SWEEP-2", f"--batch takes whole numbers, not {args.batch!r}") from error
    device = keys["device"] or candidates.device()
    if args.backend:
        keys["precision"] = (args.precision or "fp32").split(",")
        return study.grid(keys | {"backend": args.backend.split(","), "device": args.device})
    from edgescope.cli.optimize import installed
    from edgescope.records import Trial

    asked = set(filter(None, args.precision.split(",")))
    tried = candidates.propose(Trial(model=models[0], device=device), installed()).trials
    found: list[Trial] = []
    for t in tried:
        if (not asked or t.precision in asked) and not candidates.dear(t):
            one = {"backend": t.backend, "precision": t.precision, "device": device}
            found += study.grid(keys | one | {"options": {**t.options, **keys["options"]}})
    return tuple({t.id: t for t in found}.values())


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
    from edgescope.explore import Budget, explore
    from edgescope.models import zoo

    opened.check_modes(trials)
    if budget:
        print(
            f"searching {len(trials)} cells: {budget} are measured, stored ones counted",
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
    left = "" if step.eta_s is None else f", about {step.eta_s:.0f} s left"
    model = step.trial.model.partition("#")[0]
    print(
        f"[{step.stage} {step.position}/{step.total}] {model} {step.trial.label}{left}",
        file=sys.stderr,
        flush=True,
    )
