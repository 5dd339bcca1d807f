"""The figures of a ladder: the time of each stage of a frame, and the frame rate, level by level."""

from __future__ import annotations

import plotly.graph_objects as go

from edgescope.plots.style import COLOURS, INK, Figure, axis, layout
from edgescope.records import Field, Measured
from edgescope.wings.studies.video_ladder.climb import BOARDS, Climbed, Rung
from edgescope.wings.studies.video_ladder.report import STAGES, fps, metric

ROW_PX = 44
WIDE = 20.0
"""Ratio of the longest bar to the shortest beyond which bars show shares."""


def waterfall(found: Climbed) -> Figure:
    """Return one bar for each level, a frame's stages in it, and a diamond at the time per frame at full rate.

    A second bar has what of it a device was busy with. Where the longest bar would hide the others, every bar is as
    long, and its stages are shares of the frame's time.
    """
    rungs = [rung for rung in found.rungs if rung.good]
    whole = [sum(_stage_ms(rung, stage) or 0.0 for stage in STAGES) for rung in rungs]
    shares = min(whole, default=0.0) > 0 and max(whole) > WIDE * min(whole)
    bars: list[tuple[str, str, float]] = []
    for rung, all_ms in zip(rungs, whole, strict=True):
        name = f"{rung.level.number} {rung.level.title}"
        bars.append((f"{name}, {all_ms:.3g} ms" if shares else name, "s", all_ms))
        if any(_stage_ms(rung, stage, "device_s") for stage in STAGES):
            bars.append((f"{rung.level.number} on the device", "device_s", all_ms))
    names, of = [name for name, *_ in bars], {rung.level.number: rung for rung in rungs}
    figure = go.Figure()
    for colour, stage in zip(COLOURS, STAGES, strict=False):
        column = [_stage_ms(of[int(name.split()[0])], stage, kind) for name, kind, _ in bars]
        figure.add_bar(
            y=names,
            x=[
                100 * ms / all_ms if ms and shares else ms
                for ms, (*_, all_ms) in zip(column, bars, strict=True)
            ],
            customdata=column,
            name=stage,
            orientation="h",
            marker_color=colour,
            hovertemplate=f"{stage} %{{customdata:.3g}} ms<extra>%{{y}}</extra>",
        )
    if not shares:
        rates = [fps(rung) for rung in rungs]
        figure.add_scatter(
            y=[name for name, kind, _ in bars if kind == "s"],
            x=[1e3 / rate.value if isinstance(rate, Measured) else None for rate in rates],
            mode="markers",
            name="at full rate",
            marker={"symbol": "diamond", "size": 10, "color": INK},
            hovertemplate="a frame every %{x:.3g} ms<extra>%{y}</extra>",
        )
    figure.update_layout(
        layout(height=150 + ROW_PX * len(bars), barmode="stack", showlegend=True, bargap=0.35)
    )
    figure.update_layout(
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        xaxis=axis("% of a frame's time, stage after stage" if shares else "milliseconds a frame"),
        yaxis=axis("", categoryorder="array", categoryarray=names[::-1], ticks="") | {"showgrid": False},
    )
    return figure


def _stage_ms(rung: Rung, stage: str, kind: str = "s") -> float | None:
    """Return the milliseconds of a stage for one frame: of the host, or with `device_s` of the device."""
    field = metric(rung, f"{stage}_{kind}")
    assert rung.trial is not None
    return field.value * 1e3 / rung.trial.batch if isinstance(field, Measured) else None


def rates(found: Climbed) -> Figure:
    """Return the frame rate of each level, that of its network alone, and the published ones, on a log axis."""
    figure, names = go.Figure(), [f"{rung.level.number} {rung.level.title}" for rung in found.rungs]
    ours = [_value(fps(rung)) if rung.good else None for rung in found.rungs]
    alone = [_value(metric(rung, "infer_alone_fps")) if rung.good else None for rung in found.rungs]
    figure.add_scatter(
        x=names,
        y=ours,
        mode="lines+markers",
        name="here",
        connectgaps=True,
        line={"color": COLOURS[0], "width": 2},
        marker={"size": 10},
        hovertemplate="%{y:.3g} frames/s<extra>%{x}</extra>",
    )
    figure.add_scatter(
        x=names,
        y=alone,
        mode="markers",
        name="network alone",
        marker={"symbol": "circle-open", "size": 12, "color": INK, "line": {"width": 2}},
        hovertemplate="network alone %{y:.3g} frames/s<extra>%{x}</extra>",
    )
    for colour, board in zip(COLOURS[1:], BOARDS, strict=False):
        figure.add_scatter(
            x=names,
            y=[rung.level.printed.get(board) for rung in found.rungs],
            mode="markers",
            name=f"{board}, published",
            marker={"symbol": "x", "size": 9, "color": colour},
            hovertemplate=f"{board} %{{y:.3g}} frames/s<extra>%{{x}}</extra>",
        )
    figure.update_layout(layout(height=380, showlegend=True))
    figure.update_layout(
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
        xaxis=axis("", categoryorder="array", categoryarray=names),
        yaxis=axis("frames per second", type="log", dtick=1),
    )
    return figure


def _value(field: Field) -> float | None:
    return field.value if isinstance(field, Measured) else None
