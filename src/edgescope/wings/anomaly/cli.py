"""Detect anomalies in video: make a set of videos, extract features, train a detector, evaluate it, watch with it."""

from __future__ import annotations

import argparse

from edgescope.commandline.parsing import add_parts
from edgescope.wings.anomaly.commands import evaluate, extract, generate, train, watch

PARTS = {"generate": generate, "extract": extract, "train": train, "evaluate": evaluate, "watch": watch}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the parts of this verb, each with its flags."""
    add_parts(sub, PARTS)


def run(args: argparse.Namespace) -> int:
    """Run the part that was named; return its exit code."""
    return int(PARTS[args.part].run(args))
