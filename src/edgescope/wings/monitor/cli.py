"""Show this machine live: load, clocks, rails, temperatures and trip points, memory, throttling, the running trial.

edgescope monitor                     # q or Ctrl-C ends it
edgescope monitor --plain --hz 1      # one line for each reading, for a pipe or a log
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from types import FrameType

from edgescope.commandline import trial_flags
from edgescope.errors import UsageError

MAX_HZ = 20.0


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("--hz", type=float, default=2.0, help="readings a second (2)")
    trial_flags.add_plain(sub, "one for each reading")
    sub.add_argument(
        "--all",
        action="store_true",
        help="show everything: with --plain every channel, not only the main figures",
    )
    trial_flags.add_seconds(sub, "0: until q")


def run(args: argparse.Namespace) -> int:
    """Show the sensors until a key, a signal or --seconds ends it; return 0."""
    from edgescope.bench import present
    from edgescope.commandline.screen import is_plain
    from edgescope.devices import replay
    from edgescope.wings.monitor.live import Monitor, Pace

    if not 0 < args.hz <= MAX_HZ:
        raise UsageError("E-MON-1", f"--hz must lie in (0, {MAX_HZ:g}], not {args.hz:g}", fix="--hz 2")
    devices = present()
    monitor = Monitor(devices, Pace(args.hz, args.seconds), root=replay.root(devices))
    signal.signal(signal.SIGTERM, _leave)  # so that the terminal is restored after a signal too
    signal.signal(signal.SIGHUP, _leave)
    try:
        if args.plain or is_plain(sys.stdout, os.environ):
            monitor.paper(lambda text: print(text, flush=True), everything=args.all)
        else:
            monitor.screen(encoding=sys.stdout.encoding)
    except KeyboardInterrupt:
        return 0
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
