"""One constraint over the number of clients: the figure, its bound, the limit and the answer."""

from __future__ import annotations

import plotly.graph_objects as go

from edgescope.analysis.cells.objective import Constraint
from edgescope.plots.style import COLOURS, INK, Figure, Scale, axis, axis_kind, layout, seconds
from edgescope.records import Absent, Measured
from edgescope.wings.capacity.answer import Capacity
from edgescope.wings.capacity.constraints import Point

HEIGHT = 360
STAGES = {"search": ("short run", "circle-open"), "confirm": ("sustained run", "circle")}


def over_clients(found: Capacity, constraint: Constraint) -> Figure | Absent:
    """Return the plot of a constraint over the clients, with whiskers up to the bounds; Absent if nothing was read."""
    spots = [(p, h.found, h.bound) for p in found.points for h in p.held if h.constraint == constraint]
    read = [(p, f.value, b) for p, f, b in spots if isinstance(f, Measured)]
    if not read:
        reasons = [f.reason for _, f, _ in spots if isinstance(f, Absent)]
        return Absent(next(iter(reasons), "no run was judged by it"))
    scale = _scale(constraint, [value for _, value, _ in read])
    figure = go.Figure()
    for stage, (words, symbol) in STAGES.items():
        mine = [(p, v * scale.factor, _over(v, b) * scale.factor) for p, v, b in read if p.stage == stage]
        if mine:
            figure.add_trace(_marks(mine, words, symbol, f"{constraint.name}, {scale.unit}"))
    figure.add_hline(y=constraint.limit * scale.factor, line={"color": COLOURS[4], "dash": "dash"})
    if found.clients:
        figure.add_vline(x=found.clients, line={"color": COLOURS[2], "width": 6}, opacity=0.3)
    shown = [v * scale.factor for _, v, _ in read]
    up = axis(
        f"{constraint.name} ({scale.unit}), limit dashed",
        type=axis_kind([*shown, constraint.limit * scale.factor]),
        rangemode="tozero",
    )
    across = axis(f"{found.terms.client}s, {found.terms.rate:g} queries/s each", rangemode="tozero")
    figure.update_layout(**layout(height=HEIGHT, xaxis=across, yaxis=up, showlegend=True))
    return figure


def _marks(spots: list[tuple[Point, float, float]], words: str, symbol: str, what: str) -> go.Scatter:
    return go.Scatter(
        x=[p.clients for p, _, _ in spots],
        y=[value for _, value, _ in spots],
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [over for _, _, over in spots],
            "arrayminus": [0] * len(spots),
            "color": COLOURS[0],
            "thickness": 1,
        },
        mode="markers",
        name=words,
        marker={"symbol": symbol, "size": 10, "color": COLOURS[0], "line": {"color": INK, "width": 1}},
        hovertemplate=f"%{{x}} clients: %{{y:.4g}} ({what})<extra>{words}</extra>",
    )


def _over(value: float, bound: Measured | Absent) -> float:
    return bound.value - value if isinstance(bound, Measured) else 0.0


def _scale(constraint: Constraint, values: list[float]) -> Scale:
    if constraint.quantile is not None:
        return seconds([*values, constraint.limit])
    known = {"W": Scale(1.0, "W"), "J": Scale(1e3, "mJ"), "share": Scale(100.0, "%")}
    return known.get(constraint.metric.unit, Scale(1e-6, "MB"))
