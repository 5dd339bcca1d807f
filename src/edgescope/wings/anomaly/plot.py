"""How a detector ranks frames (ROC and precision-recall curves), and what it says over the time of single videos."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from plotly.subplots import make_subplots

from edgescope.plots.style import BASELINE_COLOUR, COLOURS, MAX_POINTS, Figure, axis, colour, layout
from edgescope.wings.anomaly.evaluation import Evaluation, ScoredVideo

EVENT = "rgba(204,0,61,0.16)"
TOP, PANEL, GAP = 48, 132, 54
"""Pixels above the panels, of a panel with what is below it, and of that."""


def ranking(detectors: Mapping[str, Evaluation]) -> Figure:
    """Return two panels, each with one line a detector: ROC on the left, precision over recall on the right."""
    figure = make_subplots(rows=1, cols=2, horizontal_spacing=0.12)
    figure.add_scatter(x=[0, 1], y=[0, 1], **_line("a guess", BASELINE_COLOUR, "dash"), row=1, col=1)
    for i, (name, found) in enumerate(detectors.items(), 1):
        curve = found.roc
        few = np.unique(np.linspace(0, len(curve.tpr) - 1, MAX_POINTS // 4).astype(int))
        look = _line(html.escape(name), colour(i), "solid")
        figure.add_scatter(x=curve.fpr[few], y=curve.tpr[few], **look, row=1, col=1)
        figure.add_scatter(x=curve.tpr[few], y=curve.precision[few], **look, showlegend=False, row=1, col=2)
    figure.update_layout(layout(height=380, showlegend=True, hovermode="closest"))
    for col, (x, y) in enumerate((("false positive rate", "true positive rate"), ("recall", "precision")), 1):
        figure.update_xaxes(axis(x, range=[0, 1]), row=1, col=col)
        figure.update_yaxes(axis(y, range=[0, 1.02]), row=1, col=col)
    return figure


def timelines(videos: Sequence[ScoredVideo], threshold: float | None) -> Figure:
    """Return a panel a video: the score of each snippet over time, the events behind it, and the alarm's threshold."""
    titles = [html.escape(f"{v.name} ({v.category})") for v in videos]
    height, gap = TOP + PANEL * len(videos), GAP / (PANEL * max(1, len(videos)))
    figure = make_subplots(rows=max(1, len(videos)), cols=1, vertical_spacing=gap, subplot_titles=titles)
    figure.update_annotations(x=0, xanchor="left", font_size=13)
    figure.update_layout(
        layout(height=height, showlegend=False, margin={"l": 12, "r": 32, "t": TOP, "b": 12})
    )
    for row, video in enumerate(videos, 1):
        a_second, unit = (video.fps, " s") if video.fps else (1.0, " frames")
        ends = np.minimum(np.arange(len(video.scores) + 1) * video.snippet, video.frames) / a_second
        look = {"name": "score", "line": {"color": COLOURS[0]}, "line_shape": "hv"}
        figure.add_scatter(
            x=ends, y=np.append(video.scores, video.scores[-1:]), mode="lines", **look, row=row, col=1
        )
        for start, end in video.intervals:
            span = {"x0": start / a_second, "x1": min(end, video.frames) / a_second}
            figure.add_vrect(**span, fillcolor=EVENT, line_width=0, row=row, col=1)
        if threshold is not None:
            figure.add_hline(
                y=threshold, line={"color": COLOURS[4], "dash": "dash", "width": 1}, row=row, col=1
            )
        figure.update_xaxes(axis(""), ticksuffix=unit, row=row, col=1)
        figure.update_yaxes(axis("score", range=[0, 1.02]), row=row, col=1)
    return figure


def _line(name: str, shade: str, dash: str) -> dict[str, Any]:
    return {"mode": "lines", "name": name, "line": {"color": shade, "dash": dash, "width": 2}}
