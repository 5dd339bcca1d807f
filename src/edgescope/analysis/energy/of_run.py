"""The watts and joules of one run as metrics: the meter, the total, per sample, and beyond idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgescope.analysis.energy import window as blocks
from edgescope.analysis.energy.idle import baseline
from edgescope.analysis.energy.window import Energy, energy, scope_note
from edgescope.errors import Message
from edgescope.records import QUERY_OK, Absent, Field, Idle, Measured, Meter, Queries, Readings, Window

A_SAMPLE = ("energy_per_sample_j", "energy_dynamic_per_sample_j")


@dataclass(frozen=True)
class Consumption:
    """Metrics by name, the meter behind them (None: none answered), and the warnings about them."""

    metrics: Mapping[str, Field]
    meter: Meter | None
    warnings: tuple[Message, ...]


def consumption(
    readings: Readings,
    queries: Queries,
    window: Window,
    *,
    idle: Sequence[Idle] = (),
    meter: str | None = None,
    device: str = "",
    board: str = "gpu0",
    colocated: str = "",
) -> Consumption:
    """Return the window's consumption by the named meter, else by the meter of the widest scope that sees the device.

    `colocated` are other models that ran meanwhile: the joules are theirs, too, so energy per sample is Absent.
    """
    samples = done(queries, window)
    span = window.start_ns, window.stop_ns
    spent = energy(readings, *span, samples, meter=meter, device=device, board=board)
    rest = baseline(spent, readings, idle, window, samples)
    metrics: dict[str, Field] = {
        "power_w": spent.power_w,
        "energy_j": spent.energy_j,
        "energy_per_sample_j": _per_sample(spent, queries, window),
        "power_updates_hz": _rate(spent, (span[1] - span[0]) / 1e9),
        **rest.metrics,
    }
    if colocated:
        metrics |= dict.fromkeys(A_SAMPLE, Absent(f"other models ran beside it: {colocated}"))
    if spent.total is None:
        return Consumption(metrics, None, spent.warnings)
    note = scope_note(spent.meter, spent.scope)
    warnings = (*([note] if note else []), *spent.warnings, *rest.warnings)
    return Consumption(metrics, Meter(spent.meter, spent.scope, spent.method), warnings)


def done(queries: Queries, window: Window) -> int:
    """Return the samples of the window's successful queries."""
    c = queries.rows(window).columns
    return int(c["samples"][c["status"] == QUERY_OK].sum())


def _per_sample(spent: Energy, queries: Queries, window: Window) -> Field:
    per = spent.energy_per_sample_j
    if isinstance(per, Absent) or spent.total is None:
        return per
    return blocks.of_window(per, blocks.interval(spent.total, queries, window))


def _rate(spent: Energy, seconds: float) -> Field:
    """Return the meter's distinct updates per second of the window; n is their number."""
    if spent.total is None or isinstance(spent.energy_j, Absent):
        return spent.energy_j
    return Measured(spent.total.updates / seconds, "Hz", n=spent.total.updates)
