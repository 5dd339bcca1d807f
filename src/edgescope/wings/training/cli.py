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
import json
import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.commandline import context, trial_flags
from edgescope.commandline.context import Countdown
from edgescope.commandline.parsing import add_parts
from edgescope.process.said import say, waiting

if TYPE_CHECKING:
    from edgescope.wings.training.clip_data import Data
    from edgescope.wings.training.clips import Epoch


class Advise:
    """Name what holds a training run up, the setting to change and what it would gain; then measure what it gains.

    edgescope train advise lenet5 --batch 16
    edgescope train advise mobilenet_v3_large_203class --batch 16 --workload-option images=photographs
    edgescope train advise mytask:make                     a callable that returns an edgescope Task
    """

    HELP = "name a training run's bottleneck, the setting to change and its gain, and verify it"
    INTERRUPTED = "Finished runs are stored; the same command goes on with the others."

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        sub.add_argument(
            "model", help="classifier of the zoo, or module:callable that returns a network or a Task"
        )
        group = sub.add_argument_group("the run as it is")
        trial_flags.add_what(group, usual=("torch_eager", "fp32", "1"))
        trial_flags.add_work(group)
        trial_flags.add_engine(group)
        group = sub.add_argument_group("the advice")
        group.add_argument("--no-verify", action="store_true", help="predict only; do not measure the change")
        trial_flags.add_safety(sub)
        context.add_verbose(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Measure, print the advice; return 1 if the change did not gain what makes it worth it."""
        from edgescope.records import Measured
        from edgescope.records.answers import plain
        from edgescope.records.codec import to_plain
        from edgescope.wings.training.advise import train_advise

        keys = trial_flags.engine_keys(args) | {
            "device": args.device or "cpu",
            "workload_options": dict(args.workload_option),
            **{name: trial_flags.axis(name, getattr(args, name), single=True) for name in trial_flags.WHAT},
        }
        found = train_advise(
            args.model,
            verify=not args.no_verify,
            store=context.store(args),
            setup=context.setup(args),
            **keys,
        )
        if args.json:
            about = {
                "bottleneck": found.bottleneck,
                "share": found.share,
                "realised": plain(found.realised),
                "mispredicted": found.mispredicted,
                "verdict": to_plain(found.verdict),
                "changes": found.records(),
                "results": [result.id for result in found.results],
            }
            print(json.dumps(about, indent=1))
        else:
            print("\n".join([*found.lines(), *(found.details() if args.verbose else ())]))
        lost = (
            isinstance(found.realised, Measured) and found.realised.hi is not None and found.realised.hi < 1
        )
        return int(lost)


class Interleave:
    """Choose the minibatch with which this device trains between queries: measure both sides alone, plan, and measure
    the plan. A query waits for one step of training at most, so the step decides what latency is kept. Runs take 5 s
    each without --duration; a p99 needs a hundred queries.

      edgescope train interleave lenet5 --train resnet18_cifar --rate 20 --constraint "p90<=150ms"
      edgescope train interleave lenet5 --rate 50 --train-batch 8,16,32 --constraint "p90<=40ms, power<=12W"
    """

    HELP = "choose the minibatch with which this device trains between queries, and verify it"
    INTERRUPTED = "Finished runs are stored; the same command goes on with the others."

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        sub.add_argument("model", help="model that answers the queries")
        group = sub.add_argument_group("the two sides")
        text = "classifier that is trained (the model itself)"
        group.add_argument("--train", default="", metavar="MODEL", help=text)
        text = "samples of a minibatch of training to choose from, comma-separated (4,16,64)"
        group.add_argument("--train-batch", default="4,16,64", metavar="N,..", help=text)
        text = "queries/s offered, at even distances"
        group.add_argument("--rate", type=trial_flags.number, required=True, help=text)
        trial_flags.add_constraint(group, "p90<=150ms, power<=12W", required=True)
        usual = ("the usual one of the model", "fp32", "1")
        trial_flags.add_what(group, usual=(None, "fp32", "1"), shown=usual)
        trial_flags.add_workload_option(group, "images=photographs, guard=1 (edgescope docs training)")
        trial_flags.add_engine(group)
        group.add_argument("--no-verify", action="store_true", help="predict only; do not measure the pick")
        trial_flags.add_timing(sub)
        trial_flags.add_safety(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Measure, print the plan; return 1 if no pair keeps the bounds, or the pick broke one when it was measured."""
        from edgescope.wings.training.interleave import train_interleave

        keys = trial_flags.engine_keys(args) | trial_flags.timing_keys(args)
        keys |= {
            **{name: trial_flags.axis(name, getattr(args, name), single=True) for name in trial_flags.WHAT},
            "workload_options": dict(args.workload_option),
        }
        found = train_interleave(
            args.model,
            rate=args.rate,
            constraints=args.constraint,
            train=args.train,
            train_batch=[trial_flags.counted(part, "train-batch") for part in args.train_batch.split(",")],
            verify=not args.no_verify,
            store=context.store(args),
            setup=context.setup(args),
            **keys,
        )
        print(json.dumps(found.records(), indent=1) if args.json else found)
        return int(not found.kept)


class Characterize:
    """Measure the grid of a published study of training on this machine: workers, batch, storage, CPUs, for its three
    networks on real pictures. `edgescope study training` then judges the study's takeaways and draws its figures.

      edgescope train characterize --budget 20min
      edgescope study training --output training.html
    """

    HELP = "measure the grid of a published study of training (edgescope study training)"
    INTERRUPTED = "Finished cells are stored; the same command goes on with the others."

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        trial_flags.add_device(sub, "cpu", "cpu")
        text = "only these models (all)"
        sub.add_argument("--models", type=trial_flags.words, default=(), metavar="NAME,..", help=text)
        text = "time until the answer (20min); what it leaves no time for is measured by the same command"
        sub.add_argument("--budget", type=trial_flags.seconds, default=1200.0, metavar="TIME", help=text)
        trial_flags.add_output(sub, "file to write: the study's page as well (.html, .md, .csv, .json)")
        context.add_verbose(sub)
        trial_flags.add_safety(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Measure what the store lacks, print the study's answer, write the page; return 1 if nothing was measured."""
        from edgescope.wings.studies.verb import train_characterize

        context.ready(args)
        found = train_characterize(
            device=args.device,
            models=args.models,
            budget=args.budget,
            store=context.store(args),
            setup=context.setup(args),
            waiting=waiting,
        )
        context.show(args, found.document, whole=True)
        if not args.json:
            print(f"{found.measured} of {found.planned} runs are measured")
        return int(not found.measured)


class Pictures:
    """Write a data set to train on: crops of real photographs, each labelled by the photograph that it is from.

    edgescope train data photographs --count 2000 --size 640x480             JPEG files, decoded one by one
    edgescope train data digits --count 60000 --size 28x28 --packed --grey   one file held in memory, as MNIST is
    """

    HELP = "write a folder of real pictures to train on"
    INTERRUPTED = "The folder is not complete: remove it before the same command is run again."

    @staticmethod
    def configure(sub: argparse.ArgumentParser) -> None:
        """Add this verb's flags."""
        sub.add_argument("folder", type=Path, help="folder to write, new or empty")
        trial_flags.add_count(sub, "pictures", 1000)
        trial_flags.add_size(sub, 640, 480)
        text = "photographs that they are crops of; each is a class (10)"
        sub.add_argument("--photographs", type=trial_flags.whole, default=10, help=text)
        sub.add_argument(
            "--packed", action="store_true", help="one file that is held in memory, not JPEG files"
        )
        sub.add_argument("--grey", action="store_true", help="one channel")
        trial_flags.add_seed(sub)
        trial_flags.add_json(sub)

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Write the data set and say what it holds; return 0."""
        from edgescope.models.image import photos

        width, height = args.size
        recipe = photos.Recipe(
            args.count, width, height, args.photographs, packed=args.packed, grey=args.grey, seed=args.seed
        )
        about = photos.write_set(args.folder, recipe)
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


class Clips:
    """Train one of the networks for video clips on your videos.

    The folder has the layout of UCF50: ROOT/CLASS/video.avi. A fifth of the recordings, the same ones in every class,
    is held out; the printed accuracy is measured on their videos. The weights can then be used like any other model.

      edgescope train clips har_cnn3d --data UCF50 --classes Biking,Diving,GolfSwing,JumpRope --output actions.pth
      edgescope bench har_cnn3d@actions.pth
    """

    HELP = "train a network for video clips on a folder of videos"
    INTERRUPTED = "Finished epochs are stored next to --output; the same command goes on after the last one."

    @staticmethod
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

    @staticmethod
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


PARTS: Mapping[str, Any] = {
    "advise": Advise,
    "interleave": Interleave,
    "characterize": Characterize,
    "data": Pictures,
    "clips": Clips,
}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add the parts of this verb, each with its flags."""
    add_parts(sub, PARTS)


def run(args: argparse.Namespace) -> int:
    """Run the part that was named; return its exit code."""
    return int(PARTS[args.part].run(args))
