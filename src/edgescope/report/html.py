"""A document as one self-contained page: first the answer, then the evidence that defends it.

Everything is inside the file: the style sheet, plotly.js once, the figures' data. It opens from a memory stick
without a network.

Every text is escaped unless a tag made it: a model's name, an error text or an environment variable may hold
`<script>`. `tag` escapes its children and attributes; only `Markup`, which only `tag`, `join` and `raw` make, passes as
it is.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any

from edgescope import units
from edgescope.metrics import METRICS
from edgescope.records import Absent, Field, Measured
from edgescope.report import document as doc
from edgescope.report.document import (
    DETAIL,
    MAIN,
    PAGE,
    Answer,
    Cell,
    Code,
    Column,
    Document,
    Figure,
    Items,
    Mark,
    Pairs,
    Part,
    Pictures,
    Row,
    Section,
    Table,
    Text,
    Tile,
    Value,
    plain,
)
from edgescope.units import Format

LEVELS = (MAIN, DETAIL, PAGE)
#: The page may not fetch anything from anywhere; plotly writes inline styles and images of its own.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
SAID = "Written by edgescope. All statistics are recomputed from the stored raw rows."
SYMBOLS = {"badge clean": "✓", "badge throttled": "▼", "badge disturbed": "!", "badge unknown": "?"}
#: Kind of a mark -> its element and its class.
ELEMENTS = {
    "strong": ("b", None),
    "code": ("code", None),
    "struck": ("s", None),
    "good": ("span", "ok"),
    "pick": ("span", "chip pick-chip"),
}


CELL = """
.edgescope .ci, .edgescope .unit, .edgescope .why { display: block; font-size: smaller; opacity: .7 }
.edgescope .chip { font-size: smaller; border: 1px solid; border-radius: .6em; padding: 0 .4em; margin-left: .4em }
.edgescope .swatch { display: inline-block; width: .7em; height: .7em; margin-right: .4em }
"""
"""The style of a document in a notebook's cell; tables and text keep the notebook's own style."""


def render(document: Document) -> str:
    """Return the whole page."""
    body = _Page(document).parts(document.parts, 3)
    head = tag("header", tag("h1", document.title))
    plots = bool(doc.every(document.parts, Figure, LEVELS))
    return shell(document.title, join(head, body, _made_by(document)), plots=plots)


def fragment(parts: Sequence[Part]) -> str:
    """Return parts of a document for a notebook's cell, without a script; their style affects nothing else."""
    body = _Page(Document("", tuple(parts), {})).parts(parts, 4)
    return tag("div", tag("style", raw(CELL)), body, class_="edgescope")


def _made_by(document: Document) -> Markup | None:
    """Return the command, or nothing if a part of the document shows it."""
    texts = {part.text for part in doc.every(document.parts, Code, LEVELS)}
    if not document.command or document.command in texts:
        return None
    return tag("section", tag("h3", "Made by"), _code(document.command))


def _code(text: str) -> Markup:
    """Return lines that scroll when they are too long for the page."""
    return tag("pre", tag("code", text), tabindex="0")


