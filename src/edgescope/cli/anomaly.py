"""Detect anomalies in video: make a set of videos, extract features, train a detector, evaluate it, watch with it."""

from __future__ import annotations

import argparse

from edgescope.cli import (
    anomaly_evaluate,
    anomaly_extract,
    anomaly_generate,
    anomaly_train,
    anomaly_watch,
)
from edgescope.cli.parsing import add_parts

HELP = "detect anomalies in video"
PARTS = {
    "generate": anomaly_generate,
    "extract": anomaly_extract,
    "train": anomaly_train,
    "evaluate": anomaly_evaluate,
    "watch": anomaly_watch,
}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the parts of this verb, each with its flags."""
    add_parts(sub, PARTS)


def run(args: argparse.Namespace) -> int:
    """Run the part that was named; return its exit code."""
    return int(PARTS[args.part].run(args))
