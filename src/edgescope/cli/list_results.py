"""List the results in a store, newest last."""

from __future__ import annotations

import argparse
import json
import sys

from edgescope.cli import opened

HELP = "the results in a store"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("--model", default="", help="only models whose name contains this")
    sub.add_argument("--backend", default="", help="only this backend")
    sub.add_argument("--status", default="", help="only this status")
    sub.add_argument(
        "--machine", default="", metavar="ID", help="only the machine whose id begins so, or `here`"
    )
    sub.add_argument("--store", default=None, metavar="DIR")
    sub.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Print one line a result; what cannot be read is named on stderr and skipped."""
    from edgescope.records import codec

    store, machine = opened.store(args), opened.machine(args.machine)
    found = [
        r
        for r in store.results()
        if args.model in r.trial.model
        and args.backend in ("", r.trial.backend)
        and args.status in ("", r.status.value)
        and r.machine.id.startswith(machine)
    ]
    if args.json:
        print(json.dumps([codec.to_json(r) for r in found]))
    else:
        from edgescope.report.render import terminal
        from edgescope.report.result import listing

        terminal.listing(listing(found))
    for problem in store.problems:
        print(problem, file=sys.stderr)
    return 0
