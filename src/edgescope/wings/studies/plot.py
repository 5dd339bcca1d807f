"""Draws the figures that a paper.toml describes: bars or marks, one line or group for each reading.

`of` names the reading of a line, `series` what is drawn of each: its `name`, the reading `of` its values, and its look.
A series with `whiskers` has the intervals of its values; `says` names the reading that hovering shows, `hover` is
plotly's template for it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from edgescope.plots.style import COLOURS, INK, LINE, Figure, axis, bounds, layout, log_ticks
from edgescope.records import Measured

ROW_PX, UPRIGHT_PX = 44, 380
Spec = Mapping[str, Any]
Rows = Sequence[Mapping[str, Any]]


def bars(spec: Spec, rows: Rows) -> Figure:
    """Return one bar for each reading, its series in it (`stack`) or beside each other; `marks` lie over the bars."""
    names, figure = _names(spec, rows), go.Figure()
    for colour, series in zip(COLOURS, spec["series"], strict=False):
        found = [row.get(series["of"]) for row in rows]
        figure.add_bar(
            y=names,
            x=list(map(_number, found)),
            name=series["name"],
            orientation="h",
            marker_color=colour,
            customdata=[row.get(series["says"]) for row in rows] if "says" in series else None,
            hovertemplate=series.get("hover"),
            error_x=_whiskers(found) if series.get("whiskers") else None,
        )
    for series in spec.get("marks", ()):
        _mark(figure, names, rows, series)
    mode = "stack" if spec.get("stack") else "group"
    figure.update_layout(
        layout(height=150 + ROW_PX * len(names), barmode=mode, showlegend=True, bargap=0.3),
    )
    return _laid_out(figure, axis(spec["axis"]), names)


def marks(spec: Spec, rows: Rows) -> Figure:
    """Return the marks of each reading along a logarithmic axis, since halving and doubling are equally far from 1.

    `upright`: the readings stand side by side. `bridged`: a line joins the marks of each; `line_at`: a line across.
    """
    names, figure, upright = _names(spec, rows), go.Figure(), spec.get("upright", False)
    if line := spec.get("line_at"):
        figure.add_vline(x=line, line={"color": INK, "width": 1.5, "dash": "dash"})
    for name, row in zip(names, rows, strict=True) if spec.get("bridged") else ():
        values = [v for one in spec["bridged"] if (v := _number(row.get(one))) is not None]
        ends = {"x": [min(values), max(values)], "y": [name] * 2, "line": {"color": LINE, "width": 3}}
        figure.add_scatter(**ends, mode="lines", hoverinfo="skip", showlegend=False)
    for series in spec["series"]:
        _mark(figure, names, rows, series, upright)
    height = UPRIGHT_PX if upright else 150 + ROW_PX * len(names)
    figure.update_layout(layout(height=height, showlegend=True))
    low, high = _reach(spec, rows)
    suffix = spec.get("suffix", "")
    values_axis = axis(spec["axis"], type="log", tickvals=log_ticks(low, high), ticksuffix=suffix)
    values_axis["range"] = [math.log10(low), math.log10(high)]
    return _laid_out(figure, values_axis, names, upright)


def _names(spec: Spec, rows: Rows) -> list[str]:
    return [html.escape(str(row[spec["of"]])) for row in rows]


def _number(value: object) -> float | None:
    """Return a value that can be drawn: of a field, what was measured."""
    value = value.value if isinstance(value, Measured) else value
    return value if isinstance(value, int | float) else None


def _mark(figure: Figure, names: Sequence[str], rows: Rows, series: Spec, upright: bool = False) -> None:
    """Draw one series of marks; nothing if no reading has a value."""
    known = [(n, r) for n, r in zip(names, rows, strict=True) if _number(r.get(series["of"])) is not None]
    if not known:
        return
    fields = [row[series["of"]] for _, row in known]
    along, values = [name for name, _ in known], list(map(_number, fields))
    x, y = (along, values) if upright else (values, along)
    colour = COLOURS[series["colour"]] if "colour" in series else INK
    hover = series.get("hover", f"%{{{'x' if upright else 'y'}}}: %{{text}}<extra></extra>")
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines+markers" if series.get("joined") else "markers",
        name=series["name"],
        line={"color": colour, "width": 2},
        marker={
            "symbol": series.get("symbol", "circle"),
            "size": series.get("size", 10),
            "color": colour,
            "line": {"width": series.get("line", 0), "color": colour},
        },
        text=[html.escape(row[series["says"]]) for _, row in known] if "says" in series else None,
        hovertemplate=hover,
        error_x=_whiskers(fields) if series.get("whiskers") else None,
    )


def _whiskers(fields: Sequence[object]) -> dict[str, Any]:
    below, above = zip(*(bounds(f) if isinstance(f, Measured) else (0.0, 0.0) for f in fields), strict=True)
    return {"type": "data", "array": above, "arrayminus": below, "thickness": 1.5}


def _reach(spec: Spec, rows: Rows) -> tuple[float, float]:
    """Return the ends of the axis, around all marks and whiskers; whiskers are cut at three times the largest mark."""
    found = [(row.get(one["of"]), one.get("whiskers")) for one in spec["series"] for row in rows]
    values = [v for field, _ in found if (v := _number(field)) is not None]
    ends = [f.hi for f, whole in found if whole and isinstance(f, Measured) and f.hi is not None]
    least = [*values, *([0.9 * spec["line_at"]] if "line_at" in spec else [])]
    return min(least) / 1.1, min(max([*values, *ends]) * 1.15, 3 * max(values))


def _laid_out(figure: Figure, values: dict[str, Any], names: list[str], upright: bool = False) -> Figure:
    order = names if upright else names[::-1]
    along = axis("", categoryorder="array", categoryarray=order) | (
        {} if upright else {"ticks": "", "showgrid": False}
    )
    figure.update_layout(
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "font": {"size": 12.5}},
        xaxis=along if upright else values,
        yaxis=values if upright else along,
    )
    return figure
