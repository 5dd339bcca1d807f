"""Energy over a window: a counter's difference where the hardware has one, else power integrated over time.

A counter (RAPL, NVML) has no sampling error but moves in steps (1 ms to 100 ms), so its value at the window's
edges is interpolated between its updates, and `lo`/`hi` bound what the steps leave open. Power readings are
integrated by trapezoid with interpolated edges, rows with one time stamp counted once; polling faster than
the sensor adds no knowledge, so the number of distinct updates is reported and too few of them are a warning.
Energy has a scope: what the meter sits in front of. Figures of two scopes must not be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import message
from edgescope.records import Absent, Channel, Field, Measured, Readings

SCOPES = ("wall", "carrier", "module", "sum_of_rails", "gpu_board", "cpu_package", "rail")
"""Widest first: the order in which a meter is picked when none is named."""
BLIND = {"cpu": ("gpu_board",), "cuda": ("cpu_package",)}
"""Device -> scopes of meters that see nothing of its work: a GPU board's joules say nothing of a CPU's."""
_SUFFIXES = ("_energy_j", "_power_w", "_power_average_w")
"""Best first: a counter misses nothing between its readings, an average smears the edges."""
MIN_UPDATES = {"counter": 5, "gauge": 20, "average": 20}
"""Fewer distinct updates inside the window than this: a warning; a counter's error is at its edges only."""
MIN_COVERAGE = 0.95
"""Share of the window that the readings must span; the rest is filled at the mean power."""
MAX_GAP = 0.2
"""Longest silence of a power sensor inside the window, as a share of it; a counter counts on meanwhile."""


@dataclass(frozen=True)
class Energy:
    """What one meter says of one window."""

    meter: str
    """Channel name without its suffix: `gpu0`, `cpu_package`; '' where there is none."""
    scope: str
    method: str
    """`counter`, `trapezoid`, `trapezoid of averages`, or '' where absent."""
    power_w: Field
    energy_j: Field
    energy_per_sample_j: Field
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Total:
    joules: float
    updates: int
    lo: float | None = None
    hi: float | None = None


def energy(
    readings: Readings,
    start_ns: int,
    stop_ns: int,
    samples: int,
    *,
    meter: str | None = None,
    device: str = "",
    board: str = "gpu0",
) -> Energy:
    """Return the energy of [start_ns, stop_ns] by the named meter, else by the one of the widest scope.

    `device` is where the work ran, `board` the meter of its GPU: one that does not sit before it is no meter of it.
    Counters carry `lo` and `hi`, bounds on the step error. Every figure is Absent with the reason where no
    meter answered.
    """
    every = energies(readings, start_ns, stop_ns, samples)
    mine = [
        e
        for e in every
        if meter in (None, e.meter)
        and e.scope not in BLIND.get(device, ())
        and (e.scope != "gpu_board" or e.meter == board or meter is not None)
    ]
    measured = [e for e in mine if isinstance(e.energy_j, Measured)]
    if measured:
        return measured[0]
    return mine[0] if len(mine) == 1 else _absent("", "", _no_meter(readings, mine, meter))


def energies(readings: Readings, start_ns: int, stop_ns: int, samples: int) -> tuple[Energy, ...]:
    """Return one Energy a meter that gave readings, widest scope first."""
    found: dict[str, list[Channel]] = {}
    for suffix in _SUFFIXES:
        for channel in readings.channels:
            meter = channel.name.removesuffix(suffix)
            if meter != channel.name and len(readings.series(channel.name)[0]):
                found.setdefault(meter, []).append(channel)
    ranked = sorted(found.items(), key=lambda item: (_rank(item[1][0].scope), item[0]))
    return tuple(_best(readings, meter, channels, (start_ns, stop_ns), samples) for meter, channels in ranked)


def _best(
    readings: Readings, meter: str, channels: Sequence[Channel], span: tuple[int, int], samples: int
) -> Energy:
    """Return the first way of measuring that saw enough updates, else the one that saw most."""
    ways = [_one(readings, meter, channel, span, samples) for channel in channels]
    measured = [w for w in ways if isinstance(w.energy_j, Measured)]
    sure = [w for w in measured if not w.warnings]
    return (sure or sorted(measured, key=_updates, reverse=True) or ways)[0]


def _updates(way: Energy) -> int:
    return way.energy_j.n if isinstance(way.energy_j, Measured) else 0


def _rank(scope: str) -> int:
    return SCOPES.index(scope) if scope in SCOPES else len(SCOPES)


def _no_meter(readings: Readings, tried: Sequence[Energy], meter: str | None) -> str:
    failed = [f"{e.meter}: {e.energy_j.reason}" for e in tried if isinstance(e.energy_j, Absent)]
    missing = [
        f"{c.name} {c.status} ({c.reason})"
        for c in readings.channels
        if c.name.endswith(_SUFFIXES) and c.status != "measured"
    ]
    wanted = f"no meter called {meter!r}" if meter else "no power sensor"
    return f"{wanted}: {'; '.join(failed + missing) or 'no power or energy channel was watched'}"


def _absent(meter: str, scope: str, reason: str) -> Energy:
    return Energy(meter, scope, "", Absent(reason), Absent(reason), Absent(reason))


