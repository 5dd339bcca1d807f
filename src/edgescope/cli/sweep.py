"""Measure a grid: every combination of the values given, shuffled, resumable.

  edgescope sweep --model mobilenet_v2,resnet50 --backend onnxruntime,openvino --precision fp32,int8 --batch 1,4
  edgescope sweep study.toml --dry-run
  edgescope sweep study.toml

The same command again runs only what is missing. A cell that ran out of memory answers for the larger ones, and one
that cannot fit is not started; both are shown as skipped, with the reason. `edgescope docs sweeps` has every key.
The exit code is 1 while a cell of the grid has failed, whether in this run or an earlier one, and 0 otherwise.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.cli import opened, trial_flags

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from edgescope.records import Trial
    from edgescope.study.grid import Study

#: Flags that may stand beside a study file: those that say nothing of what is measured.
MANNER = ("cooldown", "cooldown_c", "order_seed", "timeout", "memory_floor", "reuse_workers", "prune")
BESIDE_STUDY = {
    "study",
    "dry_run",
    "machine",
    "store",
    "retry",
    "json",
    "verbose",
    "allow_power_limit",
    *MANNER,
}

HELP = "measure a grid of models, engines, precisions, batches and processes; resumable"
INTERRUPTED = "What was finished is stored; the same command goes on where it was."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "study", nargs="?", default=None, help="study.toml: all of the grid; or use the flags below"
    )
    sub.add_argument("--model", default=None, help="comma-separated")
    sub.add_argument("--backend", default="torch_eager", help="comma-separated")
    sub.add_argument("--precision", default="fp32", help="comma-separated")
    sub.add_argument("--batch", default="1", help="comma-separated")
    sub.add_argument("--replicates", type=int, default=1, help="fresh processes a cell")
    sub.add_argument(
        "--dry-run", action="store_true", help="print the grid and which cells are finished; run nothing"
    )
    opened.add_verbose(sub)
    _add_manner(sub.add_argument_group("how it is run"))
    trial_flags.add_load(sub, lists=True)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def _add_manner(group: argparse._ArgumentGroup) -> None:
    """Add the flags that change no number, only the way to it."""
    group.add_argument(
        "--cooldown", type=trial_flags.seconds, default=0.0, metavar="2s", help="pause between cells"
    )
    text = "pause until the machine is at most so many degrees warmer than before the sweep (2 min at most)"
    group.add_argument("--cooldown-c", type=float, default=None, metavar="DEGREES", help=text)
    group.add_argument("--order-seed", type=int, default=0, help="seed of the shuffled order")
    text = "keep workers loaded between cells of one model, engine and precision; replicates stay fresh"
    group.add_argument("--reuse-workers", action="store_true", help=text)
    text = "try cells larger than one that ran out of memory, and those that will not fit"
    group.add_argument("--no-prune", dest="prune", action="store_false", help=text)
    text = "`here`, or the beginning of this machine's id: measure here although another machine's results are there"
    group.add_argument("--machine", default="", metavar="ID", help=text)


def run(args: argparse.Namespace) -> int:
    """Run what the store lacks; print what became of the grid, or JSON lines."""
    from edgescope.analysis.cells import machines
    from edgescope.bench import here
    from edgescope.sweep import run as sweep

    plan = _plan(args)
    opened.check_modes(plan.trials)
    if plan.store is not None and args.store is None:
        args.store = str(plan.store)
    opened.limits(args)  # before anything runs
    store, where = opened.store(args), here()
    machines.unmixed(plan.trials, store.results(), where, args.machine)
    if args.dry_run:
        missing = {t.id for t in sweep.pending(plan.trials, store, where, opened.retried(args))}
        _dry(plan.trials, missing, as_json=args.json)
        return 0
    return _measure(plan.trials, args)


def _dry(trials: Sequence[Trial], missing: Collection[str], *, as_json: bool) -> None:
    """Print the grid; as JSON each cell as soon as it is known."""
    from edgescope.report.render import terminal
    from edgescope.report.sweep import grid

    if not as_json:
        terminal.show(grid(trials, missing), limit=None)
        return
    before = "[\n "
    for t in trials:
        row = {"trial": t.id, "label": f"{t.model} {t.label}", "finished": t.id not in missing}
        print(before + json.dumps(row), end="")
        before = ",\n "
    print("\n]" if trials else "[]")


def _measure(trials: tuple[Trial, ...], args: argparse.Namespace) -> int:
    """Run the cells and show them; return 1 where one of the grid has not ended well, now or in an earlier run."""
    from edgescope.cli import sweep_manner
    from edgescope.cli.sweep_screen import Screen
    from edgescope.records import codec
    from edgescope.report.sweep import GOOD
    from edgescope.sweep import run as sweep

    cells = opened.cells(args, opened.store(args))
    screen = Screen(trials, args.study or "", verbose=args.verbose)
    new = {}
    with sweep_manner.manner(args, cells) as manner:
        told = opened.tell if args.json else screen.tell
        if args.reuse_workers:
            opened.say("building what the cells need first ...")
        for result in sweep.run(trials, cells, tell=told, **manner):
            if args.json:
                print(json.dumps(codec.to_json(result)), flush=True)
            else:
                screen.show(result)
            new[result.trial.id] = result
    known = cells.finished() | new
    if not args.json:
        screen.close(known)
    return int(any(t.id not in known or known[t.id].status not in GOOD for t in trials))


def _plan(args: argparse.Namespace) -> Study:
    """Return the study that the file or the flags describe; set the flags that its [sweep] sets."""
    from edgescope.errors import UsageError
    from edgescope.models import zoo
    from edgescope.study import grid

    if not args.study:
        return _of_flags(args)
    typed = trial_flags.typed(configure, args)
    stray = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(typed - BESIDE_STUDY))
    if stray:
        raise UsageError(
            "E-SWEEP-5",
            f"{args.study} says what to measure",
            evidence=f"typed beside it: {stray}",
            effect="Nothing was measured",
            fix=f"write it into [trial] of {args.study}, or give no study file (edgescope docs sweeps)",
        )
    plan = grid.read(Path(args.study), zoo.pin, opened.say)
    for note in plan.notes:
        opened.say(note)
    for key, value in (plan.sweep or {}).items():
        if key not in typed:
            setattr(args, key, trial_flags.seconds(str(value)) if key in ("cooldown", "timeout") else value)
    return plan


def _of_flags(args: argparse.Namespace) -> Study:
    from edgescope.errors import UsageError
    from edgescope.models import zoo
    from edgescope.study import grid

    if not args.model:
        raise UsageError("E-SWEEP-1", "a sweep needs a study.toml or --model", fix="edgescope sweep --help")
    keys: dict[str, Any] = trial_flags.keys(args)
    keys |= {name: getattr(args, name).split(",") for name in ("model", "backend", "precision")}
    keys["model"] = [zoo.pin(name) for name in keys["model"]]
    try:
        keys["batch"] = [int(n) for n in args.batch.split(",")]
    except ValueError as error:
        raise UsageError("E-SWEEP-2", f"--batch takes whole numbers, not {args.batch!r}") from error
    trials = grid.grid(keys | {"replicates": args.replicates}, opened.say)
    return grid.Study(tuple(grid.pinned(trial, zoo.pin) for trial in trials))
