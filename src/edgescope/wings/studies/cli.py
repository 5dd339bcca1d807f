"""Regenerate a published study on this machine: its tables, figures and claims, next to the published numbers.

edgescope study nano_table --run --models mobilenet_v2,squeezenet1_1 --output table.html
edgescope study concurrent --study studies/concurrent_cpu.toml --output concurrent.html
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.commandline import context, trial_flags
from edgescope.wings.studies.paper import Paper, papers

if TYPE_CHECKING:
    from edgescope.records import Result
    from edgescope.store.results import Store

BUDGETS: Mapping[str, tuple[float, str]] = {
    "optimize": (90.0, "for each model"),
    "characterize": (1200.0, "for what is still to be measured"),
}
"""What a study is measured by -> the seconds that it takes if --budget is not given, and what for."""
INTERRUPTED = "Finished trials are stored; the same command goes on with the others."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the studies, each with the flags that its paper.toml defines."""
    studies = sub.add_subparsers(dest="paper", metavar="STUDY", required=True)
    for name, paper in papers().items():
        about = f"{paper.title} ({paper.source}): {paper.summary}."
        one = studies.add_parser(name, help=paper.summary, description=about)
        one.add_argument(
            "--models", type=trial_flags.words, default=(), metavar="NAME,..", help="only these models (all)"
        )
        trial_flags.add_machine(one, "only its results")
        for option, keys in paper.options.items():
            kind = {"type": Path, "default": None} if "kind" in keys else {"default": ""}
            one.add_argument(f"--{option}", **kind | {k: v for k, v in keys.items() if k != "kind"})
        trial_flags.add_other_store(one, "another machine's results")
        trial_flags.add_price(one, "'Orin Nano=249', its address or the beginning of its id")
        trial_flags.add_output(one, "file to write: the answer as well (.html, .md, .csv, .json)")
        context.add_verbose(one)
        if not paper.measured_by:
            trial_flags.add_store(one)
            trial_flags.add_json(one)
            continue
        trial_flags.add_run(one)
        trial_flags.add_board(one, "; repeated: boards beside each other")
        if paper.measured_by in BUDGETS:
            usual, said = BUDGETS[paper.measured_by]
            text = f"time until the answer, {said}, with --run ({usual:g}s)"
            one.add_argument("--budget", type=trial_flags.seconds, default=usual, metavar="TIME", help=text)
        if paper.measured_by == "optimize":
            trial_flags.add_timing(one)
        trial_flags.add_safety(one)


def run(args: argparse.Namespace) -> int:
    """Measure with --run, print the answer, write the file; return 1 if the store gives no answer."""
    from edgescope.report.document import Answer
    from edgescope.wings.studies.verb import study

    context.ready(args)
    paper, store = papers()[args.paper], _store(args)
    options = {name: _read(args, name, keys) for name, keys in paper.options.items()}
    prices = _boards_of_file(args) | dict(args.price)
    found = study(
        paper.name,
        store,
        _results(args, paper, store),
        models=args.models,
        command=context.command(),
        prices=prices,
        **options,
    )
    for problem in store.problems:
        context.say(str(problem))
    context.show(args, found, whole=True)
    if args.output and not args.json:
        print(f"written to {args.output}")
    return int(any(isinstance(part, Answer) and part.kind == "none" for part in found.parts))


def _boards_of_file(args: argparse.Namespace) -> dict[str, float]:
    """Let the boards that a study file names stand for --on, if that is not given; return their prices."""
    if not getattr(args, "study", None) or args.on:
        return {}
    from edgescope.study import grid

    named = grid.read(args.study).boards
    args.on = list(named)
    return {_bare(url): price for url, price in named.items() if price is not None}


def _bare(url: str) -> str:
    """Return an address as a board's Machine has it: without options."""
    return url.partition("?")[0].rstrip("/")


def _store(args: argparse.Namespace) -> Store:
    from edgescope.store.several import Stores

    return Stores(args.store or None, args.other_store) if args.other_store else context.store(args)


def _results(args: argparse.Namespace, paper: Paper, store: Store) -> list[Result]:
    """Measure with --run; return the results of the boards that --on names, else of this machine or --machine.

    One of several boards that cannot be reached is told, and what the store holds of it stays in the answer. Without
    --run a board is connected only if the store does not know it.
    """
    from edgescope.devices import manifest
    from edgescope.errors import EdgescopeError, UsageError
    from edgescope.runner.setup import own_results

    urls, runs, ids = list(getattr(args, "on", [])), getattr(args, "run", False), set[str]()
    several = len(urls) > 1
    for url in urls or [""]:
        stored = {r.machine.id for r in store.results() if _address(r) == _bare(url)} if several else set()
        ids |= stored
        if stored and not runs:
            continue
        try:
            context.use_board(url)
        except EdgescopeError as error:
            if not several or isinstance(error, UsageError):
                raise
            context.say(f"{url}: {error}")
            continue
        ids.add(manifest.here().id)
        if runs:
            MEASURES[paper.measured_by](args, paper, store)
    if several:
        return [r for r in store.results() if r.machine.id in ids]
    return own_results(store, args.machine, context.say, apart=True)


