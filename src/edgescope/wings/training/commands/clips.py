"""Train one of the networks for video clips on your videos.

The folder has the layout of UCF50: ROOT/CLASS/video.avi. A fifth of the recordings, the same ones in every class, is
held out; the printed accuracy is measured on their videos. The weights can then be used like any other model.

  edgescope train clips har_cnn3d --data UCF50 --classes Biking,Diving,GolfSwing,JumpRope --output actions.pth
  edgescope bench har_cnn3d@actions.pth
"""

from __future__ import annotations

import argparse
import json
import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.commandline import trial_flags
from edgescope.commandline.progress import Countdown
from edgescope.process.said import say

if TYPE_CHECKING:
    from edgescope.wings.training.clip_classifier.dataset import Data
    from edgescope.wings.training.clips import Epoch

HELP = "train a network for video clips on a folder of videos"
INTERRUPTED = "Finished epochs are stored next to --output; the same command goes on after the last one."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("model", help="har_cnn3d, har_autoencoder or har_densenet")
    text = "inputs of yours: a folder of videos, ROOT/CLASS/video.avi"
    sub.add_argument("--data", required=True, metavar="ROOT", help=text)
    trial_flags.add_output(sub, "file to write: the weights, e.g. actions.pth", required=True)
    sub.add_argument("--classes", default="", metavar="A,B,...", help="classes to train on (all)")
    sub.add_argument("--epochs", type=int, default=40, help="passes over the training videos (40)")
    sub.add_argument("--batch-size", type=int, default=16, help="clips in one step (16)")
    trial_flags.add_learning_rate(sub, 1e-3)
    trial_flags.add_seed(sub)
    trial_flags.add_device(sub, "cpu", "cpu")
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Train, print loss and held-out accuracy after each epoch, write the weights; return 0."""
    from edgescope.wings.training import clips as train

    settings = train.Settings(args.epochs, args.batch_size, args.seed, args.device, args.learning_rate)
    about = train.train(
        args.model,
        Path(args.data),
        args.output,
        classes=[name.strip() for name in args.classes.split(",") if name.strip()],
        settings=settings,
        started=_started,
        tell=partial(_tell, Countdown(), args.epochs),
    )
    if args.json:
        print(json.dumps(about, indent=1))
        return 0
    found = about["accuracy"]
    print(
        f"held-out accuracy {found['value']:.1%} [{found['lo']:.1%}, {found['hi']:.1%}], {found['n']} videos,"
        f" one clip each; {about['seconds']:.0f} s\n"
        f"next: edgescope bench {shlex.quote(f'{args.model}@{args.output}')}"
    )
    return 0


def _started(data: Data) -> None:
    if data.warning:
        say(data.warning)
    say(
        f"{len(data.training)} videos to train on, {len(data.held_out)} held out"
        f" ({len({v.group for v in data.held_out})} recordings); classes: {', '.join(data.classes)}"
    )


def _tell(countdown: Countdown, epochs: int, epoch: Epoch) -> None:
    say(
        f"epoch {epoch.number:3}  loss {epoch.loss:.4f}  held-out {epoch.right}/{epoch.held_out}"
        f" ({epoch.right / epoch.held_out:.0%})  {epoch.seconds:.1f} s{countdown.words(epoch.number, epochs)}"
    )
