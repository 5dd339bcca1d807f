"""Write a report of a store: one self-contained HTML page, or Markdown or CSV, by the suffix of the file."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from edgescope.commandline import context, trial_flags
from edgescope.commandline.waiting import waiting

INTERRUPTED = "No report was written; an earlier one is unchanged."


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    trial_flags.add_output(
        sub, "file to write: the report (.html, .md, .csv)", default=Path("edgescope-report.html")
    )
    sub.add_argument("--model", default="", help="model: only results whose model's name contains this")
    trial_flags.add_machine(sub, "its results, or all: each machine in chapters of its own")
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Read the store, write the report and print its path; return 0."""
    from edgescope.errors import UsageError
    from edgescope.report import writable, write
    from edgescope.runner.own_results import own_results

    writable(args.output)  # before anything is read
    store = context.store(args)
    with waiting(f"reading {store.root}"):
        found = own_results(store, args.machine, context.say, apart=True)
        results = store.fulls([r for r in found if args.model in r.trial.model])
    for problem in store.problems:
        context.say(problem)
    if not results:
        raise UsageError("E-REPORT-2", f"there are no results in {store.root}", fix="edgescope bench MODEL")
    with waiting(f"writing {args.output} from {len(results)} result{'s' * (len(results) != 1)}"):
        path = write(results, args.output)
    print(json.dumps({"path": str(path), "results": [r.id for r in results]}) if args.json else path)
    return 0
