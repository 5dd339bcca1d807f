"""The before/after table as CSV in SI units: value, ends of the interval, n, and why it is absent."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.analysis.cells.row import Row
from edgescope.metrics import shown
from edgescope.plots.style import ordered
from edgescope.records import Absent, Field, Result
from edgescope.report.chapter import Chapter, chapters
from edgescope.store import whole_file

FACTS = (
    "model",
    "machine",
    "load",
    "cell",
    "variant",
    "status",
    "verdict",
    "evidence",
    "baseline",
    "pick",
    "rejected",
    "power_scope",
)
PARTS = ("", "_lo", "_hi", "_n", "_absent")
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
"""A spreadsheet would run a text that begins with one of these."""


def write(
    results: Iterable[Result], path: Path, *, title: str = "", command: str = "", wanted: Wanted = FASTEST
) -> Path:
    """Write one line per variant and return the path; an absent value is empty, its reason beside it.

    `title` and `command` have no place in a CSV and are ignored.
    """
    found = chapters(results, wanted)
    head = [*FACTS, *(f"{m.name}{part}" for m in shown("table") for part in PARTS)]
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(head)
    for chapter in found:
        writer.writerows(_line(chapter, row) for row in ordered(chapter.table))
    path.parent.mkdir(parents=True, exist_ok=True)
    return whole_file.write_text(path, text.getvalue())


def _line(chapter: Chapter, row: Row) -> list[str]:
    best = chapter.pick.row
    facts = [
        chapter.model,
        chapter.machine.id,
        chapter.load,
        row.cell,
        row.label,
        row.status.value,
        row.verdict.trust.value,
        "; ".join(row.verdict.evidence),
        "yes" if row.cell == chapter.table.baseline else "",
        "yes" if best is not None and best.cell == row.cell else "",
        row.rejected,
        row.scope,
    ]
    return [_text(f) for f in facts] + [cell for m in shown("table") for cell in _cells(row[m.name])]


def _text(text: str) -> str:
    return f"'{text}" if text.startswith(FORMULA_STARTS) else text


def _cells(field: Field) -> list[str]:
    if isinstance(field, Absent):
        return ["", "", "", "", _text(field.reason)]
    ends = ["" if end is None else repr(end) for end in (field.lo, field.hi)]
    return [repr(field.value), *ends, str(field.n), ""]