def _one(readings: Readings, meter: str, channel: Channel, span: tuple[int, int], samples: int) -> Energy:
    t_ns, value = readings.series(channel.name)
    t_ns, first = np.unique(t_ns, return_index=True)
    t_s, start, stop = (t_ns - span[0]) / 1e9, 0.0, (span[1] - span[0]) / 1e9
    counter = channel.name.endswith("_energy_j")
    if stop <= start:
        return _absent(meter, channel.scope, "the window is empty")
    total = (_count if counter else _integrate)(t_s, value[first], stop)
    if isinstance(total, str):
        return _absent(meter, channel.scope, f"{channel.name}: {total}")
    method = "counter" if counter else "trapezoid" if channel.kind == "gauge" else "trapezoid of averages"
    per = _scaled(total, "J", samples) if samples > 0 else Absent("no sample was completed inside the window")
    warnings = _warnings(channel, total, stop)
    joules = _scaled(total, "J", 1)
    return Energy(meter, channel.scope, method, _scaled(total, "W", stop), joules, per, warnings)


def _scaled(total: _Total, unit: str, by: float) -> Measured:
    lo, hi = (None if x is None else x / by for x in (total.lo, total.hi))
    return Measured(total.joules / by, unit, lo=lo, hi=hi, n=total.updates)


def _warnings(channel: Channel, total: _Total, seconds: float) -> tuple[str, ...]:
    if total.updates >= MIN_UPDATES[channel.kind] or (channel.kind == "gauge" and total.updates <= 1):
        return ()  # a steady sensor may rightly show one value throughout
    return (
        message(
            "W-PWR-3",
            f"a window of {seconds:.1f} s holds {total.updates} distinct updates of {channel.name}",
            effect=f"Its energy may be off by about {100 / max(total.updates, 1):.0f} %",
            fix="--duration 10s",
        ),
    )


def _cover(t_s: NDArray[np.float64], stop: float) -> tuple[float, float] | str:
    """Return the part of [0, stop] that the readings span, or why it is too little."""
    if len(t_s) < 2:
        return f"{len(t_s)} readings are too few"
    a, b = max(0.0, float(t_s[0])), min(stop, float(t_s[-1]))
    if b - a < MIN_COVERAGE * stop:
        return f"its readings span {max(b - a, 0):.2f} s of a window of {stop:.2f} s"
    return a, b


def _integrate(t_s: NDArray[np.float64], watts: NDArray[np.float64], stop: float) -> _Total | str:
    span = _cover(t_s, stop)
    if isinstance(span, str):
        return span
    gaps = np.minimum(t_s[1:], stop) - np.maximum(t_s[:-1], 0.0)
    if gaps.max() > MAX_GAP * stop and len(t_s) > 2:
        return f"it was silent for {gaps.max():.2f} s of a window of {stop:.2f} s"
    a, b = span
    inner = (t_s > a) & (t_s < b)
    t = np.concatenate(([a], t_s[inner], [b]))
    w = np.concatenate(([np.interp(a, t_s, watts)], watts[inner], [np.interp(b, t_s, watts)]))
    if not w.any():
        return "it reads 0 W throughout: no sensor is behind it"
    joules = float(np.sum((w[1:] + w[:-1]) * np.diff(t)) / 2)
    updates = 1 + int(np.count_nonzero(np.diff(watts[inner])))
    return _Total(joules * stop / (b - a), updates)


def _count(t_s: NDArray[np.float64], joules: NDArray[np.float64], stop: float) -> _Total | str:
    steps = np.diff(joules)
    if (steps < 0).any():
        return "the counter went backwards: it was reset, or wrapped over an unknown range"
    moved = np.concatenate(([True], steps > 0))
    t, j = t_s[moved], joules[moved]
    updates = int(np.count_nonzero((t > 0) & (t <= stop)))
    if not updates or len(t) < 2:
        return f"the counter did not move in a window of {stop:.2f} s"
    span = _cover(t_s, stop)
    if isinstance(span, str):
        return span
    a, b = (
        max(0.0, float(t[0])),
        min(stop, float(t[-1])),
    )  # beyond its last update a counter is stale, not idle
    used = float(np.interp(b, t, j) - np.interp(a, t, j))
    since = np.concatenate(([-np.inf], t_s[:-1]))[moved]
    lo, hi = _bounds(t, j, since, stop)
    return _Total(used * stop / (b - a), updates, lo, hi)


def _bounds(
    t: NDArray[np.float64], j: NDArray[np.float64], since: NDArray[np.float64], stop: float
) -> tuple[float | None, float | None]:
    """Return bounds on the energy of [0, stop].

    At a moment x no less had been used than the last value seen by then, and no more than the first value
    whose update certainly came after x: one that the reading before it (`since`, at or after x) did not show.
    """
    least = [int(np.searchsorted(t, x, side="right")) - 1 for x in (0.0, stop)]
    most = [int(np.searchsorted(since, x, side="left")) for x in (0.0, stop)]
    if least[0] < 0 or most[1] >= len(j):
        return None, None  # no update outside the window to bound it with
    return float(max(j[least[1]] - j[most[0]], 0.0)), float(j[most[1]] - j[least[0]])
