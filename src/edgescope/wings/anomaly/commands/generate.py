"""Make a small set of videos with planted anomalies, cut from real films, with labels.

  edgescope anomaly generate videos
  edgescope anomaly generate videos --count 240 --kinds freeze,object --film street.mp4

Half of the clips are normal; in the others one interval is changed: speed, reversal, freeze, object or darkness. The
list videos.csv holds split, kind and frames of each. Without --film, the films of the sample packages are cut.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from edgescope.commandline import context, trial_flags
from edgescope.commandline.progress import Countdown, waiting

HELP = "make a set of videos with planted anomalies"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the flags."""
    sub.add_argument("root", type=Path, metavar="VIDEOS", help="folder to write the videos and videos.csv to")
    trial_flags.add_count(sub, "videos", 60)
    text = "kinds of anomaly, separated by commas (speed,reversal,freeze,object,darkness)"
    sub.add_argument("--kinds", default="", metavar="A,B,...", help=text)
    text = "film to cut clips from; may be repeated (the films of the sample packages)"
    sub.add_argument("--film", action="append", default=[], type=Path, metavar="FILE", help=text)
    sub.add_argument("--frames", type=trial_flags.whole, default=96, help="frames of a clip (96)")
    trial_flags.add_size(sub, 320, 240)
    trial_flags.add_seed(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Write the set, print where it is; return 0."""
    from edgescope.wings.anomaly import verb as anomaly
    from edgescope.wings.anomaly.generate import KINDS

    kinds = tuple(kind.strip() for kind in args.kinds.split(",") if kind.strip()) or KINDS
    size, countdown = _even(*args.size), Countdown()

    def tell(done: int, of: int) -> None:
        if countdown.due(done, of):
            context.say(f"{done} of {of} videos{countdown.words(done, of)}")

    with waiting(f"making {args.count} videos"):
        made = anomaly.generate(
            args.root,
            clips=args.count,
            kinds=kinds,
            sources=args.film,
            frames=args.frames,
            size=size,
            seed=args.seed,
            tell=tell,
        )
    anomalous = sum(v.anomalous for v in made.videos)
    if args.json:
        print(json.dumps({"root": str(made.root), "videos": len(made.videos), "anomalous": anomalous}))
        return 0
    print(f"{len(made.videos)} videos, {anomalous} with a planted anomaly: {made.root}")
    print(f"next: edgescope anomaly extract {made.root} features --features frames_lite0")
    return 0


def _even(width: int, height: int) -> tuple[int, int]:
    """Return width and height rounded down to even numbers, as video codecs need; UsageError below 32."""
    from edgescope.errors import UsageError

    if min(width, height) < 32:
        raise UsageError(
            "E-ANOMALY-10", f"--size {width}x{height} is too small for a video", fix="--size 320x240"
        )
    return width // 2 * 2, height // 2 * 2
