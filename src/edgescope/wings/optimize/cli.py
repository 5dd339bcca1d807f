"""Find the fastest way to run a model on this machine that still gives the right answers.

Candidates (engines x precisions x layouts x graph capture) are screened in short runs. Those that may still be the best
then run alternately with the baseline, in pairs of processes that are both alive, and after the best is chosen further
pairs of it alone give the speed-up. The baseline is the model as it is: PyTorch, for an .onnx file ONNX Runtime, for a
.tflite file LiteRT. A candidate with wrong outputs, or one that breaks a constraint, is struck out and never picked. If
a run is interrupted, the same command continues it.

  edgescope optimize efficientnet_lite0
  edgescope optimize efficientnet_lite0 --objective throughput --constraint "p99<=33ms" --save deployed
  edgescope optimize efficientnet_lite0 --for orin_nano --jetpack 6.2.1
  edgescope optimize --for orin_nano --measured results.tgz --save deployed
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.commandline import context, trial_flags
from edgescope.errors import Message, UsageError, is_wrong_request
from edgescope.process.said import waiting

if TYPE_CHECKING:
    from edgescope.analysis.cells.variants import VariantTable
    from edgescope.records import Scalar
    from edgescope.wings.optimize.verb import Optimized

INTERRUPTED = "Finished trials are stored; the same command goes on with the others."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("model", nargs="?", help=f"{trial_flags.MODEL}; not needed with --measured")
    add(sub)
    group = sub.add_argument_group("a board that is not here")
    text = "make a folder to take to a board (nano, orin_nano, agx_orin ...) instead of measuring here"
    group.add_argument("--for", dest="plan_for", default="", metavar="BOARD", help=text)
    text = "the JetPack that is on it (the newest of the board)"
    group.add_argument("--jetpack", default="", metavar="VERSION", help=text)
    text = "rank what the folder's run.sh packed on the board"
    group.add_argument("--measured", default=None, metavar="FILE", help=text)


def add(sub: argparse.ArgumentParser) -> None:
    """Add the flags that optimize and demo share."""
    group = sub.add_argument_group("objective and constraints")
    text = "what to optimise: latency, throughput (or fps), energy, power (latency)"
    group.add_argument("--objective", default="latency", metavar="WORD", help=text)
    trial_flags.add_constraint(group, "p99<=33ms, accuracy>=0.98ref, memory<=2GB, power<=10W, energy<=50mJ")
    group = sub.add_argument_group("candidates and time")
    trial_flags.add_what(group, lists=True, usual=("", "", "1"), about="; the baseline always runs")
    text = "leave out candidates that have all of these: backend=, precision=, or an option; may be repeated"
    group.add_argument("--exclude", type=exclusion, action="append", default=[], metavar="K=V,..", help=text)
    text = "time until the answer (90s); what it leaves no time for is named"
    group.add_argument("--budget", type=trial_flags.seconds, default=90.0, metavar="TIME", help=text)
    text = "try everything: every candidate in several rounds of pairs, however long it takes"
    group.add_argument("--exhaustive", action="store_true", help=text)
    trial_flags.add_no_cache(group)
    trial_flags.add_board(group)
    group = sub.add_argument_group("output")
    text = "write the pick into DIR: its model file, a run.py that needs only its engine, and a card"
    group.add_argument("--save", default=None, metavar="DIR", help=text)
    trial_flags.add_output(group, "file to write: the report as well (.html, .md, .csv)")
    context.add_verbose(sub)
    trial_flags.add_load(sub)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Run the rounds, print the table and the pick; return 1 if no variant can be picked."""
    from edgescope.analysis.cells.objective import wanted
    from edgescope.wings.optimize.verb import optimize

    wanted(args.objective, args.constraint)  # before minutes are spent
    if getattr(args, "plan_for", "") or getattr(args, "measured", None):
        from edgescope.wings.optimize import away

        return away.run(args, _shown)
    if args.model is None:
        raise UsageError(
            "E-ARGS-1", "optimize needs a MODEL", fix="edgescope optimize MODEL, or --measured FILE"
        )
    context.use_board(trial_flags.board(args))
    setup = context.setup(args)
    if args.output:
        from edgescope.report import writable

        writable(args.output)
    if args.save:
        from edgescope.wings.optimize.save import ready

        ready(Path(args.save))
    found = optimize(
        args.model,
        objective=args.objective,
        constraints=args.constraint,
        **choice(args),
        budget=args.budget,
        exhaustive=args.exhaustive,
        cached=not args.no_cache,
        store=context.store(args),
        setup=setup,
        **trial_flags.keys(args, single=True, axes=trial_flags.AXES.keys() - {"backend", "precision"}),
    )
    return _shown(args, found)


def choice(args: argparse.Namespace) -> dict[str, list[Any]]:
    """Return the arguments of the flags that select candidates: backend, precision and exclude."""
    words = {name: [w for w in getattr(args, name).split(",") if w] for name in ("backend", "precision")}
    return words | {"exclude": args.exclude}


def exclusion(text: str) -> dict[str, Scalar]:
    """Parse `backend=openvino,precision=bf16`."""
    return dict(trial_flags.option(part) for part in text.split(","))


def _shown(args: argparse.Namespace, found: Optimized) -> int:
    """Print the answer and write the files of --save and --output; return the exit code."""
    from edgescope.records.codec import to_json
    from edgescope.report import data, terminal, variants

    saved = found.save(args.save) if args.save else None
    if args.output:
        with waiting(f"writing {args.output}"):
            found.report(args.output)
    written = {
        name: str(path) if path else None for name, path in (("saved", saved), ("report", args.output))
    }
    guess = f" (a guess: not shown to be better than {found.pick.guess})" if found.pick.guess else ""
    shown = {} if args.json else {**written, "saved": f"{saved}{guess}" if saved else None}
    left = again(found.variants)
    page = variants.document([found.chapter], missing=found.not_here, again=left, written=shown)
    if args.json:
        more = {"results": [to_json(r) for r in found.results]} | (
            {"saved": written["saved"]} if args.save else {}
        )
        print(data.json_text(dataclasses.replace(page, data={**page.data, **more})))
    else:
        terminal.show(page, verbose=args.verbose)
    return 0 if found.pick.row is not None else 1


class Demo:
    """Optimise a pretrained classifier on real photographs, on this CPU, in a few minutes.

    It measures the model in PyTorch, tries engines and precisions, checks which of them still give the right answers,
    says which variant to use, and writes edgescope-report.html.
    """

    INTERRUPTED = INTERRUPTED

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        add(sub)
        sub.set_defaults(output=Path("edgescope-report.html"), model="efficientnet_lite0")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Optimise the classifier and write the report; return the exit code of optimize."""
        return run(args)


#: Statuses that another attempt may change; the stored result is used until --retry names its status.
AGAIN = ("timeout", "crashed", "oom", "failed", "unsupported")


def again(found: VariantTable) -> list[str]:
    """Return the statuses of rejected rows that another attempt may change."""
    reasons = [row.rejected for row in found.rows if row.rejected]
    ends = [text for text in reasons if not is_wrong_request(_message(text))]
    statuses = {text.partition(":")[0].partition(" ")[0] for text in ends}
    return [status for status in AGAIN if status in statuses]


def _message(rejected: str) -> Message:
    """Return the message in the text of a rejection."""
    text = rejected.partition(": ")[2]
    return Message(text.partition(":")[0], text)
