"""Print one result: its card with all evidence, or all of it as JSON.

edgescope show latest
edgescope show 3f2a91 --json
"""

from __future__ import annotations

import argparse
import json

from edgescope.commandline import context, trial_flags


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("result", help="a result, by its name in edgescope list, or latest")
    context.add_verbose(sub)  # as everywhere; a card that was asked for by name holds the evidence anyway
    trial_flags.add_machine(sub, "whose results the name means")
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Print the result; return the exit code of the run that measured it."""
    from edgescope.analysis.cells import ids
    from edgescope.records import codec
    from edgescope.report.render import terminal
    from edgescope.report.result import document
    from edgescope.runner.own_results import named

    store = context.store(args)
    result = store.full(named(store, args.result, ids.one, args.machine, context.say))
    if args.json:
        print(json.dumps(codec.to_json(result), indent=1))
    else:
        terminal.show(document(result), verbose=True)
    return context.exit_code(result)
