"""Detect anomalies in video: make a set of videos, extract features, train a detector, evaluate it, watch with it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.commandline import context, trial_flags
from edgescope.commandline.context import Countdown
from edgescope.commandline.parsing import add_parts
from edgescope.errors import Message
from edgescope.process.said import say, waiting
from edgescope.wings.video import cli

if TYPE_CHECKING:
    from edgescope.fit import Epoch
    from edgescope.wings.anomaly.extract import Progress


class Generate:
    """Make a small set of videos with planted anomalies, cut from real films, with labels.

      edgescope anomaly generate videos
      edgescope anomaly generate videos --count 240 --kinds freeze,object --film street.mp4

    Half of the clips are normal; in the others one interval is changed: speed, reversal, freeze, object or darkness.
    The list videos.csv holds split, kind and frames of each. Without --film, the films of the sample packages are cut.
    """

    HELP = "make a set of videos with planted anomalies"

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add the flags."""
        sub.add_argument(
            "root", type=Path, metavar="VIDEOS", help="folder to write the videos and videos.csv to"
        )
        trial_flags.add_count(sub, "videos", 60)
        text = "kinds of anomaly, separated by commas (speed,reversal,freeze,object,darkness)"
        sub.add_argument("--kinds", default="", metavar="A,B,...", help=text)
        text = "film to cut clips from; may be repeated (the films of the sample packages)"
        sub.add_argument("--film", action="append", default=[], type=Path, metavar="FILE", help=text)
        sub.add_argument("--frames", type=trial_flags.whole, default=96, help="frames of a clip (96)")
        trial_flags.add_size(sub, 320, 240)
        trial_flags.add_seed(sub)
        trial_flags.add_json(sub)

    @staticmethod
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


class Extract:
    """Extract the features of a folder of videos, 16 frames at a time, on any engine.

      edgescope anomaly extract videos features --features frames_lite0 --backend onnxruntime
      edgescope anomaly extract UCF_Crime features --features i3d_r50_nl@i3d.pth --crops 10 --device cuda

    The same command again goes on where it stopped. A video that cannot be decoded is left out and named.
    """

    HELP = "extract features from a folder of videos"
    INTERRUPTED = "Finished videos are kept; the same command goes on with the others."

    @staticmethod
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
        text = (
            "weights: as the network was trained; rtfm: as the public extractor of RTFM's features (weights)"
        )
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

    @staticmethod
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


class Train:
    """Train a detector on extracted features from weak labels: each video as a whole is normal or not.

      edgescope anomaly train features --output detector.pt
      edgescope anomaly train features --head mil_ranking --steps 2000 --output ranking.pt

    The settings that are not given are the published ones of the head, as printed at the start. Weights are chosen on
    the validation split; --select test does what the original code of RTFM does, and its figure is then too good.
    """

    HELP = "train a detector on features"
    INTERRUPTED = "What was trained is kept next to --output; the same command goes on from there."

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add the flags."""
        sub.add_argument("features", type=Path, metavar="FEATURES", help="folder that anomaly extract wrote")
        trial_flags.add_output(sub, "file to write: the detector, e.g. detector.pt", required=True)
        trial_flags.add_head(sub)
        for name, (kind, text) in CHANGED.items():
            sub.add_argument(f"--{name.replace('_', '-')}", type=kind, default=None, metavar="N", help=text)
        trial_flags.add_learning_rate(sub, None)
        text = "split that chooses the weights: validation, last (none: the last weights), test (validation)"
        sub.add_argument("--select", default="validation", choices=("validation", "last", "test"), help=text)
        text = "precision, fp32, tf32, or bf16 or fp16 for mixed precision (fp32)"
        sub.add_argument("--precision", default="fp32", choices=("fp32", "tf32", "bf16", "fp16"), help=text)
        trial_flags.add_device(sub, "cpu", "cpu")
        trial_flags.add_log(sub, "losses and values as CSV")
        trial_flags.add_seed(sub)
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Train, print losses and values, write the detector; return 0."""
        from edgescope.wings.anomaly import verb as anomaly
        from edgescope.wings.anomaly.evaluation import weakness

        changed = {
            name: getattr(args, name)
            for name in (*CHANGED, "learning_rate", "select", "precision", "device", "seed")
        }
        recipe, countdown = anomaly.recipe(args.head, **changed), Countdown()
        say(_words(recipe))

        def tell(epoch: Epoch) -> None:
            if epoch.value is not None or epoch.number % 10 == 0:
                say(f"{_judged(epoch)}{countdown.words(epoch.steps, recipe.steps)}")

        trained = anomaly.train(
            args.features, args.output, head=args.head, log=args.log, tell=tell, **changed
        )
        about = trained.about
        if args.json:
            print(json.dumps(about, indent=1))
            return 0
        auc = about["selection_auc"]
        chosen = (
            f"{about['selected_on']} AUC {auc:.3f} at step {about['selected_step']}"
            if auc is not None
            else ""
        )
        print(
            f"{args.output}: {chosen or 'the last weights'}; {about['seconds']:.0f} s;"
            f" {about['stopped'] or 'all steps'}"
        )
        if about["threshold"] is None:
            say(_blind(about["threshold_of"]))
        else:
            print(f"alarms at a score of {about['threshold']:.3g} or above: {about['threshold_of']}")
            if why := weakness(about["threshold"], about["false_alarms_per_hour"]):
                say(_weak(why))
        print(f"next: edgescope anomaly evaluate {args.output} {args.features}")
        return 0


