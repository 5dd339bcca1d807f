"""One self-contained HTML page for a person who must choose and defend: the answer first, the evidence after.

Everything is inside the file: the style sheet, plotly.js once, the figures' data. It opens from a memory
stick without a network. Every text from a result is escaped.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from pathlib import Path

from plotly.offline import get_plotlyjs

from edgescope.analysis.objective import FASTEST, Wanted
from edgescope.records import Result
from edgescope.report.answer import answer
from edgescope.report.before_after import before_after
from edgescope.report.chapter import Chapter, chapters
from edgescope.report.defence import four_numbers, ran_as, trusted, verified
from edgescope.report.figures import figures
from edgescope.report.glossary import TERMS
from edgescope.report.markup import Markup, join, raw, tag
from edgescope.report.provenance import identities, machine, sampler, settings, warnings


def write(
    results: Iterable[Result], path: Path, *, title: str = "", command: str = "", wanted: Wanted = FASTEST
) -> Path:
    """Write the page and return its path; no results give a page that says so."""
    found = chapters(results, wanted)
    page = render(found, title or _title(found), command or made_by(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")
    return path


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
    return found[0].title if len(found) == 1 else f"edgescope report: {len(found)} models and machines"


def made_by(path: Path) -> str:
    """Return the running edgescope command, or the one that would write `path` from the default store."""
    if Path(sys.argv[0]).name == "edgescope":
        return shlex.join(["edgescope", *sys.argv[1:]])
    return shlex.join(["edgescope", "report", "--output", path.name])


def _contents(found: Sequence[Chapter]) -> Markup | None:
    if len(found) < 2:
        return None
    items = []
    for i, chapter in enumerate(found, start=1):
        best = chapter.pick.row.label if chapter.pick.row else "no recommendation"
        items.append(tag("li", tag("a", chapter.title, href=f"#c{i}"), f": {best}"))
    return tag("nav", tag("ul", items), aria_label="Chapters")


def _bodies(found: Sequence[Chapter], command: str) -> Iterator[Markup]:
    for i, chapter in enumerate(found, start=1):
        anchor = f"c{i}"
        heading = tag("h2", chapter.title) if len(found) > 1 else None
        yield tag("article", heading, _parts(chapter, anchor, command), id=anchor)


def _parts(chapter: Chapter, anchor: str, command: str) -> Markup:
    return join(
        answer(chapter, anchor),
        _said(chapter),
        before_after(chapter),
        figures(chapter, anchor),
        verified(chapter),
        trusted(chapter),
        four_numbers(chapter),
        ran_as(chapter),
        machine(chapter),
        settings(chapter),
        warnings(chapter),
        sampler(chapter),
        identities(chapter, command),
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
    items = [join(tag("dt", t.words, id=f"def-{key}"), tag("dd", t.meaning)) for key, t in TERMS.items()]
    return tag(
        "section", tag("h2", "What the numbers mean"), tag("dl", items, class_="glossary"), id="glossary"
    )


def _asset(name: str) -> str:
    return (files("edgescope.report") / name).read_text(encoding="utf-8")
