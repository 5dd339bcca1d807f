"""The energy of a stored result by every meter that watched it, and by the log of an external one.

edgescope energy 3f2a                       every meter of a result: scope, method, joules, bounds
edgescope energy 3f2a --meter plug.csv      the same run at the wall: the log is placed by the load's own edge
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.cli import opened

if TYPE_CHECKING:
    from edgescope.analysis.wall import Wall
    from edgescope.records import Result

HELP = "a result's energy by every meter, and by an external meter's CSV"
SHOWN = ("power_w", "energy_j", "energy_per_sample_j", "idle_power_w", "energy_dynamic_per_sample_j")


def configure(sub: argparse.ArgumentParser) -> None:
    """Add this verb's flags."""
    sub.add_argument("result", help="beginning of a result's id (edgescope list)")
    sub.add_argument("--meter", type=Path, default=None, metavar="FILE.csv", help="log of an external meter")
    sub.add_argument("--time-column", default="", metavar="NAME", help="its column of times (recognised)")
    sub.add_argument("--power-column", default="", metavar="NAME", help="its column of power (recognised)")
    sub.add_argument("--store", default=None, metavar="DIR")
    sub.add_argument("--json", action="store_true")


def run(args: argparse.Namespace) -> int:
    """Print the result's energies, with --meter also those at the wall; exit 3 where no meter watched it."""
    from edgescope.analysis.energy import energies

    result = _result(args)
    assert result.readings is not None and result.window is not None and result.queries is not None
    window = result.window
    done = result.metrics.get("queries")
    samples = int(getattr(done, "value", 0)) * result.trial.batch
    found = energies(result.readings, window.start_ns, window.stop_ns, samples)
    wall = _wall(args, result)
    if args.json:
        print(json.dumps(_json(result, found, wall), indent=1))
        return 0
    from edgescope.cli import terminal

    rows = [(e.meter, e.scope, e.method, *map(terminal.why, _figures(e))) for e in found]
    if wall is not None:
        figures = [wall.consumption.metrics[name] for name in SHOWN[:3]]
        rows.append((args.meter.name, "wall", "trapezoid", *map(terminal.why, figures)))
    if not rows:
        print(f"no meter watched this result: {terminal.why(result.metrics.get('power_w'))}")
        return 3
    terminal.table(("meter", "scope", "method", "power", "energy", "a sample"), rows)
    if wall is not None:
        _tell(wall)
    return 0


def _figures(found: Any) -> tuple[Any, ...]:
    return found.power_w, found.energy_j, found.energy_per_sample_j


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
    from edgescope.analysis import meter
    from edgescope.analysis.wall import wall

    return wall(result, meter.read(args.meter, time_column=args.time_column, power_column=args.power_column))


def _tell(wall: Wall) -> None:
    """Print where the log was placed and what the machine drew beyond idling."""
    from edgescope.cli import terminal

    a, m = wall.alignment, wall.consumption.metrics
    terminal.note(
        f"the window begins {a.offset_s:.3f} s after the log's first row, +-{a.uncertainty_s:.3f} s; "
        f"the meter's clock runs {a.drift:+.2%} off, +-{a.drift_uncertainty:.2%}; "
        f"the load's step of {a.step_w:.2f} W explains {a.explained:.0%} of the log"
    )
    terminal.note(
        f"idle {terminal.why(m['idle_power_w'])} (wall); "
        f"beyond it {terminal.why(m['energy_dynamic_per_sample_j'])} a sample"
    )
    for warning in wall.consumption.warnings:
        terminal.note(warning)


def _json(result: Result, found: Any, wall: Wall | None) -> dict[str, Any]:
    from edgescope.codec import to_plain

    meters = [
        {"meter": e.meter, "scope": e.scope, "method": e.method}
        | dict(zip(SHOWN[:3], map(to_plain, _figures(e)), strict=True))
        for e in found
    ]
    out: dict[str, Any] = {"result": result.id, "meters": meters, "wall": None}
    if wall is not None:
        out["wall"] = {
            "alignment": to_plain(wall.alignment),
            "metrics": to_plain(dict(wall.consumption.metrics)),
            "warnings": list(wall.consumption.warnings),
        }
    return out
