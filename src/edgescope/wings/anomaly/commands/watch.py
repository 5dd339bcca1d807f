"""Watch a camera, a stream or a film: decode, cut snippets, score them, and raise alarms.

edgescope anomaly watch rtsp://host/path --detector detector.pt --log alarms.jsonl --webhook http://host/alarm
edgescope anomaly watch paced:film.mp4 --detector detector.pt --clips clips --output watched.html
edgescope anomaly watch film.mp4 --json

On a terminal the score, the threshold, the alarms and the age of frames are drawn live; --json prints a line for each
snippet, each alarm and the summary. Ctrl-C ends it with a summary; alarms that were not delivered stay in --spool.
"""

from __future__ import annotations

import argparse

from edgescope.wings.video import cli

HELP = "watch a camera, a stream or a film and raise alarms"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    cli.configure(sub)


def run(args: argparse.Namespace) -> int:
    """Watch until the stream ends or a signal comes; print the summary; return 1 if a part is missing."""
    from edgescope.wings.anomaly.watch import chain

    return cli.run(args, chain)
