"""Speed-ups of a study's networks: measured here, timed the study's way, and as the study printed them.

One line for each network on a logarithmic axis, because these are ratios: halving and doubling are equally far from 1.
A misprint is drawn where it was printed, with a cross, beside the value that its own seconds give.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from edgescope.plots.style import COLOURS, INK, LINE, Figure, axis, bounds, interval, layout, log_ticks
from edgescope.records import Measured
from edgescope.wings.studies.jetson_nano.table import NanoRow, NanoTable

OURS, THEIRS, WRONG = COLOURS[0], COLOURS[1], COLOURS[4]
ROW_PX = 44


@dataclass(frozen=True)
class _Marks:
    """One trace: a value and a hover text for some of the rows."""

    name: str
    marker: dict[str, object]
    points: Sequence[tuple[str, float, str]]
    """(row, value, hover text)."""
    fields: Sequence[Measured] = ()
    """The fields whose intervals are drawn as whiskers."""


def beside_study(found: NanoTable) -> Figure:
    """Return the figure; networks that were not measured show the study's values alone."""
    rows = found.rows
    traces = [t for t in _traces(rows) if t.points]
    figure = go.Figure()
    figure.add_vline(x=1, line={"color": INK, "width": 1.5, "dash": "dash"})
    for row in rows:
        _line(figure, row)
    for trace in traces:
        _draw(figure, trace)
    low, high = _reach(traces)
    names = [_name(r) for r in rows]
    figure.update_layout(layout(height=150 + ROW_PX * len(rows), showlegend=True))
    figure.update_layout(
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "font": {"size": 12.5}},
        xaxis=axis("speed-up (×, logarithmic)", type="log", tickvals=log_ticks(low, high), ticksuffix="×")
        | {"range": [math.log10(low), math.log10(high)]},
        yaxis=axis("", categoryorder="array", categoryarray=names[::-1], ticks="", tickfont_size=13)
        | {"showgrid": False},
    )
    return figure


def _reach(traces: Sequence[_Marks]) -> tuple[float, float]:
    """Return the ends of the axis, around all marks and whiskers; whiskers are cut at three times the largest mark."""
    values = [x for trace in traces for _, x, _ in trace.points]
    ends = [f.hi for trace in traces for f in trace.fields if f.hi is not None]
    return min([0.9, *values]) / 1.1, min(max([*values, *ends]) * 1.15, 3 * max(values))


def _name(row: NanoRow) -> str:
    return html.escape(row.model)


def _traces(rows: Sequence[NanoRow]) -> Iterator[_Marks]:
    found = [(r, f) for r in rows if isinstance(f := r.speedup, Measured)]
    points = [(_name(r), f.value, f"{html.escape(r.variant)}: {interval(f, 1.0, '×')}") for r, f in found]
    marker: dict[str, object] = {"symbol": "circle", "size": 13, "color": OURS}
    yield _Marks("here, steady before / steady after", marker, points, [f for _, f in found])
    found = [(r, f) for r in rows if isinstance(f := r.claimed, Measured)]
    points = [(_name(r), f.value, interval(f, 1.0, "×")) for r, f in found]
    marker = {"symbol": "circle-open", "size": 11, "color": OURS, "line": {"width": 2}}
    yield _Marks("here, timed the study's way: cold before / warm after", marker, points)
    printed = [(_name(r), r.study) for r in rows]
    points = [(n, s.recomputed, f"{s.before_s} s / {s.after_s} s = {s.recomputed:.3f}×") for n, s in printed]
    yield _Marks("the study, by its own seconds", {"symbol": "diamond", "size": 12, "color": THEIRS}, points)
    wrong = [(n, m) for n, s in printed for m in s.misprints if m.column == "ratio"]
    points = [(n, float(m.printed), f"{m.column} printed as {m.printed}; {m.why}") for n, m in wrong]
    marker = {"symbol": "x-thin", "size": 11, "color": WRONG, "line": {"width": 3, "color": WRONG}}
    yield _Marks("the study, a misprinted ratio", marker, points)


def _line(figure: Figure, row: NanoRow) -> None:
    """Join the marks of one network."""
    values = [row.study.recomputed] + [f.value for f in (row.speedup, row.claimed) if isinstance(f, Measured)]
    figure.add_scatter(
        x=[min(values), max(values)],
        y=[_name(row)] * 2,
        mode="lines",
        line={"color": LINE, "width": 3},
        hoverinfo="skip",
        showlegend=False,
    )


def _draw(figure: Figure, marks: _Marks) -> None:
    whiskers = {}
    if marks.fields:
        below, above = zip(*(bounds(f) for f in marks.fields), strict=True)
        whiskers = {"error_x": {"type": "data", "array": above, "arrayminus": below, "thickness": 1.5}}
    figure.add_scatter(
        x=[x for _, x, _ in marks.points],
        y=[y for y, _, _ in marks.points],
        mode="markers",
        name=marks.name,
        marker=marks.marker,
        text=[t for _, _, t in marks.points],
        hovertemplate="%{y}: %{text}<extra></extra>",
        **whiskers,
    )
