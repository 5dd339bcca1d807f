"""A capacity answer as one page that works offline: the sentence, the curve of each promise, every run."""

from __future__ import annotations

from pathlib import Path

from edgescope.analysis.capacity.answer import Capacity
from edgescope.analysis.capacity.promises import Point, words
from edgescope.plots.capacity import over_clients
from edgescope.records import Absent
from edgescope.report import made_by, writable
from edgescope.report.capacity_words import aside, fits, sentence_of
from edgescope.report.figures import plotted
from edgescope.report.html import shell
from edgescope.report.markup import Markup, join, tag
from edgescope.store import whole_file

SUFFIXES = (".html",)
CAPTION = (
    "A whisker ends at the upper bound of the quantile, which is what counts; a mark without one had too few queries. "
    "The green line is the answer."
)


def write(found: Capacity, path: Path, command: str = "") -> Path:
    """Write the page and return its path."""
    writable(path, SUFFIXES)
    return whole_file.write_text(path, page(found, command or made_by(path)))


def page(found: Capacity, command: str) -> str:
    """Return the whole page."""
    title = f"Capacity: {found.asked.subject}"
    rests_on = [tag("li", f"{label}: {text}") for label, text in aside(found)]
    body = join(
        tag("header", tag("h1", title)),
        tag("section", tag("p", sentence_of(found), class_="reason"), class_="answer"),
        [_plot(found, number) for number in range(len(found.asked.promised))],
        tag("section", tag("h3", "What it rests on"), tag("ul", rests_on)),
        _runs(found),
        _warnings(found),
        tag("section", tag("h3", "Made by"), tag("pre", tag("code", command))),
    )
    return shell(title, body, plots=True)


def _plot(found: Capacity, number: int) -> Markup:
    promise = found.asked.promised[number]
    figure = over_clients(found, promise)
    if isinstance(figure, Absent):
        return tag("p", f"{promise.text}: {figure.reason}", class_="missing")
    return plotted(f"promise-{number}", promise.text, CAPTION, figure, "h4")


def _runs(found: Capacity) -> Markup:
    head = tag("tr", [tag("th", h) for h in ("clients", "run", "offered/s", "promises", "fits", "verdict")])
    points = sorted(found.points, key=lambda p: (p.clients, p.stage != "search"))
    table = tag("table", tag("thead", head), tag("tbody", [_run(p) for p in points]))
    return tag("section", tag("h3", "Every run"), table)


def _run(point: Point) -> Markup:
    cells = (
        str(point.clients),
        f"{point.stage} {point.seconds:.0f} s",
        f"{point.offered:.4g}",
        "; ".join(words(h) for h in point.held) or point.why,
        fits(point),
        point.result.verdict.trust.value,
    )
    return tag("tr", [tag("td", c) for c in cells])


def _warnings(found: Capacity) -> Markup | None:
    if not found.warnings:
        return None
    return tag("section", tag("h3", "To know"), tag("ul", [tag("li", w) for w in found.warnings]))
