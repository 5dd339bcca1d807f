"""Evaluate a detector on the test split: frame AUC and PR AUC, by kind, false alarms per hour, delay.

  edgescope anomaly evaluate detector.pt features
  edgescope anomaly evaluate detector.pt features --against ranking.pt --output detectors.html

Intervals draw whole videos anew. --against compares two detectors on the same videos by a paired test.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.commandline import context, trial_flags

HELP = "evaluate a detector, alone or against another"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the flags."""
    sub.add_argument("detector", type=Path, metavar="DETECTOR", help="file that anomaly train wrote")
    sub.add_argument("features", type=Path, metavar="FEATURES", help="folder that anomaly extract wrote")
    sub.add_argument("--against", type=Path, metavar="DETECTOR", help="another detector to compare with")
    text = "features of the same videos for the other detector (FEATURES)"
    sub.add_argument("--against-features", type=Path, metavar="FEATURES", help=text)
    text = "split to evaluate on: test, validation, train (test)"
    sub.add_argument("--split", default="test", choices=("test", "validation", "train"), help=text)
    text = "share of events that alarms must find; false alarms are counted there (0.8)"
    sub.add_argument("--recall", type=float, default=0.8, metavar="SHARE", help=text)
    text = "sets of videos drawn anew for the intervals (1000)"
    sub.add_argument("--draws", type=trial_flags.whole, default=1000, metavar="N", help=text)
    trial_flags.add_output(sub, "file to write: the answer as well (.html, .md, .csv, .json)")
    context.add_verbose(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Evaluate, print the figures; return 0."""
    from edgescope.wings.anomaly import verb as anomaly
    from edgescope.wings.anomaly.page import document

    context.ready(args)
    found = anomaly.evaluate(
        args.detector,
        args.features,
        against=args.against,
        against_features=args.against_features,
        split=args.split,
        recall=args.recall,
        draws=args.draws,
    )
    page = document(found, command=context.command())
    context.show(args, page)
    return 0
