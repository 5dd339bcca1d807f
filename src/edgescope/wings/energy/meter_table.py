"""Read the text of a meter's log as a table: encoding, comments, delimiter, heading, row of units, decimal marks.

DuckDB's sniffer was weighed against this: of eight usual logs it split four at the wrong mark without a word (a German
one at the comma of its seconds), since it knows neither blanks as a delimiter nor the words of a heading.

A Dialect is how the log is to be read, as far as a user says so; `refused` is what is said of one not understood.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgescope.errors import UsageError

QUANTITIES = ("time", "power", "voltage", "current", "energy")
"""What a column of a meter's log can hold; the names of the flags --QUANTITY-column and --QUANTITY-unit."""


@dataclass(frozen=True)
class Dialect:
    """What a user says about a log; what is left out is recognised, or the log is refused."""

    columns: Mapping[str, str] = field(default_factory=dict)
    """Quantity -> the name of its column, or its number from 1 on."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Quantity -> the unit of its column: ms, mW, V ..."""
    only: str = ""
    """COLUMN=VALUE: the rows that are read, where rows are of several devices."""
    total: str = ""
    """The column that tells devices apart whose power is added up."""
    repeated: str = ""
    """What rows of one time are: `mean` of one meter with a coarse clock, or `sum` of one row a device."""
    decimal: str = ""
    """The decimal mark: . or ,"""
    dates: str = ""
    """The order of 05/04/2026: `dmy` or `mdy`."""


def refused(code: str, what: str, *, evidence: str = "", fix: str = "") -> UsageError:
    """Return the error about a log that is not used."""
    fix = fix or "--time-column NAME --power-column NAME"
    return UsageError(code, what, evidence=evidence[:200], effect="The log was not used", fix=fix)


# -- the table -----------------------------------------------------------------------------------------------


