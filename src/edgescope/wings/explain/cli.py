"""Say what limits a stored result: the cause with its evidence, what to do about it, and what that should gain.

Results of the store that differ from it in one setting are taken as experiments: they confirm a cause or rule it out.
Where the evidence conflicts, the cause is unknown. --verify runs the remedy in turns with the trial itself, in fresh
processes, and puts the gain beside its prediction.

  edgescope explain latest
  edgescope explain 3f2a91 --verify
  edgescope explain latest --verify --remedy 2
  edgescope explain --trace report.sqlite
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.commandline import context, trial_flags

INTERRUPTED = "Finished runs are stored; the same command takes them into account."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("results", nargs="*", metavar="RESULT", help="a name in edgescope list, or latest")
    text = "a profiler's file of the same work (edgescope trace); without a RESULT it is explained alone"
    sub.add_argument("--trace", type=Path, default=None, metavar="FILE", help=text)
    sub.add_argument("--verify", action="store_true", help="run the remedy and check its predicted gain")
    text = "which of the remedies that flags can do --verify runs, from 1 (1)"
    sub.add_argument("--remedy", type=trial_flags.whole, default=1, metavar="N", help=text)
    trial_flags.add_output(sub, "file to write: the explanation as well (.html, .md, .csv, .json)")
    trial_flags.add_machine(sub, "whose results the names mean")
    context.add_verbose(sub)
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Print what limits each result; return 1 if a prediction was checked and did not hold."""
    from edgescope.wings.explain.verb import document, explain

    context.ready(args)
    found = explain(
        *args.results,
        verify=args.verify,
        remedy=args.remedy,
        trace=args.trace,
        machine=args.machine,
        store=context.store(args),
        setup=context.setup(args),
    )
    page = document(found.diagnoses, found.checks, command=context.command())
    context.show(args, page)
    return int(any(check is not None and check.holds is False for check in found.checks))
