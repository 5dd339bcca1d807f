"""A document on a terminal: the answer first, one line for each row; without -v about LINES lines of WIDTH columns.

A table that is too wide leaves out the columns of the highest rank; -v prints them below, under the same names. A
number is never broken. Only the standard library is imported here: a card must not wait for a layout engine.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from edgescope import units
from edgescope.process import said
from edgescope.records import Absent, Measured
from edgescope.report import document as doc
from edgescope.report.document import (
    BRIEF,
    DETAIL,
    MAIN,
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
    Row,
    Section,
    Table,
    Text,
    Value,
    plain,
)

LINES, WIDTH = 16, 80
GAP = "  "
_NARROWEST = 12
"""The least width of a column when a table of words is squeezed."""

Words = list[tuple[str, str]]
"""One line: texts with their styles."""

_CODES = {"bold": 1, "dim": 2, "strike": 9, "red": 31, "green": 32, "yellow": 33, "cyan": 36, "magenta": 35}
#: Kind of a mark, or of a text -> how it looks.
_LOOKS = {
    "good": "green",
    "bad": "bold red",
    "warn": "yellow",
    "warning": "yellow",
    "lead": "dim",
    "dim": "dim",
    "strong": "bold",
    "struck": "strike dim",
    "name": "cyan",
    "badge clean": "green",
    "badge disturbed": "yellow",
    "badge throttled": "red",
    "badge unknown": "dim",
}
_ROWS = {"picked": "bold green", "rejected": "dim", "dim": "dim"}
_CHIPS = ("chip", "pick")


def show(document: Document, *, verbose: bool = False, limit: int | None = LINES) -> None:
    """Print a document on stdout; without -v at most `limit` lines."""
    for line in lines(document, width(), verbose=verbose, limit=limit):
        print(painted(line))


def listing(document: Document, *, verbose: bool = False) -> None:
    """Print all rows: as wide as the terminal, or at full width if stdout is a file."""
    wide = width() if sys.stdout.isatty() else 10_000
    print("\n".join(painted(line) for line in lines(document, wide, verbose=verbose, limit=None)))


def width() -> int:
    """Return the columns of the terminal, or WIDTH if output goes to a file."""
    return max(40, shutil.get_terminal_size((WIDTH, 24)).columns) if sys.stdout.isatty() else WIDTH


def painted(line: Words) -> str:
    """Return a line as text, with colours if stdout is a terminal."""
    if not sys.stdout.isatty() or "NO_COLOR" in os.environ:
        return "".join(text for text, _ in line).rstrip()
    return "".join(_coloured(text, style) for text, style in line)


def _coloured(text: str, style: str) -> str:
    codes = ";".join(str(_CODES[word]) for word in style.split() if word in _CODES)
    return f"\x1b[{codes}m{text}\x1b[0m" if codes else text


def lines(
    document: Document, wide: int = WIDTH, *, verbose: bool = False, limit: int | None = LINES
) -> list[Words]:
    """Return the lines of a document; without -v prose is left out, then rows of tables, until `limit` holds.

    What is needed stays, however much it is: the answer, warnings, the rows of the pick and the baseline, files.
    """
    levels = (MAIN, DETAIL) if verbose else (BRIEF, MAIN)
    found = list(_drawn(document.parts, wide, levels))
    if not verbose and limit is not None:
        found = _shortened(found, limit, document.whole)
    return [line for block in found for line in block.lines]


class Need(IntEnum):
    """How much a reader needs some lines; the greatest goes first where there is little room."""

    ALWAYS, ROW, PROSE, FURTHER_ROW = range(4)


class Block(NamedTuple):
    """Lines that are shown or left out together."""

    need: Need
    lines: list[Words]


def _shortened(found: Sequence[Block], limit: int, whole: str) -> list[Block]:
    """Return the blocks that are needed most; where the last of the others stood, how much was left out."""
    order = sorted((i for i, b in enumerate(found) if b.need), key=lambda i: (found[i].need, i))
    gone: set[int] = set()
    while order and sum(len(b.lines) for i, b in enumerate(found) if i not in gone) + bool(gone) > limit:
        gone.add(order.pop())
    if not gone:
        return list(found)
    prose = sum(len(found[i].lines) for i in gone if found[i].need is Need.PROSE)
    rows = sum(found[i].need is not Need.PROSE for i in gone)
    counts = [units.counted(n, word) for word, n in (("row", rows), ("line", prose)) if n]
    note = Block(Need.ALWAYS, [[(f"and {' and '.join(counts)} more: {whole}", "dim")]])
    kept = [(i, b) for i, b in enumerate(found) if i not in gone]
    return [b for _, b in sorted([*kept, (max(gone), note)], key=lambda each: each[0])]


def _drawn(parts: Sequence[Part | None], wide: int, levels: Sequence[doc.Level]) -> Iterator[Block]:
    before: Part | None = None
    for part in doc.shown(parts, levels):
        found = [b for b in _part(part, wide, levels) if b.lines]
        verbose = DETAIL in levels
        apart = isinstance(part, Table | Section) or (
            verbose and isinstance(before, Table | Section | Answer)
        )
        if found and before is not None and apart and (verbose or isinstance(before, Answer)):
            found[0] = Block(found[0].need, [[], *found[0].lines])
        yield from found
        before = part if found else before


def _part(part: Part, wide: int, levels: Sequence[doc.Level]) -> Iterator[Block]:
    verbose = DETAIL in levels
    if isinstance(part, Answer):
        yield from _answer(part, wide, levels)
    elif isinstance(part, Section):
        if verbose and (title := plain(part.title)):
            yield Block(Need.ALWAYS, wrapped([(title, "bold")], wide))
        yield from _drawn(part.parts, wide, levels)
    elif isinstance(part, Text):
        styled = _styled(part.value, _LOOKS.get(part.kind, ""))
        hang = said.HANG if said.MESSAGE.match("".join(text for text, _ in styled)) else ""
        yield Block(_need(part), wrapped(styled, wide, hang))
    elif isinstance(part, Items):
        need = Need.ALWAYS if part.kind in NEEDED else Need.PROSE
        yield Block(need, [[(part.title, "bold")]] if part.title else [])
        yield from (Block(need, wrapped([("- ", "dim"), *_styled(item)], wide, "  ")) for item in part.items)
    elif isinstance(part, Pairs):
        yield from (Block(Need.ALWAYS, lines) for lines in _pairs(part, wide, verbose))
    elif isinstance(part, Table):
        yield from _table(part, wide, verbose)
    elif isinstance(part, Code):
        yield Block(Need.ALWAYS, [[(f"  {line}", "")] for line in part.text.splitlines()])
    elif isinstance(part, Figure) and part.sketch is not None:
        yield Block(Need.PROSE, [[(line, "")] for line in part.sketch()])


NEEDED = ("warning", "warnings", "strong")
"""Kinds of texts and bullets that are never left out."""


def _need(part: Text) -> Need:
    """Return PROSE for what only explains; a name, a warning and what a Mark colours as one stay."""
    marked = isinstance(part.value, Mark) and part.value.kind in ("warn", "bad")
    return Need.ALWAYS if part.kind in NEEDED or marked else Need.PROSE


def _answer(part: Answer, wide: int, levels: Sequence[doc.Level]) -> Iterator[Block]:
    style = "bold red" if part.kind == "none" else "bold green"
    named = bool(plain(part.pick))
    word = f"{part.word}  " if part.word and named else part.word
    head = wrapped([(word, style), *_styled(part.pick, "bold" if part.word else style)], wide)
    yield Block(Need.ALWAYS, head)
    sentences = part.short if DETAIL not in levels or not part.reason else (part.reason,)
    for number, text in enumerate(sentences):
        yield Block(Need.PROSE if number else Need.ALWAYS, wrapped([(text, "")], wide))
    yield from _drawn(part.more, wide, levels)


def _pairs(part: Pairs, wide: int, verbose: bool) -> Iterator[list[Words]]:
    if part.title:
        yield [[(part.title, "bold")]]
    rows = [(plain(key), _said(value, verbose)) for key, value in part.rows]
    indent = max((len(key) for key, value in rows if value != ""), default=0) + len(GAP)
    for key, value in rows:
        if value != "":
            yield wrapped([(key.ljust(indent), "dim"), *_styled(value)], wide, " " * indent)


def _said(value: Value | Cell, verbose: bool) -> Value:
    """Return what a cell shows."""
    if not isinstance(value, Cell):
        return value
    return value.value if verbose or value.brief is None else value.brief


# -- words ---------------------------------------------------------------------------------------------------


def _styled(value: Value, style: str = "") -> Words:
    """Return a value as words with the styles of its marks."""
    if isinstance(value, tuple):
        return [word for v in value for word in _styled(v, style)]
    if isinstance(value, Mark):
        return [(value.text, _LOOKS.get(value.kind, style))]
    text = plain(value)
    return [(text, style)] if text else []


def wrapped(words: Words, wide: int, indent: str = "") -> list[Words]:
    """Return words as lines of at most `wide` columns.

    A value stays with its unit, and an interval and a command to paste in one piece.
    """
    text = "".join(part for part, _ in words)
    styles = [style for part, style in words for _ in part]
    held = said.held(text, wide - len(indent))
    held = re.sub(
        r"\[[^\[\]]{1,40}\]|\d (?=[A-Za-z%]{1,9}\b|%)", lambda m: m[0].replace(" ", said.HELD), held
    )
    out: list[Words] = []
    at = 0
    for line in textwrap.wrap(
        held, wide, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]:
        bare = line.replace(said.HELD, " ")
        body = bare[len(indent) :] if out else bare
        start = text.find(body, at) if body else at
        runs: Words = [(indent, "")] if out and indent else []
        for i, letter in enumerate(body):
            style = styles[start + i] if start >= 0 else ""
            if runs and runs[-1][1] == style:
                runs[-1] = (runs[-1][0] + letter, style)
            else:
                runs.append((letter, style))
        at = start + len(body) if start >= 0 else at
        out.append(runs)
    return out


# -- tables --------------------------------------------------------------------------------------------------

Grid = list[list[tuple[str, str]]]
"""Rows of cells, each a text and its style; the first row is the heading."""


def _table(table: Table, wide: int, verbose: bool) -> Iterator[Block]:
    if table.title and verbose:
        yield Block(Need.ALWAYS, wrapped([(table.title, "bold")], wide))
    rows = table.rows
    columns = [c for c in table.columns if c.level in (MAIN, DETAIL if verbose else BRIEF)]
    kept = [table.columns.index(c) for c in columns]
    grid: Grid = [[(c.head or c.title, "bold") for c in columns] + [("", "")]]
    for row in rows:
        cells = [_cell(row.cells[i], table.columns[i], row, verbose) for i in kept]
        grid.append([*cells, _mark(row)])
    columns.append(Column(""))  # what the row is: pick, baseline
    if not any(cells[-1][0] for cells in grid):
        columns, grid = columns[:-1], [cells[:-1] for cells in grid]
    needs = [Need.ALWAYS, *_row_needs(rows)]
    yield from _blocks(columns, grid, needs, wide, verbose)
    for row in rows if verbose else ():
        first = row.cells[0]
        if isinstance(first, Cell) and first.below:
            name = "".join(plain(w) for w in _flat(first.value) if not _chip(w))
            yield Block(Need.ALWAYS, wrapped([(f"{name}: ", "bold"), *_styled(first.below)], wide, GAP))


FIRST_ROWS = 4
"""Rows of a table that are worth more than prose."""


def _row_needs(rows: Sequence[Row]) -> list[Need]:
    """Return which rows always stay: the pick and the baseline; in a table without them the first one."""
    named = [row.kind == "picked" or _stays(row) for row in rows]
    named = named if any(named) else [not i for i in range(len(rows))]
    others = [Need.ROW if i < FIRST_ROWS else Need.FURTHER_ROW for i in range(len(rows))]
    return [Need.ALWAYS if stays else other for stays, other in zip(named, others, strict=True)]


def _stays(row: Row) -> bool:
    """Return whether it is the baseline, or the nearest to being faster."""
    first = row.cells[0].value if isinstance(row.cells[0], Cell) else row.cells[0]
    return any(
        isinstance(w, Mark) and w.kind == "chip" and w.text in ("baseline", "nearest") for w in _flat(first)
    )


def _cell(cell: Value | Cell, column: Column, row: Row, verbose: bool) -> tuple[str, str]:
    value = _said(cell, verbose)
    style = _ROWS.get(row.kind, "")
    if isinstance(value, Measured | Absent):
        return units.cell(value, column.unit or "", interval=verbose), style
    if isinstance(value, float) and column.unit is not None:
        return units.cell(Measured(value, column.unit), column.unit), style
    words = [w for w in _flat(value) if not _chip(w)]
    own = next((_LOOKS[w.kind] for w in words if isinstance(w, Mark) and w.kind in _LOOKS), "")
    return "".join(plain(w) for w in words), own if own and row.kind != "rejected" else style


def _mark(row: Row) -> tuple[str, str]:
    """Return the text of the chips beside the name: `pick`, `baseline`, `rejected`."""
    first = row.cells[0].value if isinstance(row.cells[0], Cell) else row.cells[0]
    chips = [plain(w) for w in _flat(first) if _chip(w)] + ["rejected"] * (row.kind == "rejected")
    return ", ".join(chips), _ROWS.get(row.kind, "")


def _chip(value: Value) -> bool:
    return isinstance(value, Mark) and value.kind in _CHIPS


def _flat(value: Value) -> list[Value]:
    return [w for v in value for w in _flat(v)] if isinstance(value, tuple) else [value]


def _blocks(
    columns: list[Column], grid: Grid, needs: Sequence[Need], wide: int, verbose: bool
) -> Iterator[Block]:
    """Yield the table row by row; columns that do not fit stand below it (-v), or are left out."""
    every = list(range(len(columns)))
    kept = _fitting(columns, grid, every, wide)
    yield from map(Block, needs, _lines(columns, grid, kept, wide, verbose))
    left = [i for i in every if i not in kept]
    while left and verbose:
        kept = _fitting(columns, grid, [0, *left], wide)
        kept = kept if len(kept) > 1 else [0, left[0]]
        yield Block(Need.ALWAYS, [[]])
        yield from map(Block, needs, _lines(columns, grid, kept, wide, verbose))
        left = [i for i in left if i not in kept]


def _fitting(columns: Sequence[Column], grid: Grid, among: Sequence[int], wide: int) -> list[int]:
    """Return the columns that fit, without those of the highest ranks."""
    kept = list(among)
    while _least(columns, grid, kept) > wide:
        loose = [i for i in kept[1:] if columns[i].rank]
        if not loose:
            break
        kept.remove(max(loose, key=lambda i: (columns[i].rank, i)))
    return kept


def _widths(grid: Grid, kept: Sequence[int]) -> list[int]:
    return [max(len(line) for cells in grid for line in cells[i][0].split("\n")) for i in kept]


def _least(columns: Sequence[Column], grid: Grid, kept: Sequence[int]) -> int:
    """Return the width of a table whose words are cut as far as their columns allow."""
    sizes = zip(_widths(grid, kept), (columns[i].least for i in kept), strict=True)
    return sum(min(size, least or size) for size, least in sizes) + len(GAP) * (len(kept) - 1)


def _lines(
    columns: Sequence[Column], grid: Grid, kept: Sequence[int], wide: int, verbose: bool
) -> Iterator[list[Words]]:
    """Yield the lines of each row of the grid."""
    sizes = _squeezed(columns, kept, _widths(grid, kept), wide)
    for cells in grid:
        parts = [_folded(cells[i][0], size, verbose) for i, size in zip(kept, sizes, strict=True)]
        out: list[Words] = []
        for number in range(max(len(p) for p in parts)):
            line: Words = []
            for i, size, texts in zip(kept, sizes, parts, strict=True):
                text = texts[number] if number < len(texts) else ""
                right = columns[i].unit is not None
                line += [(text.rjust(size) if right else text.ljust(size), cells[i][1]), (GAP, "")]
            out.append(line[:-1])
        yield out


def _squeezed(columns: Sequence[Column], kept: Sequence[int], sizes: list[int], wide: int) -> list[int]:
    """Return the widths; the widest columns of words become narrower until all fit."""
    sizes = list(sizes)
    words = [n for n, i in enumerate(kept) if columns[i].unit is None]
    while (over := sum(sizes) + len(GAP) * (len(sizes) - 1) - wide) > 0:
        able = [n for n in words if n and sizes[n] > _NARROWEST] or words  # names go last
        widest = max(able, key=lambda n: sizes[n], default=None)
        if widest is None or sizes[widest] <= _NARROWEST:
            break
        second = max((sizes[n] for n in words if n != widest), default=0)
        sizes[widest] = max(_NARROWEST, sizes[widest] - over, min(second, sizes[widest] - 1))
    return sizes


def _folded(text: str, size: int, verbose: bool) -> list[str]:
    """Return a cell's lines: the whole cell under -v, otherwise one line that ends with `…` if it was cut."""
    if not verbose:
        return [text if len(text) <= size else f"{text[: size - 1]}…"]
    parts = (textwrap.wrap(part, size, break_on_hyphens=False) or [""] for part in text.split("\n"))
    return [line for lines in parts for line in lines]


def table(heads: Sequence[str], rows: Iterable[Sequence[Value]], below: Sequence[str] = ()) -> None:
    """Print a table of words; the columns in `below` move below the table if there is no room."""
    columns = tuple(Column(head, rank=1 + below.index(head) if head in below else 0) for head in heads)
    printed([Table(columns, tuple(Row(tuple(row)) for row in rows))])


def note(text: str) -> None:
    """Print a sentence outside the answer."""
    printed([Text(text, "dim")])


def words(part: Text) -> str:
    """Return a paragraph as one line without colours."""
    return "".join(text for text, _ in _styled(part.value)).rstrip()


def printed(parts: Iterable[Part | None], *, verbose: bool = True) -> None:
    """Print parts without an answer: a list of models, the findings of a probe."""
    show(Document("", tuple(parts)), verbose=verbose, limit=None)
