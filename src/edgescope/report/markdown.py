"""The before/after table as Markdown: for a pull request, a README, an issue."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.analysis.cells.row import Row
from edgescope.records import Absent, Field, Result
from edgescope.report.before_after import left_behind
from edgescope.report.chapter import Chapter, chapters
from edgescope.report.columns import shown
from edgescope.report.html import made_by
from edgescope.report.numbers import Format, absence
from edgescope.store import whole_file

INTERVALS = "intervals are 95 %, those of power and energy may be the meter's bounds"


def write(
    results: Iterable[Result], path: Path, *, title: str = "", command: str = "", wanted: Wanted = FASTEST
) -> Path:
    """Write the tables as Markdown and return the path."""
    found = chapters(results, wanted)
    several = len({(c.title, c.load) for c in found}) > len({c.title for c in found})
    parts = [f"# {escaped(title or 'edgescope report')}", *(_chapter(c, several) for c in found)]
    if not found:
        parts.append("There are no results, so nothing can be recommended.")
    parts.append(f"Made by `{(command or made_by(path)).replace('`', '')}`; {INTERVALS}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return whole_file.write_text(path, "\n\n".join(parts) + "\n")


def escaped(text: str) -> str:
    """Return text that Markdown shows as it is, also inside a table cell."""
    return re.sub(r"([\\`*_{}\[\]<>|#~])", r"\\\1", " ".join(text.split()))


def _chapter(chapter: Chapter, several: bool) -> str:
    """Return one table; `several`: of several loads of a model, the heading says which."""
    look = shown(chapter)
    head = ["Variant", *(look.heading(i) for i in range(len(look.columns))), "Verdict"]
    lines = [_line(head), _line(["---", *["---:"] * len(look.columns), "---"])]
    for row in look.rows:
        cells = [_cell(look.field(i, row, chapter), look.formats[i], row) for i in range(len(look.columns))]
        lines.append(_line([_name(chapter, row), *cells, _verdict(row)]))
    rejected = [f"* {escaped(r.label)} rejected: {escaped(r.rejected)}" for r in look.rows if r.rejected]
    rows = chapter.table.rows
    rejected += [
        f"* {escaped(r.label)} not measured: {escaped(r.rejected)}" for r in rows if not r.replicates
    ]
    rejected += [f"* {escaped(left_behind(r))}" for r in chapter.table.screened]
    absent = [f"* {words}: {escaped(absence(Absent(why)))}" for why, words in look.gaps().items()]
    said = "\n".join(f"* {escaped(line)}" for line in chapter.remarks)
    parts = [
        f"## {escaped(chapter.title)}{escaped(f', {chapter.load}') if several else ''}",
        escaped(chapter.pick.reason),
        *filter(None, [said]),
        *(["\n".join(lines)] if look.rows else []),
    ]
    return "\n\n".join([*parts, *(["\n".join(rejected + absent)] if rejected or absent else [])])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _name(chapter: Chapter, row: Row) -> str:
    label = escaped(row.label)
    if row.rejected:
        return f"~~{label}~~"
    if chapter.pick.row is not None and chapter.pick.row.cell == row.cell:
        return f"**{label}** (pick)"
    return f"{label} (baseline)" if row.cell == chapter.table.baseline else label


def _cell(field: Field, form: Format, row: Row) -> str:
    if isinstance(field, Absent):
        return "n/a" if row.rejected else escaped(absence(field))
    between = form.interval(field)
    text = form.number(field.value) + (f" \\[{between}\\]" if between else "")
    return f"~~{text}~~" if row.rejected else text


def _verdict(row: Row) -> str:
    evidence = "" if row.verdict.trust.value == "CLEAN" else f": {'; '.join(row.verdict.evidence[:2])}"
    return escaped(row.verdict.trust.value + evidence)