def shell(title: str, body: Markup, *, plots: bool) -> str:
    """Return a whole page around `body`: style sheet, footer, and the plotting script if there are plots."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("title", title),
        tag("style", raw(_asset("page.css"))),
    )
    main = tag("main", body, tag("footer", tag("p", SAID)))
    scripts: list[Markup] = []
    if plots:
        from plotly.offline import get_plotlyjs

        scripts = [tag("script", raw(get_plotlyjs())), tag("script", raw(_asset("page.js")))]
    return "<!doctype html>\n" + tag("html", head, tag("body", main, scripts), lang="en") + "\n"


def _picture(png: str, caption: str) -> Markup:
    return tag("figure", tag("img", src=png, alt=caption), tag("figcaption", caption))


def _asset(name: str) -> str:
    return (files("edgescope.report") / name).read_text(encoding="utf-8")


class _Page:
    """The terms that one page defines, for all of its parts."""

    def __init__(self, document: Document) -> None:
        glossaries = (p for p in doc.every(document.parts, Pairs, LEVELS) if p.kind == "glossary")
        self.defined = {k.anchor for p in glossaries for k, _ in p.rows if isinstance(k, Mark)}

    def parts(self, parts: Sequence[Part | None], depth: int) -> Markup:
        """Return parts one after another, with headings of this depth."""
        drawn = [(p, p.draw() if isinstance(p, Figure) else None) for p in doc.shown(parts, LEVELS)]
        absent = [tag("li", f"{p.title}: {f.reason}") for p, f in drawn if isinstance(f, Absent)]  # type: ignore[union-attr]
        out = [self.part(p, f, depth) for p, f in drawn if not isinstance(f, Absent)]
        return join(out, tag("ul", absent, class_="missing") if absent else None)

    def part(self, part: Part, drawn: Any, depth: int) -> Markup:
        """Return one part; `drawn` is the plot of a figure."""
        if isinstance(part, Figure):
            return plotted(part, drawn, f"h{min(depth, 5)}")
        if isinstance(part, Section):
            return self.section(part, depth)
        if isinstance(part, Answer):
            return self.answer(part, depth)
        if isinstance(part, Table):
            return self.table(part)
        if isinstance(part, Pictures):
            return tag("div", [_picture(png, caption) for png, caption in part.items], class_="pictures")
        return self.pairs(part) if isinstance(part, Pairs) else self.lines(part)

    def lines(self, part: Text | Items | Code) -> Markup:
        """Return a paragraph, bullets, or lines to paste."""
        if isinstance(part, Text):
            return tag("p", self.words(part.value), class_=part.kind or None)
        if isinstance(part, Items):
            items = [tag("li", self.words(item)) for item in part.items]
            return _folded(part.title, tag("ul", items, class_=part.kind))
        return _folded(part.title, _code(part.text))

    def section(self, part: Section, depth: int) -> Markup:
        """Return parts under their heading."""
        titled, top = bool(plain(part.title)), part.kind in ("article", "chapter")
        body = self.parts(part.parts, depth + (titled and not top and part.kind != "folded"))
        if part.kind == "folded":
            return tag("details", tag("summary", self.words(part.title)), body)
        kind = "load" if part.kind == "load" else None
        head = tag(f"h{2 if top else min(depth, 5)}", self.words(part.title), class_=kind) if titled else None
        name = part.kind if part.kind in ("article", "nav") else "section"
        return tag(name, head, body, id=part.anchor or None)

    def answer(self, part: Answer, depth: int) -> Markup:
        """Return the card with the answer."""
        tiles = [self.tile(t) for t in part.tiles]
        pick = part.pick if isinstance(part.pick, tuple) else (part.pick,)
        anchor = next((v.anchor for v in pick if isinstance(v, Mark) and v.anchor), None)
        bare = [v.text if isinstance(v, Mark) and v.anchor else v for v in pick if plain(v).strip()]
        return tag(
            "section",
            tag("p", part.word, class_="eyebrow"),
            tag("p", [self.words(v) for v in bare], class_="pick", id=anchor) if bare else None,
            tag("p", part.reason, class_="reason"),
            self.parts(part.more, depth),
            tag("dl", tiles, class_="tiles") if tiles else None,
            class_=f"answer {part.kind}".strip(),
            id=part.anchor or None,
        )

    def tile(self, tile: Tile) -> Markup:
        """Return one figure in large print."""
        small = join([join(tag("br") if i else None, text) for i, text in enumerate(tile.small)])
        value = self.words("n/a" if isinstance(tile.value, Absent) else tile.value)
        if isinstance(tile.value, Absent):  # a sentence in large print would run over its neighbour
            small = join(tile.value.reason, tag("br") if tile.small else None, small)
        if isinstance(tile.value, Measured):
            form = units.column(tile.unit or tile.value.unit, [tile.value])
            unit = f" {form.unit}" if form.unit not in ("", "×") else form.unit
            value = join(form.number(tile.value.value), tag("span", unit, class_="unit"))
        name = self.link(tile.title, tile.to)
        return tag("div", tag("dt", name), tag("dd", value), tag("dd", small, class_="small"))

    def pairs(self, part: Pairs) -> Markup:
        """Return keys and values."""
        rows = [(k, v.value if isinstance(v, Cell) else v) for k, v in part.rows]
        if part.kind == "glossary":
            terms = ((plain(k), k.anchor if isinstance(k, Mark) else None, v) for k, v in rows)
            items = [join(tag("dt", k, id=anchor), tag("dd", self.words(v))) for k, anchor, v in terms]
            return tag("dl", items, class_="glossary")
        pairs = [tag("div", tag("dt", self.words(k)), tag("dd", self.words(v))) for k, v in rows]
        return _folded(part.title, tag("dl", pairs or "nothing was recorded", class_="facts"))

    # -- words -----------------------------------------------------------------------------------------------

    def words(self, value: Value) -> Markup:
        """Return a value in a line of text."""
        if isinstance(value, tuple):
            return join([self.words(v) for v in value])
        if isinstance(value, Mark):
            return self.mark(value)
        return join([join(tag("br") if i else None, text) for i, text in enumerate(plain(value).split("\n"))])

    def mark(self, mark: Mark) -> Markup:
        """Return marked words: a badge, a warning, a link."""
        name, kind = ELEMENTS.get(mark.kind, ("span", mark.kind or None))
        text = f"{SYMBOLS[mark.kind]} {mark.text}" if mark.kind in SYMBOLS else mark.text
        if not mark.text or mark.to:
            return self.link(text, mark.to)
        return tag(name, text, class_=kind, title=mark.about or None, id=mark.anchor or None)

    def link(self, text: str, to: str) -> Markup:
        """Return a link, or plain text if the page lacks its target."""
        known = to and (not to.startswith("def-") or to in self.defined)
        return tag("a", text, href=f"#{to}") if known else join(text)

    # -- tables ----------------------------------------------------------------------------------------------

    def table(self, table: Table) -> Markup:
        """Return a table that stacks into cards on a phone."""
        columns = [(i, c) for i, c in enumerate(table.columns) if c.level in LEVELS]
        forms = {i: table.form(i) for i, _ in columns}
        head = [self.heading(c, forms[i]) for i, c in columns]
        body = [self.row(row, table, columns, forms) for row in table.rows]
        kind = "variants stack" if any(r.key for r in table.rows) else "stack"
        inner = tag("table", tag("thead", tag("tr", head)), tag("tbody", body), class_=kind)
        lead = tag("p", self.words(table.lead), class_="lead") if table.lead else None
        # What scrolls takes the focus, or nobody without a mouse sees its right side.
        named = table.title or "table"
        wide = tag("div", inner, class_="scroll", role="region", tabindex="0", aria_label=named)
        return join(tag("h4", table.title) if table.title else None, lead, wide)

    def heading(self, column: Column, form: Format | None) -> Markup:
        """Return the heading of a column: its name, and its unit below it."""
        unit = column.shown_unit(form)
        name = self.link(column.title, f"def-{column.key}" if column.key in METRICS else "")
        small = tag("span", unit, class_="unit") if unit else None
        return tag("th", name, small, scope="col", class_="num" if form else None)

    def row(
        self, row: Row, table: Table, columns: Sequence[tuple[int, Column]], forms: dict[int, Format | None]
    ) -> Markup:
        """Return one row; its first cell is the heading."""
        out = []
        for i, column in columns:
            given, form = row.cells[i], forms[i]
            cell = given if isinstance(given, Cell) else Cell(given)
            below = tag("div", self.words(cell.below), class_="why") if cell.below else None
            label = column.heading(form)
            if i == columns[0][0]:
                out.append(tag("th", _swatch(row.series), self.words(cell.value), below, scope="row"))
            elif isinstance(cell.value, Measured | Absent) and form is not None:
                out.append(_figure(cell.value, form, label, row.kind == "rejected", table.reasons))
            else:
                kind = "num" if form else None
                out.append(tag("td", self.words(cell.value), below, class_=kind, data_label=label))
        return tag("tr", out, class_=row.kind or None, data_cell=row.key or None)


def _swatch(series: int | None) -> Markup | None:
    if series is None:
        return None
    from edgescope.plots.style import colour

    return tag("span", class_="swatch", style=f"background:{colour(series)}")


def _figure(field: Field, form: Format, label: str, rejected: bool, reasons: bool) -> Markup:
    """Return a cell with a figure and its interval below it; an absent figure shows its reason, or n/a."""
    if isinstance(field, Absent):
        text = units.absence(field) if reasons and not rejected else "n/a"
        return tag("td", text, class_="num absent", data_label=label, title=units.absence(field))
    text = form.number(field.value)
    if form.loses(field):
        form = units.column("share" if form.unit == "%" else field.unit, [field])
        text = form.text(Measured(field.value, field.unit))
    between = form.interval(field)
    value = tag("s" if rejected else "span", text, class_="v")
    small = tag("span", between, class_="ci") if between else None
    return tag("td", value, small, class_="num", data_label=label, title=units.exact(field))


def _folded(title: str, body: Markup) -> Markup:
    return tag("details", tag("summary", title), body) if title else body


def plotted(part: Figure, figure: Any, heading: str = "h3") -> Markup:
    """Return one figure: how to read it, room for the plot, its data."""
    return tag(
        "figure",
        tag(heading, part.title),
        tag("figcaption", part.caption),
        tag("div", id=part.name, class_="plot", style=f"min-height:{int(figure.layout.height)}px"),
        tag("script", island(figure.to_json()), type="application/json", data_plot=part.name),
        id=f"{part.name}-figure",
    )


def island(text: str) -> Markup:
    """Return JSON whose strings cannot end the script element around it."""
    json.loads(text)
    safe = text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    return raw(safe.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


VOID = frozenset({"br", "col", "img", "meta", "hr"})


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | int | Markup | None


def tag(name: str, /, *children: Child | Iterable[Child], **attributes: str | int | bool | None) -> Markup:
    """Return `<name ...>children</name>`; class_ is class, data_x is data-x; None and False are left out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        parts.append(word if value is True else f'{word}="{html.escape(str(value))}"')
    opening = f"<{' '.join(parts)}>"
    return Markup(opening if name in VOID else f"{opening}{join(*children)}</{name}>")


def join(*children: Child | Iterable[Child]) -> Markup:
    """Return the children one after another, strings escaped, None left out."""
    out = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Markup):
            out.append(str(child))
        elif isinstance(child, str | int):
            out.append(html.escape(str(child)))
        else:
            out.append(str(join(*child)))
    return Markup("".join(out))


def raw(text: str) -> Markup:
    """Vouch for `text` being safe: a style sheet or a script of ours."""
    return Markup(text)
