"""The document about how many clients fit: the answer in sentences, the curve of each constraint, every run."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from edgescope import units
from edgescope.analysis.cells.objective import Compliance, Constraint
from edgescope.plots.style import COLOURS, INK, Figure, Scale, axis, axis_kind, layout, seconds
from edgescope.records import Absent, Json, Measured, Result
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.units import counted
from edgescope.wings.capacity.answer import Capacity
from edgescope.wings.capacity.question import RESOURCES, Held, Point, words

if TYPE_CHECKING:
    from edgescope.wings.capacity.question import Question


HEIGHT = 360
STAGES = {"search": ("short run", "circle-open"), "confirm": ("sustained run", "circle")}
#: Ratio of a run's rate to the closed loop's from which the run was faster, not only noisy.
EXCEEDED = 1.02
FITS = {Compliance.YES: "yes", Compliance.NO: "no"}
CAPTION = (
    "A whisker ends at the upper bound of the quantile, which decides; a mark without one had too few queries. "
    "The green line is the answer."
)


def document(found: Capacity, *, command: str = "", written: str = "") -> doc.Document:
    """Return the document; `written` is the file of the report, or ''."""
    curves = tuple(_curve(found, i) for i in range(len(found.question.constraints)))
    aside_of = doc.Section(
        "What it is based on", (doc.Pairs(tuple(aside(found)), kind="rests"),), level=doc.DETAIL
    )
    parts = (
        _answer(found),
        doc.Section("", curves, level=doc.PAGE),
        aside_of if aside(found) else None,
        doc.Section("Every run", (_runs(found),), level=doc.DETAIL),
        *doc.warnings(found.warnings, "To know"),
        doc.Pairs((("report", written),)) if written else None,
    )
    return doc.Document(f"Capacity: {found.question.subject}", parts, facts(found), command)


def _answer(found: Capacity) -> doc.Answer:
    """Return the answer: how many clients fit, then what limits and confirms it."""
    (_, first), *rest = sentences(found)
    head, _, held = first.partition(": ")
    head = head.removesuffix(" fits").removesuffix(" fit")
    short = [held, *(f"{label}: {text}" if label == "limit" else text for label, text in rest)]
    doubted = any(each.code == "W-CAP-3" for each in found.warnings)
    none = "None seen, on a disturbed machine" if doubted else "No capacity"
    kind = "" if found.clients else "none"
    return doc.Answer("Fits" if found.clients else none, head, tuple(short), sentence_of(found), kind=kind)


def _curve(found: Capacity, number: int) -> doc.Figure:
    constraint = found.question.constraints[number]
    return doc.Figure(f"promise-{number}", constraint.text, CAPTION, partial(over_clients, found, constraint))


def _runs(found: Capacity) -> doc.Table:
    constraints = found.question.constraints
    columns = (
        doc.Column("Clients", "1", head="clients"),
        doc.Column("Run", head="run"),
        doc.Column("Offered/s", "1", head="offered/s", rank=3),
        doc.Column("Answered/s", "1", head="answered/s", rank=2),
        *(doc.Column(p.text) for p in constraints),
        doc.Column("Server busy", "share", head="busy", rank=1),
        doc.Column("Fits", head="fits"),
        doc.Column("Verdict", key="verdict", head="verdict"),
    )
    points = sorted(found.points, key=lambda p: (p.clients, p.stage != "search"))
    return doc.Table(columns, tuple(_row(p, found, len(constraints)) for p in points), reasons=True)


def _row(point: Point, found: Capacity, constraints: int) -> doc.Row:
    offered = Measured(point.offered, "queries")
    cells: tuple[doc.Value, ...] = (
        Measured(point.clients, "1"),
        f"{point.stage} {point.seconds:.0f} s",
        offered,
    )
    cells += (_bare(point.achieved), *(_figure(point, i) for i in range(constraints)), _bare(point.busy))
    cells += (fits(point), doc.badge(point.result.verdict.trust, point.result.verdict.evidence))
    return doc.Row(cells, "picked" if point is found.confirmed else "" if point.fits else "dim")


def _bare(field: Measured | Absent) -> Measured | Absent:
    return field if isinstance(field, Absent) else Measured(field.value, "1", n=field.n)


def _figure(point: Point, index: int) -> str:
    """Return `31.2 ms [33.0]`: the figure and, in brackets, the bound it is judged on."""
    if index >= len(point.held):
        return point.result.status.value
    held = point.held[index]
    if isinstance(held.found, Absent):
        return "n/a"
    text = ("" if held.whole else "<= ") + units.text(held.found.value, held.constraint.metric.unit)
    if held.constraint.name in RESOURCES:
        return text
    bound, unit = held.bound, held.constraint.metric.unit
    return (
        f"{text} [{units.text(bound.value, unit)}]" if isinstance(bound, Measured) else f"{text} [no bound]"
    )


# -- in words ------------------------------------------------------------------------------------------------


def fits(point: Point) -> str:
    """Return yes or no, or how likely a run makes it that the clients fit."""
    if point.by_figure:
        return "yes, without a bound"
    if point.kept is Compliance.PERHAPS:
        confirmed = point.stage == "confirm"
        return "not shown" if confirmed else "likely" if point.fits else "unlikely"
    return FITS[point.kept]


def line(point: Point) -> str:
    """Return one run in one line, to print as progress."""
    why = point.why or "; ".join(words(h) for h in point.held)
    return f"{fits(point)}: {why}"


def sentence_of(found: Capacity) -> str:
    """Return the answer in one paragraph."""
    return " ".join(f"{text[:1].upper()}{text[1:]}." for _, text in sentences(found))


def sentences(found: Capacity) -> list[tuple[str, str]]:
    """Return the answer as (label, text): how many fit, what happens with more, what limits it, what confirms it."""
    each, client = f"at {found.question.rate:g}/s", found.question.client
    above, confirmed = found.above, found.confirmed
    if confirmed is None:
        why = above.why if above else "nothing was measured"
        return [("fits", f"not even one {client} {each} fits: {why}"), ("limit", found.limit.sentence)]
    verb = "fits" if found.clients == 1 else "fit"
    held = "; ".join(words(h) for h in confirmed.held)
    out = [("fits", f"{counted(found.clients, client)} {each} {verb}: {held}")]
    if above is None:
        out.append(("next", f"more than {found.clients} were not tried (--max-clients)"))
    else:
        if maybe := _unproved(found):
            out.append(("perhaps", f"{counted(maybe, client)} may fit, by a short run only"))
        out.append(("next", f"{_others(above, found.clients)}: {above.why}"))
        out.append(("limit", found.limit.sentence))
    return [*out, ("confirmed", _confirmed(confirmed, found.question.confirm_s))]


def _confirmed(point: Point, confirm_s: float) -> str:
    """Return how long the sustained run was, and why it was longer than requested or has no bound."""
    text = f"confirmed over {point.seconds:.0f} s"
    if point.by_figure:
        return f"{text}, too few queries for a bound"
    if point.seconds < confirm_s + 1:
        return text
    names = ", ".join(h.constraint.name for h in point.held if h.constraint.name not in RESOURCES)
    why = "queries that wait together are not independent, so a bound of"
    return f"{text}, not {confirm_s:.0f}: {why} {names} needs more of them"


def _others(above: Point, fit: int) -> str:
    """Return `one more does not`, or `one more is not expected to` if only a short run shows it."""
    sure = above.kept is Compliance.NO or above.stage == "confirm"
    if above.clients == fit + 1:
        return "one more does not" if sure else "one more is not expected to"
    return f"{above.clients} {'do not' if sure else 'are not expected to'}"


def _unproved(found: Capacity) -> int:
    """Return the largest number of clients above the answer that a short run found likely to fit, or 0 if none."""
    top = found.above.clients if found.above else 0
    return max((p.clients for p in found.points if p.fits and found.clients < p.clients < top), default=0)


def aside(found: Capacity) -> list[tuple[str, str]]:
    """Return (label, text) of the throughput of the closed loop and of the figures behind the limit."""
    lines = []
    if isinstance(found.throughput, Measured):
        lines.append(("closed loop", _closed(found, found.throughput.value)))
    if found.above is not None and found.limit.evidence:
        lines.append(
            (f"at {counted(found.above.clients, found.question.client)}", "; ".join(found.limit.evidence))
        )
    return lines


def _closed(found: Capacity, rate: float) -> str:
    """Return a sentence about the closed loop: the maximum of one process, unless a run answered more."""
    count = found.question.base.in_flight
    at_once = "one query" if count == 1 else f"{count} queries"
    text = f"{rate:.4g} queries/s by one process, {at_once} at a time"
    more = max((p.achieved.value for p in found.points if isinstance(p.achieved, Measured)), default=0.0)
    if more > rate * EXCEEDED:
        return f"{text}; not the maximum: {more:.4g}/s were answered under load"
    return text if found.question.server_processes == "per-client" else f"{text}: its maximum"


# -- as data -------------------------------------------------------------------------------------------------


def facts(found: Capacity) -> Mapping[str, Json]:
    """Return {clients, sentence, limit, question, closed_loop, points, warnings}."""
    limit = found.limit
    return {
        "clients": found.clients,
        "sentence": sentence_of(found),
        "limit": {"name": limit.name, "sentence": limit.sentence, "evidence": list(limit.evidence)},
        "question": _question(found.question),
        "closed_loop": found.throughput,
        "confirmed": _plain(found.confirmed) if found.confirmed else None,
        "points": [_plain(p) for p in found.points],
        "warnings": list(found.warnings),
    }


def nothing(result: Result, question: Question) -> Json:
    """Return {clients: null, status, reason, question, result} of the run that showed that no number can be tried."""
    ended = {"status": result.status.value, "reason": result.reason, "question": _question(question)}
    return to_plain({"clients": None, **ended, "result": result.id})


def _question(question: Question) -> dict[str, Json]:
    given = {name: getattr(question, name) for name in ("rate", "server_processes", "arrivals", "confirm_s")}
    return given | {"constraints": [c.text for c in question.constraints], "trial": question.base.to_json()}


def _plain(point: Point) -> dict[str, Json]:
    return {
        "clients": point.clients,
        "stage": point.stage,
        "seconds": round(point.seconds, 3),
        "offered_qps": point.offered,
        "achieved_qps": point.achieved,
        "server_busy": point.busy,
        "wait_growth": point.growth,
        "promises": [_held(h) for h in point.held],
        "fits": point.shown if point.stage == "confirm" else point.fits,
        "kept": point.kept.value,
        "weaker": point.by_figure,
        "why": point.why,
        "status": point.result.status.value,
        "verdict": point.result.verdict.trust.value,
        "result": point.result.id,
    }


def _held(held: Held) -> dict[str, Json]:
    return {
        "constraint": held.constraint.text,
        "value": held.found,
        "bound": held.bound,
        "kept": held.kept.value,
    }


# -- the curve of one constraint ------------------------------------------------------------------------------


def over_clients(found: Capacity, constraint: Constraint) -> Figure | Absent:
    """Return the plot of a constraint over the clients, with whiskers up to the bounds; Absent if nothing was read."""
    spots = [(p, h.found, h.bound) for p in found.points for h in p.held if h.constraint == constraint]
    read = [(p, f.value, b) for p, f, b in spots if isinstance(f, Measured)]
    if not read:
        reasons = [f.reason for _, f, _ in spots if isinstance(f, Absent)]
        return Absent(next(iter(reasons), "no run was judged by it"))
    import plotly.graph_objects as go

    scale = _scale(constraint, [value for _, value, _ in read])
    figure = go.Figure()
    for stage, (run, symbol) in STAGES.items():
        mine = [(p, v * scale.factor, _over(v, b) * scale.factor) for p, v, b in read if p.stage == stage]
        if mine:
            figure.add_trace(_marks(mine, run, symbol, f"{constraint.name}, {scale.unit}"))
    figure.add_hline(y=constraint.limit * scale.factor, line={"color": COLOURS[4], "dash": "dash"})
    if found.clients:
        figure.add_vline(x=found.clients, line={"color": COLOURS[2], "width": 6}, opacity=0.3)
    shown = [v * scale.factor for _, v, _ in read]
    up = axis(
        f"{constraint.name} ({scale.unit}), limit dashed",
        type=axis_kind([*shown, constraint.limit * scale.factor]),
        rangemode="tozero",
    )
    across = axis(f"{found.question.client}s, {found.question.rate:g} queries/s each", rangemode="tozero")
    figure.update_layout(**layout(height=HEIGHT, xaxis=across, yaxis=up, showlegend=True))
    return figure


def _marks(spots: list[tuple[Point, float, float]], run: str, symbol: str, what: str) -> Figure:
    import plotly.graph_objects as go

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
        name=run,
        marker={"symbol": symbol, "size": 10, "color": COLOURS[0], "line": {"color": INK, "width": 1}},
        hovertemplate=f"%{{x}} clients: %{{y:.4g}} ({what})<extra>{run}</extra>",
    )


def _over(value: float, bound: Measured | Absent) -> float:
    return bound.value - value if isinstance(bound, Measured) else 0.0


def _scale(constraint: Constraint, values: list[float]) -> Scale:
    if constraint.quantile is not None:
        return seconds([*values, constraint.limit])
    known = {"W": Scale(1.0, "W"), "J": Scale(1e3, "mJ"), "share": Scale(100.0, "%")}
    return known.get(constraint.metric.unit, Scale(1e-6, "MB"))
