"""The table of a capacity search, its sentence, and both as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from edgescope.analysis.capacity.promises import Point, shown
from edgescope.cli.card import TRUST_STYLE
from edgescope.records import Absent, Json, Measured
from edgescope.records.codec import to_plain
from edgescope.report import terminal
from edgescope.report.capacity_words import aside, fits, sentence_of, sentences

if TYPE_CHECKING:
    from edgescope.analysis.capacity.answer import Capacity
    from edgescope.records import Result
    from edgescope.search.capacity_question import Question


def show(found: Capacity) -> None:
    """Print every run by the number of clients, then the answer in sentences."""
    promises = [s.text for s in found.asked.promised]
    header = ("clients", "run", "offered/s", "answered/s", *promises, "server busy", "fits", "")
    points = sorted(found.points, key=lambda p: (p.clients, p.stage != "search"))
    terminal.table(header, [_row(p, found, len(promises)) for p in points])
    out = terminal.console()
    for warning in found.warnings:
        out.print(Text(str(warning), style="yellow"))
    grid = Table.grid(padding=(0, 2))
    for label, text in aside(found):
        grid.add_row(Text(label, style="dim"), Text(text, style="dim"))
    style = "bold green" if found.clients else "bold red"
    for label, text in sentences(found):
        grid.add_row(Text(label, style=style), Text(text, style="bold" if label == "fits" else ""))
    out.print(grid)


def _row(point: Point, found: Capacity, promised: int) -> list[str | Text]:
    figures = [_figure(point, index) for index in range(promised)]
    answer = point is found.confirmed
    style = "bold green" if answer else "" if point.fits else "dim"
    cells = [
        str(point.clients),
        f"{point.stage} {point.seconds:.0f} s",
        f"{point.offered:.4g}",
        f"{point.achieved.value:.4g}" if isinstance(point.achieved, Measured) else "n/a",
        *figures,
        f"{point.busy.value:.0%}" if isinstance(point.busy, Measured) else "n/a",
        fits(point),
    ]
    trust = point.result.verdict.trust
    return [*(Text(c, style=style) for c in cells), Text(trust.value, style=TRUST_STYLE[trust])]


def _figure(point: Point, index: int) -> str:
    """Return `31.2 ms [33.0]`: the figure and, in brackets, the bound it is judged on."""
    if index >= len(point.held):
        return point.result.status.value
    held = point.held[index]
    if isinstance(held.found, Absent):
        return "n/a"
    mark = "" if held.whole else "<= "
    text = mark + shown(held.found.value, held.asked.metric.unit)
    if held.asked.quantile is None:
        return text
    return text + (
        f" [{shown(held.bound.value, 's')}]" if isinstance(held.bound, Measured) else " [no bound]"
    )


def to_json(found: Capacity, asked: Question) -> dict[str, Json]:
    """Return {clients, sentence, limit, question, closed_loop, points, warnings} as plain JSON values."""
    limit = found.limit
    return {
        "clients": found.clients,
        "sentence": sentence_of(found),
        "limit": {"name": limit.name, "sentence": limit.sentence, "evidence": list(limit.evidence)},
        "question": _asked(asked),
        "closed_loop": to_plain(found.throughput),
        "confirmed": _plain(found.confirmed) if found.confirmed else None,
        "points": [_plain(p) for p in found.points],
        "warnings": [str(w) for w in found.warnings],
    }


def nothing(result: Result, asked: Question) -> dict[str, Json]:
    """Return {clients: null, status, reason, question, result} where a run showed that nothing can be asked."""
    return {
        "clients": None,
        "status": result.status.value,
        "reason": str(result.reason or ""),
        "question": _asked(asked),
        "result": result.id,
    }


def _asked(asked: Question) -> dict[str, Json]:
    return {
        "rate": asked.rate,
        "constraints": [s.text for s in asked.promised],
        "server_processes": asked.server_processes,
        "arrivals": asked.arrivals,
        "confirm_s": asked.confirm_s,
        "trial": asked.base.to_json(),
    }


def _plain(point: Point) -> dict[str, Json]:
    figures = [
        {
            "constraint": h.asked.text,
            "value": to_plain(h.found),
            "bound": to_plain(h.bound),
            "kept": h.kept.value,
        }
        for h in point.held
    ]
    return {
        "clients": point.clients,
        "stage": point.stage,
        "seconds": round(point.seconds, 3),
        "offered_qps": point.offered,
        "achieved_qps": to_plain(point.achieved),
        "server_busy": to_plain(point.busy),
        "wait_growth": to_plain(point.growth),
        "promises": figures,
        "fits": point.shown if point.stage == "confirm" else point.fits,
        "kept": point.kept.value,
        "weaker": point.by_figure,
        "why": point.why,
        "status": point.result.status.value,
        "verdict": point.result.verdict.trust.value,
        "result": point.result.id,
    }
