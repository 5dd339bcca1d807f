"""Figures of a trace: host, GPU and sensors on one time axis, and the CDFs of EC and CS."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from edgescope.analysis.kernels.account import COUNTERS, Account, sampled
from edgescope.analysis.kernels.inferences import Budget
from edgescope.analysis.kernels.rows import Cover, Rows
from edgescope.plots.style import MAX_POINTS, Figure, axis, by_rank, by_time, colour, layout, seconds
from edgescope.plots.time import CHANNEL_SCALES, MAX_CHANNELS, stacked
from edgescope.records import SPAN_KINDS, Absent, Channel, Trace

#: Beginnings of the names of sensors that belong beside a trace.
SENSORS = ("gpu", "power", "vdd", "pom", "cpu_package", "temperature", "cpu_busy", "cpu_freq", "module")


def over_time(one: Account) -> Figure | Absent:
    """Return panels over one time axis: what host and GPU did, waits, and every sensor that was read meanwhile."""
    found = timeline(one.trace)
    if found is None:
        return Absent("the trace has no times")
    sensors = _sensors(one.trace, found)
    figure = stacked([*found.shares, "waits for the GPU", *(html.escape(c.name) for c in sensors)])
    for i, (name, share) in enumerate(found.shares.items(), start=1):
        line = go.Scatter(
            x=found.t_s, y=100 * share, mode="lines", line={"color": colour(i), "width": 1.2}, name=name
        )
        figure.add_trace(line, row=i, col=1)
        figure.update_yaxes(axis("%", range=[0, 102], nticks=3), row=i, col=1)
    row = len(found.shares) + 1
    figure.add_trace(
        go.Bar(x=found.t_s, y=found.waits, name="waits", marker={"color": colour(row)}), row=row, col=1
    )
    for i, channel in enumerate(sensors, start=row + 1):
        _sensor(figure, i, channel, one.trace, found)
    figure.update_layout(showlegend=False)
    return figure


def _sensors(trace: Trace, found: Timeline) -> list[Channel]:
    if trace.samples is None:
        return []
    known = [c for c in trace.samples.channels if c.kind != "counter" and c.unit in CHANNEL_SCALES]
    read = [c for c in known if c.name.startswith(SENSORS) and _within(trace, c, found).any()]
    return read[:MAX_CHANNELS]


def _within(trace: Trace, channel: Channel, found: Timeline) -> NDArray[np.bool_]:
    assert trace.samples is not None
    t, _ = trace.samples.series(channel.name)
    return np.asarray((t >= found.start_ns) & (t <= found.end_ns))


def _sensor(figure: Figure, i: int, channel: Channel, trace: Trace, found: Timeline) -> None:
    assert trace.samples is not None
    t, value = trace.samples.series(channel.name)
    inside = _within(trace, channel, found)
    t, value, scale = t[inside], value[inside], CHANNEL_SCALES[channel.unit]
    keep = by_time(value, MAX_POINTS // 4)
    x = (t[keep] - found.start_ns) * 1e-9
    line = go.Scatter(
        x=x, y=value[keep] * scale.factor, mode="lines+markers", marker={"size": 3}, name=channel.name
    )
    figure.add_trace(line, row=i, col=1)
    figure.update_yaxes(axis(scale.unit, nticks=3, rangemode="tozero"), row=i, col=1)


def cdfs(budgets: Sequence[tuple[str, Budget | None]]) -> Figure | Absent:
    """Return the CDFs of EC and CS, two lines a trace."""
    known = [(label, b) for label, b in budgets if b is not None]
    if not known:
        return Absent("no trace has a budget")
    longest = [float(b.total.max()) * 1e-9 for _, b in known]
    scale = seconds(longest)
    figure = go.Figure(layout=layout(height=320))
    for i, (label, b) in enumerate(known):
        for name, values, dash in (("EC", b.ec, "solid"), ("CS", b.cs, "dot")):
            x = np.sort(values)
            keep = by_rank(len(x))
            figure.add_trace(
                go.Scatter(
                    x=x[keep] * 1e-9 * scale.factor,
                    y=(keep + 1) / len(x),
                    mode="lines",
                    name=f"{html.escape(label)} {name}",
                    line={"color": colour(i + 1), "dash": dash, "width": 1.4},
                )
            )
    figure.update_xaxes(axis(scale.unit, rangemode="tozero"))
    figure.update_yaxes(axis("share of inferences", range=[0, 1.02]))
    return figure


def counters(accounts: Sequence[tuple[str, Account]]) -> Figure | Absent:
    """Return the CDFs of SM active, SM issue and tensor active: a colour a trace, a dash a counter, a line a GPU."""
    figure, drawn = go.Figure(layout=layout(height=320)), False
    for i, (label, one) in enumerate(accounts):
        for channel, value in sampled(one.trace.samples, Rows(one.trace.spans)):
            counter = next((at for at, name in enumerate(COUNTERS) if channel.name.endswith(name)), None)
            if counter is None or not len(value):
                continue
            x = np.sort(value)
            keep = by_rank(len(x))
            figure.add_trace(
                go.Scatter(
                    x=100 * x[keep],
                    y=(keep + 1) / len(x),
                    mode="lines",
                    name=f"{html.escape(label)} {channel.name.replace('_', ' ')}",
                    line={"color": colour(i + 1), "dash": ("solid", "dot", "dash")[counter], "width": 1.4},
                )
            )
            drawn = True
    figure.update_xaxes(axis("%", range=[0, 102]))
    figure.update_yaxes(axis("share of samples", range=[0, 1.02]))
    return figure if drawn else Absent("no trace has samples of the GPU's counters")


STRETCHES = 400


@dataclass(frozen=True)
class Timeline:
    """Equal stretches of a trace."""

    t_s: NDArray[np.float64]
    """The middle of each stretch, from the trace's start."""
    shares: Mapping[str, NDArray[np.float64]]
    """What took place -> the share of each stretch in which it did."""
    waits: NDArray[np.int64]
    """Waits for the GPU that began in each stretch."""
    start_ns: int
    end_ns: int


def timeline(trace: Trace) -> Timeline | None:
    """Return the timeline of a trace, or None if its spans have no times or no length."""
    c = trace.spans.columns
    if not trace.timed or not len(trace.spans):
        return None
    start, end = int(c["start_ns"].min()), int(c["end_ns"].max())
    if end <= start:
        return None
    edges = np.linspace(start, end, STRETCHES + 1)
    rows = Rows(trace.spans)
    calls = rows.of("api", "sync")
    waits = calls["kind"] == SPAN_KINDS.index("sync")
    launching = ~waits & rows.launching[calls["name"]] if len(waits) else waits
    covers = {
        "operators": _cover(rows, "op"),
        "launching": Cover.of(calls["start_ns"][launching], calls["end_ns"][launching]),
        "waiting for the GPU": Cover.of(calls["start_ns"][waits], calls["end_ns"][waits]),
        "GPU: kernels": _cover(rows, "kernel", "graph"),
        "GPU: copies": _cover(rows, "copy"),
        "on a CPU": _cover(rows, "sched"),
    }
    width = edges[1:] - edges[:-1]
    shares = {
        name: found.within(edges[:-1], edges[1:]) / width for name, found in covers.items() if len(found)
    }
    counted, _ = np.histogram(calls["start_ns"][waits], edges)
    return Timeline((edges[:-1] + width / 2 - start) * 1e-9, shares, counted, start, end)


def _cover(rows: Rows, *kinds: str) -> Cover:
    found = rows.of(*kinds)
    return Cover.of(found["start_ns"], found["end_ns"])
