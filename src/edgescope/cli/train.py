"""Train, find out what holds training up, and what to change.

  edgescope train data photographs --count 2000          real JPEG files to train on
  edgescope train advise mobilenet_v3_large_203class --batch 16 --workload-option images=photographs
  edgescope train characterize --budget 20min            the grid of a published study (edgescope study training)
  edgescope train clips har_cnn3d --data UCF50 --output actions.pth

One run of training is `edgescope bench MODEL --workload training`.
"""

from __future__ import annotations

import argparse
import sys

from edgescope.cli import train_advise, train_characterize, train_clips, train_data

HELP = "advise on a training run, measure a study's grid, write data sets, train a network for video clips"
INTERRUPTED = "What was finished is stored; the same command goes on with the rest."
KINDS = {
    "advise": train_advise,
    "characterize": train_characterize,
    "data": train_data,
    "clips": train_clips,
}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the kinds of training, each with its flags."""
    kinds = sub.add_subparsers(dest="kind", metavar="WHAT", required=True)
    for name, module in KINDS.items():
        one = kinds.add_parser(name, help=module.HELP, description=module.__doc__)
        one.formatter_class = argparse.RawDescriptionHelpFormatter
        module.configure(one)


def run(args: argparse.Namespace) -> int:
    """Do what was asked for; return its exit code."""
    try:
        return int(KINDS[args.kind].run(args))
    except KeyboardInterrupt:
        print(KINDS[args.kind].INTERRUPTED, file=sys.stderr)
        raise
