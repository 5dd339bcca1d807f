"""A document for other programs and pages: as JSON, its tables as CSV, in SI units, or as Markdown.

In JSON and CSV every figure is unrounded and has its unit, the ends of its interval, n, and why it is absent. Markdown
is for a pull request, a README, an issue.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence

from edgescope import units
from edgescope.records import Absent, Measured
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.report.document import (
    DATA,
    DETAIL,
    MAIN,
    Answer,
    Cell,
    Code,
    Column,
    Document,
    Items,
    Mark,
    Pairs,
    Part,
    Row,
    Section,
    Table,
    Text,
    Value,
    plain,
)
from edgescope.units import Format


def json_text(document: Document) -> str:
    """Return the data of a document as JSON."""
    return json.dumps(to_plain(dict(document.data)), indent=1)


def joined_json(name: str, documents: Iterable[Document]) -> str:
    """Return {name: [the data of each document]} as JSON."""
    return json.dumps({name: [to_plain(dict(d.data)) for d in documents]}, indent=1)


def json_file(document: Document) -> str:
    """Return the file."""
    return json_text(document) + "\n"


FIGURE_PARTS = ("", "_lo", "_hi", "_n", "_absent")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would run a text that begins with one of these."""


def csv_file(document: Document) -> str:
    """Return the tables marked as data, or if none is marked the tables that every reader sees."""
    every = doc.every(document.parts, Table, (DATA, MAIN, DETAIL))
    tables = [t for t in every if t.level is DATA] or every
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    for number, table in enumerate(tables):
        if number:
            writer.writerow([])
        fields = [_expanded(c, i, table) for i, c in enumerate(table.columns)]
        writer.writerow(
            [name for c, wide in zip(table.columns, fields, strict=True) for name in _head(c, wide)]
        )
        for row in table.rows:
            writer.writerow([v for cell, w in zip(row.cells, fields, strict=True) for v in _cells(cell, w)])
    return out.getvalue()


def _expanded(column: Column, i: int, table: Table) -> bool:
    """Return whether a column holds figures: it is a metric's, or one of its cells is measured or absent."""
    values = (c.value if isinstance(c, Cell) else c for c in (r.cells[i] for r in table.rows))
    from edgescope.metrics import METRICS  # reads a file that most documents need not

    return (column.key in METRICS and column.unit is not None) or any(
        isinstance(v, Measured | Absent) for v in values
    )


def _head(column: Column, wide: bool) -> Iterator[str]:
    name = column.key or column.title
    yield from (f"{name}{part}" for part in FIGURE_PARTS) if wide else (name,)


def _cells(cell: Value | Cell, wide: bool) -> Iterator[str]:
    value = cell.value if isinstance(cell, Cell) else cell
    if isinstance(value, Measured):
        ends = ["" if end is None else repr(end) for end in (value.lo, value.hi)]
        yield from [repr(value.value), *ends, str(value.n), ""]
    elif isinstance(value, Absent):
        yield from ["", "", "", "", _safe(value.reason)]
    else:
        yield _safe(plain(value)) if isinstance(value, str | Mark | tuple) else plain(value)
        yield from [""] * (len(FIGURE_PARTS) - 1 if wide else 0)


def _safe(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


INTERVALS = "intervals are 95 %, those of power and energy may be the meter's bounds"
LEVELS = (MAIN, DETAIL)


def markdown(document: Document) -> str:
    """Return the whole text."""
    made = f"Made by `{document.command.replace('`', '')}`; {INTERVALS}."
    parts = [f"# {escaped(document.title)}", *_parts(document.parts, 2), made]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, also inside a table cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def _parts(parts: Sequence[Part | None], depth: int) -> Iterator[str]:
    for part in doc.shown(parts, LEVELS):
        yield from _part(part, depth)


def _part(part: Part, depth: int) -> Iterator[str]:
    if isinstance(part, Answer):
        yield escaped(part.reason or f"{part.word} {plain(part.pick)}")
        yield from _parts(part.more, depth)
    elif isinstance(part, Section):
        title = escaped(plain(part.title))
        yield from [f"{'#' * min(depth, 6)} {title}"] if title else []
        yield from _parts(part.parts, depth + bool(title))
    elif isinstance(part, Text):
        yield escaped(plain(part.value))
    elif isinstance(part, Items):
        yield _list([part.title] if part.title else [], part.items)
    elif isinstance(part, Pairs):
        yield "\n".join(f"* {escaped(plain(k))}: {escaped(plain(v))}" for k, v in part.rows)
    elif isinstance(part, Code):
        yield "\n".join(f"    {line}" for line in part.text.splitlines())
    elif isinstance(part, Table):
        yield from _table(part)


def _list(title: Sequence[str], items: Iterable[Value]) -> str:
    return "\n".join([*(f"{escaped(t)}:\n" for t in title), *(f"* {escaped(plain(i))}" for i in items)])


def _table(table: Table) -> Iterator[str]:
    columns = [(i, c) for i, c in enumerate(table.columns) if c.level in LEVELS]
    forms = {i: table.form(i) for i, _ in columns}
    lines = [_line(escaped(c.heading(forms[i])) for i, c in columns)]
    lines.append(_line("---" if forms[i] is None else "---:" for i, _ in columns))
    for row in table.rows:
        lines.append(_line(_cell(row, i, c, forms[i], i == columns[0][0]) for i, c in columns))
    if table.title:
        yield f"**{escaped(table.title)}**"
    yield "\n".join(lines)
    firsts = [(row, row.cells[columns[0][0]]) for row in table.rows]
    below = [f"{_name(c.value)} {plain(c.below)}" for _, c in firsts if isinstance(c, Cell) and c.below]
    if below:
        yield _list([], below)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(row: Row, i: int, column: Column, look: Format | None, first: bool) -> str:
    cell = row.cells[i]
    value, below = (cell.value, cell.below) if isinstance(cell, Cell) else (cell, None)
    if isinstance(value, Absent):
        return "n/a" if row.kind in ("rejected", "dim") else escaped(units.absence(value))
    if isinstance(value, Measured) and look is not None:
        look = units.column(column.unit or "", [value]) if look.loses(value) else look
        between = look.interval(value)
        text = look.number(value.value) + (f" \\[{between}\\]" if between else "")
        return f"~~{text}~~" if row.kind == "rejected" else text
    if not first:
        return _words(value) + (f": {escaped(plain(below))}" if below else "")
    name, chips = escaped(_name(value)), [m.text for m in _marks(value) if m.kind in ("chip", "pick")]
    name = f"~~{name}~~" if row.kind == "rejected" else f"**{name}**" if row.kind == "picked" else name
    return f"{name} ({', '.join(chips)})" if chips else name


def _words(value: Value) -> str:
    """Return a value in a line of text; a rejected one is struck out."""
    if isinstance(value, tuple):
        return "".join(map(_words, value))
    text = " " if value == " " else escaped(plain(value))
    return f"~~{text}~~" if isinstance(value, Mark) and value.kind == "struck" else text


def _marks(value: Value) -> list[Mark]:
    every = value if isinstance(value, tuple) else (value,)
    return [v for v in every if isinstance(v, Mark)]


def _name(value: Value) -> str:
    """Return a name without its chips."""
    every = value if isinstance(value, tuple) else (value,)
    return "".join(plain(v) for v in every if not (isinstance(v, Mark) and v.kind in ("chip", "pick")))
