"""The energy of a stored result by every meter that watched it, and by the log of an external one.

edgescope energy 3f2a                       every meter of a result: scope, method, joules, bounds
edgescope energy 3f2a --meter plug.csv      the same run at the wall: the log is placed by the load's own edge
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgescope.cli import opened

if TYPE_CHECKING:
    from edgescope.analysis.energy.of_run import Consumption
    from edgescope.analysis.energy.wall import Wall
    from edgescope.records import Field, Meter, Result

HELP = "a result's energy by every meter, and by an external meter's CSV"
SHOWN = ("power_w", "energy_j", "energy_per_sample_j", "idle_power_w", "energy_dynamic_per_sample_j")

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
    warnings = _warnings(result, found, wall)
    if args.json:
        print(json.dumps(_json(result, found, wall, warnings), indent=1))
        return 0
    from edgescope.cli import card
    from edgescope.report import terminal

    terminal.console().print(card.status(result))
    rows = [(m.name, m.scope, m.method, *_figures(c.metrics)) for m, c in found]
    if wall is not None:
        rows.append((args.meter.name, args.scope or "wall", "trapezoid", *_figures(wall.consumption.metrics)))
    if rows:
        terminal.table(("meter", "scope", "method", "power", "energy", "a sample"), rows)
    else:
        terminal.note(f"no meter watched this result: {terminal.why(result.metrics.get('power_w'))}")
    for meter, spent in found:
        terminal.note(f"{meter.name}: {_idle(spent.metrics)}")
    if wall is not None:
        _tell(wall)
    for warning in warnings:
        terminal.note(warning)
    return 0 if rows else 3


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


def _figures(metrics: Mapping[str, Field]) -> list[str]:
    """Return power, energy and energy per sample, each with what its ends are."""
    from edgescope.analysis.energy.scopes import ends
    from edgescope.report import terminal

    fields = [metrics[name] for name in SHOWN[:3]]
    return [f"{terminal.why(f)} {ends(f, metrics['energy_j'])}".strip() for f in fields]


def _idle(metrics: Mapping[str, Field]) -> str:
    from edgescope.records import Absent
    from edgescope.report import terminal

    rest, beyond = metrics["idle_power_w"], metrics["energy_dynamic_per_sample_j"]
    if isinstance(rest, Absent):
        return f"idle n/a ({rest.reason})"
    return f"idle {terminal.show(rest)}; beyond it {terminal.why(beyond)} a sample (bounds)"


def _warnings(result: Result, found: Sequence[tuple[Meter, Consumption]], wall: Wall | None) -> list[str]:
    """Return every warning once: those of the run, of its meters and of the log.

    Of further meters only what names its channel; their scopes and idle powers are shown.
    """
    parts = [result.warnings, *(c.warnings for _, c in found[:1])]
    parts += [tuple(w for w in c.warnings if w.startswith("W-PWR-3")) for _, c in found[1:]]
    parts += [wall.consumption.warnings] if wall else []
    return list(dict.fromkeys(warning for part in parts for warning in part))


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


def _tell(wall: Wall) -> None:
    """Print where the log was placed and what the machine drew beyond idling."""
    from edgescope.report import terminal

    a, m = wall.alignment, wall.consumption.metrics
    terminal.note(
        f"the window begins {a.offset_s:.3f} s after the log's first row, +-{a.uncertainty_s:.3f} s; "
        f"the meter's clock runs {a.drift:+.2%} off, +-{a.drift_uncertainty:.2%}; "
        f"the load's step of {a.step_w:.2f} W explains {a.explained:.0%} of the log"
    )
    terminal.note(f"{wall.scope}: {_idle(m)}")


def _json(
    result: Result, found: Sequence[tuple[Meter, Consumption]], wall: Wall | None, warnings: Sequence[str]
) -> dict[str, Any]:
    from edgescope.analysis.energy.scopes import ends
    from edgescope.records.codec import to_plain

    meters = [
        {"meter": m.name, "scope": m.scope, "method": m.method}
        | {name: to_plain(c.metrics[name]) for name in SHOWN}
        | {"ends": {name: ends(c.metrics[name], c.metrics["energy_j"]) for name in SHOWN}}
        for m, c in found
    ]
    out: dict[str, Any] = {
        **{"result": result.id, "status": result.status.value, "verdict": to_plain(result.verdict)},
        **{"meters": meters, "wall": None, "warnings": list(warnings)},
    }
    if wall is not None:
        out["wall"] = {
            "alignment": to_plain(wall.alignment),
            "metrics": to_plain(dict(wall.consumption.metrics)),
            "warnings": list(wall.consumption.warnings),
        }
    return out
