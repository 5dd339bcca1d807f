"""Formats the doctor's report for a terminal: one screen by default, everything with --all.

Similar metrics share one line (nine thermal zones, twelve throttle flags) unless --all is given. Metrics that are not
measured are grouped by reason, because thirty metrics with one obstacle are one fact.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgescope.devices.clocks import is_fixed
from edgescope.devices.manifest import folded, title
from edgescope.registry import REPLAYED
from edgescope.units import short

if TYPE_CHECKING:
    from edgescope.wings.doctor.readiness import Finding
    from edgescope.wings.doctor.report import Metric, Report

Line = tuple[str, str]
"""Text and a rich style."""
_WIDE = 104
"""From this width on, the source has a column; in a narrower terminal, --all prints it on its own line."""
_HEADS = ("now", "scope", "read at", "new every", "one read")
_WIDTHS = (12, 12, 8, 9, 8)
_NAME, _LONGEST = 23, 40
"""Columns of a metric's name: as many as the longest name needs, if there is room."""
_ALIKE = {
    "degC": "temperatures",
    "flag": "throttle flags",
    "V": "voltages",
    "A": "currents",
    "1/min": "fan speeds",
}


def lines(report: Report, width: int, *, everything: bool = False, noise: str = "") -> Iterator[Line]:
    """Yield the report for a terminal of `width` columns; `noise` is the stored noise floor as text.

    For a recording, neither the rate of new values nor the cost of a read is shown: both are the player's.
    """
    if REPLAYED in report.machine.state:
        played = tuple(replace(m, read_us=math.nan, seen_hz=None) for m in report.metrics)
        report = replace(report, metrics=played)
    yield from _head(report, width)
    yield from _table(report, width, everything=everything)
    if noise:
        yield "", ""
        yield from ((text, "") for text in _wrapped(f"noise floor: {noise}", width, ""))
    yield from _findings("would disturb a measurement now", report.disturbances, width)
    lost = sum(m.status != "measured" for m in report.metrics)
    nothing = f"{lost} metrics that no command unlocks: edgescope doctor --all" if lost else "nothing"
    yield from _findings("missing here", report.missing, width, nothing)


def _head(report: Report, width: int) -> Iterator[Line]:
    stable, state = report.machine.stable, report.machine.state
    devices = {name: (_facts(stable.get(name)), _facts(state.get(name))) for name in {**stable, **state}}
    yield from ((text, "bold") for text in folded(title(devices), width))
    cpu, now = devices.get("cpu", ({}, {}))
    online, total = now.get("online_cpus"), cpu.get("logical_cores")
    parts = [f"{len(online)} of {total} cores online" if isinstance(online, list) and total else ""]
    parts += [f"{cpu['memory_gib']} GiB" if isinstance(cpu.get("memory_gib"), int) else ""]
    parts += [str(cpu["os"]) if isinstance(cpu.get("os"), str) else ""]
    parts += ["a virtual machine" if cpu.get("virtualised") == "yes" else ""]
    parts += [f"in a {report.container} container" if report.container else "", f"id {report.machine.id}"]
    yield from ((text, "dim") for text in _wrapped(", ".join(filter(None, parts)), width, ""))
    for name, why in report.devices.items():
        if why and name != REPLAYED:
            yield from ((text, "dim") for text in _wrapped(f"no {name}: {why}", width, ""))


