"""The doctor's report as lines of a terminal: one screen by default, everything with --all.

Metrics that are alike are one line (nine thermal zones, twelve throttle flags) until --all; what is not measured is
grouped by its reason, because thirty metrics behind one closed door are one fact.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from edgescope.monitor.about import title
from edgescope.monitor.units import short

if TYPE_CHECKING:
    from edgescope.devices.doctor import Metric, Report
    from edgescope.devices.readiness import Finding

Line = tuple[str, str]
"""Text and a rich style."""
_WIDE = 104
"""From this width on the source has a column; below it, --all gives it a line of its own."""
_HEADS = ("metric", "now", "scope", "read at", "new every", "one read")
_WIDTHS = (23, 12, 12, 8, 9, 8)
_ALIKE = {
    "degC": "temperatures",
    "flag": "throttle flags",
    "V": "voltages",
    "A": "currents",
    "1/min": "fan speeds",
}


def lines(report: Report, width: int, *, everything: bool = False, noise: str = "") -> Iterator[Line]:
    """Yield the report for a terminal of `width` columns; `noise` is the stored noise floor in words."""
    yield from _head(report, width)
    yield from _table(report, width, everything=everything)
    if noise:
        yield "", ""
        yield from ((text, "") for text in _wrapped(f"noise floor: {noise}", width, ""))
    yield from _findings("would disturb a measurement now", report.disturbances, width)
    yield from _findings("missing here", report.missing, width)


def _head(report: Report, width: int) -> Iterator[Line]:
    stable, state = report.machine.stable, report.machine.state
    devices = {name: (_facts(stable.get(name)), _facts(state.get(name))) for name in {**stable, **state}}
    yield title(devices)[:width], "bold"
    cpu, now = devices.get("cpu", ({}, {}))
    online, total = now.get("online_cpus"), cpu.get("logical_cores")
    parts = [f"{len(online)} of {total} cores online" if isinstance(online, list) and total else ""]
    parts += [f"{cpu['memory_gib']} GiB" if isinstance(cpu.get("memory_gib"), int) else ""]
    parts += [str(cpu[k]) for k in ("os", "virtualised") if isinstance(cpu.get(k), str)]
    parts += [f"in a {report.container} container" if report.container else "", f"id {report.machine.id}"]
    yield from ((text, "dim") for text in _wrapped(", ".join(filter(None, parts)), width, ""))
    for name, why in report.devices.items():
        if why and name != "replayed":
            yield from ((text, "dim") for text in _wrapped(f"no {name}: {why}", width, ""))


def _facts(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _table(report: Report, width: int, *, everything: bool) -> Iterator[Line]:
    measured = [m for m in report.metrics if m.status == "measured"]
    shown = measured if everything else [m for m in measured if _is_main(m)]
    wide = width >= _WIDE
    for device in dict.fromkeys(m.device for m in shown):
        yield "", ""
        yield _cells(_HEADS, "source" if wide else "", width, device), "bold"
        own = [m for m in shown if m.device == device]
        for group in [[m] for m in own] if everything else _grouped(own):
            yield _cells(_row(group, report), _source(group) if wide else "", width), ""
            if everything and not wide:
                yield f"    {group[0].source}", "dim"
    rest = [m for m in report.metrics if m.status != "measured"]
    if everything:
        yield from _unmeasured(rest, width)
        return
    folded = len(measured) - len(shown)
    parts = [f"{folded} more metrics" if folded else "", f"{len(rest)} not measured here" if rest else ""]
    text = " and ".join(filter(None, parts))
    if text:
        yield f"{text}: edgescope doctor --all", "dim"


def _is_main(m: Metric) -> bool:
    dull = m.name.startswith(("proc_", "psi_", "ctx_", "load1")) or m.name.endswith("_power_average_w")
    return not dull and m.unit not in ("V", "A", "bitmask")


def _family(m: Metric) -> str:
    """Name what a metric is folded with; '' for one that stands for itself."""
    if m.unit in _ALIKE:
        return _ALIKE[m.unit]
    if m.name.endswith("_events"):
        return "over-current counts"
    if m.name.startswith("cpu_policy"):
        return "cluster clocks"
    own = ("gpu", "emc", "cpu")
    return "engine clocks" if m.name.endswith("_clock_hz") and not m.name.startswith(own) else ""


def _grouped(metrics: Sequence[Metric]) -> list[list[Metric]]:
    out: dict[str, list[Metric]] = {}
    for m in metrics:
        out.setdefault(_family(m) or m.name, []).append(m)
    return list(out.values())


def _row(group: Sequence[Metric], report: Report) -> Sequence[str]:
    first = group[0]
    name = first.name if len(group) == 1 else f"{_family(first)} x {len(group)}"
    return name, _now(group, report), first.scope, f"{first.sampled_hz:.3g} Hz", _new(group), _cost(group)


def _now(group: Sequence[Metric], report: Report) -> str:
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
    """Say how often a value is new: as the driver publishes it, else as seen (~), else nothing."""
    known = [m.refresh_s for m in group if m.refresh_s is not None]
    if known:
        return f"{max(known):.3g} s"
    seen = [m.seen_hz for m in group if m.seen_hz]
    return f"~{1 / max(seen):.2g} s" if seen else ""


def _cost(group: Sequence[Metric]) -> str:
    most = max(m.read_us for m in group)
    return f"{most:.0f} us" if most == most else ""  # nan: on paper, where it would be another machine's


def _source(group: Sequence[Metric]) -> str:
    return group[0].source if len(group) == 1 else f"{group[0].source} ..."


def _cells(cells: Sequence[str], source: str, width: int, device: str = "") -> str:
    """Lay a row out; a name that is too long pushes, a source is cut at its front, where paths are alike."""
    parts = [f"{cells[0] if not device else device:<{_WIDTHS[0]}}"]
    for i, (cell, wide) in enumerate(zip(cells[1:], _WIDTHS[1:], strict=True), 1):
        parts.append(f"{cell:<{wide}}" if i == 2 else f"{cell:>{wide}}")
    text = " ".join(parts)
    if not source:
        return text.rstrip()
    room = width - len(text) - 2
    return f"{text}  {source if len(source) <= room else '...' + source[3 - room :]}"


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
    """Return a reason without the metric's own call, so that NVML's fifteen refusals are one."""
    return reason.partition(" for ")[0] if reason.startswith("NVML: NotSupported") else reason


def _findings(head: str, findings: Sequence[Finding], width: int) -> Iterator[Line]:
    yield "", ""
    if not findings:
        yield f"{head}: nothing", "dim"
        return
    yield f"{head}: {len(findings)}", "bold"
    for f in findings:
        text = f"{f.code}: {f.text}" + (f" ({f.evidence})" if f.evidence else "") + "."
        style = {"E": "red", "W": "yellow"}.get(f.code[0], "")
        yield from ((line, style) for line in _wrapped(text, width, "  ", hang="      "))
        if f.fix:
            yield f"      Try: {f.fix}", ""  # one line, however long: it is to be copied


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
