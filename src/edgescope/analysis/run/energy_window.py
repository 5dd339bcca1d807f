"""Measure the energy of a window: a counter's difference if the hardware has one, else power over time.

A counter (RAPL, NVML) has no sampling error but moves in steps (1 ms to 100 ms), so its value at the window's edges is
interpolated; one that is slow to read (NVML's) is read near the edges only, and between them energy follows the power
reading. Power readings are collapsed to the sensor's own updates and integrated by trapezoid: polling faster adds no
knowledge, so too few distinct updates are a warning. `lo` and `hi` bound the energy that either may have missed
(analysis.run.energy_integral).

The interval of one run's energy per sample is Student's t over blocks of its window, never over samples: power is
correlated from one inference to the next, and an interval over samples covers the truth a third of the time at a
correlation of 0.9. Blocks of several sensor periods each have their energy and samples, and the interval follows from
a ratio of sums (Cochran, Sampling Techniques, 3rd ed. 1977, chapter 6). Blocks are joined while neighbours still
resemble each other; if the last ten to twenty do, the window is too short for an interval.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from edgescope import registry
from edgescope.analysis.run.energy_integral import Floats, Total, Updates, count, integrate, updates
from edgescope.errors import Message
from edgescope.records import QUERY_OK, Absent, Channel, Field, Measured, Queries, Readings, Window
from edgescope.stats.intervals import normal_quantile, t_quantile

SCOPES = ("wall", "carrier", "module", "sum_of_rails", "gpu_board", "cpu_package", "rail")
"""Scopes, widest first: the order in which a meter is chosen if none is named."""
_SUFFIXES = ("_energy_j", "_power_w", "_power_average_w")
"""A counter misses nothing between its readings. Readings of an instant miss what lies between them, and averages smear
the edges: which of them is better depends on the window and the load, so their bounds decide."""
MIN_UPDATES = {"counter": 5, "gauge": 20, "average": 20}
"""Fewer distinct updates inside the window give a warning; a counter's error is at its edges only."""
NARROW = 0.2
"""A counter whose bounds lie no further apart than this share of the energy needs no more updates."""
AVERAGED_S = {"_power_average_w": 1.0}
"""Suffix -> seconds that a reading averages: NVML's average power is one of 1 s (nvml.h, field 185).

tegrastats' mean since its start is not such an average: its channel, `_power_since_start_w`, is left out."""
INSTANT = re.compile(r"_INSTANT\b|\brefresh \d+ ms|^tegrastats ")
"""Sources of gauges that are known to show the moment, or at most the mean since their own last update: NVML's field of
that name, and power monitors whose averaging the kernel reports or sets (an INA3221 means over its own refresh)."""
SMEARED_S = 1.0
"""Any other gauge may be one of the averages that meters show, as NVML's mean of the last second
was before there was a field of the moment: its bounds reach as far as an average's."""
_LEFT_OUT = {
    "carrier": "a camera, a display and the supply's losses",
    "module": "the carrier board, cameras and the supply's losses",
    "sum_of_rails": "parts without a measured rail, the carrier board and the supply's losses",
    "gpu_board": "the host's CPU and memory and the supply's losses",
    "cpu_package": "memory, disks, a GPU, the board and the supply's losses",
    "rail": "every other rail, the carrier board and the supply's losses",
}


@dataclass(frozen=True)
class Energy:
    """The power and energy of one window by one meter."""

    meter: str
    """Channel name without its suffix: `gpu0`, `cpu_package`; '' if there is none."""
    scope: str
    method: str
    """`counter`, `trapezoid`, `trapezoid of averages`, or '' if absent."""
    power_w: Field
    energy_j: Field
    energy_per_sample_j: Field
    warnings: tuple[Message, ...] = ()
    total: Total | None = None
    """The integral behind the figures, for windows within this one."""


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
    """Return the energy of [start_ns, stop_ns] by the named meter, else by the meter of the widest scope.

    One of several rails is not a total, so it must be named. `device` is the device that ran the work, `board` the
    meter of its GPU: a meter that does not see the device is not used. `lo` and `hi` bound the energy that the meter
    may have missed. Every figure is Absent with the reason if no meter answered.
    """
    every = energies(readings, start_ns, stop_ns, samples)
    unseen_by = registry.place(device).unseen_by if device else ()
    mine = [
        e
        for e in every
        if meter in (None, e.meter)
        and e.scope not in unseen_by
        and (e.scope != "gpu_board" or e.meter == board or meter is not None)
    ]
    measured = [e for e in mine if isinstance(e.energy_j, Measured)]
    if len(measured) > 1 and measured[0].scope == "rail":  # the widest there is, and one of several
        names = ", ".join(e.meter for e in measured)
        return _absent("", "", f"only single rails were measured, and no rail is a total: {names}")
    if measured:
        return measured[0]
    return mine[0] if len(mine) == 1 else _absent("", "", _no_meter(readings, mine, meter))


