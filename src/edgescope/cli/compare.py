"""Compare two variants: first the settings that differ, then the numbers, then a judgement that needs both
significance and size.

  edgescope compare 121c4a d14597        two results, by their names in `edgescope list`
  edgescope compare 3f2a 91bc            all replicates of two cells, by the beginnings of their ids
  edgescope compare 3f2a 91bc --other-store ../before
  edgescope compare 3f2a 91bc --other-store ../orin --price baseline=2000 --price candidate=249 --power-budget 15

Exit code: 0 if the candidate is judged FASTER, SLOWER or SAME; 7 if the runs decide nothing (AMBIGUOUS) or may not be
compared (NOT-COMPARABLE).
"""

from __future__ import annotations

import argparse

from edgescope.commandline import context, trial_flags
from edgescope.errors import ExitCode


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("baseline", help="a result or a cell, by its name in edgescope list, or latest")
    sub.add_argument("candidate", help="the result or cell to compare with it")
    trial_flags.add_store(sub)
    trial_flags.add_other_store(sub, "the candidate")
    trial_flags.add_machine(sub, "whose results the names mean")
    group = sub.add_argument_group("two machines")
    text = (
        "price of a machine: baseline=249, candidate=1999 or MACHINE_ID=249, in one currency; may be repeated"
    )
    group.add_argument("--price", type=price, action="append", default=[], metavar="NAME=PRICE", help=text)
    text = "watts that a machine may draw: the fastest measured cell of each that keeps it is compared"
    group.add_argument("--power-budget", type=trial_flags.number, default=None, metavar="W", help=text)
    sub.add_argument("--force", action="store_true", help="show numbers side by side even if not comparable")
    trial_flags.add_json(sub)
    context.add_verbose(sub)


def price(text: str) -> tuple[str, float]:
    """Parse `baseline=249`; return (name, price)."""
    name, _, amount = text.rpartition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a price; write baseline=249")
    return name, trial_flags.number(amount)


def run(args: argparse.Namespace) -> int:
    """Compare two results, or the replicates of two cells; return whether a judgement was possible."""
    from edgescope.verbs.compare import compare, named_results

    store = context.store(args)
    baseline = named_results(args.baseline, store, args.machine, context.say)
    found = compare(
        baseline,
        args.candidate,
        store=store,
        other_store=args.other_store or None,
        machine="" if args.other_store else args.machine,
        force=args.force,
        prices=dict(args.price),
        power_budget=args.power_budget,
    )
    from edgescope.analysis.run import noise
    from edgescope.report.compare import document

    floor = noise.sentence(store.root, baseline[0].machine.id)
    page = document(found, noise=floor, forced=args.force)
    context.show(args, page)
    return ExitCode.OK if found.decided else ExitCode.UNDECIDED
