"""Bars of each variant's speed-up over the baseline, with intervals.

A rejected variant's bar is hatched and its name struck out: its speed is that of a wrong answer.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

import plotly.graph_objects as go

from edgescope.analysis.cells.row import Row
from edgescope.analysis.cells.variants import VariantTable
from edgescope.plots.style import (
    Figure,
    Style,
    axis,
    bounds,
    interval,
    layout,
    name,
    styles,
)
from edgescope.records import Absent, Measured

REASON_CHARS = 40


def speedups(table: VariantTable) -> Figure | Absent:
    """Return bars of speed-up over the baseline with 95 % whiskers; a line at 1x; rejected ones hatched."""
    rows, looks = table.ordered(), styles(table)
    if not any(isinstance(r["speedup"], Measured) for r in rows):
        return Absent(
            next((r["speedup"].reason for r in rows if isinstance(r["speedup"], Absent)), "no variant ran")
        )
    figure = go.Figure()
    for row in rows:
        _bar(figure, row, looks[row.cell], row.cell == table.baseline)
    figure.add_vline(x=1, line={"color": looks[table.baseline].colour, "width": 1.5, "dash": "dash"})
    top = _reach([r["speedup"] for r in rows if isinstance(r["speedup"], Measured)])
    figure.update_layout(layout(height=106 + 44 * len(rows), bargap=0.35))
    figure.update_layout(
        xaxis=axis(
            "speed-up over the baseline (×)",
            range=[0, 1.22 * top],
        ),
        yaxis=axis(
            "", categoryorder="array", categoryarray=[r.cell for r in rows][::-1], ticks="", tickfont_size=13
        )
        | {"tickvals": [r.cell for r in rows], "ticktext": [name(r) for r in rows], "showgrid": False},
    )
    return figure


def _reach(found: Sequence[Measured]) -> float:
    """Return where the axis ends: at the longest whisker, or at twice the longest bar if that is less.

    An interval can reach up to fifty times the value; it must not squash the bars.
    """
    longest = max([1.0, *(f.value for f in found)])
    whiskers = [f.hi for f in found if f.hi is not None]
    return max(longest, min(2 * longest, max(whiskers, default=longest)))


def _bar(figure: Figure, row: Row, look: Style, is_baseline: bool) -> None:
    field = row["speedup"] if isinstance(row["speedup"], Measured) else None
    below, above = bounds(field) if field and not is_baseline else (0.0, 0.0)
    figure.add_bar(
        x=[field.value if field else None],
        y=[row.cell],
        orientation="h",
        name=name(row),
        marker={
            "color": look.colour,
            "pattern": {"shape": "/" if row.rejected else "", "fillmode": "overlay", "size": 6},
            "opacity": 0.45 if row.rejected else 1.0,
        },
        error_x={
            "type": "data",
            "array": [above],
            "arrayminus": [below],
            "thickness": 1.5,
            "color": "#808790",
        },
        hovertemplate=interval(field, 1.0, "×") if field else html.escape(row.rejected),
    )
    said = _bar_text(row, field, is_baseline)
    figure.add_annotation(
        x=_text_at(field, is_baseline),
        y=row.cell,
        xanchor="left",
        xshift=6,
        yshift=0 if _fits(field) else 11,
        showarrow=False,
        text=said,
    )


def _fits(field: Measured | None) -> bool:
    """Return whether the whisker is short enough for the text to go right of it, not above it."""
    return field is None or field.hi is None or field.hi <= 1.5 * field.value


def _text_at(field: Measured | None, is_baseline: bool) -> float:
    if field is None:
        return 0.0
    return field.hi if field.hi is not None and _fits(field) and not is_baseline else field.value


def _bar_text(row: Row, field: Measured | None, is_baseline: bool) -> str:
    if is_baseline:
        return "baseline"
    if row.rejected:
        return f"rejected: {html.escape(_cut(row.rejected))}"
    if field is not None:
        return f"<b>{field.value:.3g}×</b>"
    return "no speed-up is known" if isinstance(row["p50_s"], Measured) else "not measured"


def _cut(text: str) -> str:
    first = text.split(":", maxsplit=1)[0]
    return first if len(first) <= REASON_CHARS else first[: REASON_CHARS - 1] + "…"
