"""Small panels in rows and columns with shared axes: one column per model, one row per quantity.

A line is named once in the legend, however many panels it runs through; a click on its name hides it in all of them.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from plotly.subplots import make_subplots

from edgescope.plots.style import (
    BASELINE_COLOUR,
    INK,
    Figure,
    Scale,
    axis,
    axis_kind,
    bounds,
    layout,
    log_ticks,
)
from edgescope.records import Field, Measured

PANEL_PX, HEAD_PX = 230, 120


@dataclass(frozen=True)
class Look:
    """The look of one line, or of one group of bars."""

    name: str
    colour: str
    dash: str = "solid"
    symbol: str = "circle"
    """'' draws no marks."""


@dataclass(frozen=True)
class Point:
    """One mark: its position, its value with its interval, and its hover text."""

    x: float | str
    y: Measured
    hover: str


@dataclass(frozen=True)
class Marks:
    """The marks of one look in one panel."""

    look: Look
    points: Sequence[Point]
    joined: bool = True
    bars: bool = False
    theirs: bool = False
    """Whether the figures come from another board: drawn open and grey, never joined to ours."""


@dataclass
class Panel:
    """One panel's marks."""

    marks: list[Marks] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """Return the drawn values, in SI units."""
        return [p.y.value for m in self.marks for p in m.points]

    @property
    def places(self) -> list[float]:
        """Return the positions of the marks on a numbered axis."""
        return [float(p.x) for m in self.marks for p in m.points]


@dataclass(frozen=True)
class Row:
    """One row of panels: its quantity, the scale that it prints in, and whether 0 belongs on its axis."""

    title: str
    scale: Scale
    panels: Sequence[Panel]
    zero: bool = False


def panels(columns: Sequence[str], rows: Sequence[Row], x: dict[str, Any], x_title: str) -> Figure:
    """Return the figure of these rows; `x` holds plotly's settings that the horizontal axes share."""
    figure = make_subplots(
        rows=len(rows),
        cols=len(columns),
        subplot_titles=[html.escape(c) for c in columns],
        vertical_spacing=0.09 if len(rows) > 1 else 0.0,
        horizontal_spacing=0.09 if len(columns) > 1 else 0.0,
    )
    named: set[str] = set()
    for i, row in enumerate(rows, start=1):
        for j, panel in enumerate(row.panels, start=1):
            for marks in panel.marks:
                _draw(figure, marks, row.scale, (i, j), named)
            _axes(figure, row, panel, (i, j))
            figure.update_xaxes(axis(x_title if i == len(rows) else "", **x), row=i, col=j)
    head = HEAD_PX + 9 * max(
        0, len(named) - 4
    )  # a legend of many names takes two lines, more on a narrow screen
    figure.update_layout(layout(height=head + PANEL_PX * len(rows), showlegend=True))
    figure.update_layout(
        legend={
            "orientation": "h",
            "y": 0.995,
            "yanchor": "top",
            "yref": "container",
            "x": 0,
            "font": {"size": 12},
        },
        margin={"l": 12, "r": 16, "t": head - 24, "b": 12},
        barmode="group",
        bargap=0.25,
    )
    figure.update_annotations(font={"size": 13.5, "color": INK})
    return figure


def _axes(figure: Figure, row: Row, panel: Panel, at: tuple[int, int]) -> None:
    """Give a panel its vertical axis; the first of a row names the quantity."""
    shown = [v * row.scale.factor for v in panel.values]
    unit = f" ({row.scale.unit})" if row.scale.unit else ""
    kind = "linear" if row.zero else axis_kind(shown)
    title = f"{row.title}{unit}" if at[1] == 1 else ""
    more: dict[str, Any] = {"type": kind}
    if kind == "linear" and (row.zero or not shown):
        more["rangemode"] = "tozero"
    if kind == "log":
        low, high = min(shown) / 1.3, max(shown) * 1.3
        ticks = log_ticks(low, high)
        more |= {"tickvals": ticks, "ticktext": [f"{t:,.10g}" for t in ticks]}
        more["range"] = [math.log10(low), math.log10(high)]
    figure.update_yaxes(axis(title, **more), row=at[0], col=at[1])
    if not shown:
        figure.add_annotation(
            text="not measured",
            showarrow=False,
            x=0.5,
            y=0.5,
            xref="x domain",
            yref="y domain",
            row=at[0],
            col=at[1],
        )


def _draw(figure: Figure, marks: Marks, scale: Scale, at: tuple[int, int], named: set[str]) -> None:
    if not marks.points:
        return
    look, f = marks.look, scale.factor
    shared: dict[str, Any] = {
        "x": [p.x for p in marks.points],
        "y": [p.y.value * f for p in marks.points],
        "name": html.escape(look.name),
        "legendgroup": look.name,
        "showlegend": look.name not in named,
        "text": [html.escape(p.hover) for p in marks.points],
        "hovertemplate": "%{text}<extra></extra>",
        "error_y": _whiskers(marks, f),
    }
    named.add(look.name)
    if marks.bars:
        figure.add_bar(**shared, marker={"color": look.colour}, textposition="none", row=at[0], col=at[1])
        return
    mode = "lines+markers" if marks.joined and not marks.theirs else "markers"
    mode = mode if look.symbol else "lines"
    marker = {
        "symbol": f"{look.symbol}-open" if marks.theirs else look.symbol or "circle",
        "size": 11 if marks.theirs else 8,
    }
    figure.add_scatter(
        **shared,
        mode=mode,
        line={"color": look.colour, "dash": look.dash, "width": 2},
        marker=marker | {"color": look.colour, "line": {"width": 2 if marks.theirs else 0}},
        row=at[0],
        col=at[1],
    )


def _whiskers(marks: Marks, factor: float) -> dict[str, Any]:
    below, above = zip(*(bounds(p.y) for p in marks.points), strict=True)
    return {
        "type": "data",
        "visible": any(below) or any(above),
        "array": [v * factor for v in above],
        "arrayminus": [v * factor for v in below],
        "thickness": 1.3,
        "width": 3,
        "color": BASELINE_COLOUR if marks.bars else marks.look.colour,
    }


def measured(y: Field) -> Measured | None:
    """Return a field that was measured, else None."""
    return y if isinstance(y, Measured) else None
