"""What an answer says, before anyone knows where it will be read: a Document of parts, which its renderers draw.

    Document(title, parts, data)      data is what a program reads: plain values and fields; JSON prints it, unrounded
    Answer                            what to use, how much faster, how sure: what a hurried reader stops at
    Section(title, parts)             parts under a heading; an `article` on a page, or folded away
    Text, Items, Pairs, Code          a sentence, bullets, key and value, lines to paste
    Table(columns, rows)              a terminal leaves out the columns of the highest rank, or folds them under -v
    Pictures(items)                   small pictures with captions, on a page alone
    Figure                            a page draws it with plotly; a terminal prints its sketch, if it has one

A builder (one file an answer in this package) makes parts. It formats no number that stands alone: a cell holds a
`Measured` or an `Absent`, its column the unit, and a renderer writes it with units.py. Words that mean more than they
say (a verdict, what is struck out) are a `Mark`: its kind says what it is, each renderer how that looks.

Where a part is shown is its level:

    BRIEF   on a terminal without -v alone: what stands for the parts that only -v shows
    MAIN    everywhere
    DETAIL  on a terminal behind -v; in HTML and Markdown always
    PAGE    in HTML alone
    DATA    in CSV alone (a document without a DATA table writes its MAIN and DETAIL tables)

To render: `render.terminal.show(document, verbose=...)` prints, `report.save(document, path)` writes the format of the
suffix, `render.json.text(document)` returns JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar

from edgescope import units
from edgescope.errors import Message
from edgescope.records import Field, Measured, Trust

if TYPE_CHECKING:
    from edgescope.metrics import Metric


class Level(Enum):
    """Where a part is shown."""

    BRIEF = "brief"
    MAIN = "main"
    DETAIL = "detail"
    PAGE = "page"
    DATA = "data"


BRIEF, MAIN, DETAIL, PAGE, DATA = Level


@dataclass(frozen=True)
class Mark:
    """Words with a meaning.

    kind: good, warn, bad, dim, strong, code, struck, chip, pick (a chip), or `badge` and a verdict: `badge clean`.
    """

    text: str
    kind: str = ""
    about: str = ""
    """What hovering says."""
    to: str = ""
    """The anchor that it links to."""
    anchor: str = ""
    """Its own anchor."""


Value = str | int | float | Field | Mark | None | tuple["Value", ...]


@dataclass(frozen=True)
class Cell:
    """A cell of a table, or the value of a key, that is more than one value."""

    value: Value
    below: Value = None
    """What belongs to it, on a line of its own: shown on a page."""
    brief: Value = None
    """What a terminal shows instead without -v; '' leaves a key out."""


@dataclass(frozen=True)
class Column:
    """One column: words where it has no unit, else figures in that SI unit."""

    title: str
    unit: str | None = None
    key: str = ""
    """Its name in a CSV; of a metric, the anchor of its definition."""
    head: str = ""
    """The heading where there is little room."""
    rank: int = 0
    """A narrow terminal leaves out the column with the highest rank first; 0 always stays."""
    level: Level = MAIN
    note: str = ""
    """What a page adds to the unit: the scope of a meter."""
    least: int = 0
    """Characters to which its words are cut before another column is left out; 0: they are not cut for that."""

    @classmethod
    def of(cls, metric: Metric, rank: int = 0, note: str = "") -> Column:
        """Return the column of a metric of the table."""
        return cls(metric.title, metric.unit, metric.name, metric.head, rank, note=note)

    def shown_unit(self, form: units.Format | None) -> str:
        """Return the unit below a heading, of watts and joules with the scope: `W, module`."""
        return ", ".join(filter(None, (form.unit if form else "", self.note)))

    def heading(self, form: units.Format | None) -> str:
        """Return `Median latency (ms)`."""
        unit = self.shown_unit(form)
        return f"{self.title} ({unit})" if unit else self.title


@dataclass(frozen=True)
class Row:
    """One row; its first cell names it."""

    cells: tuple[Value | Cell, ...]
    kind: str = ""
    """picked, rejected (struck out, and no part of a column's scale), dim."""
    key: str = ""
    """What it is of: a cell's id."""
    series: int | None = None
    """Its colour among the figures', 0 the baseline's."""


@dataclass(frozen=True)
class Table:
    """Rows under headings."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""
    lead: Value = None
    """How to read it, on a page."""
    level: Level = MAIN
    reasons: bool = False
    """Whether a page prints why a figure is absent; else on hovering."""
    grid: bool = False
    """Whether the columns of a unit are one quantity, and so have one scale."""

    def form(self, i: int) -> units.Format | None:
        """Return how the figures of a column print; what is rejected sets no scale. None for words."""
        unit = self.columns[i].unit
        if unit is None:
            return None
        usable = [r for r in self.rows if r.kind != "rejected"] or self.rows
        alike = [j for j, c in enumerate(self.columns) if c.unit == unit] if self.grid else [i]
        values = [c.value if isinstance(c, Cell) else c for c in (r.cells[j] for r in usable for j in alike)]
        return units.column(unit, [v for v in values if isinstance(v, Measured)])


@dataclass(frozen=True)
class Tile:
    """One figure of an answer, in large print on a page."""

    title: str
    value: Value
    unit: str = ""
    small: tuple[str, ...] = ()
    to: str = ""


@dataclass(frozen=True)
class Answer:
    """What to use, how much faster, how sure."""

    word: str
    """Use, Keep the baseline, No recommendation ..."""
    pick: Value
    short: tuple[str, ...] = ()
    """Lines of a terminal without -v; elsewhere `reason` says the same in full."""
    reason: str = ""
    tiles: tuple[Tile, ...] = ()
    more: tuple[Part, ...] = ()
    kind: str = ""
    """none where there is no answer, measured where nothing was chosen."""
    anchor: str = ""
    level: Level = MAIN


@dataclass(frozen=True)
class Text:
    """A sentence or a paragraph; kind: lead, warning, or one of Mark's."""

    value: Value
    kind: str = ""
    level: Level = MAIN


@dataclass(frozen=True)
class Items:
    """Bullets; kind: missing, warnings, plain. With a title they are folded away on a page."""

    items: tuple[Value, ...]
    title: str = ""
    kind: str = "plain"
    level: Level = MAIN


@dataclass(frozen=True)
class Pairs:
    """Keys and values; with a title they are folded away on a page.

    kind: facts; glossary, whose keys the values define; card, whose rows have one line each on a terminal without -v.
    """

    rows: tuple[tuple[Value, Value | Cell], ...]
    title: str = ""
    kind: str = "facts"
    level: Level = MAIN


@dataclass(frozen=True)
class Code:
    """Lines to paste."""

    text: str
    title: str = ""
    level: Level = MAIN


@dataclass(frozen=True)
class Figure:
    """A plot: `draw` returns a plotly figure, or Absent with the reason why there is nothing to see."""

    name: str
    """Its anchor: unique on a page."""
    title: str
    caption: str
    draw: Callable[[], Any]
    sketch: Callable[[], Sequence[str]] | None = None
    """The lines that a terminal prints instead."""
    level: Level = PAGE


@dataclass(frozen=True)
class Pictures:
    """Small pictures side by side on a page: data URIs and what stands below each."""

    items: tuple[tuple[str, str], ...]
    level: Level = PAGE


@dataclass(frozen=True)
class Section:
    """Parts under a heading; without a title they only stand together. kind: article, folded, nav."""

    title: Value
    parts: tuple[Part | None, ...]
    kind: str = ""
    anchor: str = ""
    level: Level = MAIN


Part = Answer | Section | Text | Items | Pairs | Table | Code | Figure | Pictures


@dataclass(frozen=True)
class Document:
    """A whole answer."""

    title: str
    parts: tuple[Part | None, ...]
    data: Mapping[str, Any] = field(default_factory=dict)
    """What JSON prints: fields as {value, lo, hi, n, unit} or {absent: reason}."""
    command: str = ""
    """What made it, or would make it again."""
    whole: str = "-v"
    """What to type for the lines that a terminal left out: a flag of the same command, or another command."""


WARNINGS_SAID = 3
"""Warnings that a terminal says without -v; further ones are counted."""


def warnings(found: Sequence[Message], title: str = "") -> tuple[Part, ...]:
    """Return warnings: a terminal without -v says what happened, without evidence, effect and remedy."""
    if not found:
        return ()
    items = Items(tuple(Mark(str(one), "warn") for one in found), kind="warnings", level=DETAIL)
    said = list(dict.fromkeys(f"{one.code}: {one.what}" for one in found))
    more = [f"and {units.counted(len(said) - WARNINGS_SAID, 'more warning')}"]
    said = said[:WARNINGS_SAID] + more * (len(said) > WARNINGS_SAID)
    brief = (Text(text, "warning", BRIEF) for text in said)
    return (Section(title, (items,), level=DETAIL), *brief)


def badge(trust: Trust, evidence: Sequence[str] = ()) -> Mark:
    """Return a verdict; hovering says its evidence."""
    return Mark(trust.value, f"badge {trust.value.lower()}", "; ".join(evidence))


def defined(metric: Metric) -> Mark:
    """Return a metric's name, linked to its definition."""
    return Mark(metric.title, to=f"def-{metric.name}")


def plain(value: Value | Cell) -> str:
    """Return a value as bare words; of a figure, with its unit."""
    if isinstance(value, Cell):
        value = value.value
    if value is None:
        return ""
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Mark):
        return value.text
    if isinstance(value, tuple):
        return "".join(plain(v) for v in value)
    return units.why(value)


def shown(parts: Sequence[Part | None], levels: Sequence[Level]) -> list[Part]:
    """Return the parts of these levels, without sections that are left empty."""
    found: list[Part] = []
    for part in parts:
        if part is None or part.level not in levels:
            continue
        if isinstance(part, Section) and not shown(part.parts, levels):
            continue
        found.append(part)
    return found


Kind = TypeVar("Kind", Table, Figure, Pairs, Code)


def every(parts: Sequence[Part | None], kind: type[Kind], levels: Sequence[Level]) -> list[Kind]:
    """Return the parts of one kind, those within sections too."""
    found: list[Kind] = []
    for part in shown(parts, levels):
        found += every(part.parts, kind, levels) if isinstance(part, Section) else []
        found += [part] if isinstance(part, kind) else []
    return found