MAX_BYTES = 200_000_000
"""A day at 20 Hz is 1.7 million rows, some 60 MB; more is cut to the run first."""
PREAMBLE = 50
"""Most lines before the heading."""
SAMPLE = 200
"""Rows by which the delimiter is chosen."""
DELIMITERS = (";", "\t", ",", "|", "  ", " ")
"""In this order among equals: a comma beside semicolons is a decimal mark. The last two are runs of blanks."""
_COMMENT = re.compile(r"^\s*(#|//|%)\s*")
_KEPT = (
    re.compile(r"(?<=\d) (?=\d{1,2}:\d\d)"),  # a date and its time of day
    re.compile(r"(?i)(?<=:\d\d) (?=[ap]\.?m\b)|(?<=[.,]\d{3}) (?=[ap]\.?m\b)"),
    re.compile(r"(?<=\d) (?=[mkuµμn]?[WVA]\b)"),  # a number and its unit
)
"""Blanks within a cell, where blanks part cells."""
_NUMBER = re.compile(r"[-+]?[\d.,]*\d[\d.,]*(?:[eE][-+]?\d+)?")
_THOUSANDS = {",": re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+"), ".": re.compile(r"[-+]?[1-9]\d{0,2}(\.\d{3})+")}

Heading = Callable[[Sequence[str]], bool]


@dataclass(frozen=True)
class Table:
    """The cells of a log."""

    name: str
    head: tuple[str, ...]
    units: tuple[str, ...]
    """The cells of the row of units below the heading, '' where there is none."""
    rows: list[list[str]]
    """Each with as many stripped cells as the heading."""
    lines: list[int]
    """The line of each row in the file, from 1 on."""
    ragged: list[int]
    """The lines that have another number of cells."""
    headings: list[int]
    """The lines that repeat the heading; they are left out."""
    delimiter: str

    def column(self, place: int) -> list[str]:
        """Return the cells of a column."""
        return [row[place] for row in self.rows]


def read(path: Path, heading: Heading, unit: Callable[[str], bool], headless: bool = False) -> Table:
    """Return the table in a file, whose heading is the first row that `heading` accepts.

    `unit` says whether a cell is a unit. A `headless` table has its columns called by their numbers. UsageError
    E-METER-1 if there is no heading.
    """
    every = [(n, line) for n, line in enumerate(text(path).replace("\0", "").splitlines(), 1) if line.strip()]
    plain = [(n, line) for n, line in every if not _COMMENT.match(line)]
    marked = [(n, _COMMENT.sub("", line)) for n, line in every]
    for lines in (plain, marked):  # numpy and gnuplot write the heading itself as a comment
        found = [_split(lines, mark, heading, headless) for mark in DELIMITERS]
        best = max((f for f in found if f is not None), key=lambda f: f[0], default=None)
        if best is not None:
            _, at, mark = best
            head = [cell.strip() for cell in _cells(lines[at][1], mark)]
            body = [(n, _cells(line, mark)) for n, line in plain if n > lines[at][0]]
            if headless:
                head, body = [str(k + 1) for k in range(len(head))], [(lines[at][0], head), *body]
            return _table(path.name, head, body, unit, mark)
    first = " | ".join(cell.strip() for cell in _cells(plain[0][1], ",")) if plain else "nothing"
    what = f"no row of {path.name} names a time and a power column"
    raise refused("E-METER-1", what, evidence=f"it begins: {first[:120]}")


def text(path: Path) -> str:
    """Return what a file holds; UsageError E-METER-1 if it cannot be read."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise refused(
                "E-METER-1", f"{path.name} is larger than {MAX_BYTES / 1e6:.0f} MB", fix="cut it to the run"
            )
        data = path.read_bytes()
    except OSError as error:
        raise refused(
            "E-METER-1", f"{path} cannot be read", evidence=error.strerror or "", fix="check the path"
        ) from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        wide = data[:2] in (b"\xff\xfe", b"\xfe\xff")
        return data.decode("utf-16" if wide else "latin-1", errors="replace")


def _cells(line: str, mark: str) -> list[str]:
    """Return the cells of one line; blanks part cells where they do not belong to a date or a unit."""
    if mark in ("  ", " "):
        for blank in _KEPT:
            line = blank.sub("\u00a0", line)
        found = re.split(r" {2,}|\t" if mark == "  " else r"[ \t]+", line.strip(" \t"))
        return [cell.replace("\u00a0", " ") for cell in found]
    try:
        return next(csv.reader([line], delimiter=mark, skipinitialspace=True), [])
    except csv.Error as error:
        raise refused("E-METER-1", "the log is not a table", evidence=str(error)) from error


def _split(
    lines: Sequence[tuple[int, str]], mark: str, heading: Heading, headless: bool
) -> tuple[float, int, str] | None:
    """Return (share of rows as wide as the heading, the heading's place, the delimiter); None without a heading."""
    for at, (_, line) in enumerate(lines[:PREAMBLE]):
        head = [cell.strip() for cell in _cells(line, mark)]
        if len(head) > 1 and (headless or heading(head)):
            rows = [_cells(row, mark) for _, row in lines[at + 1 : at + 1 + SAMPLE]]
            alike = sum(len(row) == len(head) for row in rows)
            return (alike / len(rows) if rows else 0.0), at, mark
    return None


def _table(
    name: str, head: list[str], body: Sequence[tuple[int, list[str]]], unit: Callable[[str], bool], mark: str
) -> Table:
    """Return the rows below a heading, without those that repeat it, name the units or have another width."""
    table = Table(name, tuple(head), ("",) * len(head), [], [], [], [], mark)
    for n, row in body:
        cells = [cell.strip() for cell in row]
        if len(cells) == len(head) + 1 and not cells[-1]:  # a delimiter at the end of each line
            del cells[-1]
        if not any(cells):
            continue
        if cells == head:
            table.headings.append(n)
        elif len(cells) != len(head):
            table.ragged.append(n)
        elif not table.rows and not re.search(r"\d", "".join(cells)) and any(map(unit, cells)):
            table = replace(table, units=tuple(cells))
        else:
            table.rows.append(cells)
            table.lines.append(n)
    return table


def decimal(cells: Sequence[str], others: Sequence[str], delimiter: str) -> str:
    """Return the decimal mark of a column, . or , or '' if it cannot be told; `others` are cells beside it.

    1,234 is either: the rest of the column says, then the rest of the file, then a delimiter that leaves commas free.
    """
    mine = {mark for cell in cells if (mark := _evidence(cell))}
    marks = mine - {"?"}
    if len(marks) == 2:
        return ""
    if marks or not mine:
        return next(iter(marks), ".")
    beside = {mark for cell in others if (mark := _evidence(cell))} - {"?"}
    if len(beside) == 1:
        return next(iter(beside))
    return "," if delimiter == ";" else ""


def _evidence(cell: str) -> str:
    """Return which decimal mark a cell shows: . or , or ? if its comma may part thousands, '' if it shows none."""
    found = _NUMBER.match(cell)
    number = found[0] if found else ""
    if found and cell[found.end() : found.end() + 1] in (":", "/", "-"):
        return ""
    commas, points = number.count(","), number.count(".")
    if commas and points:
        return max(",.", key=number.rfind)
    if max(commas, points) > 1:  # 1.234.567; a date is no number
        mark = "," if commas else "."
        return {",": ".", ".": ","}[mark] if _THOUSANDS[mark].fullmatch(number) else ""
    if commas:
        return "?" if _THOUSANDS[","].fullmatch(number) else ","
    return "." if points else ""


def number(cell: str, mark: str) -> float | None:
    """Return the number that a cell is, or None."""
    other = "," if mark == "." else "."
    if other in cell:
        whole = cell.partition(mark)[0]
        if not _THOUSANDS[other].fullmatch(whole):
            return None
        cell = cell.replace(other, "")
    try:
        return float(cell.replace(mark, ".")) if cell.isascii() and "_" not in cell else None
    except ValueError:
        return None
