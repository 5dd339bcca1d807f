"""Print the energy of a stored result by every meter that recorded it, and by the log of an external meter.

edgescope energy 3f2a                       every meter of a result: scope, method, joules, bounds
edgescope energy 3f2a --meter plug.csv      the same run at the wall: the log is aligned by the load's own edge
"""

from __future__ import annotations

import argparse
from pathlib import Path

from edgescope.commandline import context, trial_flags
from edgescope.wings.energy.meter_table import QUANTITIES, Dialect

SCOPES = ("wall", "carrier", "module", "sum_of_rails", "gpu_board", "cpu_package", "rail")

EXAMPLES = {
    "time": "s, ms, us",
    "power": "W, mW",
    "voltage": "V, mV",
    "current": "A, mA",
    "energy": "J, mJ, Wh",
}


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("result", help="a result, by its name in edgescope list, or latest")
    sub.add_argument("--meter", type=Path, default=None, metavar="FILE.csv", help="log of an external meter")
    sub.add_argument("--scope", choices=SCOPES, default="", help="what the meter measures (wall)")
    _dialect(sub.add_argument_group("how the log is read, where it does not say so itself"))
    trial_flags.add_machine(sub, "whose results the name means")
    trial_flags.add_store(sub)
    trial_flags.add_json(sub)


def _dialect(group: argparse._ArgumentGroup) -> None:
    for name in QUANTITIES:
        text = f"its column of {name}, or that column's number (recognised by name)"
        group.add_argument(f"--{name}-column", default="", metavar="NAME", help=text)
        group.add_argument(
            f"--{name}-unit", default="", metavar="UNIT", help=f"the unit of its {name}: {EXAMPLES[name]}"
        )
    text = "read only the rows of one device, where a log has a row for each"
    group.add_argument("--only", default="", metavar="COLUMN=VALUE", help=text)
    text = "the column that tells devices apart whose power adds up"
    group.add_argument("--sum", default="", metavar="COLUMN", help=text)
    text = "rows of one time: the mean of one meter with a coarse clock, or the sum of one row a device"
    group.add_argument("--repeated", choices=("mean", "sum"), default="", help=text)
    group.add_argument("--decimal", choices=(".", ","), default="", help="the decimal mark")
    text = "day and month of 05/04/2026: day first (dmy) or month first (mdy)"
    group.add_argument("--dates", choices=("dmy", "mdy"), default="", help=text)


def run(args: argparse.Namespace) -> int:
    """Print the result's energies, and with --meter those at the wall; return 3 if no meter recorded the run."""
    from edgescope.wings.energy.verb import energy

    spent = energy(
        args.result,
        meter=args.meter,
        dialect=_said(args),
        scope=args.scope,
        machine=args.machine,
        store=context.store(args),
        tell=context.say,
    )
    from edgescope.wings.energy.verb import document

    page = document(spent, args.meter.name if args.meter else "")
    context.show(args, page)
    return 0 if args.json or spent.meters or spent.wall else 3


def _said(args: argparse.Namespace) -> Dialect:
    """Return what the flags say about the log."""
    named = vars(args)
    columns = {name: found for name in QUANTITIES if (found := named[f"{name}_column"])}
    units = {name: found for name in QUANTITIES if (found := named[f"{name}_unit"])}
    return Dialect(columns, units, args.only, args.sum, args.repeated, args.decimal, args.dates)
