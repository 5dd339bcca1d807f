"""Name what holds a training run up, the setting to change and what it would gain; then measure what it gains.

edgescope train advise lenet5 --batch 16
edgescope train advise mobilenet_v3_large_203class --batch 16 --workload-option images=photographs
edgescope train advise mytask:make                     a callable that returns an edgescope Task
"""

from __future__ import annotations

import argparse
import json

from edgescope.commandline import context, trial_flags

HELP = "name a training run's bottleneck, the setting to change and its gain, and verify it"
WHAT = ("backend", "precision", "batch")
INTERRUPTED = "Finished runs are stored; the same command goes on with the others."


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


def run(args: argparse.Namespace) -> int:
    """Measure, print the advice; return 1 if the change did not gain what makes it worth it."""
    from edgescope.records import Measured
    from edgescope.records.answers import plain
    from edgescope.records.codec import to_plain
    from edgescope.wings.training.advise import train_advise

    keys = trial_flags.engine_keys(args) | {
        "device": args.device or "cpu",
        "workload_options": dict(args.workload_option),
        **{name: trial_flags.axis(name, getattr(args, name), single=True) for name in WHAT},
    }
    found = train_advise(
        args.model, verify=not args.no_verify, store=context.store(args), setup=context.setup(args), **keys
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
    lost = isinstance(found.realised, Measured) and found.realised.hi is not None and found.realised.hi < 1
    return int(lost)
