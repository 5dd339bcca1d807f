"""What each variant gains, and at what price: bars of speed-up over the baseline, and latency against memory or energy.

A rejected variant is wrong, however fast: its bar is hatched, its marker is a cross and never on the Pareto front.
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
    bounds,
    interval,
    layout,
    log_ticks,
    name,
    seconds,
    styles,
    values,
)
from edgescope.records import Absent, Field, Measured

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
