"""List the results in a store, newest last, with the names that other verbs take and the time of each measurement."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from edgescope.cli import opened, trial_flags

if TYPE_CHECKING:
    from edgescope.records import Result
    from edgescope.store.results import Store

HELP = "list the results in a store"
FILTERS = ("model", "backend", "status", "machine")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    add_filters(sub)
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)


def add_filters(sub: argparse._ActionsContainer) -> None:
    """Add the flags that select results."""
    sub.add_argument("--model", default="", help="model: only results whose model's name contains this")
    sub.add_argument("--backend", default="", help="engine: only results of this engine")
    sub.add_argument(
        "--status", default="", help="status: only results with this status: ok, failed, oom ..."
    )
    trial_flags.add_machine(sub, "its results, or all")


def run(args: argparse.Namespace) -> int:
    """Print one line for each result; name what cannot be read on stderr and skip it; return 0."""
    from edgescope.records import codec

    store = opened.store(args)
    found = chosen(store, args)
    if args.json:
        print(json.dumps([codec.to_json(r) for r in found]))
    else:
        from edgescope.report.render import terminal
        from edgescope.report.result import listing

        terminal.listing(listing(found, brief=sys.stdout.isatty()))
        if not found:
            opened.say(f"no such result in {store.root}: edgescope bench MODEL measures one")
    for problem in store.problems:
        print(problem, file=sys.stderr)
    return 0


def chosen(store: Store, args: argparse.Namespace) -> list[Result]:
    """Return the results that match the filters, oldest first; UsageError for an unknown backend or status."""
    from edgescope import registry
    from edgescope.errors import check_name
    from edgescope.records import Status
    from edgescope.runner.own_results import own_results

    check_name("--backend", args.backend, registry.BACKENDS)
    check_name("--status", args.status, [s.value for s in Status])
    return [
        r
        for r in own_results(store, args.machine, opened.say, apart=True)
        if args.model in r.trial.model
        and args.backend in ("", r.trial.backend)
        and args.status in ("", r.status.value)
    ]
