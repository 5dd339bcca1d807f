"""One frame of the monitor: the sensors' values as rows of a terminal. Nothing here reads or writes anything.

A row is one metric: group, name, value, the last minute as a sparkline, and a note that the value alone does not give
(a rail's scope, the next trip of a temperature). Every row has the same columns, so a value stays in its place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from edgescope.commandline.screen import BLOCKS, Row
from edgescope.devices.base import ChannelSpec
from edgescope.devices.clocks import Trip, is_fixed
from edgescope.devices.manifest import folded
from edgescope.units import short

if TYPE_CHECKING:
    from edgescope.wings.monitor.live import Running

LastMinute = Callable[[str, int], Sequence[float]]

NEAR_TRIP_C = 5.0
TOTALS = ("wall", "carrier", "module", "sum_of_rails", "gpu_board", "cpu_package")
_GROUP, _NAME, _VALUE = 9, 15, 9


@dataclass(frozen=True)
class View:
    """Everything that a frame shows."""

    title: str
    channels: Mapping[str, ChannelSpec]
    values: Mapping[str, float]
    last_minute: LastMinute
    facts: Mapping[str, float] = field(default_factory=dict)
    """memory_total_bytes, swap_total_bytes, cores, online: the totals of values, as far as they are known."""
    trips: Mapping[str, Trip] = field(default_factory=dict)
    """By temperature channel."""
    trial: Running | None = None
    marks: Callable[[int], str] = lambda columns: ""
    """The trials of the last minute, one character for each column."""
    cost: str = ""
    problems: Sequence[str] = ()
    blocks: str = BLOCKS


def rows(view: View, width: int, height: int) -> list[Row]:
    """Return at most `height` rows of at most `width` columns; the last row counts those that do not fit."""
    titles: list[Row] = [((text, "bold"),) for text in folded(view.title, width)]
    head: list[Row] = [*titles, *_trial(view, width), ()]
    body = [row for part in _PARTS for row in part(view, width)]
    tail: list[Row] = [(), ((f"{view.cost}   q quits", "dim"),)]
    room = height - len(head) - len(tail)
    if len(body) > room > 0:
        hidden = len(body) - room + 1
        body = [*body[: room - 1], ((f"{hidden} more rows: make the window taller", "dim"),)]
    return [_cut(row, width) for row in (head + body + tail)[: max(1, height)]]


def _cut(row: Row, width: int) -> Row:
    out, left = [], width
    for text, style in row:
        if left > 0:
            out.append((text[:left], style))
            left -= len(text)
    return tuple(out)


def _line(view: View, width: int, names: tuple[str, str], channel: str, note: str, *, style: str = "") -> Row:
    """Return the row of one channel; `names` is its group and label; its unit decides the sparkline's range."""
    group, name = names
    spec = view.channels[channel]
    value = short(view.values[channel], spec.unit) if channel in view.values else "n/a"
    columns = spark_columns(width)
    minute = view.last_minute(channel, columns)
    points = spark(minute, *_range(view, channel, spec.unit, minute), view.blocks)
    return (
        (f"{group:<{_GROUP}}", "dim"),
        (f"{name[: _NAME - 1]:<{_NAME}}", ""),
        (f"{value:>{_VALUE}}", style or "bold"),
        (f"  {points:<{columns}}  ", ""),
        (note, style or "dim"),
    )


