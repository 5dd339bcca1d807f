"""Show where the time goes, kernel by kernel.

edgescope trace report.sqlite                        an export of Nsight Systems, Kineto, ONNX Runtime ...
edgescope trace p1.sqlite p2.sqlite p4.sqlite        how it grows from trace to trace
"""

from __future__ import annotations

import argparse

from edgescope.cli import opened, trial_flags

HELP = "where the time goes: host calls, kernels, copies, waits, scheduling"


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("what", nargs="+", help="files that a profiler exported")
    sub.add_argument("--range", default="", metavar="NAME", help="the ranges that are the inferences (found)")
    sub.add_argument("--kind", default="", metavar="NAME", help="format of the files (told by their content)")
    opened.add_verbose(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Print the account of the traces; return 0."""
    from edgescope.report.render import json as as_json
    from edgescope.report.render import terminal
    from edgescope.report.trace import document
    from edgescope.verbs.trace import trace

    page = document(trace(*args.what, range_name=args.range, kind=args.kind))
    if args.json:
        print(as_json.text(page))
    else:
        terminal.show(page, verbose=args.verbose)
    return 0