def _facts(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _table(report: Report, width: int, *, everything: bool) -> Iterator[Line]:
    measured = [m for m in report.metrics if m.status == "measured"]
    shown = measured if everything else [m for m in measured if _is_main(m)]
    wide = width >= _WIDE
    groups = [[m] for m in shown] if everything else _grouped(shown)
    room = _name_columns([_name(group) for group in groups], width, wide=wide)
    device = ""
    for group in groups:
        if group[0].device != device:
            device = group[0].device
            yield "", ""
            yield _cells(device, _HEADS, "source" if wide else "", room, width), "bold"
        name, source = _name(group), _source(group, report) if wide else ""
        if len(name) > room:
            yield name, ""
            name = ""
        yield _cells(name, _row(group), source, room, width), ""
        if everything and not wide:
            yield from ((text, "dim") for text in _wrapped(group[0].source, width, "    "))
    rest = [m for m in report.metrics if m.status != "measured"]
    if everything:
        yield from _unmeasured(rest, width)
        return
    more = len(measured) - len(shown)
    parts = ["" if wide or not shown else "sources", f"{more} more metrics" if more else ""]
    text = ", ".join(filter(None, [*parts, f"{len(rest)} not measured here" if rest else ""]))
    if text:
        yield f"{text}: edgescope doctor --all", "dim"


def _is_main(m: Metric) -> bool:
    dull = m.name.startswith(("proc_", "psi_", "ctx_", "load1")) or m.name.endswith(
        ("_power_average_w", "_power_since_start_w")
    )
    return not dull and m.unit not in ("V", "A", "bitmask")


def _family(m: Metric) -> str:
    """Return the name of the group that a metric is folded into, or '' if it has its own line."""
    if m.value is not None and is_fixed(m.name, m.value):
        return ""
    if m.unit in _ALIKE:
        return _ALIKE[m.unit]
    if m.name.endswith("_events"):
        return "over-current counts"
    if m.name.startswith("cpu_policy"):
        return "cluster clocks"
    own = ("gpu", "emc", "cpu")
    return "engine clocks" if m.name.endswith("_clock_hz") and not m.name.startswith(own) else ""


def _grouped(metrics: Sequence[Metric]) -> list[list[Metric]]:
    out: dict[tuple[str, str], list[Metric]] = {}
    for m in metrics:
        out.setdefault((m.device, _family(m) or m.name), []).append(m)
    return list(out.values())


def _name(group: Sequence[Metric]) -> str:
    return group[0].name if len(group) == 1 else f"{_family(group[0])} x {len(group)}"


def _row(group: Sequence[Metric]) -> Sequence[str]:
    first = group[0]
    scope = first.scope if all(m.scope == first.scope for m in group) else "several"
    scope = "constant" if first.value is not None and is_fixed(first.name, first.value) else scope
    return _now(group), scope, f"{first.sampled_hz:.3g} Hz", _new(group), _cost(group)


def _now(group: Sequence[Metric]) -> str:
    values = [m.value for m in group if m.value is not None]
    unit = group[0].unit
    if unit == "flag":
        raised = sum(v > 0 for v in values)
        return f"{raised} raised" if raised else "none raised"
    if len(group) == 1:
        return short(values[0], unit)
    low, high = short(min(values), unit), short(max(values), unit)
    same_unit = low.rpartition(" ")[2] == high.rpartition(" ")[2]
    return high if low == high else f"{low.rpartition(' ')[0] if same_unit and ' ' in low else low}-{high}"


def _new(group: Sequence[Metric]) -> str:
    """Return how often a value is new: as the driver publishes it, else as observed (~), else ''."""
    known = [m.refresh_s for m in group if m.refresh_s is not None]
    if known:
        return f"{max(known):.3g} s"
    seen = [m.seen_hz for m in group if m.seen_hz]
    return f"~{1 / max(seen):.2g} s" if seen else ""


def _cost(group: Sequence[Metric]) -> str:
    most = max(m.read_us for m in group)
    return (
        f"{most:.0f} us" if math.isfinite(most) else ""
    )  # nan: on paper, where it would be another machine's


def _source(group: Sequence[Metric], report: Report) -> str:
    """Return the file or call; for several temperatures, the zone that is nearest to its trip."""
    near = {
        m.name: t.celsius - m.value for m in group if (t := report.trips.get(m.name)) and m.value is not None
    }
    if len(group) > 1 and near:
        name = min(near, key=lambda n: near[n])
        trip = report.trips[name]
        zone = name.removeprefix("temperature_").removesuffix("_c")
        return f"{zone}: {trip.kind} trip at {trip.celsius:.0f} C"
    first = group[0]
    if first.value is not None and is_fixed(first.name, first.value):
        return "its driver always says so: no heat"
    source = first.source
    return source.partition(" ")[0].rstrip(":;,") if source.startswith("/") else source


def _name_columns(names: Sequence[str], width: int, *, wide: bool) -> int:
    """Return the width of the first column; a longer name gets its own line."""
    spare = width - sum(_WIDTHS) - len(_WIDTHS) - (30 if wide else 0)
    return max(_NAME, min(spare, _LONGEST, max(map(len, names), default=0)))


def _cells(name: str, cells: Sequence[str], source: str, room: int, width: int) -> str:
    """Return the text of a row; a source that is too long is cut at its front, where paths are alike."""
    parts = [f"{name:<{room}}"]
    for i, (cell, wide) in enumerate(zip(cells, _WIDTHS, strict=True)):
        parts.append(f"{cell:<{wide}}" if i == 1 else f"{cell:>{wide}}")
    text = " ".join(parts)
    if not source:
        return text.rstrip()
    left = width - len(text) - 2
    return f"{text}  {source if len(source) <= left else '...' + source[3 - left :]}"


def _unmeasured(metrics: Sequence[Metric], width: int) -> Iterator[Line]:
    if not metrics:
        return
    yield "", ""
    yield "not measured here, by reason", "bold"
    reasons: dict[tuple[str, str], list[str]] = {}
    for m in metrics:
        reasons.setdefault((m.status, _general(m.reason, m)), []).append(m.name)
    for (status, reason), names in reasons.items():
        head = f"{'FAILED: ' if status == 'failed' else ''}{', '.join(names)}"
        yield from ((text, "red" if status == "failed" else "") for text in _wrapped(head, width, "  "))
        yield from ((text, "dim") for text in _wrapped(reason, width, "      "))


def _general(reason: str, m: Metric) -> str:
    """Return a reason without the metric's own call or file, so that fifteen equal refusals share one line."""
    if reason.startswith("NVML: NotSupported"):
        return reason.partition(" for ")[0]
    missing, _, rest = reason.partition("; debugfs ")
    return f"in debugfs, which {rest}" if rest and missing.startswith("no /sys/kernel/") else reason


def _findings(head: str, findings: Sequence[Finding], width: int, nothing: str = "nothing") -> Iterator[Line]:
    yield "", ""
    if not findings:
        yield f"{head}: {nothing}", "dim"
        return
    yield f"{head}: {len(findings)}", "bold"
    for f in findings:
        text = f"{f.code}: {f.text}" + (f" ({f.evidence})" if f.evidence else "") + "."
        style = {"E": "red", "W": "yellow"}.get(f.code[0], "")
        yield from ((line, style) for line in _wrapped(text, width, "  ", hang="      "))
        if f.fix:
            yield f"      Try: {f.fix}", ""  # one line, however long, so that it can be copied


def _wrapped(text: str, width: int, indent: str, *, hang: str | None = None) -> list[str]:
    after = indent if hang is None else hang
    return textwrap.wrap(
        text,
        max(40, width),
        initial_indent=indent,
        subsequent_indent=after or "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
