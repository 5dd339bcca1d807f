"""Record this machine's sensors for some seconds into one file, optionally with results that were measured on it.

Recording only reads and needs no root; what only root may read is recorded as absent. Serial numbers, host name,
addresses, environment and command lines are left out. `edgescope --board FILE VERB ...` replays the file anywhere.

  edgescope record -o myboard.board.jsonl --seconds 30
  edgescope record -o myboard.zip --results edgescope-results
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from edgescope.commandline import trial_flags

INTERRUPTED = "Nothing was written; the same command starts again."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_output(
        sub, "file to write: the recording (.board.jsonl, or .zip with --results)", required=True
    )
    trial_flags.add_seconds(sub, "30", 30.0)
    sub.add_argument("--hz", type=float, default=2.0, help="readings a second (2)")
    sub.add_argument("--name", default="", help="what to call the board (its model's name)")
    trial_flags.add_json(sub)
    sub.add_argument("--results", metavar="STORE", help="include the results of this store")


def run(args: argparse.Namespace) -> int:
    """Record the sensors, write the file, print what it holds; return 0."""
    from edgescope.report import terminal
    from edgescope.report.document import Code, Text
    from edgescope.units import counted
    from edgescope.wings.record import capture

    output, plan = args.output, capture.plan(str(args.output), args.seconds, args.hz, args.results)
    what = capture.capture(args.name or capture.board_name(), plan)
    size = capture.write(what, output, Path(args.results) if args.results else None)
    readable = sum(e.text is not None for e in what.entries)
    if args.json:
        facts = {"path": str(output), "board": what.board, "files": readable, "frames": len(what.frames)}
        print(json.dumps(facts | {"seconds": what.seconds, "bytes": size}))
        return 0
    terminal.note(
        f"{output}: {what.board}, {counted(readable, 'file')}, {len(what.entries) - readable} unreadable, "
        f"{len(what.frames)} frames over {what.seconds:.1f} s, {size / 1e3:.0f} kB"
    )
    terminal.printed(
        [Text("replay it:", "dim"), Code(f"edgescope --board {shlex.quote(str(output))} doctor")]
    )
    return 0
