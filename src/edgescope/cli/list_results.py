"""List the results in a store, newest last, with the names that other verbs take and the time of each measurement.

edgescope list
edgescope list --model resnet --sort latency
edgescope list --status failed -v
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgescope.commandline import context, trial_flags

if TYPE_CHECKING:
    from edgescope.records import Result
    from edgescope.store.results import Store

STARTED = "started"
FILTERS = ("model", "backend", "status", "machine")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    add_filters(sub)
    text = "order by: a figure, the best first, such as latency, fps, memory, energy; or started (started)"
    sub.add_argument("--sort", default=STARTED, metavar="WORD", help=text)
    context.add_verbose(sub)
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
    from edgescope.records import Status, codec
    from edgescope.units import counted

    store = context.store(args)
    found = ordered(chosen(store, args), args.sort)
    if args.json:
        print(json.dumps([codec.to_json(r) for r in found]))
    else:
        from edgescope.report.render import terminal
        from edgescope.report.result import listing

        page = listing(found, brief=sys.stdout.isatty())
        terminal.listing(page, verbose=args.verbose)
        failed = sum(r.status is not Status.OK for r in found)
        if failed and not args.verbose:
            context.say(f"{counted(failed, 'result')} without a usable figure: edgescope list -v says why")
        if not found:
            context.say(f"no such result in {store.root}: edgescope bench MODEL measures one")
    for problem in store.problems:
        context.say(problem)
    return 0


def ordered(results: Sequence[Result], word: str) -> list[Result]:
    """Return the results by a figure, the best first and those without it last; UsageError for an unknown figure."""
    from edgescope import metrics
    from edgescope.analysis.run.usage import first
    from edgescope.errors import check_name
    from edgescope.records import Measured

    if word == STARTED:
        return list(results)
    known = metrics.bounded()
    check_name("--sort", word, [STARTED, *known])
    metric = known[word]

    def key(result: Result) -> tuple[bool, float]:
        found = first(result, metric.of)
        sign = -1 if metric.higher else 1
        return (False, sign * found.value) if isinstance(found, Measured) else (True, 0.0)

    return sorted(results, key=key)


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
        for r in own_results(store, args.machine, context.say, apart=True)
        if args.model in r.trial.model
        and args.backend in ("", r.trial.backend)
        and args.status in ("", r.status.value)
    ]
