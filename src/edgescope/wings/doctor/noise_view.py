"""`edgescope doctor --noise`: measure the noise floor, store it with the machine's results, print it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict


def run(args: argparse.Namespace) -> int:
    """Measure the noise floor, store it and print it; return 0."""
    from edgescope.analysis.run import noise
    from edgescope.commandline import context
    from edgescope.devices.replay import device
    from edgescope.errors import UsageError
    from edgescope.wings.doctor.noise_run import measure

    if device.played():
        raise UsageError("E-NOISE-4", "a recording has no noise of its own", fix="leave --board away")
    store = context.store(args)
    store.check()

    context.say(f"identical runs in pairs for about {args.minutes:g} minutes ...")
    found = measure(args.minutes * 60, tell=context.say)
    path = noise.save(found, store.root)
    if args.json:
        print(json.dumps(asdict(found), indent=1))
        return 0
    print(f"noise floor: {noise.words(found)}.")
    print(f"stored in {path}")
    return 0