def spark_columns(width: int) -> int:
    """Return the width of a sparkline in a terminal of `width` columns: a third of the room the values leave."""
    return min(60, max(10, (width - _GROUP - _NAME - _VALUE - 4) // 2))


def spark(points: Sequence[float], lo: float, hi: float, blocks: str = BLOCKS) -> str:
    """Return one character for each point: blank if nothing was read, the lowest block for `lo` and below."""
    scale = len(blocks) / (hi - lo) if hi > lo else 0.0
    top = len(blocks) - 1
    return "".join(" " if math.isnan(p) else blocks[max(0, min(top, int((p - lo) * scale)))] for p in points)


def _range(view: View, channel: str, unit: str, minute: Sequence[float]) -> tuple[float, float]:
    """Return the range of a sparkline: 0 to 1 for a share, at least ten degrees for heat, from zero for the rest."""
    if unit == "share":
        return 0.0, 1.0
    if channel == "mem_available_bytes":
        return 0.0, view.facts.get("memory_total_bytes", 0.0)
    seen = [p for p in minute if not math.isnan(p)]
    top = max(seen, default=0.0)
    if unit == "degC":
        low = min(seen, default=0.0)
        return low - max(0.0, 10 - (top - low)) / 2, max(top, low + 5)
    return 0.0, top * 1.05 or 1.0


def _trial(view: View, width: int) -> Iterator[Row]:
    """Yield the running trial and, under it, the trials of the last minute, aligned with the sparklines."""
    t = view.trial
    label = (f"{'trial':<{_GROUP}}", "dim")
    if t is None:
        yield (label, ("no trial running", "dim"))
    else:
        minutes, seconds = divmod(int(t.elapsed_s), 60)
        yield (label, (t.what, "bold"), (f"   {minutes}:{seconds:02d}, process {t.pid}", "dim"))
    marks = view.marks(spark_columns(width))
    if any(c.isalpha() for c in marks):
        indent = " " * (_GROUP + _NAME + _VALUE + 2)
        yield ((indent, ""), (marks, ""), ("  the last minute", "dim"))


def _load(view: View, width: int) -> Iterator[Row]:
    names = [n for n in view.values if n.endswith(("_busy", "_active")) and n in view.channels]
    group = "load"
    for name in sorted(names, key=lambda n: (n != "cpu_busy", n)):
        label = name.removesuffix("_busy").removesuffix("_active")
        note = _cpu_note(view) if name == "cpu_busy" else _clock_note(view, label)
        yield _line(view, width, (group, label), name, note)
        group = ""


def _cpu_note(view: View) -> str:
    parts = []
    if "online" in view.facts:
        parts.append(f"{view.facts['online']:.0f} of {view.facts['cores']:.0f} cores")
    for name, word in (("cpu_steal", "stolen"), ("psi_memory_some", "memory stall")):
        if view.values.get(name, 0.0) >= 0.01:
            parts.append(f"{word} {view.values[name]:.0%}")
    return ", ".join(parts)


def _clock_note(view: View, device: str) -> str:
    """Return the current clock for the note of a load, because a load is a share of it."""
    for name in (f"{device}_clock_hz", f"{device}_sm_clock_hz"):
        if name in view.values:
            return f"of {short(view.values[name], 'Hz')}"
    return ""


def _clocks(view: View, width: int) -> Iterator[Row]:
    policies = [n for n in view.values if n.startswith("cpu_policy")]
    group = "clock"
    if "cpu_freq_hz" in view.values:
        each = list(dict.fromkeys(short(view.values[n], "Hz") for n in sorted(policies)))
        note = f"clusters {', '.join(each)}" if len(each) > 1 else ""
        yield _line(view, width, (group, "cpu"), "cpu_freq_hz", note)
        group = ""
    for name in view.values:
        if name.startswith(("gpu", "emc")) and name.endswith("_clock_hz") and "memory_clock" not in name:
            yield _line(view, width, (group, name.removesuffix("_clock_hz")), name, "")
            group = ""
    rest = [n for n in view.values if n.endswith("_clock_hz") and not n.startswith(("gpu", "emc", "cpu"))]
    if rest:
        text = "  ".join(f"{n.removesuffix('_clock_hz')} {short(view.values[n], 'Hz')}" for n in rest)
        yield ((f"{group:<{_GROUP}}", "dim"), (text, ""))


def _power(view: View, width: int) -> Iterator[Row]:
    found = [n for n, c in view.channels.items() if c.unit == "W" and n in view.values]
    found = [n for n in found if not n.endswith("_average_w")]
    group = "power"
    for name in sorted(found, key=lambda n: (_rank(view.channels[n].scope), n)):
        label, volts = name.removesuffix("_power_w"), name.replace("_power_w", "_voltage_v")
        note = view.channels[name].scope + (
            f", {view.values[volts]:.2f} V" if volts in view.values and volts != name else ""
        )
        yield _line(view, width, (group, label), name, note)
        group = ""
    if not found:
        yield ((f"{'power':<{_GROUP}}", "dim"), ("no sensor: edgescope doctor says why", "dim"))


def _rank(scope: str) -> int:
    return TOTALS.index(scope) if scope in TOTALS else len(TOTALS)


def _heat(view: View, width: int) -> Iterator[Row]:
    found = temperatures(view)
    if not found:
        return
    hottest = nearest(view, found)
    left, trip = _left(view, hottest), view.trips.get(hottest)
    note = f"{trip.kind} trip at {trip.celsius:.0f} C" if trip else "no trip point readable"
    style = "bad" if left <= 0 else "warn" if left <= NEAR_TRIP_C else ""
    yield _line(view, width, ("heat", _zone(hottest)), hottest, note, style=style)
    rest = [f"{_zone(n)} {v:.0f}" for n, v in found.items() if n != hottest]
    indent = " " * _GROUP
    for text in _wrapped(rest, width - _GROUP):
        yield ((indent, ""), (text, ""))


def temperatures(view: View) -> dict[str, float]:
    """Return channel -> degrees Celsius, without the zones whose value is constant."""
    zones = {n: v for n, v in view.values.items() if n in view.channels and view.channels[n].unit == "degC"}
    return {n: v for n, v in zones.items() if not is_fixed(n, v)}


def nearest(view: View, zones: Mapping[str, float]) -> str:
    """Return the zone that is nearest to its trip, or the hottest zone if none has a trip."""
    return min(zones, key=lambda n: (_left(view, n), -zones[n]))


def _left(view: View, name: str) -> float:
    trip = view.trips.get(name)
    return trip.celsius - view.values[name] if trip else math.inf


def _zone(name: str) -> str:
    text = name.removeprefix("temperature_").removesuffix("_c")
    for ending in ("_thermal", "_therm", "_temperature"):
        text = text.removesuffix(ending)
    return text


def _wrapped(words: Sequence[str], width: int) -> Iterator[str]:
    line = ""
    for word in words:
        if line and len(line) + 2 + len(word) > width:
            yield line
            line = ""
        line += ("  " if line else "") + word
    if line:
        yield line


def _memory(view: View, width: int) -> Iterator[Row]:
    if "mem_available_bytes" in view.values:
        total = view.facts.get("memory_total_bytes")
        note = f"of {short(total, 'byte')}" if total else ""
        if "nvmap_used_bytes" in view.values:
            note += f", nvmap {short(view.values['nvmap_used_bytes'], 'byte')}"
        yield _line(view, width, ("memory", "available"), "mem_available_bytes", note)
    for name in view.values:
        if name == "swap_used_bytes" or (name.startswith("gpu") and name.endswith("_memory_used_bytes")):
            total = view.facts.get("swap_total_bytes") if name == "swap_used_bytes" else None
            label = name.removesuffix("_used_bytes").replace("_memory", " memory")
            yield _line(view, width, ("", label), name, f"of {short(total, 'byte')}" if total else "used")


def _fans(view: View, width: int) -> Iterator[Row]:
    for name in view.values:
        if name.startswith("fan") and name.endswith("_share"):
            rpm = view.values.get(name.replace("_share", "_rpm"))
            yield _line(
                view, width, ("fan", name.removesuffix("_share")), name, f"{rpm:.0f} rpm" if rpm else ""
            )


def _throttle(view: View, width: int) -> Iterator[Row]:
    flags = {n: v for n, v in view.values.items() if n.startswith("throttled_")}
    counts = {n: v for n, v in view.values.items() if n.endswith("_events")}
    held = [n.removeprefix("throttled_") for n, v in flags.items() if v > 0]
    since_boot = "  ".join(f"{n.removesuffix('_events')} {v:.0f}" for n, v in counts.items())
    tail = f"   over-current events since boot: {since_boot}" if counts else ""
    if held:
        yield (("throttle ", "dim"), ("NOW " + ", ".join(held), "bad"), (tail, "dim"))
    elif flags or counts:
        yield (("throttle ", "dim"), ("none now", ""), (tail, "dim"))
    else:
        yield (("throttle ", "dim"), ("no counter or flag is readable here", "dim"))


def _problems(view: View, width: int) -> Iterator[Row]:
    for text in view.problems:
        yield (("         ", ""), (text, "warn"))


_PARTS: tuple[Callable[[View, int], Iterator[Row]], ...] = (
    *(_load, _clocks, _power, _heat, _fans, _memory, _throttle, _problems),
)
