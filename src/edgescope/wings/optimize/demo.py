"""Optimise a pretrained classifier on real photographs, on this CPU, in a few minutes.

It measures the model in PyTorch, tries engines and precisions, checks which of them still give the right answers, says
which variant to use, and writes edgescope-report.html.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.wings.optimize import cli as optimize

INTERRUPTED = optimize.INTERRUPTED
MODEL = "efficientnet_lite0"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    optimize.add(sub)
    sub.set_defaults(output=Path("edgescope-report.html"), model=MODEL)


def run(args: argparse.Namespace) -> int:
    """Optimise the classifier and write the report; return the exit code of optimize."""
    return optimize.run(args)
