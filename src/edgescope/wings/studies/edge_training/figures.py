"""The figures of the training study: the parts of a minibatch, and first against later epochs."""

from __future__ import annotations

import plotly.graph_objects as go

from edgescope.plots.style import COLOURS, Figure, axis, layout
from edgescope.records import Measured
from edgescope.wings.studies.edge_training import report
from edgescope.wings.studies.edge_training.claims import Cells

ROW_PX = 34


def parts(cells: Cells) -> Figure:
    """Return one bar for each cell: milliseconds of a sample by the parts of its step."""
    keys = sorted(cells.runs)
    names = [report.words(key) for key in keys]
    figure = go.Figure()
    for colour, part in zip(COLOURS, report.PARTS, strict=False):
        found = [report.value(cells.runs[key], f"{part}_s") for key in keys]
        figure.add_bar(
            y=names,
            x=[
                f.value * 1e3 / key[2] if isinstance(f, Measured) else None
                for f, key in zip(found, keys, strict=True)
            ],
            name=part,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{part} %{{x:.3g}} ms<extra>%{{y}}</extra>",
        )
    return _laid_out(figure, names, "milliseconds a sample", barmode="stack")


def epochs(cells: Cells) -> Figure:
    """Return the time of the first and of later epochs of each cell."""
    keys = sorted(cells.runs)
    names = [report.words(key) for key in keys]
    figure = go.Figure()
    for colour, (metric, name) in zip(
        COLOURS, (("epoch_first_s", "first epoch"), ("epoch_later_s", "later epochs")), strict=False
    ):
        found = [report.value(cells.runs[key], metric) for key in keys]
        known = [f if isinstance(f, Measured) else None for f in found]
        figure.add_bar(
            y=names,
            x=[f.value if f else None for f in known],
            error_x={
                "type": "data",
                "array": [f.hi - f.value if f and f.hi is not None else 0 for f in known],
                "arrayminus": [f.value - f.lo if f and f.lo is not None else 0 for f in known],
            },
            name=name,
            orientation="h",
            marker_color=colour,
        )
    return _laid_out(figure, names, "seconds an epoch", barmode="group")


def _laid_out(figure: Figure, names: list[str], title: str, *, barmode: str) -> Figure:
    figure.update_layout(
        layout(height=150 + ROW_PX * len(names), barmode=barmode, showlegend=True, bargap=0.3)
    )
    figure.update_layout(
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        xaxis=axis(title),
        yaxis=axis("", categoryorder="array", categoryarray=names[::-1], ticks="") | {"showgrid": False},
    )
    return figure
