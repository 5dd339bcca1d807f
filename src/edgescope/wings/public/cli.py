"""List what others published of edge boards, or see a result beside it.

  edgescope public --system orin_nano_super
  edgescope public --model resnet50 --precision int8
  edgescope public latest

Each figure has its source, the revision that was read, and what it is. A ratio is given where a result has the same
quantity under the same load; else the reason, and the flags that would measure it.
"""

from __future__ import annotations

import argparse

from edgescope.commandline import context, trial_flags


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("result", nargs="?", default=None, help="a result or cell of edgescope list, or latest")
    for name, example in (
        ("system", "the board orin_nano_super"),
        ("model", "resnet50"),
        ("precision", "int8"),
    ):
        sub.add_argument(
            f"--{name}", default="", metavar="NAME", help=f"{name}: only its figures, such as {example}"
        )
    text = "kind of figure: only this one, such as mlperf_single_stream"
    sub.add_argument("--definition", default="", metavar="NAME", help=text)
    trial_flags.add_output(sub, "file to write: the table as well (.html, .md, .csv, .json)")
    trial_flags.add_machine(sub, "whose results the names mean")
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)
    context.add_verbose(sub)


def run(args: argparse.Namespace) -> int:
    """Print the table; return 0."""
    from edgescope.wings.public.page import document
    from edgescope.wings.public.verb import public

    context.ready(args)
    asked = {name: getattr(args, name) for name in ("system", "model", "precision", "definition")}
    found = public(args.result, **asked, store=context.store(args), machine=args.machine)
    context.show(args, document(found, context.command()), whole=args.result is None)
    return 0
