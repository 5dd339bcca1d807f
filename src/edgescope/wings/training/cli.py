"""Train, find out what holds training up, and what to change.

  edgescope train data photographs --count 2000          real JPEG files to train on
  edgescope train advise mobilenet_v3_large_203class --batch 16 --workload-option images=photographs
  edgescope train interleave lenet5 --rate 20 --constraint "p90<=150ms"     train between queries
  edgescope train characterize --budget 20min            the grid of a published study (edgescope study training)
  edgescope train clips har_cnn3d --data UCF50 --output actions.pth

One run of training is `edgescope bench MODEL --workload training`.
"""

from __future__ import annotations

import argparse

from edgescope.commandline.parsing import add_parts
from edgescope.wings.training.commands import advise, characterize, clips, data, interleave

PARTS = {
    "advise": advise,
    "interleave": interleave,
    "characterize": characterize,
    "data": data,
    "clips": clips,
}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the parts of this verb, each with its flags."""
    add_parts(sub, PARTS)


def run(args: argparse.Namespace) -> int:
    """Run the part that was named; return its exit code."""
    return int(PARTS[args.part].run(args))