def _address(result: Result) -> str:
    """Return the address of the board that a result was measured on, '' if it was no board."""
    agent = result.machine.state.get("agent")
    return str(agent.get("address")) if isinstance(agent, Mapping) else ""


def _read(args: argparse.Namespace, name: str, keys: Mapping[str, Any]) -> object:
    """Return the value of one of the paper's own flags; for a file, its content."""
    given = getattr(args, name)
    return READERS[keys["kind"]](given) if "kind" in keys else given


def _grid(path: Path | None) -> object:
    from edgescope.models import zoo
    from edgescope.study import grid

    return grid.read(path, zoo.pin).trials if path else ()


def _ceilings(path: Path | None) -> object:
    from edgescope.analysis import roofline

    return roofline.read(path) if path else None


def _traces(folder: Path | None) -> object:
    """Return the account of each trace in a folder by the name of its file, without its endings."""
    from edgescope.analysis.kernels.account import account
    from edgescope.errors import UsageError
    from edgescope.wings.trace.lends import read

    if folder is None:
        return {}
    if not folder.is_dir():
        raise UsageError("E-PAPER-4", f"{folder} is no folder of traces", fix="--traces FOLDER")
    files = [path for path in sorted(folder.iterdir()) if path.suffix != ".nsys-rep"]
    return {Path(path.name.removesuffix(".gz")).stem: account(read(path)) for path in files}


#: Kind of a flag that names a file or folder -> its reader.
READERS: Mapping[str, Callable[[Path | None], object]] = {
    "grid": _grid,
    "ceilings": _ceilings,
    "traces": _traces,
}


def _climb(args: argparse.Namespace, paper: Paper, store: Store) -> None:
    """Measure the levels of each model's pipeline into the store."""
    from edgescope.wings.studies.verb import ladder

    for model in args.models or ("",):
        ladder(model, args.source, device=args.device, store=store, setup=context.setup(args))


def _optimize(args: argparse.Namespace, paper: Paper, store: Store) -> None:
    """Optimise each model into the store; report a model that fails, store why, and continue."""
    from edgescope.devices import manifest
    from edgescope.errors import EdgescopeError
    from edgescope.records import Result, Status, Trial
    from edgescope.wings.optimize.verb import optimize

    keys, setup = trial_flags.timing_keys(args) | {"device": args.device}, context.setup(args)
    for model in args.models or paper.own.models():
        try:
            optimize(model, budget=args.budget, store=store, setup=setup, **keys)
        except EdgescopeError as error:
            context.say(f"{model}: {error}")
            failed = Trial(model=model, device=args.device)
            setup.cells(store).put(Result.begun(failed, manifest.here(), Status.FAILED, error.message))


def _characterize(args: argparse.Namespace, paper: Paper, store: Store) -> None:
    """Measure the grid of the training study into the store, in a board's modes too, until the budget is spent."""
    from edgescope.process.said import waiting
    from edgescope.runner.setup import board_modes
    from edgescope.wings.studies.verb import train_characterize

    modes = board_modes() if args.mode == "all" else trial_flags.words(args.mode)
    how = {"device": args.device, "models": args.models, "modes": modes, "budget": args.budget}
    train_characterize(**how, store=store, setup=context.setup(args), waiting=waiting)


def _sweep(args: argparse.Namespace, paper: Paper, store: Store) -> None:
    """Measure the cells of the study file, else of the paper, as a sweep does: what cannot fit is left out."""
    from edgescope.verbs.sweep import sweep

    given = _read(args, "study", paper.options["study"])
    cells = paper.own.planned(paper, study=given, device=args.device)
    sweep(
        [t for t in cells if not args.models or t.model.startswith(args.models)],
        store=store,
        setup=context.setup(args),
    )


def _plan(args: argparse.Namespace, paper: Paper, store: Store) -> None:
    """Measure the trials that the study plans; report one that fails and continue."""
    from edgescope.models import zoo
    from edgescope.study import grid

    setup = context.setup(args)
    cells = setup.cells(store)
    for trial in paper.own.planned(paper, **{name: getattr(args, name) for name in paper.options}):
        asked = grid.pinned(trial, zoo.pin)
        setup.tell(f"  {asked.model.partition('#')[0]} {asked.label}")
        cells.run(asked)


#: What --run does, by the paper's `measured_by`.
MEASURES: Mapping[str, Callable[[argparse.Namespace, Paper, Store], None]] = {
    "optimize": _optimize,
    "ladder": _climb,
    "plan": _plan,
    "sweep": _sweep,
    "characterize": _characterize,
}
