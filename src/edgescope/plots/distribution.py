"""Latency by percentile: the whole distribution, with the tail stretched so that it can be read.

This is the cumulative distribution turned on its side. The horizontal axis has as much room from 90 to 99 %
as from 99 to 99.9 %, because that is where deadlines are missed; a curve that is lower everywhere is better
everywhere, a step is a second mode, a curve that bends up is a tail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from edgescope.analysis.cells.replicates import latencies_s
from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.plots.style import (
    Figure,
    Scale,
    Style,
    axis,
    axis_kind,
    bounds,
    by_rank,
    interval,
    layout,
    log_ticks,
    name,
    seconds,
    styles,
    values,
)
from edgescope.records import Absent, Field, Measured

PERCENTILES = (50, 90, 99, 99.9, 99.99, 99.999)
Drawn = Sequence[tuple[Row, NDArray[np.float64]]]
"""Rows with their sorted latencies in seconds."""

HEIGHT = 460
LABEL_GAP = 0.055
"""Least distance of two labels at the right edge, as a share of the height."""


def percentiles(table: VariantTable) -> Figure | Absent:
    """Return latency (log if widely spread) against percentile, with p50 and p99 marked with intervals."""
    rows = [(row, sorted_s(row)) for row in table.ordered()]
    drawn = [(row, x) for row, x in rows if len(x)]
    if not drawn:
        return Absent("no variant has raw latencies")
    scale, looks = (
        seconds(values(row["p50_s"] for row, _ in drawn) or [float(x[-1]) for _, x in drawn]),
        styles(table),
    )
    figure = go.Figure()
    for row, x in drawn:
        _curve(figure, row, x, scale, looks[row.cell])
    _dress(figure, drawn, scale, looks)
    return figure


def sorted_s(row: Row) -> NDArray[np.float64]:
    """Return latencies in seconds, fastest first: the mean over replicates at each rank, as in the table.

    Empty without raw rows; as many ranks as the replicate with the fewest queries has.
    """
    parts = [x for x in (latencies_s(r) for r in row.replicates.values()) if x is not None and len(x)]
    if len(parts) < 2:
        return np.sort(parts[0]) if parts else np.zeros(0)
    count = min(len(x) for x in parts)
    return np.asarray(np.mean([_at_ranks(np.sort(x), count) for x in parts], axis=0))


def _at_ranks(x: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Return `count` evenly spaced quantiles of sorted `x`; np.quantile would take seconds for so many."""
    return np.interp(np.linspace(0, len(x) - 1, count), np.arange(len(x)), x)


