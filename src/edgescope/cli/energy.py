"""The energy of a stored result by every meter that watched it, and by the log of an external one.

edgescope energy 3f2a                       every meter of a result: scope, method, joules, bounds
edgescope energy 3f2a --meter plug.csv      the same run at the wall: the log is placed by the load's own edge
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.cli import opened

if TYPE_CHECKING:
    from edgescope.analysis.energy.of_run import Consumption
    from edgescope.analysis.energy.wall import Wall
    from edgescope.records import Meter, Result

HELP = "a result's energy by every meter, and by an external meter's CSV"
SCOPES = ("wall", "carrier", "module", "sum_of_rails", "gpu_board", "cpu_package", "rail")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("result", help="beginning of a result's id (edgescope list)")
    sub.add_argument("--meter", type=Path, default=None, metavar="FILE.csv", help="log of an external meter")
    sub.add_argument("--time-column", default="", metavar="NAME", help="its column of times (recognised)")
    sub.add_argument("--power-column", default="", metavar="NAME", help="its column of power (recognised)")
    sub.add_argument("--scope", choices=SCOPES, default="", help="what it sits in front of (default: wall)")
    sub.add_argument("--store", default=None, metavar="DIR")
    sub.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Print the result's energies, with --meter also those at the wall; exit 3 where no meter watched it."""
    result = _result(args)
    found, wall = _metered(result), _wall(args, result)
    from edgescope.report.energy import document
    from edgescope.report.render import json as as_json
    from edgescope.report.render import terminal

    page = document(result, found, wall, args.meter.name if args.meter else "")
    if args.json:
        print(as_json.text(page))
        return 0
    terminal.show(page, verbose=True)
    return 0 if found or wall else 3


def _metered(result: Result) -> list[tuple[Meter, Consumption]]:
    """Return what each meter of the result says, by the one way that the result's own metrics went."""
    from edgescope.analysis.energy.of_run import consumption, done
    from edgescope.analysis.energy.window import energies
    from edgescope.records import Meter

    assert result.readings is not None and result.window is not None and result.queries is not None
    readings, queries, window = result.readings, result.queries, result.window
    every = energies(readings, window.start_ns, window.stop_ns, done(queries, window))
    return [
        (
            Meter(e.meter, e.scope, e.method),
            consumption(
                readings, queries, window, idle=result.idle, meter=e.meter, colocated=result.trial.colocated
            ),
        )
        for e in every
    ]


def _result(args: argparse.Namespace) -> Result:
    """Return the one result that is meant, with its raw rows."""
    from edgescope.errors import UsageError

    store = opened.store(args)
    found = store.find(args.result)
    if len(found) > 1:
        names = ", ".join(r.id for r in found[:6])
        raise UsageError("E-METER-4", f"{args.result!r} is the beginning of several results", evidence=names)
    result = store.full(found[0])
    if result.readings is None or result.window is None or result.queries is None:
        raise UsageError(
            "E-METER-3", f"the result {result.id} was not measured", evidence=result.reason[:200]
        )
    return result


def _wall(args: argparse.Namespace, result: Result) -> Wall | None:
    if args.meter is None:
        return None
    from edgescope.analysis.energy import meter_log as meter
    from edgescope.analysis.energy.wall import wall

    log = meter.read(args.meter, time_column=args.time_column, power_column=args.power_column)
    return wall(result, log, args.scope)