def energies(readings: Readings, start_ns: int, stop_ns: int, samples: int) -> tuple[Energy, ...]:
    """Return one Energy for each meter that gave readings, widest scope first."""
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
    """Return a counter with enough updates, else the meter with the narrowest bounds, else that with most updates."""
    ways = [_one(readings, meter, channel, span, samples) for channel in channels]
    measured = [w for w in ways if isinstance(w.energy_j, Measured)]
    if sure := [w for w in measured if not w.warnings]:
        best, *rest = sorted(sure, key=lambda way: (way.method != "counter", _width(way)))
        return _shaped(best, rest)
    return max(measured, key=_updates, default=ways[0])


def _shaped(counter: Energy, others: Sequence[Energy]) -> Energy:
    """Return a counter that was read only at its edges with the curve of the power reading between them."""
    finer = next((w.total for w in others if w.total and w.total.joules > 0), None)
    total = counter.total
    if counter.method != "counter" or not total or not finer or finer.refresh_s >= total.refresh_s:
        return counter
    by = total.joules / finer.joules
    return replace(counter, total=replace(total, curve=finer.curve.times(by), refresh_s=finer.refresh_s))


def _width(way: Energy) -> float:
    """Return the joules between a figure's bounds; inf if it has no bound."""
    field = way.energy_j
    if not isinstance(field, Measured) or field.lo is None or field.hi is None:
        return math.inf
    return field.hi - field.lo


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
    seconds = (span[1] - span[0]) / 1e9
    if seconds <= 0:
        return _absent(meter, channel.scope, "the window is empty")
    total = _total(readings, channel, span[0], seconds)
    if isinstance(total, str):
        return _absent(meter, channel.scope, f"{channel.name}: {total}")
    per = _scaled(total, "J", samples) if samples > 0 else Absent("no sample was completed inside the window")
    warnings = _warnings(channel, total, seconds)
    watts, joules = _scaled(total, "W", seconds), _scaled(total, "J", 1)
    return Energy(meter, channel.scope, _method(channel), watts, joules, per, warnings, total)


def _total(readings: Readings, channel: Channel, start_ns: int, seconds: float) -> Total | str:
    t_ns, value = readings.series(channel.name)
    seen = updates(t_ns, value, start_ns)
    if _method(channel) == "counter":
        return count(seen, seconds)
    if channel.kind != "gauge":
        averaged = next((s for suffix, s in AVERAGED_S.items() if channel.name.endswith(suffix)), 0.0)
        return integrate(seen, seconds, average_s=averaged)
    total = integrate(seen, seconds)
    return (
        total if INSTANT.search(channel.source) or isinstance(total, str) else _unsure(total, seen, seconds)
    )


def _unsure(total: Total, seen: Updates, seconds: float) -> Total:
    """Return the total with bounds that hold both for a gauge and for an average of SMEARED_S."""
    smeared = integrate(seen, seconds, average_s=SMEARED_S)
    if isinstance(smeared, str) or None in (total.lo, total.hi, smeared.lo, smeared.hi):
        return total
    lows, highs = (
        [x for x in pair if x is not None] for pair in ((total.lo, smeared.lo), (total.hi, smeared.hi))
    )
    return replace(total, lo=min(lows), hi=max(highs))


def _method(channel: Channel) -> str:
    if channel.name.endswith("_energy_j"):
        return "counter"
    return "trapezoid" if channel.kind == "gauge" else "trapezoid of averages"


def _scaled(total: Total, unit: str, by: float) -> Measured:
    lo, hi = (None if x is None else x / by for x in (total.lo, total.hi))
    return Measured(total.joules / by, unit, lo=lo, hi=hi, n=total.updates)


def _warnings(channel: Channel, total: Total, seconds: float) -> tuple[Message, ...]:
    enough = MIN_UPDATES.get(channel.kind, MIN_UPDATES["gauge"])
    if total.updates >= enough or (total.updates <= 1 and total.polls >= enough):
        return ()  # a steady sensor may rightly show one value throughout
    ends = (total.hi or 0.0) - (total.lo or 0.0)
    if _method(channel) == "counter" and total.lo is not None and ends <= NARROW * total.joules:
        return ()
    needed = math.ceil(max(2.0, enough / max(total.updates, 1)) * seconds)
    return (
        Message(
            "W-PWR-3",
            f"a window of {seconds:.1f} s holds {total.updates} distinct updates of {channel.name}",
            effect=_between(total),
            fix=f"--duration {needed}s",
        ),
    )