def stretched(share: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the position of a share of queries on the axis: 1 / (1 - share), drawn logarithmically."""
    return np.asarray(1 / (1 - np.asarray(share)))


def _curve(figure: Figure, row: Row, x: NDArray[np.float64], scale: Scale, look: Style) -> None:
    ranks = by_rank(len(x))
    share = (ranks + 0.5) / len(x)
    figure.add_scatter(
        x=stretched(share),
        y=x[ranks] * scale.factor,
        customdata=share * 100,
        mode="lines",
        name=name(row),
        legendgroup=row.cell,
        line={"color": look.colour, "width": 2, "dash": "dot" if row.rejected else "solid"},
        opacity=0.6 if row.rejected else 1.0,
        hovertemplate=f"%{{customdata:.2f}} % of the queries<br>within %{{y:.4g}} {scale.unit}",
    )
    _mark(figure, row, (0.50, row["p50_s"]), scale, look)
    _mark(figure, row, (0.99, row["p99_s"]), scale, look)


def _mark(figure: Figure, row: Row, at: tuple[float, Field], scale: Scale, look: Style) -> None:
    """Mark the table's own figure, with its interval, on the curve."""
    share, field = at
    if not isinstance(field, Measured):
        return
    below, above = bounds(field)
    figure.add_scatter(
        x=[float(stretched(share))],
        y=[field.value * scale.factor],
        error_y={
            "type": "data",
            "array": [above * scale.factor],
            "arrayminus": [below * scale.factor],
            "thickness": 1.5,
            "width": 4,
            "color": look.colour,
        },
        mode="markers",
        marker={"color": look.colour, "symbol": look.symbol, "size": 9},
        name=f"{name(row)} p{share * 100:g}",
        legendgroup=row.cell,
        showlegend=False,
        hovertemplate=f"p{share * 100:g} {interval(field, scale.factor, scale.unit)}",
    )


def _dress(figure: Figure, drawn: Drawn, scale: Scale, looks: Mapping[str, Style]) -> None:
    low, high = _extent(drawn, scale)
    longest = max(len(x) for _, x in drawn)
    ticks = [p for p in PERCENTILES if 1 / (1 - p / 100) <= 2.2 * longest]
    y = axis(f"latency ({scale.unit})", type=axis_kind([low, high]))
    if y["type"] == "log":
        marks = log_ticks(low, high)
        y |= {"tickvals": marks, "ticktext": [f"{t:g}" for t in marks]}
        low, high = math.log10(low), math.log10(high)
    pad = 0.03 * (high - low or 1.0)
    y["range"] = [low - pad, high + pad]
    figure.update_layout(layout(height=HEIGHT, hovermode="closest"))
    figure.update_layout(
        xaxis=axis(
            "share of queries answered within that time",
            type="log",
            tickvals=[1 / (1 - p / 100) for p in ticks],
            ticktext=[f"{p:g} %" for p in ticks],
        ),
        yaxis=y,
    )
    _labels(figure, drawn, scale, looks)


def _extent(drawn: Drawn, scale: Scale) -> tuple[float, float]:
    """Return the lowest and highest latency of the axis; whiskers may add at most half of the highest."""
    low = min(float(x[0]) for _, x in drawn) * scale.factor
    high = max(float(x[-1]) for _, x in drawn) * scale.factor
    whiskers = [
        row["p99_s"].hi * scale.factor
        for row, _ in drawn
        if isinstance(row["p99_s"], Measured) and row["p99_s"].hi
    ]
    return low, min(1.5 * high, max([high, *whiskers]))


def _labels(figure: Figure, drawn: Drawn, scale: Scale, looks: Mapping[str, Style]) -> None:
    """Write each variant's name at the right edge, at its curve's end; names that would overlap are moved apart."""
    bottom, top = figure.layout.yaxis.range
    logarithmic = figure.layout.yaxis.type == "log"
    ends = {row.cell: float(x[-1]) * scale.factor for row, x in drawn}
    at = {cell: (math.log10(end) if logarithmic else end) for cell, end in ends.items()}
    placed = spread_out({cell: (y - bottom) / (top - bottom) for cell, y in at.items()}, LABEL_GAP)
    for row, _ in drawn:
        figure.add_annotation(
            name="direct",
            x=1,
            y=placed[row.cell],
            xref="paper",
            yref="paper",
            xanchor="left",
            xshift=6,
            showarrow=False,
            text=f'<span style="color:{looks[row.cell].colour}">●</span> {name(row)}',
        )
    widest = max(len(row.label) for row, _ in drawn)
    figure.update_layout(margin={"r": 28 + 7 * widest})


def spread_out(at: dict[str, float], gap: float) -> dict[str, float]:
    """Return positions in the same order, at least `gap` apart, the highest at 1 or below."""
    order = sorted(at, key=lambda k: at[k])
    out = [at[k] for k in order]
    for i in range(1, len(out)):
        out[i] = max(out[i], out[i - 1] + gap)
    over = max(0.0, out[-1] - 1.0) if out else 0.0
    if over:
        out[-1] -= over
        for i in range(len(out) - 2, -1, -1):
            out[i] = min(out[i], out[i + 1] - gap)
    return dict(zip(order, out, strict=True))
