"""Train a detector on extracted features from weak labels: each video as a whole is normal or not.

  edgescope anomaly train features --output detector.pt
  edgescope anomaly train features --head mil_ranking --steps 2000 --output ranking.pt

The settings that are not given are the published ones of the head, as printed at the start. Weights are chosen on the
validation split; --select test does what the original code of RTFM does, and its figure is then too good.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.commandline import trial_flags
from edgescope.commandline.progress import Countdown
from edgescope.errors import Message
from edgescope.process.said import say

if TYPE_CHECKING:
    from edgescope.fit import Epoch

HELP = "train a detector on features"
INTERRUPTED = "What was trained is kept next to --output; the same command goes on from there."
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

    trained = anomaly.train(args.features, args.output, head=args.head, log=args.log, tell=tell, **changed)
    about = trained.about
    if args.json:
        print(json.dumps(about, indent=1))
        return 0
    auc = about["selection_auc"]
    chosen = (
        f"{about['selected_on']} AUC {auc:.3f} at step {about['selected_step']}" if auc is not None else ""
    )
    print(
        f"{args.output}: {chosen or 'the last weights'}; {about['seconds']:.0f} s; {about['stopped'] or 'all steps'}"
    )
    if about["threshold"] is None:
        say(_blind(about["threshold_of"]))
    else:
        print(f"alarms at a score of {about['threshold']:.3g} or above: {about['threshold_of']}")
        if why := weakness(about["threshold"], about["false_alarms_per_hour"]):
            say(_weak(why))
    print(f"next: edgescope anomaly evaluate {args.output} {args.features}")
    return 0


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
