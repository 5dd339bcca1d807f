"""Compare two variants: what was set differently first, then the numbers, then a judgement that needs both
significance and size.

  edgescope compare 121c4a d14597        two results, named as `edgescope list` does
  edgescope compare 3f2a 91bc            two cells by the beginnings of their ids: all their replicates
  edgescope compare 3f2a 91bc --other-store ../before
"""

from __future__ import annotations

import argparse

from edgescope.cli import opened, trial_flags

HELP = "two variants: settings differences, ratios with intervals, a judgement"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("baseline", help="a result or a cell, as edgescope list names it")
    sub.add_argument("candidate", help="likewise")
    trial_flags.add_store(sub)
    sub.add_argument(
        "--other-store", default=None, metavar="DIR", help="where the candidate is, if elsewhere"
    )
    sub.add_argument("--force", action="store_true", help="show numbers side by side even if not comparable")
    trial_flags.add_json(sub)
    opened.add_verbose(sub)


def run(args: argparse.Namespace) -> int:
    """Compare the two results that are named, or the replicates of the two cells."""
    from edgescope.verbs.compare import compare, results_of

    store = opened.store(args)
    baseline = results_of(args.baseline, store)
    found = compare(
        baseline, args.candidate, store=store, other_store=args.other_store or None, force=args.force
    )
    from edgescope.cli import noise_view
    from edgescope.report.compare import document
    from edgescope.report.render import json as as_json
    from edgescope.report.render import terminal

    noise = noise_view.stored(store, baseline[0].machine.id)
    page = document(found, noise=noise, forced=args.force)
    if args.json:
        print(as_json.text(page))
    else:
        terminal.show(page, verbose=args.verbose)
    return 0
