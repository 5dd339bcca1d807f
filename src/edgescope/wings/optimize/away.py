"""`optimize --for BOARD`: what is typed and printed for a board that is not here."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.commandline import context, trial_flags
from edgescope.errors import UsageError
from edgescope.registry import REINSTALL, need

if TYPE_CHECKING:
    from edgescope.wings.optimize.plan import Planned
    from edgescope.wings.optimize.verb import Optimized


def run(args: argparse.Namespace, shown: Callable[[argparse.Namespace, Optimized], int]) -> int:
    """Make the folder of a plan, or rank what came back and print it as `shown` does; return the exit code."""
    if args.on:
        raise UsageError(
            "E-PLAN-13",
            "--on measures on a board that ssh reaches, --for plans for one that it does not",
            effect="Nothing was made",
            fix=f"edgescope optimize MODEL --on {shlex.quote(args.on[0])}",
        )
    if args.measured:
        return shown(args, _returned(args))
    if args.model is None:
        raise UsageError(
            "E-ARGS-1", "a plan needs a MODEL", fix=f"edgescope optimize MODEL --for {args.plan_for}"
        )
    plan = need("edgescope.wings.optimize.plan:plan", "a plan for a board", REINSTALL)
    keys = trial_flags.keys(args, single=True, axes=trial_flags.AXES.keys() - {"backend", "precision"})
    found: Planned = plan(
        args.model,
        args.plan_for,
        args.save,
        jetpack=args.jetpack,
        objective=args.objective,
        constraints=args.constraint,
        precision=[w for w in args.precision.split(",") if w],
        exclude=args.exclude,
        setup=context.setup(args),
        **{name: value for name, value in keys.items() if name != "device"},
    )
    _print(args, found)
    return 0


def _returned(args: argparse.Namespace) -> Optimized:
    returned = need("edgescope.wings.optimize.returned:returned", "results from a board", REINSTALL)
    if args.save:
        from edgescope.wings.optimize.save import ready

        ready(Path(args.save))
    typed = args.constraint or args.objective != "latency"
    found: Optimized = returned(
        args.measured,
        args.model,
        board=args.plan_for,
        objective=args.objective if typed else "",
        constraints=args.constraint,
        store=context.store(args),
        setup=context.setup(args),
    )
    return found


def _print(args: argparse.Namespace, found: Planned) -> None:
    """Print what the folder holds and what to do with it."""
    from edgescope.report import terminal
    from edgescope.report.document import Code, Items, Text

    if args.json:
        print(json.dumps(facts(found), indent=1))
        return
    held, folder = found.software, shlex.quote(str(found.folder))
    newest = "" if args.jetpack else ", the newest for it (--jetpack VERSION for another)"
    count = f"{len(found.candidates)} variant{'s' * (len(found.candidates) != 1)}"
    parts: list[Any] = [
        Text(
            f"{found.folder}: {count} to measure on a {found.board.name}, about {found.minutes} min", "strong"
        ),
        Text(f"JetPack {held.jetpack[-1]}{newest}: TensorRT {held.tensorrt}, CUDA {held.cuda}"),
        Items(tuple(f"{c.apart.trial.label}: {c.gated}" for c in found.candidates)),
    ]
    if found.not_here:
        parts += [Text("not tried:", "dim"), Items(tuple(f"{m.label}: {m.reason}" for m in found.not_here))]
    name = shlex.quote(found.folder.name)
    parts += [
        Text("nothing was measured. On the board:", "dim"),
        Code(f"scp -r {folder} USER@BOARD:"),
        Code(f"ssh USER@BOARD sh {name}/run.sh"),
        Code(f"scp USER@BOARD:{name}/results.tgz ."),
        Code(f"edgescope optimize --for {found.key} --measured results.tgz"),
        Text("or, where ssh reaches it, in one step and with its sensors:", "dim"),
        Code(f"edgescope optimize {shlex.quote(args.model)} --on ssh://USER@BOARD"),
    ]
    terminal.printed(parts)


def facts(found: Planned) -> dict[str, Any]:
    """Return {folder, board, jetpack, tensorrt, minutes, variants, measured: false}."""
    held = found.software
    return {
        "folder": str(found.folder),
        "board": found.key,
        "jetpack": held.jetpack[-1],
        "python": held.python,
        "cuda": held.cuda,
        "tensorrt": held.tensorrt,
        "minutes": found.minutes,
        "variants": found.records(),
        "measured": False,
    }
