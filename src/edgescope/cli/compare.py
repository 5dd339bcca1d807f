"""Compare two variants: what was set differently first, then the numbers, then a judgement that needs both
significance and size.

  edgescope compare 121c4a d14597        two results, named as `edgescope list` does
  edgescope compare 3f2a 91bc            two cells by the beginnings of their ids: all their replicates
  edgescope compare 3f2a 91bc --other-store ../before
"""

from __future__ import annotations

import argparse
import json

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


def run(args: argparse.Namespace) -> int:
    """Compare the two results that are named, or the replicates of the two cells."""
    from edgescope.verbs.compare import compare, meant

    store = opened.store(args)
    baseline = meant(args.baseline, store)
    found = compare(
        baseline, args.candidate, store=store, other_store=args.other_store or None, force=args.force
    )
    if args.json:
        from edgescope.records.codec import to_plain

        print(json.dumps(to_plain(found) | {"judgement": found.judgement.value}, indent=1))
        return 0
    from edgescope.cli import noise_view
    from edgescope.report import terminal

    if found.differences:
        settings = [(d.name, str(d.baseline), str(d.candidate)) for d in found.differences]
        terminal.table(("differs", found.baseline, found.candidate), settings, title="Settings that differ")
    for blocker in found.blockers:
        terminal.note(
            f"W-CMP-1: NOT-COMPARABLE: {blocker}" + ("" if args.force else ". Try: --force, unjudged")
        )
    rows = [
        (
            r.metric,
            terminal.why(r.baseline),
            terminal.why(r.candidate),
            terminal.ratio(r.ratio),
            _word(r.judgement),
        )
        for r in found.rows
    ]
    if rows:
        header = ("metric", found.baseline, found.candidate, "candidate / baseline", "candidate is")
        over = f"Over {found.pairs} pair{'s' * (found.pairs != 1)} of fresh processes"
        terminal.table(header, rows, title=over if found.pairs else "Not measured together")
        for warning in found.warnings:
            terminal.note(warning)
    if noise := noise_view.stored(store, baseline[0].machine.id):
        terminal.note(f"Noise floor of the machine: {noise}")
    print(f"{found.candidate} is {found.judgement.value} against {found.baseline}")
    return 0


def _word(judgement: object) -> str:
    return str(getattr(judgement, "value", "")) if judgement else ""
