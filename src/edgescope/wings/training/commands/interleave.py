"""Choose the minibatch with which this device trains between queries: measure both sides alone, plan, and measure the
plan. A query waits for one step of training at most, so the step decides what latency is kept. Runs take 5 s each
without --duration; a p99 needs a hundred queries.

  edgescope train interleave lenet5 --train resnet18_cifar --rate 20 --constraint "p90<=150ms"
  edgescope train interleave lenet5 --rate 50 --train-batch 8,16,32 --constraint "p90<=40ms" --constraint "power<=12W"
"""

from __future__ import annotations

import argparse
import json

from edgescope.commandline import context, trial_flags

HELP = "choose the minibatch with which this device trains between queries, and verify it"
WHAT = ("backend", "precision", "batch")
INTERRUPTED = "Finished runs are stored; the same command goes on with the others."


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


def run(args: argparse.Namespace) -> int:
    """Measure, print the plan; return 1 if no pair keeps the bounds, or the pick broke one when it was measured."""
    from edgescope.wings.training.interleave import train_interleave

    keys = trial_flags.engine_keys(args) | trial_flags.timing_keys(args)
    keys |= {
        **{name: trial_flags.axis(name, getattr(args, name), single=True) for name in WHAT},
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
