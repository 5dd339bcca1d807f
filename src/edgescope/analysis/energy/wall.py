"""A stored run's energy at the wall, from an external meter's log: aligned, integrated, told with its uncertainty."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from edgescope.analysis.energy.align import Alignment, align, load
from edgescope.analysis.energy.meter_log import MeterLog
from edgescope.analysis.energy.of_run import Consumption, consumption
from edgescope.analysis.energy.window import energies
from edgescope.errors import UsageError
from edgescope.records import Channel, Field, Measured, Readings, Result, Window

METER = "meter"
_RAIL = re.compile(r"(?i)power from '(vdd|vin|pom|sys|gpu|cpu|soc)")


@dataclass(frozen=True)
class Wall:
    """Where the log lies on the run's time, and what the run used by it."""

    alignment: Alignment
    consumption: Consumption
    scope: str = "wall"


def wall(result: Result, log: MeterLog, scope: str = "") -> Wall:
    """Return the run's energy by the meter's log; UsageError where the two cannot be put together.

    The scope is the wall where none is named; a column that is called as a board's rail is must have one named.

    The ends of every figure are moved outwards by what the uncertainty of the offset is worth.
    """
    if result.queries is None or result.window is None:
        raise UsageError("E-METER-3", f"the result {result.id} holds no queries to place the log by")
    if not scope and _RAIL.search(log.columns):
        what = f"the log is of a rail, not of the wall: {log.columns}"
        raise UsageError("E-METER-1", what, effect="The log was not used", fix="--scope module")
    window = result.window
    placed = align(log, load(result.queries, result.idle, window.start_ns))
    readings = _readings(log, placed, window, scope or "wall")
    spent = consumption(
        readings, result.queries, window, idle=result.idle, meter=METER, colocated=result.trial.colocated
    )
    error = _unsure(readings, window, placed)
    return Wall(placed, replace(spent, metrics=_widened(spent.metrics, error, window)), scope or "wall")


def _readings(log: MeterLog, placed: Alignment, window: Window, scope: str) -> Readings:
    """Return the log as readings on the run's clock; a gauge, since no log says what its rows are the mean of."""
    t_ns = window.start_ns + (placed.run_time(log.t_s) * 1e9).round().astype(np.int64)
    channel = Channel(f"{METER}_power_w", "W", scope, "gauge", log.columns)
    return Readings((channel,), t_ns, np.zeros(len(t_ns), np.int16), log.watts)


def _unsure(readings: Readings, window: Window, placed: Alignment) -> float:
    """Return by how many joules the window's energy may be off because of where it was placed."""
    found = energies(readings, window.start_ns, window.stop_ns, 0)
    total = found[0].total if found else None
    if total is None:
        return 0.0
    stop = (window.stop_ns - window.start_ns) / 1e9
    shifts = np.linspace(-placed.uncertainty_s, placed.uncertainty_s, 21)
    moved = total.curve.at(stop + shifts) - total.curve.at(shifts)
    rate = placed.drift_uncertainty * total.joules if placed.drifts else 0.0
    return (
        float(np.abs(moved - total.curve.at(np.array([stop])) + total.curve.at(np.array([0.0]))).max()) + rate
    )


def _widened(metrics: Mapping[str, Field], error_j: float, window: Window) -> dict[str, Field]:
    """Return the metrics with the ends of power and energy moved outwards."""
    seconds = (window.stop_ns - window.start_ns) / 1e9
    whole, per = metrics["energy_j"], metrics["energy_per_sample_j"]
    a_sample = per.value / whole.value if isinstance(per, Measured) and isinstance(whole, Measured) else 0.0
    share = {"power_w": 1 / seconds, "energy_j": 1.0, "energy_dynamic_j": 1.0}
    share |= dict.fromkeys(("energy_per_sample_j", "energy_dynamic_per_sample_j"), a_sample)
    return {name: _outwards(field, error_j * share.get(name, 0.0)) for name, field in metrics.items()}


def _outwards(field: Field, by: float) -> Field:
    if not isinstance(field, Measured) or by == 0:
        return field
    return replace(
        field,
        lo=None if field.lo is None else field.lo - by,
        hi=None if field.hi is None else field.hi + by,
    )
