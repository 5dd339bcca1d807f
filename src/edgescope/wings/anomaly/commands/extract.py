"""Extract the features of a folder of videos, 16 frames at a time, on any engine.

  edgescope anomaly extract videos features --features frames_lite0 --backend onnxruntime
  edgescope anomaly extract UCF_Crime features --features i3d_r50_nl@i3d.pth --crops 10 --device cuda

The same command again goes on where it stopped. A video that cannot be decoded is left out and named.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.commandline import trial_flags
from edgescope.commandline.progress import Countdown
from edgescope.process.said import say

if TYPE_CHECKING:
    from edgescope.errors import Message
    from edgescope.wings.anomaly.extract import Progress

HELP = "extract features from a folder of videos"
INTERRUPTED = "Finished videos are kept; the same command goes on with the others."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the flags."""
    sub.add_argument("videos", type=Path, metavar="VIDEOS", help="folder of the set")
    text = "folder to write the features and their manifest to"
    sub.add_argument("output", type=Path, metavar="FEATURES", help=text)
    text = (
        "feature network: i3d_r50_nl, i3d_r50, i3d_r50_nl_8x8, i3d_r50_8x8, s3d, frames_lite0, or NAME@weights"
        " (i3d_r50_nl)"
    )
    sub.add_argument("--features", default="i3d_r50_nl", metavar="NETWORK", help=text)
    text = "layout: list, folders, ucf_crime, uit_vnanomaly, shanghaitech, xd_violence, msad (as found)"
    sub.add_argument("--layout", default="", metavar="NAME", help=text)
    sub.add_argument("--crops", type=int, default=1, choices=(1, 10), help="crops of each frame (1)")
    text = "weights: as the network was trained; rtfm: as the public extractor of RTFM's features (weights)"
    sub.add_argument("--normalisation", default="weights", choices=("weights", "rtfm"), help=text)
    group = sub.add_argument_group("engine")
    trial_flags.add_what(group, usual=("torch_eager", "fp32", "1"))
    trial_flags.add_device(group, "", "the engine's own")
    trial_flags.add_option(group)
    text = "videos decoded at once, each in a thread (1)"
    group.add_argument("--decoders", type=trial_flags.whole, default=1, metavar="N", help=text)
    text = "stop: leave a damaged video out; skip: use what can be decoded (stop)"
    sub.add_argument("--damaged", default="stop", choices=("stop", "skip"), help=text)
    text = "compute again the features that are there"
    sub.add_argument("--overwrite", action="store_true", help=text)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Extract, print what was done; return 0."""
    from edgescope.wings.anomaly import verb as anomaly

    done = anomaly.extract(
        args.videos,
        args.output,
        features=args.features,
        layout=args.layout,
        crops=args.crops,
        normalisation=args.normalisation,
        device=args.device,
        **{name: trial_flags.axis(name, getattr(args, name), single=True) for name in trial_flags.WHAT},
        options=dict(args.option),
        decoders=args.decoders,
        damaged=args.damaged,
        overwrite=args.overwrite,
        noted=_noted,
        tell=partial(_tell, Countdown()),
    )
    if done.warning:
        _noted(done.warning)
    rows = done.features.rows
    repeated, frames = sum(row.repeated for row in rows), sum(row.frames for row in rows)
    if args.json:
        about = {"videos": len(rows), "frames": frames, "snippets": sum(row.snippets for row in rows)}
        print(json.dumps(about | {"repeated": repeated, "computed": done.new, "seconds": done.seconds}))
        return 0
    print(
        f"{len(rows)} videos, {frames} frames, {sum(row.snippets for row in rows)} snippets"
        f" ({repeated} frames repeated to fill last snippets); {done.new} videos computed in {done.seconds:.1f} s"
    )
    print(f"next: edgescope anomaly train {args.output} --output detector.pt")
    return 0


def _noted(message: Message) -> None:
    say(message)


def _tell(countdown: Countdown, progress: Progress) -> None:
    row = progress.row
    what = f"left out: {row.left_out}" if row.left_out else f"{row.snippets} snippets"
    left = countdown.words(progress.done, progress.of)
    say(f"{progress.done} of {progress.of}  {row.name}  {what}  {progress.frames_per_s:.0f} frames/s{left}")
