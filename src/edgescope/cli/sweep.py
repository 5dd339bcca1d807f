"""Measure a grid: every combination of the given values, in shuffled order, resumable.

  edgescope sweep --model mobilenet_v2,resnet50 --backend onnxruntime,openvino --precision fp32,int8 --batch 1,4
  edgescope sweep study.toml --dry-run
  edgescope sweep study.toml
  edgescope sweep study.toml --on ssh://user@nano

The same command again runs only what is missing. A cell is skipped, with the reason, if a smaller one ran out of memory
or if it cannot fit. `edgescope docs sweeps` lists every key. The exit code is 0 if no cell of the grid has failed, in
this run or an earlier one, and 2 if a cell was mistyped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edgescope.commandline import context, trial_flags
from edgescope.errors import UsageError

if TYPE_CHECKING:
    from edgescope.records import Result, Trial
    from edgescope.runner.run import Progress
    from edgescope.study.grid import Study

#: Flags that may be combined with a study file: they do not change what is measured.
MANNER = ("cooldown", "cooldown_c", "order_seed", "timeout", "memory_floor", "reuse_workers", "prune")
BESIDE_STUDY = {
    "study",
    "dry_run",
    "machine",
    "store",
    "retry",
    "on",
    "json",
    "verbose",
    "allow_power_limit",
    *MANNER,
}

INTERRUPTED = "Finished trials are stored; the same command goes on with the others."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "study", nargs="?", default=None, help="study.toml that describes the grid; or use the flags below"
    )
    sub.add_argument("--model", default=None, help="model: one or several, comma-separated")
    trial_flags.add_what(sub, lists=True)
    sub.add_argument("--replicates", type=int, default=1, help="fresh processes, for each cell (1)")
    sub.add_argument(
        "--dry-run", action="store_true", help="print the grid and which cells are finished; run nothing"
    )
    trial_flags.add_board(sub)
    context.add_verbose(sub)
    _add_manner(sub.add_argument_group("order and pauses"))
    trial_flags.add_load(sub, lists=True)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def _add_manner(group: argparse._ArgumentGroup) -> None:
    """Add the flags that change how cells are run, not what is measured."""
    group.add_argument(
        "--cooldown", type=trial_flags.seconds, default=0.0, metavar="2s", help="pause between cells (0)"
    )
    text = "pause until the machine is at most DEGREES warmer than before the sweep, but no longer than 2 min"
    group.add_argument("--cooldown-c", type=float, default=None, metavar="DEGREES", help=text)
    group.add_argument("--order-seed", type=int, default=0, help="seed of the shuffled order (0)")
    text = "keep workers loaded between cells of one model, engine and precision; replicates still use fresh ones"
    group.add_argument("--reuse-workers", action="store_true", help=text)
    text = "also run cells that are larger than one that ran out of memory, and cells that will not fit"
    group.add_argument("--no-prune", dest="prune", action="store_false", help=text)
    trial_flags.add_machine(group, "allow a store that holds another machine's results of these cells")


def run(args: argparse.Namespace) -> int:
    """Run what the store lacks; print a summary of the grid, or JSON lines; return the exit code."""
    from edgescope.verbs.sweep import sweep

    plan, manner = _plan(args)
    if plan.store is not None and args.store is None:
        args.store = str(plan.store)
    args.on = args.on or list(plan.boards)
    context.use_board(trial_flags.board(args), plan.trials)
    setup = context.setup(args)
    if args.dry_run:
        return _dry(plan.trials, args)
    from edgescope.runner.run import Progress

    view = Screen(plan.trials, args.study or "", verbose=args.verbose)
    if not args.json:
        setup = replace(setup, tell=lambda at: view.tell(at) if isinstance(at, Progress) else context.say(at))
    show = _row if args.json else view.show
    found = sweep(plan, store=context.store(args), machine=args.machine, setup=setup, show=show, **manner)
    if not args.json:
        view.close({r.trial.id: r for r in found})
    return _code(plan.trials, found)


def _row(result: Result) -> None:
    from edgescope.records import codec

    print(json.dumps(codec.to_json(result)), flush=True)


def _code(trials: Sequence[Trial], found: Sequence[Result]) -> int:
    """Return 0 if every cell has ended well, now or in an earlier run, else the highest code of a failed cell."""
    from edgescope.report.sweep import GOOD

    codes = [context.exit_code(r) for r in found if r.status not in GOOD]
    return max(codes, default=int(len(found) < len(trials)))


def _dry(trials: tuple[Trial, ...], args: argparse.Namespace) -> int:
    """Print the grid and which of its cells are finished; return 0."""
    from edgescope.analysis.cells import machines
    from edgescope.bench import here
    from edgescope.report import terminal
    from edgescope.report.sweep import grid
    from edgescope.runner.run import pending
    from edgescope.runner.setup import check_modes, own_results

    store, where = context.store(args), here()
    check_modes(trials, context.say)
    machines.measured_by(where, args.machine)
    own_results(store, machines.HERE, context.say)
    missing = {t.id for t in pending(trials, store, where, context.retried(args))}
    if not args.json:
        terminal.show(grid(trials, missing), limit=None)
        return 0
    before = "[\n "
    for t in trials:  # print each cell as soon as it is known
        row = {"trial": t.id, "label": f"{t.model} {t.label}", "finished": t.id not in missing}
        print(before + json.dumps(row), end="")
        before = ",\n "
    print("\n]" if trials else "[]")
    return 0


def _plan(args: argparse.Namespace) -> tuple[Study, dict[str, Any]]:
    """Return the study that the file or the flags describe, and the typed keys of how to run it."""
    from edgescope.verbs.sweep import USUAL, planned

    if not args.study:
        return planned(_of_flags(args), context.say), {name: getattr(args, name) for name in USUAL}
    typed = trial_flags.typed(configure, args)
    stray = ", ".join(f"--{name.replace('_', '-')}" for name in sorted(typed - BESIDE_STUDY))
    if stray:
        raise UsageError(
            "E-SWEEP-5",
            f"{args.study} says what to measure, so flags may not say it too",
            evidence=f"typed: {stray}",
            effect="Nothing was measured",
            fix=f"write it into [trial] of {args.study}, or give no study file (edgescope docs sweeps)",
        )
    return planned(args.study, context.say), {name: getattr(args, name) for name in MANNER if name in typed}


def _of_flags(args: argparse.Namespace) -> dict[str, Any]:
    from edgescope.models import zoo

    if not args.model:
        raise UsageError("E-SWEEP-1", "a sweep needs a study.toml or --model", fix="edgescope sweep --help")
    models = [zoo.pin(name) for name in args.model.split(",")]
    keys = trial_flags.keys(args)
    return keys | {"model": models, "replicates": args.replicates}


# -- the screen: the running cell, one line for each finished cell (with -v on stdout), then a summary -----------

_CLEAR = "\r\x1b[K"


class Screen:
    """Prints the progress of one sweep over `trials`, then its summary."""

    def __init__(self, trials: Sequence[Trial], study: str = "", *, verbose: bool = False) -> None:
        self.study, self.verbose = study, verbose
        """The study file, or '' if flags describe the trials; whether each cell's line goes to stdout."""
        from edgescope.report import sweep

        self.trials, self.name = trials, sweep.namer(trials)
        self.wide = min(48, max(len(self.name(t)) for t in trials))
        self.begun = time.monotonic()
        self.at: Progress | None = None
        self.live = sys.stderr.isatty()
        self.new: list[Result] = []

    def tell(self, progress: Progress) -> None:
        """Print which cell runs now; on a terminal, the line of its result replaces it."""
        from edgescope.process import said
        from edgescope.report import sweep
        from edgescope.units import remaining

        if self.at is None and (same := sweep.shared(self.trials)):
            context.say(f"all cells: {same}")
        self.at = progress
        eta = remaining(progress.eta_s, progress.spent_s)
        text = f"[{progress.done + 1}/{progress.total}] {self.name(progress.trial)}{eta}"
        if self.live:
            sys.stderr.write(f"{_CLEAR}{said.fitted(text, said.columns() - 5)} ...")
            sys.stderr.flush()
        else:
            context.say(text)

    def show(self, result: Result) -> None:
        """Print the line of one result."""
        from edgescope.report import sweep, terminal

        if self.live:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
        self.new.append(result)
        done, total = (self.at.done + 1, self.at.total) if self.at else (len(self.new), len(self.trials))
        head = f"[{done:>{len(str(total))}}/{total}] {self.name(result.trial):<{self.wide}} "
        line = sweep.line(result, head)
        if self.verbose:
            terminal.printed([line])
        else:
            context.say(terminal.words(line))

    def close(self, stored: Mapping[str, Result]) -> None:
        """Print the summary of the grid."""
        from edgescope.report import sweep, terminal
        from edgescope.units import lasting

        wanted = {t.id for t in self.trials}
        every = {id_: r for id_, r in stored.items() if id_ in wanted} | {r.trial.id: r for r in self.new}
        results = [every[t.id] for t in self.trials if t.id in every]
        took = f"{len(self.new)} ran in {lasting(time.monotonic() - self.begun)}; "
        steps = sweep.following(results, self.study)
        page = sweep.document(results, self.name, steps, ran=took if self.new else "nothing was missing; ")
        terminal.show(page, verbose=self.verbose)
