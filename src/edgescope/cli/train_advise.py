"""Name what holds a training run up, the setting to change and what it would gain; then measure what it gains.

edgescope train advise lenet5 --batch 16
edgescope train advise mobilenet_v3_large_203class --batch 16 --workload-option images=photographs
edgescope train advise mytask:make                     a callable that returns an edgescope Task
"""

from __future__ import annotations

import argparse
import json

from edgescope.cli import opened, trial_flags

HELP = "name a training run's bottleneck, the setting to change and its gain, and verify it"
INTERRUPTED = "Finished runs are stored; the same command goes on with the others."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument(
        "model", help="classifier of the zoo, or module:callable that returns a network or a Task"
    )
    group = sub.add_argument_group("the run as it is")
    group.add_argument("--batch", type=trial_flags.whole, default=1, help="samples in a minibatch (1)")
    group.add_argument("--precision", default="fp32", help="fp32, tf32, bf16 or fp16 (fp32)")
    group.add_argument("--backend", default="torch_eager", help="torch_eager or torch_compile (torch_eager)")
    text = "option of the workload (edgescope docs training); may be repeated"
    group.add_argument(
        "--workload-option", type=trial_flags.option, action="append", default=[], metavar="K=V", help=text
    )
    trial_flags.add_engine(group)
    group = sub.add_argument_group("the advice")
    group.add_argument("--no-verify", action="store_true", help="predict only; do not measure the change")
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Measure, print the advice; return 1 if the change did not gain what makes it worth it."""
    from edgescope.records import Measured
    from edgescope.records.answers import plain
    from edgescope.verbs.train_advise import train_advise

    keys = trial_flags.engine_keys(args) | {
        "batch": args.batch,
        "precision": args.precision,
        "backend": args.backend,
        "device": args.device or "cpu",
        "workload_options": dict(args.workload_option),
    }
    found = train_advise(
        args.model, verify=not args.no_verify, store=opened.store(args), setup=opened.setup(args), **keys
    )
    if args.json:
        about = {
            "bottleneck": found.bottleneck,
            "share": found.share,
            "realised": plain(found.realised),
            "changes": found.records(),
            "results": [result.id for result in found.results],
        }
        print(json.dumps(about, indent=1))
    else:
        print(found)
    lost = isinstance(found.realised, Measured) and found.realised.hi is not None and found.realised.hi < 1
    return int(lost)
