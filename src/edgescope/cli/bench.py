"""Measure one model in one engine: latency, throughput, memory, power if there is a sensor, and whether the outputs
are right.

  edgescope bench efficientnet_lite0 --backend onnxruntime --precision int8
  edgescope bench model.onnx --shapes input=Nx3x224x224 --batch 4 --duration 5s --json
  edgescope bench model.onnx --backend trtexec --precision fp16 --on ssh://user@nano
"""

from __future__ import annotations

import argparse
import json

from edgescope.commandline import context, trial_flags
from edgescope.errors import refused
from edgescope.process.said import waiting

INTERRUPTED = "What had finished is stored; the run that was stopped is not. The same command starts again."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("model", help=trial_flags.MODEL)
    trial_flags.add_what(sub)
    sub.add_argument(
        "--replicates", type=int, default=1, help="fresh processes; --json prints one line for each (1)"
    )
    trial_flags.add_board(sub)
    context.add_verbose(sub)
    trial_flags.add_load(sub)
    trial_flags.add_timing(sub)
    trial_flags.add_safety(sub)


def run(args: argparse.Namespace) -> int:
    """Run the trial in fresh processes, store each result, print a card or JSON; return the exit code."""
    from edgescope.records import codec
    from edgescope.runner.setup import check_modes
    from edgescope.units import remaining

    trials = trial_flags.trials_of(args)
    if trials[0].data:
        from edgescope.data.dataset_model import checked

        checked(trials[0])
    context.use_board(trial_flags.board(args), trials)
    check_modes(trials, context.say)
    cells = context.setup(args).cells(context.store(args))
    code, results = 0, []
    for number, trial in enumerate(trials):
        failed = cells.builds.failure(trial)
        if failed is not None and refused(failed.reason):
            context.say(failed.reason)  # a mistake is no result, so nothing is stored
            return 2
        place = f"[{number + 1}/{len(trials)}] " if len(trials) > 1 else ""
        left = remaining(cells.pace.left(trials[number:]))
        with waiting(f"measuring {place}{trial.model} {trial.label}{left}", live=True):
            result = cells.run(trial)
        results.append(result)
        from edgescope.report import result as card  # it takes memory that belongs to what is measured
        from edgescope.report import terminal

        if args.json:
            print(json.dumps(codec.to_json(result), indent=1 if args.replicates == 1 else None))
        elif len(trials) == 1:
            terminal.show(card.document(result), verbose=args.verbose)
        code = max(code, context.exit_code(result))
    if len(results) > 1 and not args.json:
        terminal.show(card.several(results), verbose=args.verbose)
    return code
