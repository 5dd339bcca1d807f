"""The before/after table: every variant, rejected ones struck out with the reason, no gap without its own."""

from __future__ import annotations

from edgescope.analysis.cells.row import Row
from edgescope.plots.style import styles
from edgescope.records import Absent, Field, Measured, Trust
from edgescope.report.answer import badge
from edgescope.report.chapter import Chapter
from edgescope.report.columns import Shown, shown
from edgescope.report.markup import Markup, join, tag
from edgescope.report.numbers import absence
from edgescope.report.numbers import times as times_of

EVIDENCE_SHOWN = 2
"""Pieces of evidence printed under a verdict that is not CLEAN; the full list is in its own section."""


def before_after(chapter: Chapter) -> Markup:
    """Return the table, and below it what was measured in no variant and why."""
    look = shown(chapter)
    head = [tag("th", "Variant", scope="col")]
    for i, column in enumerate(look.columns):
        unit = look.formats[i].unit
        name = tag("a", column.title, href=f"#def-{column.name}")
        head.append(
            tag("th", name, tag("span", unit, class_="unit") if unit else None, scope="col", class_="num")
        )
    head.append(tag("th", tag("a", "Verdict", href="#def-verdict"), scope="col"))
    body = [_row(chapter, look, row) for row in look.rows]
    table = tag("table", tag("thead", tag("tr", head)), tag("tbody", body), class_="variants stack")
    missing = [tag("li", f"{words}: {absence(Absent(why))}") for why, words in look.gaps().items()]
    missing += [tag("li", left_behind(row)) for row in chapter.table.screened]
    if not look.rows:
        return join(_not_measured(chapter))
    note = tag("ul", missing, class_="missing") if missing else None
    lead = tag(
        "p", "Small figures are 95 % ", tag("a", "intervals", href="#def-interval"), ".", class_="lead"
    )
    title = "Before and after" if len(look.rows) > 1 else "What was measured"
    return tag(
        "section",
        tag("h3", title),
        lead,
        tag("div", table, class_="scroll"),
        note,
        _not_measured(chapter),
    )


def _not_measured(chapter: Chapter) -> Markup | None:
    """Return what did not run and why, apart from what was measured."""
    items = [
        tag("li", tag("b", row.label), " ", row.rejected, data_cell=row.cell)
        for row in chapter.table.rows
        if not row.replicates
    ]
    if not items:
        return None
    return tag("section", tag("h4", "Not measured"), tag("ul", items, class_="missing"))


def left_behind(row: Row) -> str:
    """Return what is known of a variant that the short runs screened out, its speed-up being that of the short runs."""
    runs = len(row.replicates)
    times = f" at {times_of([row['p50_s']]).text(row['p50_s'])}" if isinstance(row["p50_s"], Measured) else ""
    ratio = f", {row['speedup'].value:.3g}× the baseline" if isinstance(row["speedup"], Measured) else ""
    return f"{row.label}: screened out{times}{ratio} after {runs} short run{'s' if runs > 1 else ''}"


def _row(chapter: Chapter, look: Shown, row: Row) -> Markup:
    is_pick = chapter.pick.row is not None and chapter.pick.row.cell == row.cell
    kind = "rejected" if row.rejected else "picked" if is_pick else ""
    fields = [look.field(i, row, chapter) for i in range(len(look.columns))]
    has_numbers = not fields or any(isinstance(f, Measured) for f in fields)
    if row.rejected and not has_numbers:
        cells = [tag("td", _why(row), colspan=len(fields), class_="why")] if fields else []
    else:
        cells = [_cell(f, look, i, row) for i, f in enumerate(fields)]
    return tag(
        "tr",
        _variant(chapter, row, is_pick, has_numbers),
        cells,
        _verdict(row),
        class_=kind or None,
        data_cell=row.cell,
    )


def _variant(chapter: Chapter, row: Row, is_pick: bool, has_numbers: bool) -> Markup:
    colour = styles(chapter.table)[row.cell].colour
    chips = [tag("span", "pick", class_="chip pick-chip")] if is_pick else []
    if row.cell == chapter.table.baseline:
        chips.append(tag("span", "baseline", class_="chip"))
    label = tag("s", row.label) if row.rejected else tag("span", row.label)
    counted, asked = len(row.replicates), len(chapter.groups[row.cell])
    below = [tag("div", f"{counted} of {asked} runs counted", class_="why")] if 0 < counted < asked else []
    if row.rejected and has_numbers:
        below.append(tag("div", _why(row), class_="why"))
    swatch = tag("span", class_="swatch", style=f"background:{colour}")
    return tag("th", swatch, label, chips, below, scope="row")


def _why(row: Row) -> str:
    return f"rejected: {row.rejected}"


def _cell(field: Field, look: Shown, i: int, row: Row) -> Markup:
    heading, form = look.heading(i), look.format(i, field)
    if isinstance(field, Absent):
        text = "n/a" if row.rejected else absence(field)
        return tag("td", text, class_="num absent", data_label=heading, title=absence(field))
    plain = Measured(field.value, field.unit)
    text = form.number(field.value) if form is look.formats[i] else form.text(plain)
    value = tag("s" if row.rejected else "span", text, class_="v")
    between = form.interval(field)
    small = tag("span", between, class_="ci") if between else None
    return tag("td", value, small, class_="num", data_label=heading, title=_exact(field))


def _exact(field: Measured) -> str:
    ends = "" if field.lo is None or field.hi is None else f" [{field.lo:.6g}, {field.hi:.6g}]"
    return (
        f"{field.value:.6g}{ends} {field.unit if field.unit != '1' else ''}".strip()
        + f", n\u00a0=\u00a0{field.n:,}"
    )


def _verdict(row: Row) -> Markup:
    evidence = row.verdict.evidence if row.verdict.trust is not Trust.CLEAN else ()
    more = len(evidence) - EVIDENCE_SHOWN
    said = "; ".join(evidence[:EVIDENCE_SHOWN]) + (f"; {more} more below" if more > 0 else "")
    return tag("td", badge(row), tag("div", said, class_="why") if said else None, data_label="Verdict")
