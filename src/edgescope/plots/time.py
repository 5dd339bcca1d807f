"""A run over time: latency and telemetry of each replicate, and under load the age of results and the queue's depth.

Time 0 is the start of the measured window, so warm-up lies at negative times and replicates can be laid over
each other: a replicate that drifts, throttles or was disturbed departs from the others.

A machine that keeps up with its load shows two level bands of age and depth. Where arrivals exceed service, both climb
until the load ends; where a pipeline drops frames to keep up, both stay below a ceiling.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from edgescope import registry
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.analysis.run import lateness
from edgescope.plots.style import (
    LINE,
    MAX_POINTS,
    Figure,
    Scale,
    Style,
    axis,
    axis_kind,
    by_time,
    layout,
    log_ticks,
    name,
    seconds,
    styles,
)
from edgescope.records import QUERY_OK, Absent, Channel, Measured, Queries, Result, Window

PANEL, TITLE = 118, 92
MAX_CHANNELS = 8
FEW = 200
"""Up to this many readings each gets a marker: a line alone hides how few there are."""
#: Unit of a channel -> what it is multiplied with and its unit in print; other units are not drawn.
CHANNEL_SCALES = {
    "share": Scale(100.0, "%"),
    "byte": Scale(1e-6, "MB"),
    "bytes": Scale(1e-6, "MB"),
    "Hz": Scale(1e-6, "MHz"),
    "degC": Scale(1.0, "°C"),
    "W": Scale(1.0, "W"),
}
#: The channels of most interest come first; the rest follow in the order of the sources.
FIRST = (
    "power",
    "temperature",
    "cpu_freq",
    "gpu",
    "cpu_busy",
    "cpu_allowed",
    "cpu_steal",
    "cpu_others",
    "proc_rss",
)


@dataclass(frozen=True)
class Track:
    """Latencies of one replicate: seconds since the measured window began, and the latency in seconds."""

    t_s: NDArray[np.float64]
    latency_s: NDArray[np.float64]


def over_time(table: VariantTable) -> Figure | Absent:
    """Return a panel per variant with the latency of every replicate over time, warm-up greyed."""
    found = [(row, tracks(row)) for row in table.ordered()]
    drawn = [(row, lines) for row, lines in found if lines]
    if not drawn:
        return Absent("no variant has raw latencies")
    looks = styles(table)
    figure = stacked([name(row) for row, _ in drawn])
    for i, (row, lines) in enumerate(drawn, start=1):
        _panel(figure, i, row, lines, looks[row.cell])
    _mark_warmup(figure, len(drawn))
    return figure


def tracks(row: Row) -> dict[int, Track]:
    """Return replicate -> every successful query, warm-up included, in the order of completion; none if offline."""
    if not registry.scenario(row.trial.scenario).timed:
        return {}
    loaded = ((number, r.queries, r.window) for number, r in row.replicates.items())
    found = {
        number: _track(q, window) for number, q, window in loaded if q is not None and window is not None
    }
    return {number: track for number, track in found.items() if len(track.t_s)}


def _track(queries: Queries, window: Window) -> Track:
    ok = queries.columns["status"] == QUERY_OK
    t_s = (queries.columns["done_ns"][ok] - window.start_ns) * 1e-9
    return Track(t_s, queries.latency_ns().astype(np.float64) * 1e-9)


def stacked(titles: Sequence[str]) -> Figure:
    """Return an empty figure with a panel per title, one below the other, over one axis of seconds."""
    n = len(titles)
    gap = 30 / (PANEL * n) if n > 1 else 0.0
    figure = make_subplots(
        rows=n, cols=1, shared_xaxes=True, vertical_spacing=gap, subplot_titles=list(titles)
    )
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_layout(layout(height=TITLE + PANEL * n, margin={"l": 12, "r": 16, "t": 48, "b": 12}))
    figure.update_xaxes(axis(""), zeroline=False)
    figure.update_xaxes(title_text="seconds since measuring began", row=n, col=1)
    return figure


def _panel(figure: Figure, i: int, row: Row, lines: dict[int, Track], look: Style) -> None:
    every = np.concatenate([t.latency_s for t in lines.values()])
    scale = seconds([float(np.median(every))])
    share = max(4, MAX_POINTS // len(lines))
    for number, track in lines.items():
        keep = by_time(track.latency_s, share)
        figure.add_scatter(
            x=np.round(track.t_s[keep], 6),
            y=track.latency_s[keep] * scale.factor,
            mode="lines",
            line={"color": look.colour, "width": 1},
            opacity=0.75,
            name=f"{name(row)} replicate {number}",
            hovertemplate=f"replicate {number}<br>%{{x:.2f}} s: %{{y:.4g}} {scale.unit}<extra></extra>",
            row=i,
            col=1,
        )
    seconds_axis(figure, i, every * scale.factor, scale)


def seconds_axis(figure: Figure, i: int, shown: NDArray[np.float64], scale: Scale) -> None:
    """Give a panel the axis for these values, which are in the unit of the scale: logarithmic where they spread."""
    low, high = float(shown.min()), float(shown.max())
    kind = axis_kind([low, high])
    more: dict[str, object] = {"type": kind, "nticks": 4}
    if kind == "log":
        marks = log_ticks(low, high)
        marks = marks if len(marks) <= 4 else marks[:: -(-len(marks) // 4)]
        more = {"type": kind, "tickvals": marks, "ticktext": [f"{t:g}" for t in marks]}
    figure.update_yaxes(axis(scale.unit, **more), row=i, col=1)


def _mark_warmup(figure: Figure, n: int) -> None:
    earliest = min((float(trace.x[0]) for trace in figure.data if len(trace.x)), default=0.0)
    if earliest >= 0:
        return
    for i in range(1, n + 1):
        figure.add_vrect(x0=earliest, x1=0, fillcolor=LINE, opacity=0.6, line_width=0, row=i, col=1)


def telemetry(table: VariantTable) -> Figure | Absent:
    """Return a panel per measured channel, one line per replicate in its variant's colour."""
    rows = table.ordered()
    loaded = [
        r for row in rows for r in row.replicates.values() if r.readings is not None and r.window is not None
    ]
    if not loaded:
        return Absent("no result has telemetry readings")
    channels = measured_channels(loaded)
    if not channels:
        return Absent("no channel could be measured on this machine")
    looks = styles(table)
    figure = stacked([html.escape(f"{c.name} ({c.scope})") for c in channels])
    for i, channel in enumerate(channels, start=1):
        for row in rows:
            for result in row.replicates.values():
                _line(figure, i, channel, result, looks[row.cell])
        scale = CHANNEL_SCALES[channel.unit]
        figure.update_yaxes(
            axis(scale.unit, nticks=4, rangemode="tozero", exponentformat="none", separatethousands=True),
            row=i,
            col=1,
        )
    _mark_warmup(figure, len(channels))
    return figure


