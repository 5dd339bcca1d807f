"""Regenerate a published study's tables and figures on this machine, beside the study's own figures.

edgescope study nano_table --run --models mobilenet_v2,squeezenet1_1 --output table.html
edgescope study concurrent --output concurrent.html
"""

from __future__ import annotations

import argparse

from edgescope.cli import study_concurrent, study_nano_table

HELP = "regenerate a published study's tables and figures beside its own"
INTERRUPTED = "What --run had measured is stored; the same command goes on where it was."
STUDIES = {"nano_table": study_nano_table, "concurrent": study_concurrent}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the studies, each with flags of its own."""
    studies = sub.add_subparsers(dest="paper", metavar="STUDY", required=True)
    for name, module in STUDIES.items():
        one = studies.add_parser(name, help=module.HELP, description=module.__doc__)
        one.formatter_class = argparse.RawDescriptionHelpFormatter
        module.configure(one)


def run(args: argparse.Namespace) -> int:
    """Run the study that was named."""
    return int(STUDIES[args.paper].run(args))