CHANGED: dict[str, tuple[Callable[[str], float], str]] = {
    "steps": (trial_flags.whole, "steps of training (rtfm 15000, mil_ranking 20000, light_head 5000)"),
    "bags": (trial_flags.whole, "videos in a step, half of them anomalous (64, mil_ranking 60)"),
    "weight_decay": (float, "weight decay (rtfm 0.005, mil_ranking 0.001, light_head 0.0005)"),
    "judged_every": (
        trial_flags.whole,
        "steps between two looks at the validation split (5, mil_ranking 20)",
    ),
    "judged_from": (trial_flags.whole, "first step after which weights are judged (200)"),
    "patience": (trial_flags.whole, "looks without a better value after which training stops (never)"),
}


def _blind(why: str) -> Message:
    """Return the warning for a detector that has no threshold of its own."""
    return Message(
        "W-ANOMALY-4",
        "the detector has no threshold of its own",
        evidence=why,
        effect="`anomaly watch` takes 0.5, and its alarms may mean nothing",
        fix="more videos of both kinds, or more --steps",
    )


def _weak(why: str) -> Message:
    """Return the warning for a threshold at which alarms would mean little."""
    return Message(
        "W-ANOMALY-5",
        "the detector's own threshold is weak",
        evidence=why,
        effect="`anomaly watch` alarms at it unless --alarm is given",
        fix="more videos or --steps, or choose: anomaly watch --alarm on=0.5,off=0.4",
    )


def _words(recipe: object) -> str:
    return "  ".join(f"{name} {value}" for name, value in vars(recipe).items())


def _judged(epoch: Epoch) -> str:
    value = "" if epoch.value is None else f"  AUC {epoch.value:.4f}"
    return f"step {epoch.steps:6}  loss {epoch.loss:.4f}{value}"


class Evaluate:
    """Evaluate a detector on the test split: frame AUC and PR AUC, by kind, false alarms per hour, delay.

      edgescope anomaly evaluate detector.pt features
      edgescope anomaly evaluate detector.pt features --against ranking.pt --output detectors.html

    Intervals draw whole videos anew. --against compares two detectors on the same videos by a paired test.
    """

    HELP = "evaluate a detector, alone or against another"

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add the flags."""
        sub.add_argument("detector", type=Path, metavar="DETECTOR", help="file that anomaly train wrote")
        sub.add_argument("features", type=Path, metavar="FEATURES", help="folder that anomaly extract wrote")
        sub.add_argument("--against", type=Path, metavar="DETECTOR", help="another detector to compare with")
        text = "features of the same videos for the other detector (FEATURES)"
        sub.add_argument("--against-features", type=Path, metavar="FEATURES", help=text)
        text = "split to evaluate on: test, validation, train (test)"
        sub.add_argument("--split", default="test", choices=("test", "validation", "train"), help=text)
        text = "share of events that alarms must find; false alarms are counted there (0.8)"
        sub.add_argument("--recall", type=float, default=0.8, metavar="SHARE", help=text)
        text = "sets of videos drawn anew for the intervals (1000)"
        sub.add_argument("--draws", type=trial_flags.whole, default=1000, metavar="N", help=text)
        trial_flags.add_output(sub, "file to write: the answer as well (.html, .md, .csv, .json)")
        context.add_verbose(sub)
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Evaluate, print the figures; return 0."""
        from edgescope.wings.anomaly import verb as anomaly
        from edgescope.wings.anomaly.page import document

        context.ready(args)
        found = anomaly.evaluate(
            args.detector,
            args.features,
            against=args.against,
            against_features=args.against_features,
            split=args.split,
            recall=args.recall,
            draws=args.draws,
        )
        page = document(found, command=context.command())
        context.show(args, page)
        return 0


class Watch:
    """Watch a camera, a stream or a film: decode, cut snippets, score them, and raise alarms.

    edgescope anomaly watch rtsp://host/path --detector detector.pt --log alarms.jsonl --webhook http://host/alarm
    edgescope anomaly watch paced:film.mp4 --detector detector.pt --clips clips --output watched.html
    edgescope anomaly watch film.mp4 --json

    On a terminal the score, the threshold, the alarms and the age of frames are drawn live; --json prints a line for
    each snippet, each alarm and the summary. Ctrl-C ends it with a summary; alarms that were not delivered stay in
    --spool.
    """

    HELP = "watch a camera, a stream or a film and raise alarms"

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        cli.configure(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Watch until the stream ends or a signal comes; print the summary; return 1 if a part is missing."""
        from edgescope.wings.anomaly.verb import chain

        return cli.run(args, chain)


PARTS: Mapping[str, Any] = {
    "generate": Generate,
    "extract": Extract,
    "train": Train,
    "evaluate": Evaluate,
    "watch": Watch,
}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the parts of this verb, each with its flags."""
    add_parts(sub, PARTS)


def run(args: argparse.Namespace) -> int:
    """Run the part that was named; return its exit code."""
    return int(PARTS[args.part].run(args))
