"""One self-contained HTML page for a person who must choose and defend: the answer first, the evidence after.

Everything is inside the file: the style sheet, plotly.js once, the figures' data. It opens from a memory
stick without a network. Every text from a result is escaped.
"""

from __future__ import annotations

import itertools
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

from plotly.offline import get_plotlyjs

from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.metrics import METRICS
from edgescope.records import Measured, Result
from edgescope.report.answer import answer
from edgescope.report.before_after import before_after
from edgescope.report.chapter import Chapter, chapters
from edgescope.report.defence import four_numbers, grid, ran_as, trusted, verified
from edgescope.report.figures import figures
from edgescope.report.markup import Child, Markup, join, raw, tag
from edgescope.report.numbers import rates, times
from edgescope.report.provenance import identities, machine, sampler, settings, warnings
from edgescope.store import whole_file


def write(
    results: Iterable[Result], path: Path, *, title: str = "", command: str = "", wanted: Wanted = FASTEST
) -> Path:
    """Write the page and return its path; no results give a page that says so."""
    found = chapters(results, wanted)
    page = render(found, title or _title(found), command or made_by(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    return whole_file.write_text(path, page)


def render(found: Sequence[Chapter], title: str, command: str) -> str:
    """Return the whole page."""
    body = join(
        tag("header", tag("h1", title), _contents(found)),
        list(_bodies(found, command)) or [_nothing(command)],
        _glossary(),
    )
    return shell(title, body, plots=bool(found))


def shell(title: str, body: Markup, *, plots: bool) -> str:
    """Return a whole page around `body`: style sheet and footer, and what draws plots where there are any."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", raw(_asset("page.css"))),
    )
    said = "Written by edgescope. All statistics are recomputed from the stored raw rows."
    main = tag("main", body, tag("footer", tag("p", said)))
    scripts = [tag("script", raw(get_plotlyjs())), tag("script", raw(_asset("page.js")))] if plots else []
    return "<!doctype html>\n" + tag("html", head, tag("body", main, scripts), lang="en") + "\n"


#: The page may not fetch anything from anywhere; plotly writes inline styles and images of its own.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def _title(found: Sequence[Chapter]) -> str:
    if not found:
        return "edgescope report: no results"
    titles = {c.title for c in found}
    return found[0].title if len(titles) == 1 else f"edgescope report: {len(titles)} models and machines"


def made_by(path: Path) -> str:
    """Return the running edgescope command, or the one that would write `path` from the default store."""
    if Path(sys.argv[0]).name == "edgescope":
        return shlex.join(["edgescope", *sys.argv[1:]])
    return shlex.join(["edgescope", "report", "--output", path.name])


def _contents(found: Sequence[Chapter]) -> Markup | None:
    """Return one line a load with its answer, where there are several."""
    if len(found) < 2:
        return None
    several = len({c.title for c in found}) > 1
    head = ["Load", *(["Model and machine"] if several else []), "Variants", "Answer"]
    rows = []
    for i, chapter in enumerate(found, start=1):
        link = tag("a", chapter.load, href=f"#c{i}")
        names = [chapter.title] if several else []
        rows.append([link, *names, str(len(chapter.measured)), *_line(chapter)])
    table = grid([*head, "Median", "p99", "Throughput"], rows, numeric=3)
    return tag("nav", table, aria_label="Loads")


def _line(chapter: Chapter) -> list[Child | Markup]:
    """Return the answer of a load and its figures: of the pick, or of the only variant that was measured."""
    row = chapter.pick.row or chapter.alone
    if row is None:
        return ["no recommendation", "", "", ""]
    answer = join(
        row.label.removesuffix(f" {row.trial.load}"),
        tag("span", "measured" if chapter.alone else "pick", class_="chip"),
    )
    figures = ((row["p50_s"], times), (row["p99_s"], times), (row["throughput_sps"], rates))
    bare = [replace(f, lo=None, hi=None) if isinstance(f, Measured) else f for f, _ in figures]
    forms = [form for _, form in figures]
    shown = zip(bare, forms, strict=True)
    return [answer, *(form([f]).text(f) if isinstance(f, Measured) else "n/a" for f, form in shown)]


def _bodies(found: Sequence[Chapter], command: str) -> Iterator[Markup]:
    """Yield an article a model and machine: each load with its answer, then what all of them share."""
    number = 0
    every = [list(g) for _, g in itertools.groupby(found, key=lambda c: (c.model, c.machine.id))]
    for chapters_ in every:
        heading = tag("h2", chapters_[0].title) if len(every) > 1 else None
        loads = []
        for chapter in chapters_:
            number += 1
            loads.append(_load(chapter, f"c{number}", several=len(found) > 1))
        yield tag("article", heading, loads, _shared(chapters_, command))


def _load(chapter: Chapter, anchor: str, *, several: bool) -> Markup:
    """Return one load: its answer and table; of several loads the rest is folded."""
    rest = [verified(chapter), trusted(chapter), four_numbers(chapter), ran_as(chapter), settings(chapter)]
    drawn = figures(chapter, anchor)
    if not several:
        return tag("section", answer(chapter, anchor), before_after(chapter), drawn, rest, id=anchor)
    return tag(
        "section",
        tag("h3", chapter.load, class_="load"),
        answer(chapter, anchor),
        before_after(chapter),
        tag("details", tag("summary", "Plots"), drawn),
        tag("details", tag("summary", "Why these numbers may be believed"), rest),
        id=anchor,
    )


def _shared(found: Sequence[Chapter], command: str) -> Markup:
    """Return what all loads of one model and machine share."""
    groups = {cell: group for c in found for cell, group in c.groups.items()}
    whole = replace(found[0], results=[r for c in found for r in c.results], groups=groups)
    return join(
        _said(whole), machine(whole), warnings(whole), sampler(whole), identities(found, whole, command)
    )


def _said(chapter: Chapter) -> Markup | None:
    """Return what concurrent runs say unasked, or None."""
    said = chapter.remarks
    if not said:
        return None
    lines = tag("ul", [tag("li", line) for line in said], class_="warnings")
    return tag("section", tag("h3", "Concurrent runs"), lines)


def _nothing(command: str) -> Markup:
    text = "There are no results, so nothing can be recommended. Measure first: edgescope optimize MODEL"
    return tag(
        "section", tag("p", text, class_="reason"), tag("pre", tag("code", command)), class_="answer none"
    )


def _glossary() -> Markup:
    told = [m for m in METRICS.values() if m.meaning or m.shown]
    items = [join(tag("dt", m.title, id=f"def-{m.name}"), tag("dd", m.meaning)) for m in told]
    return tag(
        "section", tag("h2", "What the numbers mean"), tag("dl", items, class_="glossary"), id="glossary"
    )


def _asset(name: str) -> str:
    return (files("edgescope.report") / name).read_text(encoding="utf-8")
