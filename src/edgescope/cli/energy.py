"""Print the energy of a stored result by every meter that recorded it, and by the log of an external meter.

edgescope energy 3f2a                       every meter of a result: scope, method, joules, bounds
edgescope energy 3f2a --meter plug.csv      the same run at the wall: the log is aligned by the load's own edge
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.cli import opened, trial_flags

HELP = "a result's energy by every meter, and by an external meter's CSV"
SCOPES = ("wall", "carrier", "module", "sum_of_rails", "gpu_board", "cpu_package", "rail")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("result", help="a result, by its name in edgescope list, or latest")
    sub.add_argument("--meter", type=Path, default=None, metavar="FILE.csv", help="log of an external meter")
    sub.add_argument(
        "--time-column", default="", metavar="NAME", help="the log's column of times (recognised)"
    )
    sub.add_argument(
        "--power-column", default="", metavar="NAME", help="the log's column of power (recognised)"
    )
    sub.add_argument("--scope", choices=SCOPES, default="", help="what the meter measures (wall)")
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)


def run(args: argparse.Namespace) -> int:
    """Print the result's energies, and with --meter those at the wall; return 3 if no meter recorded the run."""
    from edgescope.verbs.energy import energy

    spent = energy(
        args.result,
        meter=args.meter,
        time_column=args.time_column,
        power_column=args.power_column,
        scope=args.scope,
        store=opened.store(args),
    )
    from edgescope.report.energy import document

    page = document(spent, args.meter.name if args.meter else "")
    opened.show(args, page)
    return 0 if args.json or spent.meters or spent.wall else 3
