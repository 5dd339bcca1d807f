"""The document of an offload decision: the answer, what would change it, every option, a map of networks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from edgescope import metrics, units
from edgescope.metrics import Metric
from edgescope.plots.style import COLOURS, INK, Figure, axis, layout, log_ticks
from edgescope.records import Absent, Json
from edgescope.report import document as doc
from edgescope.units import counted
from edgescope.wings.offload.answer import Point, Question
from edgescope.wings.offload.model import QUANTILES, Option
from edgescope.wings.offload.network import Profile

CAPTION = (
    "Above a line the cloud is better, or good enough; a line ends where no bandwidth helps, because round trip and "
    "remote service alone take too long. Bandwidth down moves in proportion."
)
FIELDS = (*QUANTILES, "throughput_sps", "energy_per_sample_j", "accuracy")
"""The metrics of an option."""
EQUAL, FITS = COLOURS[0], COLOURS[1]
FLIPPED = {
    "edge": "the edge answers",
    "cloud": "the cloud answers",
    "neither": "neither keeps the constraints",
}


def document(found: Question, command: str, *, written: str = "") -> doc.Document:
    """Return the document; `written` is the file of the report, or ''."""
    sides = (("edge", found.model.local), ("cloud", found.model.remote))
    places = [
        (side, f"{p.row.trial.model.partition('#')[0]} {p.row.label} on {p.machine}, {p.service.n:,} queries")
        for side, p in sides
    ]
    lines = (*absences(found), *found.notes)
    rests = (
        doc.Pairs((*places, ("network", network(found.network)))),
        doc.Items(lines, kind="missing") if lines else None,
    )
    parts = (
        _answer(found),
        doc.Figure(
            "break-even", "Break-even", CAPTION, partial(break_even, found), partial(_map, found), doc.DETAIL
        ),
        doc.Text(doc.Mark(_warned(found.notes), "warn"), level=doc.BRIEF) if found.notes else None,
        doc.Section("What was weighed", (_options(found),)),
        doc.Section("What this rests on", rests, level=doc.DETAIL),
        doc.Pairs((("report", written),)) if written else None,
        _curve(found),
    )
    return doc.Document(
        f"Edge or cloud: {found.model.local.row.trial.model}", parts, facts(found, command), command
    )


def _warned(notes: Sequence[str]) -> str:
    """Return in one line what the answer rests on: how many notes there are, and what each says first."""
    short = [re.split(r" \(|\. |; |: ", re.sub(r"^W-[A-Z]+-\d+: ", "", note))[0] for note in notes]
    return f"{counted(len(notes), 'remark')}: {'; '.join(short)} (-v)"


def _answer(found: Question) -> doc.Answer:
    chosen, why = found.answer.pick, found.answer.reason
    lines = doc.Items((*flips(found), *borders(found)), kind="missing", level=doc.DETAIL)
    short = (why, *flips(found)[:1])
    if chosen is None:
        return doc.Answer("Infeasible", "", short, why, more=(lines,), kind="none")
    return doc.Answer("Use", pick(chosen), short, why, more=(lines,))


def _shown() -> list[Metric]:
    return [m for m in metrics.shown("table") if m.name in FIELDS and not m.artifact]


def _options(found: Question) -> doc.Table:
    columns = (
        *(doc.Column.of(m, rank=i) for i, m in enumerate(_shown())),
        doc.Column("Busiest", head="busiest", rank=5),
    )
    head = (doc.Column("Answered", head="answered"), *columns, doc.Column("From", head="from", rank=6))
    return doc.Table(head, tuple(_row(found, o) for o in found.answer.options))


def _row(found: Question, option: Option) -> doc.Row:
    most = max(option.busy, key=lambda b: b[1], default=None)
    busy = ", ".join(f"{what} busy {share:.0%}" for what, share in option.busy)
    cells: tuple[doc.Value | doc.Cell, ...] = (
        doc.Cell(option.words, "; ".join((*option.broken, busy)).strip("; ") or None),
    )
    cells += tuple(option.figures[m.name] for m in _shown())
    cells += (f"{most[0]} {most[1]:.0%}" if most else "", "modelled" if option.modelled else "measured")
    kind = "picked" if option is found.answer.pick else "rejected" if option.broken else ""
    return doc.Row(cells, kind)


def _curve(found: Question) -> doc.Table:
    """Return the curve as data; an empty cell means that no bandwidth is enough, 0 that any bandwidth is."""
    names = ("rtt_s", f"equal_{found.curve.quantity}_up_bps", "keeps_constraints_up_bps")
    rows = tuple(doc.Row((p.rtt_s, p.equal_bps, p.fits_bps)) for p in found.curve.points)
    return doc.Table(tuple(doc.Column(name, key=name) for name in names), rows, level=doc.DATA)


# -- in words ------------------------------------------------------------------------------------------------


def rate(bps: float) -> str:
    """Return bits per second as `20 Mbit/s`."""
    return units.text(bps, "bit/s")


def time(seconds: float) -> str:
    """Return seconds as `20 ms`."""
    return units.text(seconds, "s")


def network(of: Profile) -> str:
    """Return the network in one line."""
    spread = f", jitter {time(of.jitter_s)}" if of.jitter_s and not of.rtt_samples_s else ""
    spread = f", {len(of.rtt_samples_s)} samples" if of.rtt_samples_s else spread
    loss = "n/a" if of.loss_absent else f"{of.loss:.2%}"
    return f"RTT {time(of.rtt_s)}{spread}, up {rate(of.up_bps)}, down {rate(of.down_bps)}, loss {loss} ({of.source})"


def answered(found: Question) -> str:
    """Return the answer in a few words; `none: infeasible` if nothing keeps the constraints."""
    return pick(found.answer.pick) if found.answer.pick else "none: infeasible"


def pick(chosen: Option) -> str:
    """Return an option in a few words."""
    return {
        "edge": "edge: answer where the query is",
        "cloud": "cloud: send every query",
        "boards": f"split over {chosen.boards} boards at the edge",
        "split": f"split: {1 - chosen.share:.0%} at the edge, {chosen.share:.0%} in the cloud",
    }[chosen.name]


def flips(found: Question) -> list[str]:
    """Return a line for each bandwidth or round trip that changes the choice of edge or cloud, or that none does."""
    goal = found.model.wanted.goal.best
    out = [
        f"with {'less than' if f.below else 'more than'} {rate(f.at)} up, {FLIPPED[f.becomes]} ({goal})"
        if f.what == "bandwidth"
        else f"with a round trip {'below' if f.below else 'above'} {time(f.at)}, {FLIPPED[f.becomes]} ({goal})"
        for f in found.flips
    ]
    left = {"bandwidth", "rtt"} - {f.what for f in found.flips}
    if left == {"bandwidth", "rtt"}:
        return ["no bandwidth alone and no round trip alone changes the choice between edge and cloud"]
    if left:
        out.append(f"no {'bandwidth' if 'bandwidth' in left else 'round trip'} alone changes it")
    return out


def borders(found: Question) -> list[str]:
    """Return a line for each border of the curve that says where it ends."""
    curve, out = found.curve, []
    if isinstance(curve.edge_s, Absent):
        out.append("the edge cannot carry this load: any network over which the cloud can is better")
    elif curve.equal_ends_s is None:
        out.append(f"the cloud's {curve.quantity} does not reach the edge's at any bandwidth or round trip")
    else:
        out.append(
            f"break-even: the cloud's {curve.quantity} can match the edge's {time(curve.edge_s.value)} "
            f"up to a round trip of {time(curve.equal_ends_s)}, given the bandwidth"
        )
    if found.model.wanted.constraints:
        limits = " and ".join(c.text for c in found.model.wanted.constraints)
        ends = curve.fits_ends_s
        out.append(
            f"the cloud keeps {limits} over no network"
            if ends is None
            else f"the cloud keeps {limits} up to a round trip of {time(ends)}, given the bandwidth"
        )
    return out


def absences(found: Question) -> list[str]:
    """Return the reasons why figures of the table are n/a, each once."""
    reasons: dict[str, list[str]] = {}
    for option in found.answer.options:
        for metric in _shown():
            field = option.figures[metric.name]
            if isinstance(field, Absent) and not any(field.reason in text for text in option.broken):
                reasons.setdefault(f"{metric.head}: {field.reason}", []).append(option.words)
    return [f"{', '.join(where)}: {reason}" for reason, where in reasons.items()]


def probed(profile: Profile, keys: Mapping[str, Any]) -> tuple[doc.Text | doc.Table, ...]:
    """Return the parts that show what a probe measured."""
    rows = (
        ("round trip", profile.rtt_samples_s, "s"),
        ("up", profile.up_samples_bps, "bit/s"),
        ("down", profile.down_samples_bps, "bit/s"),
    )
    heads = tuple(doc.Column(name) for name in ("", "median", "p99 or least", "range", "samples"))
    body = tuple(doc.Row((name, *_spread(samples, unit), len(samples))) for name, samples, unit in rows)
    loss = f"loss: n/a ({profile.loss_absent}); {'; '.join(keys['evidence'])}"
    return doc.Text(profile.source, "dim"), doc.Table(heads, body), doc.Text(loss, "dim")


def _spread(samples: Sequence[float], unit: str) -> list[str]:
    """Return median, p99 (or the least, for fewer than 100 samples), and range."""
    tail = min(samples) if len(samples) < 100 else float(np.quantile(samples, 0.99))
    middle, tail_said, least, most = (
        units.text(value, unit) for value in (float(np.median(samples)), tail, min(samples), max(samples))
    )
    return [middle, tail_said, f"{least} to {most}"]


# -- the map of a terminal -----------------------------------------------------------------------------------

LEVELS = 9
"""Rows of the map."""
WIDE = 4
"""Characters of one round trip in the map."""
BETTER, WILL_DO, WILL_NOT, HERE = "█", "░", "·", "◆"


def _map(found: Question) -> list[str]:
    """Return the lines of the map, with round trip across and bandwidth upwards, and its legend."""
    points = found.curve.points
    ends = [b for p in points for b in (p.equal_bps, p.fits_bps) if b]
    here = found.network.up_bps
    low, high = math.log10(min([here, *ends]) / 2), math.log10(max([here, *ends]) * 2)
    rtt = max(found.network.rtt_s, 1e-6)
    column = min(range(len(points)), key=lambda i: abs(math.log(points[i].rtt_s / rtt)))
    levels = [low + (high - low) * i / (LEVELS - 1) for i in range(LEVELS)][::-1]
    row = min(range(LEVELS), key=lambda i: abs(levels[i] - math.log10(here)))
    out = []
    for i, level in enumerate(levels):
        cells = "".join(_cell(p.equal_bps, p.fits_bps, 10**level) * WIDE for p in points)
        if i == row:
            cells = cells[: column * WIDE + 1] + HERE + cells[column * WIDE + 2 :]
        out.append(f"{rate(10**level):>12} {cells}")
    labels = "".join(f"{time(p.rtt_s):<{2 * WIDE}}" for p in points[::2])
    limits = " and ".join(c.text for c in found.model.wanted.constraints)
    legend = [f"{BETTER} cloud's {found.curve.quantity} at or below the edge's"]
    legend.append(f"{WILL_DO} cloud slower" + (f", yet keeps {limits}" if limits else ""))
    legend += [f"{WILL_NOT} cloud will not do"] if limits or found.model.request.rate else []
    return [
        *out,
        f"{'up / RTT':>12} {labels}",
        *(f"{'':12} {text}" for text in (*legend, f"{HERE} this network")),
    ]


def _cell(equal: float | None, fits: float | None, bps: float) -> str:
    if fits is None or bps < fits:
        return WILL_NOT
    return BETTER if equal is not None and bps >= equal else WILL_DO


# -- as data -------------------------------------------------------------------------------------------------


def facts(found: Question, command: str) -> dict[str, Json]:
    """Return {answer, reason, options, flips, curve, network, request, places, notes, command}."""
    sides = (("edge", found.model.local), ("cloud", found.model.remote))
    told = [f.name for f in fields(Profile) if "samples" not in f.name]
    return {
        "answer": found.answer.pick.name if found.answer.pick else None,
        "reason": found.answer.reason,
        "options": [_option(o) for o in found.answer.options],
        "flips": list(found.flips),
        "curve": found.curve,
        "network": {name: getattr(found.network, name) for name in told},
        "request": found.model.request,
        "places": [
            {"side": side, "machine": p.machine, "cell": p.row.cell, "variant": p.row.label}
            | {"model": p.row.trial.model}
            for side, p in sides
        ],
        "notes": list(found.notes),
        "command": command,
    }


def _option(option: Option) -> dict[str, Json]:
    out: dict[str, Json] = {"name": option.name, "words": option.words, "fits": option.fits}
    out |= {
        "from": "modelled" if option.modelled else "measured",
        "boards": option.boards,
        "share": option.share,
    }
    out |= {"broken": list(option.broken), "busy": dict(option.busy)}
    return out | {name: option.figures[name] for name in FIELDS}


# -- the figure -----------------------------------------------------------------------------------------------


def break_even(found: Question) -> Figure:
    """Return the figure; a border without points is not drawn."""
    import plotly.graph_objects as go

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
