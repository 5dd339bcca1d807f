"""The main job on real input: a pretrained classifier on real photographs, on this CPU, in a few minutes.

Measures it as it is, tries engines and precisions, proves which still give the right answers, says which variant
to use, and writes edgescope-report.html.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.cli import optimize

HELP = "the main job on a real classifier and photographs, in a few minutes"
INTERRUPTED = optimize.INTERRUPTED
MODEL = "efficientnet_lite0"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    optimize.add(sub)
    sub.set_defaults(output=Path("edgescope-report.html"), model=MODEL)


def run(args: argparse.Namespace) -> int:
    """Optimise the classifier and write the report."""
    return optimize.run(args)
