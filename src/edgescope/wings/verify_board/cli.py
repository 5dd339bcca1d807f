"""Verify a board: engines, modes, rails, energy, throttling, camera, decoder, profiler; writes one file to send.

It takes 20 minutes at most. Every setting that it changes is put back, also if it is killed, and its file names nobody.

  edgescope verify-board
  edgescope verify-board --on ssh://nano@jetson -o nano.json
  edgescope verify-board --checks rails,rails_tegrastats
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.commandline import context, trial_flags

INTERRUPTED = "Every setting was put back; no file was written."
OUTPUT = Path("edgescope-board.json")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_board(sub)
    trial_flags.add_output(sub, f"file to write ({OUTPUT})", default=OUTPUT)
    sub.add_argument(
        "--checks", type=trial_flags.words, default=(), metavar="CHECK,..", help="run these checks alone"
    )
    sub.add_argument("--list", action="store_true", help="list the checks and end")
    trial_flags.add_seconds(sub, "20min: what has not ended by then is stopped", 1200.0)
    trial_flags.add_json(sub)
    context.add_verbose(sub)


def run(args: argparse.Namespace) -> int:
    """Run the checks, write the file, print one screen; return 0 if nothing fails to hold, else 1."""
    from edgescope.wings.verify_board.check import Check, Outcome, Status, checks

    if args.list:
        for check in checks().values():
            print(f"{check.name:<20} {check.path}")
        return 0
    from edgescope.wings.verify_board import page
    from edgescope.wings.verify_board.verb import verify_board

    def tell(check: Check, outcome: Outcome | None) -> None:
        context.say(f"{check.name} ..." if outcome is None else f"  {outcome.status.value}: {outcome.says}")

    found = verify_board(trial_flags.board(args), only=args.checks, budget_s=args.seconds, tell=tell)
    found.write(path := Path(args.output))
    args.output = None  # it is written: not another form of the screen
    context.show(args, page.document(found, str(path)), whole=True)
    return 1 if found.of(Status.FAILS) else 0
