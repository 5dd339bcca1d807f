"""`edgescope doctor --roofline cpu`: measure the device's ceilings, store them, print them."""

from __future__ import annotations

import argparse
import json


def run(args: argparse.Namespace) -> int:
    """Measure the ceilings, store them and print them; return 0."""
    from edgescope.bench import here
    from edgescope.commandline import context
    from edgescope.devices.replay import device
    from edgescope.errors import UsageError
    from edgescope.report.ceilings import document
    from edgescope.report.render import terminal
    from edgescope.runner import ceilings

    if device.played():
        raise UsageError("E-CEIL-3", "a recording can do no work", fix="leave --board away")
    store = context.store(args)
    store.check()
    context.say(f"measuring the ceilings of {args.roofline} ...")
    figures = ceilings.measure(args.roofline, mode=args.mode)
    path = ceilings.keep(figures, store.root, here(), args.mode)
    if args.json:
        print(json.dumps(figures, indent=1))
        return 0
    terminal.show(document(figures, str(path)), verbose=True)
    return 0
