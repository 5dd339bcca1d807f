"""Judge a change: PASS, FAIL or INCONCLUSIVE on each limit.

  # two models, measured here in turns until 5 % is decided
  edgescope gate new.onnx --baseline old.onnx
  edgescope gate new.onnx --baseline old.onnx --limit latency=5% --limit memory=10%,20MB --budget 3min
  # two results of `edgescope list`
  edgescope gate 91bc --baseline 3f2a --limit p99=10% --junit gate.xml -o gate.md
  # one result by its own figures
  edgescope gate 91bc --constraint "p99<=33ms" --constraint "accuracy>=0.99ref"

Exit code: 0 for PASS, 1 for FAIL, 7 for INCONCLUSIVE; 2 and above where nothing could be judged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.commandline import context, trial_flags
from edgescope.errors import ExitCode

if TYPE_CHECKING:
    from edgescope.records import Trial
    from edgescope.verbs.compare import Named

INTERRUPTED = "Nothing was judged. Pairs that had finished are stored."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "candidate", help="a model (name or file), or a result or cell of edgescope list, or latest"
    )
    text = "what the candidate is judged against: a model, or a result or cell of edgescope list"
    sub.add_argument("--baseline", default=None, metavar="NAME", help=text)
    text = "most that may be lost: latency=5%%, memory=10%%,20MB (a loss up to the floor passes) ...; may be repeated"
    sub.add_argument("--limit", action="append", default=[], metavar="METRIC=SHARE", help=text)
    trial_flags.add_constraint(sub, '"p99<=33ms", "memory<=2GB", "top1>=0.99ref"')
    text = "time until the answer (3min); it comes sooner if all is decided"
    sub.add_argument("--budget", type=trial_flags.seconds, default=180.0, metavar="TIME", help=text)
    trial_flags.add_output(
        sub, "file to write: the verdict as well (.md for a pull request, .html, .csv, .json)"
    )
    text = "JUnit XML to write as well: FAIL is a failure, INCONCLUSIVE an error"
    sub.add_argument("--junit", type=Path, default=None, metavar="FILE", help=text)
    trial_flags.add_what(sub)
    trial_flags.add_other_store(sub, "the baseline")
    trial_flags.add_machine(sub, "whose results the names mean")
    trial_flags.add_load(sub)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)
    context.add_verbose(sub)


def run(args: argparse.Namespace) -> int:
    """Judge, print the verdict, write the files; return its exit code."""
    from edgescope.wings.gate.judging import Verdict
    from edgescope.wings.gate.page import document, save_junit
    from edgescope.wings.gate.verb import gate

    context.ready(args)
    candidate, baseline = sides(args)
    found = gate(
        candidate,
        baseline,
        limits=args.limit,
        constraints=args.constraint,
        budget=args.budget,
        store=context.store(args),
        other_store=trial_flags.other_store(args),
        machine=args.machine,
        setup=context.setup(args),
    )
    if args.junit:
        save_junit(found, args.junit)
    context.show(args, document(found, context.command()))
    codes = {Verdict.PASS: ExitCode.OK, Verdict.FAIL: ExitCode.FAILED}
    return codes.get(found.verdict, ExitCode.UNDECIDED)


def sides(args: argparse.Namespace) -> tuple[Named | Trial, Named | Trial | None]:
    """Return candidate and baseline: trials to measure where they name models, else names of what is stored."""
    named = [n for n in (args.candidate, args.baseline) if n is not None]
    if not all(map(_is_model, named)):
        return args.candidate, args.baseline
    trials = [
        trial_flags.trials_of(argparse.Namespace(**{**vars(args), "model": n, "replicates": 1}))[0]
        for n in named
    ]
    return trials[0], trials[1] if len(trials) > 1 else None


def _is_model(name: str) -> bool:
    from edgescope.models import zoo

    return zoo.is_file(name) or name in zoo.names() or ":" in name
