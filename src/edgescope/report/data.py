"""A document for other programs: as JSON, or its tables as CSV, in SI units.

Every figure is unrounded and has its unit, the ends of its interval, n, and why it is absent.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator

from edgescope.metrics import METRICS
from edgescope.records import Absent, Measured
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.report.document import DATA, DETAIL, MAIN, Cell, Column, Document, Mark, Table, Value, plain


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
