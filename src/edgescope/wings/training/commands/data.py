"""Write a data set to train on: crops of real photographs, each labelled by the photograph that it is from.

edgescope train data photographs --count 2000 --size 640x480             JPEG files, decoded one by one
edgescope train data digits --count 60000 --size 28x28 --packed --grey   one file held in memory, as MNIST is
"""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from edgescope.commandline import trial_flags

HELP = "write a folder of real pictures to train on"
INTERRUPTED = "The folder is not complete: remove it before the same command is run again."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("folder", type=Path, help="folder to write, new or empty")
    trial_flags.add_count(sub, "pictures", 1000)
    trial_flags.add_size(sub, 640, 480)
    text = "photographs that they are crops of; each is a class (10)"
    sub.add_argument("--photographs", type=trial_flags.whole, default=10, help=text)
    sub.add_argument("--packed", action="store_true", help="one file that is held in memory, not JPEG files")
    sub.add_argument("--grey", action="store_true", help="one channel")
    trial_flags.add_seed(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Write the data set and say what it holds; return 0."""
    from edgescope.models.image import photo_set

    width, height = args.size
    recipe = photo_set.Recipe(
        args.count, width, height, args.photographs, packed=args.packed, grey=args.grey, seed=args.seed
    )
    about = photo_set.write(args.folder, recipe)
    if args.json:
        print(json.dumps(about, indent=1))
        return 0
    print(
        f"{about['count']} pictures of {width} x {height}, {about['classes']} classes,"
        f" {about['bytes'] / 1e6:.1f} MB: {about['origin']}\n"
        "next: edgescope bench mobilenet_v2 --workload training --batch 8"
        f" --workload-option images={shlex.quote(str(args.folder))}"
    )
    return 0