def _between(total: Total) -> str:
    if total.lo is None or total.hi is None:
        return "Nothing bounds its energy"
    text = f"Its energy lies between {total.lo:.3g} and {total.hi:.3g} J"
    if total.joules <= 0:
        return text
    below, above = (end / total.joules - 1 for end in (total.lo, total.hi))
    return f"{text} ({below:+.0%} to {above:+.0%})"


def scope_note(meter: str, scope: str) -> Message | None:
    """Return the warning about parts that a meter of this scope misses, or '' for a meter at the wall."""
    if scope == "wall":
        return None
    missing = _LEFT_OUT.get(scope, "whatever lies outside of it")
    return Message(
        "W-PWR-2", f"the scope of power is {scope.upper()} ({meter})", effect=f"Not included: {missing}"
    )


MIN_BLOCKS = 10
"""Fewer blocks than this give no interval."""
MAX_BLOCKS = 64
"""More would narrow Student's t by less than 2 %; longer ones forgive a slow drift of the load."""
_ALIKE = 0.9
"""Largest correlation of neighbouring blocks for which the interval is widened."""
PERIODS = 4
"""Least number of sensor periods in a block."""


def interval(total: Total, queries: Queries, window: Window) -> Measured | None:
    """Return the window's joules per sample with its 95 % interval (n: blocks), or None if it holds too few blocks."""
    seconds = (window.stop_ns - window.start_ns) / 1e9
    found = min(MAX_BLOCKS, int(seconds / (PERIODS * total.refresh_s)) if total.refresh_s > 0 else MAX_BLOCKS)
    if found < MIN_BLOCKS:
        return None
    edges = np.linspace(0.0, seconds, found + 1)
    return ratio(np.diff(total.curve.at(edges)), np.diff(_done(queries, window, edges)))


def ratio(joules: Floats, samples: Floats) -> Measured | None:
    """Return sum(joules) / sum(samples) with Student's interval over the blocks.

    None with fewer than ten blocks, or if neighbours still resemble each other when no more can be joined. The interval
    is widened for correlation that may be there unseen (its upper end at 90 %).
    """
    if samples.sum() <= 0 or len(joules) < MIN_BLOCKS:
        return None
    value = float(joules.sum() / samples.sum())
    rest = joules - value * samples
    while len(rest) >= 2 * MIN_BLOCKS and _lag1(rest) > _doubt(len(rest)):
        rest = rest[len(rest) % 2 :].reshape(-1, 2).sum(axis=1)
    n, seen = len(rest), _lag1(rest)
    if seen > _doubt(n):
        return None
    # a short series shows less correlation than there is, by (1 + 3 rho) / n (Kendall, Biometrika 41, 1954)
    alike = min(max(0.0, seen + (1 + 3 * seen) / n + _doubt(n)), _ALIKE)
    error = math.sqrt(n * float(rest.var(ddof=1)) * (1 + alike) / (1 - alike)) / float(samples.sum())
    half = t_quantile(0.975, n - 1) * error
    least = 0.0 if joules.min() >= 0 else -math.inf  # the monitor of an idle rail may read a little below 0
    return Measured(value, "J", max(least, value - half), value + half, n)


def of_window(per_sample: Measured, blocks: Measured | None) -> Measured:
    """Return the energy per sample, with the interval over blocks if there is one, else the meter's bounds."""
    return replace(per_sample, lo=blocks.lo, hi=blocks.hi, n=blocks.n) if blocks else per_sample


def _done(queries: Queries, window: Window, edges_s: Floats) -> Floats:
    """Return the samples done by each moment; a query's samples are spread over the time since the query before."""
    c = queries.rows(window).columns
    ok = c["status"] == QUERY_OK
    t = (c["done_ns"][ok] - window.start_ns) / 1e9
    order = np.argsort(t, kind="stable")
    total = np.concatenate(([0.0], np.cumsum(c["samples"][ok][order], dtype=np.float64)))
    return np.interp(edges_s, np.concatenate(([0.0], t[order])), total)


def _doubt(n: int) -> float:
    """Return the correlation that n independent blocks show by chance once in ten times."""
    return normal_quantile(0.9) / math.sqrt(n)


def _lag1(x: Floats) -> float:
    centred = x - x.mean()
    power = float(centred @ centred)
    return float(centred[1:] @ centred[:-1]) / power if power > 0 else 0.0