def measured_channels(results: Sequence[Result]) -> list[Channel]:
    """Return the gauges and shares that were measured in any result, those of most interest first."""
    found: dict[str, Channel] = {}
    for result in results:
        for c in result.readings.channels if result.readings else ():
            if c.status == "measured" and c.kind != "counter" and c.unit in CHANNEL_SCALES:
                found.setdefault(c.name, c)

    def rank(channel: Channel) -> int:
        return next((i for i, start in enumerate(FIRST) if channel.name.startswith(start)), len(FIRST))

    return sorted(found.values(), key=rank)[:MAX_CHANNELS]


def _line(figure: Figure, i: int, channel: Channel, result: Result, look: Style) -> None:
    label = f"{html.escape(result.trial.label)} replicate {result.trial.replicate}"
    assert result.window is not None
    if result.readings is None:
        return
    t_ns, value = result.readings.series(channel.name)
    if not len(t_ns):
        return
    scale, keep = CHANNEL_SCALES[channel.unit], by_time(value, MAX_POINTS // 4)
    figure.add_trace(
        go.Scatter(
            x=np.round((t_ns[keep] - result.window.start_ns) * 1e-9, 3),
            y=value[keep] * scale.factor,
            mode="lines+markers" if len(keep) < FEW else "lines",
            marker={"size": 3},
            line={"color": look.colour, "width": 1.2},
            opacity=0.8,
            name=label,
            hovertemplate=f"{label}<br>%{{x:.1f}} s: %{{y:.4g}} {scale.unit}<extra></extra>",
        ),
        row=i,
        col=1,
    )


DEADLINE = "#cc003d"
Loaded = dict[int, tuple[Queries, int]]


def live(row: Row) -> bool:
    """Return whether a cell was measured in an open loop, or on inputs with time stamps."""
    return isinstance(row["queue_depth_max"], Measured)


def queue(table: VariantTable) -> Figure | Absent:
    """Return two panels per variant: frame age (else latency) when each result came, and the queue depth."""
    rows = [(row, _rows_of(row)) for row in table.ordered() if live(row)]
    drawn = [(row, several) for row, several in rows if several]
    if not drawn:
        return Absent("no variant was measured in an open loop, or its raw rows are not loaded")
    looks = styles(table)
    titles = [text for row, several in drawn for text in (f"{name(row)}: {_age(several)}", "queue depth")]
    figure = stacked(titles)
    for i, (row, several) in enumerate(drawn):
        _ages(figure, 2 * i + 1, row, several, looks[row.cell])
        _depths(figure, 2 * i + 2, several, looks[row.cell])
    return figure


def _rows_of(row: Row) -> dict[int, tuple[Queries, int]]:
    """Return replicate -> (the rows of its window, the window's start in ns)."""
    whole = ((number, r.queries, r.window) for number, r in row.replicates.items())
    found = {n: (q.rows(w), w.start_ns) for n, q, w in whole if q is not None and w is not None}
    return {number: given for number, given in found.items() if len(given[0])}


def _age(several: Loaded) -> str:
    stamped = all(lateness.stamped(rows) for rows, _ in several.values())
    return "frame age" if stamped else "latency from the due time"


def _ages(figure: Figure, i: int, row: Row, several: Loaded, look: Style) -> None:
    tracks = {number: lateness.ages(rows) for number, (rows, _) in several.items()}
    every = np.concatenate([age for _, age in tracks.values()])
    if not len(every):
        return
    scale, limit = seconds([float(np.median(every))]), row.trial.deadline_s
    for number, (done, age) in tracks.items():
        keep = by_time(age, max(4, MAX_POINTS // len(tracks)))
        at = done[keep] - several[number][1]
        line = _curve(at * 1e-9, age[keep] * scale.factor, number, look, scale.unit)
        figure.add_scatter(**line, row=i, col=1)
    seconds_axis(figure, i, every * scale.factor, scale)
    if limit is not None:
        figure.add_hline(y=limit * scale.factor, line={"color": DEADLINE, "dash": "dash"}, row=i, col=1)


def _depths(figure: Figure, i: int, several: Loaded, look: Style) -> None:
    for number, (rows, start_ns) in several.items():
        times, count = lateness.depth(rows)
        keep = by_time(count, max(4, MAX_POINTS // len(several)))
        at = (times[keep] - start_ns) * 1e-9
        line = _curve(at, count[keep], number, look, "queries")
        figure.add_scatter(**line, line_shape="hv", row=i, col=1)
    figure.update_yaxes(axis("queries", nticks=4, rangemode="tozero"), row=i, col=1)


def _curve(at_s: NDArray[Any], y: NDArray[Any], number: int, look: Style, unit: str) -> dict[str, Any]:
    return {
        "x": np.round(at_s, 6),
        "y": y,
        "mode": "lines",
        "line": {"color": look.colour, "width": 1},
        "opacity": 0.75,
        "name": f"replicate {number}",
        "hovertemplate": f"replicate {number}<br>%{{x:.2f}} s: %{{y:.4g}} {unit}<extra></extra>",
    }
