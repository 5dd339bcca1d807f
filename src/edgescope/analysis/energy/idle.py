"""Split a run's energy into idle power and the dynamic energy of the load.

    total = dynamic + idle power x time

The process, with its model loaded, does nothing for a while before the load and after it, under the same sampler.
Before and after differ because the machine warmed up meanwhile; the difference is reported, and widens the bounds.
Idle power holds only at the clocks it was measured at: a governor that slows an idle machine moves watts from idle to
dynamic (jetson_clocks does the reverse), so clock channels of both stretches are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgescope.analysis.energy.window import Energy, energies
from edgescope.errors import Message
from edgescope.records import Absent, Field, Idle, Measured, Readings, Window

SETTLE = 0.2
"""Share of an idle stretch next to the load that is left out, because averaging sensors and regulators lag behind."""
DRIFT = 0.10
"""Share of the idle power by which before and after may differ without a warning."""
CLOCKS = 0.05
"""Share by which a mean clock may differ between idle and load without a warning."""
NAMES = (
    *("idle_power_w", "idle_power_before_w", "idle_power_after_w", "idle_power_drift_w"),
    *("energy_dynamic_j", "energy_dynamic_per_sample_j"),
)


@dataclass(frozen=True)
class Baseline:
    """The idle metrics by name, and the warnings about them."""

    metrics: Mapping[str, Field]
    warnings: tuple[Message, ...] = ()


def baseline(
    spent: Energy, readings: Readings, idle: Sequence[Idle], window: Window, samples: int
) -> Baseline:
    """Return idle power (W) and dynamic energy (J) by the meter of `spent`; Absent with the reason if not known."""
    if not idle:
        return _without("no idle stretch was watched: idle_s is 0 (--idle 10s)")
    if isinstance(spent.energy_j, Absent):
        return _without(spent.energy_j.reason)
    parts = {i.when: _power(spent, readings, i) for i in idle}
    before, after = (parts.get(w, Absent(f"no idle stretch {w} the load")) for w in ("before", "after"))
    measured = [p for p in (before, after) if isinstance(p, Measured)]
    if not measured:
        return _without(f"idle power: {before.reason if isinstance(before, Absent) else ''}")
    power = _joined(measured)
    seconds = (window.stop_ns - window.start_ns) / 1e9
    dynamic = _dynamic(spent.energy_j, power, seconds)
    metrics: dict[str, Field] = {
        "idle_power_w": power,
        "idle_power_before_w": before,
        "idle_power_after_w": after,
        "idle_power_drift_w": _drift(before, after),
        "energy_dynamic_j": dynamic,
        "energy_dynamic_per_sample_j": _per(dynamic, samples),
    }
    warnings = (*_missing(before, after), *_drifting(metrics, power), *_clocks(readings, idle, window))
    return Baseline(metrics, warnings)


def _without(reason: str) -> Baseline:
    return Baseline(dict.fromkeys(NAMES, Absent(reason)))


def inner(idle: Idle) -> tuple[int, int]:
    """Return (start, stop) of the part of an idle stretch that counts: away from the load."""
    cut = round(SETTLE * (idle.stop_ns - idle.start_ns))
    return (
        (idle.start_ns, idle.stop_ns - cut) if idle.when == "before" else (idle.start_ns + cut, idle.stop_ns)
    )


def _power(spent: Energy, readings: Readings, idle: Idle) -> Field:
    """Return the mean power of an idle stretch by the meter that measured the load."""
    found = [e for e in energies(readings, *inner(idle), 0) if e.meter == spent.meter]
    return found[0].power_w if found else Absent(f"{spent.meter} gave no reading in the idle stretch")


def _joined(parts: Sequence[Measured]) -> Measured:
    """Return the mean of before and after; its ends are the outer ends of both."""
    value = float(np.mean([p.value for p in parts]))
    lows, highs = [p.lo for p in parts if p.lo is not None], [p.hi for p in parts if p.hi is not None]
    lo = min(lows) if len(lows) == len(parts) else None  # an end without a bound is not known
    hi = max(highs) if len(highs) == len(parts) else None
    return Measured(value, "W", lo, hi, len(parts))


def _drift(before: Field, after: Field) -> Field:
    if isinstance(before, Measured) and isinstance(after, Measured):
        return Measured(after.value - before.value, "W", n=2)
    return before if isinstance(before, Absent) else after


def _dynamic(total: Measured, idle: Measured, seconds: float) -> Measured:
    """Return total - idle power x time; the ends take the worst of both."""
    lo = None if total.lo is None or idle.hi is None else total.lo - idle.hi * seconds
    hi = None if total.hi is None or idle.lo is None else total.hi - idle.lo * seconds
    return Measured(total.value - idle.value * seconds, "J", lo, hi, total.n)


def _per(joules: Measured, samples: int) -> Field:
    if samples <= 0:
        return Absent("no sample was completed inside the window")
    lo, hi = (None if end is None else end / samples for end in (joules.lo, joules.hi))
    return Measured(joules.value / samples, joules.unit, lo, hi, joules.n)


def _missing(before: Field, after: Field) -> tuple[Message, ...]:
    lost = next((p for p in (before, after) if isinstance(p, Absent)), None)
    if lost is None:
        return ()
    what = f"idle power is known {'after' if lost is before else 'before'} the load only: {lost.reason}"
    return (Message("W-PWR-4", what, effect="The warming up is not in dynamic energy's bounds"),)


def _drifting(metrics: Mapping[str, Field], power: Measured) -> tuple[Message, ...]:
    drift = metrics["idle_power_drift_w"]
    if isinstance(drift, Absent) or abs(drift.value) <= DRIFT * power.value:
        return ()
    what = f"idle power moved by {drift.value:+.2f} W over the run, of {power.value:.2f} W"
    effect = "Dynamic energy carries this in its bounds"
    return (
        Message("W-PWR-4", what, effect=effect, fix="a longer --warmup and --idle 30s, or cool down first"),
    )


def _clocks(readings: Readings, idle: Sequence[Idle], window: Window) -> tuple[Message, ...]:
    """Return the warning that clocks differed between idle and load, or none."""
    found = []
    for channel in readings.channels:
        if channel.unit != "Hz" or channel.kind == "counter":
            continue
        rest = [_mean(readings, channel.name, *inner(i)) for i in idle]
        busy, known = _mean(readings, channel.name, window.start_ns, window.stop_ns), [r for r in rest if r]
        if busy and known and abs(float(np.mean(known)) - busy) > CLOCKS * busy:
            found.append(
                f"{channel.name} {np.mean(known) / 1e6:.0f} MHz idle, {busy / 1e6:.0f} MHz in the run"
            )
    if not found:
        return ()
    return (
        Message(
            "W-PWR-5",
            "the clocks of the idle stretches are not those of the run",
            evidence="; ".join(found[:4]),
            effect="Dynamic energy includes the cost of the change of clocks",
            fix="a mode with fixed clocks",
        ),
    )


def _mean(readings: Readings, name: str, start_ns: int, stop_ns: int) -> float | None:
    t_ns, value = readings.series(name)
    inside = value[(t_ns >= start_ns) & (t_ns <= stop_ns)]
    return float(inside.mean()) if len(inside) else None
