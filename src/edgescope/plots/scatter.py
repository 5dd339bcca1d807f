"""Latency against memory or energy: the price of each gain.

A rejected variant is drawn as a cross and is never on the Pareto front.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from edgescope.analysis.cells.objective import pareto
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.plots.style import (
    LINE,
    Figure,
    Scale,
    Style,
    axis,
    axis_kind,
    interval,
    layout,
    log_ticks,
    name,
    seconds,
    styles,
    values,
)
from edgescope.records import Absent, Field, Measured


@dataclass(frozen=True)
class Cost:
    """One axis to trade latency against."""

    words: str
    read: Callable[[Row], Field]
    scale: Callable[[Sequence[float]], Scale]


COSTS: Mapping[str, Cost] = {
    "peak_rss_bytes": Cost(
        "peak memory of the process", lambda r: r["peak_rss_bytes"], lambda _: Scale(1e-6, "MB")
    ),
    "energy_per_sample_j": Cost(
        "energy per sample", lambda r: r["energy_per_sample_j"], lambda _: Scale(1e3, "mJ")
    ),
}


def tradeoff(table: VariantTable, cost: str = "peak_rss_bytes") -> Figure | Absent:
    """Return median latency against a cost, with the front that no eligible variant beats on both."""
    kind, looks = COSTS[cost], styles(table)
    rows = [r for r in table.rows if isinstance(r["p50_s"], Measured) and isinstance(kind.read(r), Measured)]
    if not rows:
        return Absent(_why_none(table.rows, kind))
    across, up = kind.scale(values(map(kind.read, rows))), seconds(values(r["p50_s"] for r in rows))
    figure = go.Figure()
    _front(figure, rows, kind, (across, up))
    spots = {r.cell: (_value(kind.read(r)) * across.factor, _value(r["p50_s"]) * up.factor) for r in rows}
    sides = _sides(spots, axis_kind([y for _, y in spots.values()]) == "log")
    for row in rows:
        hover = _hover(row, kind.read(row), across, up)
        _spot(figure, row, looks[row.cell], _Spot(*spots[row.cell], sides[row.cell], hover))
    _axes(figure, list(spots.values()), kind, (across, up))
    return figure


def _why_none(rows: Sequence[Row], kind: Cost) -> str:
    """Return the reason why an axis has no values; a rejected row's reason is the last choice."""
    latencies, costs = (
        [r["p50_s"] for r in rows if not r.rejected],
        [kind.read(r) for r in rows if not r.rejected],
    )
    lacking = costs if any(isinstance(f, Measured) for f in latencies) else latencies
    return next((f.reason for f in lacking if isinstance(f, Absent)), "no variant may be used")


def _value(field: Field) -> float:
    assert isinstance(field, Measured)
    return field.value


def _front(figure: Figure, rows: Sequence[Row], kind: Cost, scales: tuple[Scale, Scale]) -> None:
    """Draw the Pareto front, extended to the edges so that a front of one point shows too."""
    eligible = [r for r in rows if not r.rejected]
    front = pareto(eligible, lambda r: _value(kind.read(r)), lambda r: _value(r["p50_s"]))
    if not front:
        return
    xs = [_value(kind.read(r)) * scales[0].factor for r in front]
    ys = [_value(r["p50_s"]) * scales[1].factor for r in front]
    right = max(_value(kind.read(r)) for r in rows) * scales[0].factor
    top = max(_value(r["p50_s"]) for r in rows) * scales[1].factor
    figure.add_scatter(
        x=[xs[0], *xs, right],
        y=[top, *ys, ys[-1]],
        ids=["", *[r.cell for r in front], ""],
        mode="lines",
        line={"shape": "hv", "color": LINE, "width": 6},
        name="Pareto front",
        hoverinfo="skip",
        showlegend=False,
    )


@dataclass(frozen=True)
class _Spot:
    """The position of a variant's marker, and the side of its name."""

    x: float
    y: float
    side: str
    hover: str


def _spot(figure: Figure, row: Row, look: Style, spot: _Spot) -> None:
    figure.add_scatter(
        x=[spot.x],
        y=[spot.y],
        ids=[row.cell],
        mode="markers+text",
        text=[name(row)],
        textposition=spot.side,
        marker={
            "color": look.colour,
            "size": 13,
            "symbol": "x-thin" if row.rejected else look.symbol,
            "line": {"width": 3 if row.rejected else 0, "color": look.colour},
        },
        name=name(row),
        cliponaxis=False,
        hovertemplate=spot.hover,
    )


def _hover(row: Row, cost: Field, across: Scale, up: Scale) -> str:
    assert isinstance(row["p50_s"], Measured) and isinstance(cost, Measured)
    text = f"p50 {interval(row['p50_s'], up.factor, up.unit)}<br>{interval(cost, across.factor, across.unit)}"
    return text + (f"<br>rejected: {html.escape(row.rejected)}" if row.rejected else "")


def _axes(
    figure: Figure, spots: Sequence[tuple[float, float]], kind: Cost, scales: tuple[Scale, Scale]
) -> None:
    xs, ys = [x for x, _ in spots], [y for _, y in spots]
    up = axis(f"median latency ({scales[1].unit})", type=axis_kind(ys))
    if axis_kind(ys) == "log":
        marks = log_ticks(min(ys) * 0.7, max(ys) * 1.4)
        up |= {"tickvals": marks, "ticktext": [f"{t:g}" for t in marks]}
    else:
        up |= {"rangemode": "tozero"}
    pad = 0.22 * (max(xs) - min(xs) or max(xs))
    room = [max(0.0, min(xs) - pad), max(xs) + pad]
    figure.update_layout(layout(height=420, hovermode="closest", meta="names in text"))
    figure.update_layout(xaxis=axis(f"{kind.words} ({scales[0].unit})", range=room), yaxis=up)


def _sides(spots: Mapping[str, tuple[float, float]], logarithmic: bool) -> dict[str, str]:
    """Return the side of each label, so that neighbours' labels do not overlap."""
    xs = [x for x, _ in spots.values()]
    ys = [math.log(y) if logarithmic else y for _, y in spots.values()]
    wide, tall = (max(xs) - min(xs)) or 1.0, (max(ys) - min(ys)) or 1.0
    taken: list[tuple[float, float]] = [
        ((x - min(xs)) / wide, (y - min(ys)) / tall) for x, y in zip(xs, ys, strict=True)
    ]
    out: dict[str, str] = {}
    for cell, (x, y) in zip(spots, list(taken), strict=True):
        choices = {"top center": (x, y + 0.08), "bottom center": (x, y - 0.08)}
        best = max(
            choices,
            key=lambda c: min(_apart(choices[c], t) for t in taken if t != (x, y)) if len(taken) > 1 else 0,
        )
        taken.append(choices[best])
        out[cell] = best
    return out


def _apart(a: tuple[float, float], b: tuple[float, float]) -> float:
    """Return the distance between two spots; sideways counts a third, because labels are wide."""
    return abs(a[0] - b[0]) / 3 + abs(a[1] - b[1])
