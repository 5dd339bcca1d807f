"""The watts and joules of one run as metrics: the meter and its scope, the total, per sample, and beyond idle.

    total = dynamic + idle power x time

The process, with its model loaded, does nothing for a while before the load and after it, under the same sampler.
Before and after differ because the machine warmed up meanwhile; the difference is reported, and widens the bounds.
Idle power holds only at the clocks it was measured at: a governor that slows an idle machine moves watts from idle to
dynamic (jetson_clocks does the reverse), so clock channels of both stretches are compared.

A scope is the part of the machine that watts cover, and figures of two scopes are never compared. A module's rail, a
GPU board's counter and a plug at the wall see different consumers, so one variant may look twice as frugal as another
only because of its meter. Two rails share a scope's name and still feed different parts.

A power or energy of one run has either a 95 % interval or bounds that hold for certain. Only energy per sample has an
interval within one run (window.py); every other pair of ends bounds the energy that the meter may have missed. The
two answer different questions and may differ widely in width.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edgescope.analysis.run import energy_window as blocks
from edgescope.analysis.run.energy_window import Energy, energies, energy, scope_note
from edgescope.errors import Message
from edgescope.records import (
    QUERY_OK,
    Absent,
    Field,
    Idle,
    Measured,
    Meter,
    Queries,
    Readings,
    Result,
    Window,
)

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


def scope(result: Result) -> str:
    """Return the scope of a result's watts, with the rail's name if it is one rail; '' if none is known."""
    if result.meter is None:
        return ""
    return f"rail {result.meter.name}" if result.meter.scope == "rail" else result.meter.scope


def scopes(results: Iterable[Result]) -> set[str]:
    """Return the scopes that power or energy was measured in.

    For a result without a meter (older results): the scopes of its channels, if they are loaded.
    """
    found: set[str] = set()
    for result in results:
        if result.meter is not None:
            found.add(scope(result))
        elif result.readings is not None and not isinstance(result.metrics.get("power_w"), Absent):
            channels = result.readings.channels
            found |= {c.scope for c in channels if c.unit in ("W", "J") and c.status == "measured"}
    return found


def usual(results: Sequence[Result]) -> str:
    """Return the most frequent scope of these results (the first of equals), or '' if none is known."""
    counted = Counter(filter(None, map(scope, results)))
    return counted.most_common(1)[0][0] if counted else ""


def within(field: Field, results: Sequence[Result], wanted: str) -> Field:
    """Return a power or energy field of these results, or Absent if one was measured in another scope."""
    others = sorted({s for s in map(scope, results) if s} - {wanted})
    if not wanted or not others or not isinstance(field, Measured):
        return field
    return Absent(f"measured in scope {', '.join(others)}, the others in {wanted}: not comparable")


def ends(field: Field | None, whole: Field | None) -> str:
    """Return `bounds`, `95 % over 12 blocks`, or '' if it has no ends; `whole` is the energy of the same window.

    Bounds come from dividing those of the whole window, so they count the same updates; blocks are fewer.
    """
    if field is None or isinstance(field, Absent) or field.lo is None or field.hi is None:
        return ""
    if field.unit != "J" or whole is None or isinstance(whole, Absent) or field.n == whole.n:
        return "bounds"
    return f"95 % over {field.n} blocks"
