"""The break-even curve: over the round trip, the bandwidth that makes the cloud as good as the edge, or good enough."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go

from edgescope.plots.style import COLOURS, INK, Figure, axis, layout, log_ticks
from edgescope.wings.offload.breakeven import Point
from edgescope.wings.offload.question import Question

EQUAL, FITS = COLOURS[0], COLOURS[1]


def break_even(found: Question) -> Figure:
    """Return the figure; a border without points is not drawn."""
    figure, points, here = go.Figure(), found.curve.points, found.network
    every = [b for p in points for b in (p.equal_bps, p.fits_bps) if b] + [here.up_bps]
    low, high = min(every) / 3, max(every) * 3
    rtts = [p.rtt_s * 1e3 for p in points] + [max(here.rtt_s, 1e-6) * 1e3]
    limits = " and ".join(c.text for c in found.model.wanted.constraints)
    _border(
        figure,
        points,
        [p.equal_bps for p in points],
        (f"cloud's {found.curve.quantity} = edge's", EQUAL),
        low,
    )
    if limits:
        _border(figure, points, [p.fits_bps for p in points], (f"cloud keeps {limits}", FITS), low)
    figure.add_scatter(
        x=[max(here.rtt_s, 1e-6) * 1e3],
        y=[here.up_bps / 1e6],
        mode="markers+text",
        text=["this network"],
        textposition=_beside(here.rtt_s * 1e3, rtts),
        marker={"symbol": "diamond", "size": 13, "color": INK},
        name="this network",
        hovertemplate="%{x:.3g} ms, %{y:.3g} Mbit/s<extra></extra>",
        showlegend=False,
    )
    left, right = min(rtts) / 1.2, max(rtts) * 1.2
    figure.update_layout(layout(height=440, showlegend=True, hovermode="closest"))
    figure.update_layout(
        xaxis=_log("round trip (ms)", left, right), yaxis=_log("bandwidth up (Mbit/s)", low / 1e6, high / 1e6)
    )
    return figure


def _beside(here_ms: float, rtts_ms: Sequence[float]) -> str:
    """Return the label's position, towards the middle of the axis, so that the plot's edge does not cut it."""
    low, high = math.log(min(rtts_ms)), math.log(max(rtts_ms))
    at = (math.log(max(here_ms, 1e-3)) - low) / (high - low) if high > low else 0.5
    return "top right" if at < 0.15 else "top left" if at > 0.85 else "top center"


def _border(
    figure: Figure, points: Sequence[Point], border: Sequence[float | None], look: tuple[str, str], low: float
) -> None:
    """Draw one border; it runs along the bottom while any bandwidth is enough."""
    there = [(p.rtt_s * 1e3, max(b, low) / 1e6) for p, b in zip(points, border, strict=True) if b is not None]
    if not there:
        return
    name, colour = look
    figure.add_scatter(
        x=[x for x, _ in there],
        y=[y for _, y in there],
        mode="lines+markers",
        name=name,
        line={"color": colour, "width": 2.5},
        marker={"size": 6, "color": colour},
        hovertemplate="at %{x:.3g} ms from %{y:.3g} Mbit/s<extra></extra>",
    )


def _log(title: str, low: float, high: float) -> dict[str, object]:
    marks = log_ticks(low, high)
    return axis(title, type="log", tickvals=marks, ticktext=[f"{m:g}" for m in marks]) | {
        "range": [math.log10(low), math.log10(high)]
    }
