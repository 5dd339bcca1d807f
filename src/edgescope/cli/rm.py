"""Remove results from a store, by name or by filters. It asks before it removes anything.

edgescope rm 3f2a91 91bc04
edgescope rm --status failed --yes
"""

from __future__ import annotations

import argparse
import json
import sys

from edgescope.cli import list_results
from edgescope.commandline import context, trial_flags

INTERRUPTED = "Results that were not removed yet are unchanged."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "results", nargs="*", metavar="ID", help="results, by their names in edgescope list, or latest"
    )
    list_results.add_filters(sub.add_argument_group("or all results that match"))
    sub.add_argument("--yes", action="store_true", help="remove without asking")
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """List what would be removed, ask, remove it; return 1 if the answer is no."""
    from edgescope.analysis.cells import ids
    from edgescope.errors import UsageError
    from edgescope.report.render import terminal
    from edgescope.report.result import listing
    from edgescope.runner.own_results import named

    store, filtered = context.store(args), any(getattr(args, name) for name in list_results.FILTERS)
    if bool(args.results) == filtered:
        what = (
            "names of results cannot be combined with filters" if filtered else "no result to remove is named"
        )
        raise UsageError(
            "E-RM-1", what, effect="Nothing was removed", fix="edgescope list, then: edgescope rm ID"
        )
    every = list_results.chosen(store, args) if filtered else (named(store, i, ids.one) for i in args.results)
    found = list({r.id: r for r in every}.values())
    if not found:
        raise UsageError("E-RM-3", "no result matches these filters", fix="edgescope list")
    if not args.yes:
        if not sys.stdin.isatty():
            fix = "the same command with --yes"
            raise UsageError("E-RM-2", f"{len(found)} results would be removed", effect="None was", fix=fix)
        terminal.listing(listing(found))
        context.say(f"Remove {'this result' if len(found) == 1 else f'these {len(found)} results'}? [y/N]")
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            return 1
    for result in found:
        store.remove(result)
    removed = {"removed": [r.id for r in found]}
    print(json.dumps(removed) if args.json else f"removed {len(found)} result{'s' * (len(found) != 1)}")
    return 0
