"""Make a small set of videos with planted anomalies, cut from real films, with labels.

  edgescope anomaly generate videos
  edgescope anomaly generate videos --clips 240 --kinds freeze,object --source street.mp4

Half of the clips are normal; in the others one interval is changed: speed, reversal, freeze, object or darkness. The
list videos.csv holds split, kind and frames of each. Without --source, the films of the sample packages are cut.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from edgescope.cli import trial_flags

HELP = "make a set of videos with planted anomalies"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the flags."""
    sub.add_argument("root", type=Path, metavar="VIDEOS", help="folder to write the videos and videos.csv to")
    sub.add_argument("--clips", type=trial_flags.whole, default=60, metavar="N", help="number of videos (60)")
    text = "kinds of anomaly, separated by commas (speed,reversal,freeze,object,darkness)"
    sub.add_argument("--kinds", default="", metavar="A,B,...", help=text)
    text = "film to cut clips from; may be repeated (the films of the sample packages)"
    sub.add_argument("--source", action="append", default=[], type=Path, metavar="FILE", help=text)
    sub.add_argument("--frames", type=trial_flags.whole, default=96, help="frames of a clip (96)")
    sub.add_argument("--size", default="320x240", metavar="WxH", help="width and height of a clip (320x240)")
    trial_flags.add_seed(sub)


def run(args: argparse.Namespace) -> int:
    """Write the set, print where it is; return 0."""
    from edgescope.anomaly.generate import KINDS
    from edgescope.verbs import anomaly

    kinds = tuple(kind.strip() for kind in args.kinds.split(",") if kind.strip()) or KINDS
    made = anomaly.generate(
        args.root,
        clips=args.clips,
        kinds=kinds,
        sources=args.source,
        frames=args.frames,
        size=_size(args.size),
        seed=args.seed,
        tell=_tell,
    )
    print(
        f"{len(made.videos)} videos, {sum(v.anomalous for v in made.videos)} with a planted anomaly: {made.root}"
    )
    print(f"next: edgescope anomaly extract {made.root} --features frames_lite0 --output features")
    return 0


def _tell(done: int, of: int) -> None:
    if done % 20 == 0 or done == of:
        print(f"{done} of {of} videos", file=sys.stderr)


def _size(text: str) -> tuple[int, int]:
    """Return width and height; UsageError if they are no even numbers."""
    from edgescope.errors import UsageError

    width, _, height = text.partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) >= 32 and int(height) >= 32):
        raise UsageError("E-ANOMALY-10", f"--size {text} is no size of a video", fix="--size 320x240")
    return int(width) // 2 * 2, int(height) // 2 * 2
