"""Regenerate a published study on this machine: its tables, figures and claims beside its own numbers.

edgescope study nano_table --run --models mobilenet_v2,squeezenet1_1 --output table.html
edgescope study concurrent --study studies/concurrent_cpu.toml --output concurrent.html
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.cli import opened, trial_flags
from edgescope.papers.paper import Paper, papers

if TYPE_CHECKING:
    from edgescope.store.results import Store

HELP = "regenerate a published study's tables, figures and claims beside its own"
INTERRUPTED = "What --run had measured is stored; the same command goes on where it was."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the studies, each with the flags that its paper.toml has."""
    studies = sub.add_subparsers(dest="study_name", metavar="STUDY", required=True)
    for name, paper in papers().items():
        about = f"{paper.title} ({paper.source})"
        one = studies.add_parser(name, help=paper.summary, description=f"{about}: {paper.summary}.")
        one.add_argument("--models", type=_words, default=(), metavar="NAME,..", help="some models (all)")
        text = "of several machines in the store the one whose id begins so, or `here`"
        one.add_argument("--machine", default="", metavar="ID", help=text)
        for option, keys in paper.options.items():
            kind = {"type": Path, "default": None} if "kind" in keys else {"default": ""}
            one.add_argument(f"--{option}", **kind | {k: v for k, v in keys.items() if k != "kind"})
        text = "also write .html, .md, .csv or .json"
        one.add_argument("--output", "-o", type=Path, default=None, metavar="FILE", help=text)
        if paper.measured_by:
            one.add_argument("--run", action="store_true", help="measure what the store does not hold")
            text = "with --run: fresh processes of each variant (5)"
            one.add_argument("--rounds", type=int, default=5, help=text)
            trial_flags.add_timing(one)
            trial_flags.add_safety(one)
        else:
            one.add_argument(
                "--store", default=None, metavar="DIR", help="results folder (./edgescope-results)"
            )
            one.add_argument("--json", action="store_true", help="print everything as JSON")
        opened.add_verbose(one)


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def run(args: argparse.Namespace) -> int:
    """Measure if asked, print the answer, write the file; exit 1 where the store has none."""
    from edgescope.papers.paper import study
    from edgescope.report import RENDERERS, save, writable
    from edgescope.report.document import Answer
    from edgescope.report.render import json, terminal

    if args.output:
        writable(args.output, RENDERERS)  # before hours are spent
    paper, store = papers()[args.study_name], opened.store(args)
    options = {name: _read(args, name, keys) for name, keys in paper.options.items()}
    if getattr(args, "run", False):
        _measure(args, paper, store)
    machine = opened.machine(args.machine)
    found = study(paper.name, store, models=args.models, machine=machine, command=opened.command(), **options)
    for problem in store.problems:
        opened.say(str(problem))
    if args.output:
        save(found, args.output)  # first: what prints may be a pipe that is closed
    if args.json:
        print(json.text(found))
    else:
        terminal.show(found, verbose=args.verbose, limit=None)
        if args.output:
            print(f"written to {args.output}")
    return int(any(isinstance(part, Answer) and part.kind == "none" for part in found.parts))


def _read(args: argparse.Namespace, name: str, keys: Mapping[str, Any]) -> object:
    """Return the value of one of the paper's own flags: of a file, what it holds."""
    given = getattr(args, name)
    return READERS[keys["kind"]](given) if "kind" in keys else given


def _grid(path: Path | None) -> object:
    from edgescope.models import zoo
    from edgescope.study import grid

    return grid.read(path, zoo.pin).trials if path else ()


def _ceilings(path: Path | None) -> object:
    from edgescope.analysis.predict import roofline

    return roofline.read(path) if path else None


#: Kind of a flag that names a file -> what reads it.
READERS: Mapping[str, Callable[[Path | None], object]] = {"grid": _grid, "ceilings": _ceilings}


def _measure(args: argparse.Namespace, paper: Paper, store: Store) -> None:
    """Run `edgescope optimize` for each model; one that fails is told and does not end the study."""
    from edgescope.cli import optimize
    from edgescope.errors import EdgescopeError

    command = argparse.ArgumentParser()
    optimize.configure(command)
    own = {"json", "verbose", "output"}
    same = {k: v for k, v in vars(args).items() if k in vars(command.parse_args([""])) and k not in own}
    for model in args.models or paper.report.models():
        asked = argparse.Namespace(**(vars(command.parse_args([model])) | same | {"store": str(store.root)}))
        try:
            with contextlib.redirect_stdout(sys.stderr):
                optimize.run(asked)
        except EdgescopeError as error:
            opened.say(f"{model}: {error}")
