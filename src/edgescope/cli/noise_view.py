"""`edgescope doctor --noise`: measure the noise floor, store it with the machine's results, print it."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgescope.store.results import Store


def run(args: argparse.Namespace) -> int:
    """Measure the noise floor, store it and print it; return 0."""
    from edgescope.analysis.run import noise
    from edgescope.commandline import context
    from edgescope.devices.replay import device
    from edgescope.errors import UsageError
    from edgescope.runner.noise import measure

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


def stored(store: Store, machine_id: str) -> str:
    """Return the stored noise floor as a sentence, or '' if none was measured."""
    from edgescope.analysis.run import noise

    found = noise.stored(store.root, machine_id)
    return f"{noise.words(found)}." if found else ""
