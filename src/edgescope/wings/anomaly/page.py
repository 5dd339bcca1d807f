"""The document about a detector of anomalies: its figures with intervals, alone or beside another detector."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from edgescope import units
from edgescope.plots.style import BASELINE_COLOUR, COLOURS, MAX_POINTS, Figure, axis, colour, layout
from edgescope.records import Absent, Field, Measured
from edgescope.report import document as doc
from edgescope.wings.anomaly.evaluation import Difference, Evaluation, ScoredVideo, telling

if TYPE_CHECKING:
    from edgescope.wings.anomaly.verb import DetectorEvaluation, Evaluated


TITLES = {
    "auc": ("AUC, frames", "1"),
    "pr_auc": ("PR AUC, frames", "1"),
    "auc_anomalous": ("AUC, anomalous videos alone", "1"),
    "event_recall": ("Events found", "share"),
    "false_alarms_per_hour": ("False alarms per hour", "1"),
    "detection_delay_s": ("Median delay of an alarm", "s"),
    "threshold": ("Threshold of these alarms", "1"),
}

OVER_VIDEOS = ("auc", "pr_auc", "auc_anomalous")
"""Figures whose interval is over videos drawn anew."""

SHOWN = 6
"""Videos whose scores are drawn over time."""

EVENT = "rgba(204,0,61,0.16)"
TOP, PANEL, GAP = 48, 132, 54
"""Pixels above the panels, of a panel with what is below it, and of that."""


def document(found: Evaluated, *, command: str = "") -> doc.Document:
    """Return the document of an evaluation."""
    sides = [found.judged, *([found.against] if found.against else [])]
    parts: tuple[doc.Part, ...] = (
        _answer(found),
        _figures(sides),
        *_drawn(sides),
        _categories(sides),
        doc.Section(
            "How it was trained", (doc.Pairs(tuple(_trained(found.judged)), kind="facts"),), level=doc.DETAIL
        ),
    )
    title = f"Anomaly detection: {found.judged.detector.name}"
    data: dict[str, Any] = found.json()
    return doc.Document(title, parts, data, command)


def _answer(found: Evaluated) -> doc.Answer:
    one = found.judged.evaluation
    auc = one.figures["auc"]
    head = f"AUC {over_videos(auc)} on {units.counted(one.videos, 'video')} of the split {found.split}"
    lines = [*chance(auc), f"{found.judged.head} on features of {found.judged.features}"]
    if found.difference and found.against:
        lines.append(sentence(found.difference, found.against))
    return doc.Answer("Measured", head, tuple(lines), ". ".join(lines) + ".", kind="measured")


def chance(auc: Field) -> list[str]:
    """Return what an AUC says beside that of a guess, 0.5; nothing if it is surely better."""
    if not isinstance(auc, Measured) or auc.lo is None or auc.hi is None or auc.lo > 0.5:
        return []
    if auc.hi < 0.5:
        return [
            "worse than chance: normal frames score higher than anomalous ones; are the labels turned round?"
        ]
    return ["not surely better than chance: the interval holds 0.5"]


def sentence(difference: Difference, against: DetectorEvaluation) -> str:
    """Return how much better it is than another detector, in one sentence."""
    gain = difference.gain
    how = "better than" if gain.value > 0 else "worse than"
    if not difference.sure:
        how = "not surely apart from"
    sure = "" if gain.lo is None else f", p = {difference.p:.2g}, paired by video"
    return f"{how} {against.detector.name}: AUC difference {over_videos(gain)}{sure}"


def over_videos(field: Field) -> str:
    """Return a figure as `text` does, or `0.912 (no interval: one video)`."""
    if isinstance(field, Absent) or field.lo is not None:
        return text(field)
    videos = "one video" if field.n == 1 else units.counted(field.n, "video")
    return f"{text(field)} (no interval: {videos})"


def text(field: Field) -> str:
    """Return `0.912 [0.881, 0.940]`, or the reason why there is no figure."""
    if isinstance(field, Absent):
        return f"n/a: {field.reason}"
    bounds = "" if field.lo is None or field.hi is None else f" [{field.lo:.3f}, {field.hi:.3f}]"
    return f"{field.value:.3f}{bounds}"


def _figures(sides: list[DetectorEvaluation]) -> doc.Table:
    rows = []
    for name, (title, unit) in TITLES.items():
        cells = [_cell(name, side.evaluation.figures[name], unit) for side in sides]
        rows.append(doc.Row((title, *cells)))
    columns = (doc.Column("Figure", head="figure"), *(doc.Column(side.detector.name) for side in sides))
    return doc.Table(columns, tuple(rows), "Figures", "In brackets: 95 % interval over videos drawn anew.")


def _drawn(sides: list[DetectorEvaluation]) -> list[doc.Figure]:
    """Return the curves of all detectors, and the first one's scores over the time of the videos that tell most."""
    videos, threshold = telling(sides[0].scored, SHOWN), sides[0].evaluation.figures["threshold"]

    def curves() -> Figure:
        return ranking({side.detector.name: side.evaluation for side in sides})

    def scores() -> Figure:
        return timelines(videos, threshold.value if isinstance(threshold, Measured) else None)

    return [
        doc.Figure("ranking", "ROC and precision-recall", "Over frames; the dashed line is a guess.", curves),
        doc.Figure(
            "scores",
            "Scores over time",
            f"{len(videos)} of {len(sides[0].scored)} videos: the events that score lowest, the normal videos that "
            "score highest. Shaded: the event. Dashed: the threshold of the alarms above.",
            scores,
        ),
    ]


def _categories(sides: list[DetectorEvaluation]) -> doc.Table:
    names = sorted({name for side in sides for name in side.evaluation.by_category})
    missing = Absent("there is no such video")
    rows = tuple(
        doc.Row((name, *(over_videos(side.evaluation.by_category.get(name, missing)) for side in sides)))
        for name in names
    )
    columns = (
        doc.Column("Kind of anomaly", head="kind"),
        *(doc.Column(side.detector.name) for side in sides),
    )
    return doc.Table(columns, rows, "AUC by kind, with all normal videos")


def _cell(name: str, field: Field, unit: str) -> str:
    if isinstance(field, Measured) and unit != "1":
        return units.text(field.value, unit)
    return over_videos(field) if name in OVER_VIDEOS else text(field)


def _trained(judged: DetectorEvaluation) -> list[tuple[doc.Value, doc.Value]]:
    about = judged.about
    recipe: Any = about.get("recipe", {})
    facts: dict[str, Any] = {
        **{
            key: recipe[key]
            for key in ("steps", "bags", "optimizer", "learning_rate", "weight_decay")
            if key in recipe
        },
        "weights chosen on": about.get("selected_on"),
        "at step": about.get("selected_step"),
        "made with": _versions(about.get("made_with")),
    }
    return [(key.replace("_", " "), str(value)) for key, value in facts.items() if value is not None]


def _versions(made_with: Any) -> Any:
    """Return `edgescope 0.1.0, torch 2.13.0`."""
    if not isinstance(made_with, dict):
        return made_with
    return ", ".join(f"{name} {version}" for name, version in made_with.items())


# -- figures --------------------------------------------------------------------------------------------------


def ranking(detectors: Mapping[str, Evaluation]) -> Figure:
    """Return two panels, each with one line a detector: ROC on the left, precision over recall on the right."""
    from plotly.subplots import make_subplots

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
    from plotly.subplots import make_subplots

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
