"""The sweep as one self-contained page: what stands out, the figures, the rules, the cells, the paper's own."""

from __future__ import annotations

from collections.abc import Sequence

from edgescope.analysis.cells.concurrency import Cell, MemoryLine
from edgescope.analysis.cells.sharing_gain import times
from edgescope.papers.concurrent_inference import figures as plots
from edgescope.papers.concurrent_inference import report_words as words
from edgescope.papers.concurrent_inference.report_grids import QUANTITIES, Grid, firsts, grid
from edgescope.papers.concurrent_inference.rule import Answer, Checked, per_cent
from edgescope.papers.concurrent_inference.rules_memory import megabytes
from edgescope.papers.concurrent_inference.table import Concurrent
from edgescope.plots.style import Figure
from edgescope.records import Absent, Field, Measured
from edgescope.report.figures import plotted
from edgescope.report.html import shell
from edgescope.report.markup import Markup, join, tag
from edgescope.report.page_table import Column, num, scroll

BADGES = {
    Answer.HOLDS: "clean",
    Answer.FAILS: "throttled",
    Answer.UNSURE: "disturbed",
    Answer.UNKNOWN: "none",
}
WHISKERS = "Whiskers are 95 % intervals; hovering says where they come from, and each cell's verdict."
DRAWN = ("throughput_sps", "throughput_per_process_sps")
THEIRS = "Open grey diamonds are the paper's recovered figures: other boards, so not to be compared."


def render(found: Concurrent, command: str) -> str:
    """Return the page."""
    drawn = _figures(found)
    body = join(
        tag("header", tag("h1", words.title(found))),
        _answer(found),
        drawn,
        _rules(found),
        _grids(found) if found.measured else None,
        _memory(found),
        _list("Warm workers against fresh processes", [words.warm(w) for w in found.warm]),
        _list("Cells without a figure", words.failures(found)),
        _theirs(found),
        tag("section", tag("h3", "Made by"), tag("pre", tag("code", command))),
    )
    return shell(words.title(found), body, plots=bool(found.measured))


def _answer(found: Concurrent) -> Markup:
    first, *rest = [str(r) for r in found.remarks] or [words.summary(found)]
    return tag(
        "section",
        tag("p", "What stands out", class_="eyebrow"),
        tag("p", first, class_="remark"),
        tag("ul", [tag("li", line) for line in rest], class_="remarks") if rest else None,
        tag("p", words.summary(found), class_="reason") if found.remarks else None,
        tag("dl", [_tile(*t) for t in _tiles(found)], class_="tiles") if found.measured else None,
        tag("ul", [tag("li", n) for n in words.notes(found)], class_="missing"),
        class_="answer" if found.measured else "answer none",
    )


def _tiles(found: Concurrent) -> list[tuple[str, str, str]]:
    best = max(found.measured, key=lambda c: c.value("throughput_sps") or 0.0)
    held = sum(c.found.answer is Answer.HOLDS for c in found.rules)
    told = sum(c.found.answer in (Answer.HOLDS, Answer.FAILS) for c in found.rules)
    return [
        ("Cells finished", f"{len(found.measured)}", f"of {len(found.cells)} asked for"),
        ("Most throughput", f"{best.value('throughput_sps') or 0.0:,.0f}/s", best.place),
        ("Rules that hold", f"{held}", f"of {told} that could be told, {len(found.rules)} in all"),
    ]


def _tile(name: str, value: str, small: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", value), tag("dd", small, class_="small"))


def _figures(found: Concurrent) -> Markup | None:
    if not found.measured:
        return None
    batches = sorted({c.trial.batch for c in found.measured if c.trial.processes > 1})
    theirs = f" {THEIRS}" if any(found.paper.beside(set(found.models), f) for f in DRAWN) else ""
    every: list[tuple[str, str, str, Figure | Absent]] = [
        ("batch", "Over batch size, one process", WHISKERS + theirs, plots.over_batch(found)),
        ("precision", "Over precision", f"Bars begin at 0. {WHISKERS}", plots.over_precision(found)),
    ]
    for b in batches:
        caption = f"Colour is the precision, dash how the processes share the device. {WHISKERS}{theirs}"
        every.append(
            (f"processes-{b}", f"Over processes, batch {b}", caption, plots.over_processes(found, b))
        )
    caption = "Every cell. A plateau of power is a row of marks at one height while throughput still changes."
    every.append(("power", "Power against throughput", caption, plots.power_over_throughput(found)))
    parts = [plotted(*each) for each in every if not isinstance(each[3], Absent)]
    absent = [tag("li", f"{title}: {f.reason}") for _, title, _, f in every if isinstance(f, Absent)]
    return tag("section", parts, tag("ul", absent, class_="missing") if absent else None)


def _rules(found: Concurrent) -> Markup:
    lead = (
        f"{found.paper.title} ({found.paper.source}): {found.paper.boards}. A rule holds where some series are for it "
        "and none is surely against it."
    )
    rows = [_rule(c) for c in found.rules]
    head = tag("tr", [tag("th", name, scope="col") for name in ("Rule", "Here", "Found")])
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="variants stack")
    return tag(
        "section",
        tag("h3", "The paper's rules"),
        tag("p", lead, class_="lead"),
        tag("div", table, class_="scroll"),
    )


def _rule(checked: Checked) -> Markup:
    rule, f = checked.rule, checked.found
    says = tag("div", f"{rule.says} ", tag("span", f"[{rule.known}]", class_="dim"), class_="why")
    evidence = tag("ul", [tag("li", line) for line in f.evidence], class_="missing")
    cells = f"{f.cells} cell{'s' if f.cells != 1 else ''}"
    more = tag("details", tag("summary", f"Evidence, {cells}"), evidence) if f.evidence else None
    badge = tag("span", f.answer.value, class_=f"badge {BADGES[f.answer]}")
    return tag(
        "tr",
        tag("th", rule.title, says, scope="row"),
        tag("td", badge),
        tag("td", f.found, more, class_="why"),
    )


def _grids(found: Concurrent) -> Markup:
    shown = [grid(found, name) for name in QUANTITIES]
    parts = [_grid(g, i == 0) for i, g in enumerate(g for g in shown if not g.empty)]
    missing = [g.quantity.title for g in shown if g.empty]
    note = tag("p", f"Not measured: {', '.join(missing)}.", class_="lead") if missing else None
    return tag("section", tag("h3", "Every cell"), tag("p", LEGEND, class_="lead"), parts, note)


LEGEND = "A column is a number of processes P. Small figures are 95 % intervals; hovering says where they are from."


def _grid(g: Grid, is_open: bool) -> Markup:
    columns = [
        Column(f"P = {p}", "", [_value(g, row.cells[i], f"P = {p}") for row in g.rows])
        for i, p in enumerate(g.processes)
    ]
    words_of = firsts(g.rows)
    text = [
        Column(name, "", [tag("td", first[i + 1], data_label=name) for first in words_of])
        for i, name in enumerate(("Precision", "Batch", "Sharing"))
    ]
    names = [tag("th", first[0], scope="row") for first in words_of]
    return tag("details", tag("summary", g.title), scroll(names, [*text, *columns], "Model"), open=is_open)


def _value(g: Grid, cell: Cell | None, label: str) -> Markup:
    text = g.text(cell, interval=False)
    field = cell[g.figure] if cell is not None and cell.ok else None
    if cell is None or not isinstance(field, Measured):
        why = "not asked for" if cell is None else cell.rejected or _reason(field)
        return tag("td", text, class_="num absent", data_label=label, title=why)
    between = g.form.interval(field)
    hover = plots.hover(cell, g.figure, field)
    small = tag("span", between, class_="ci") if between else None
    return tag("td", tag("span", text, class_="v"), small, class_="num", data_label=label, title=hover)


def _reason(field: Field | None) -> str:
    return field.reason if isinstance(field, Absent) else ""


def _memory(found: Concurrent) -> Markup | None:
    lines = [m for m in found.lines if isinstance(m.slope, Measured)]
    if not lines:
        return None
    columns = [
        _texts("A process costs", [megabytes(m.slope) for m in lines]),
        _texts("At P = 0", [megabytes(m.start) for m in lines]),
        _texts("Off the line at most", [_off(m) for m in lines]),
        _texts("model + 2 × batch", [megabytes(m.rule) for m in lines]),
        _texts(
            "Cost over rule", [times(m.against) if isinstance(m.against, Measured) else "n/a" for m in lines]
        ),
    ]
    table = scroll([tag("th", m.series.words, scope="row") for m in lines], columns, "Series")
    return tag("section", tag("h3", "Memory against processes"), tag("p", LINE, class_="lead"), table)


LINE = "A least-squares line over P. The paper's rule is P × (model + 2 × batch): one batch computed, one waiting."


def _texts(name: str, cells: Sequence[str]) -> Column:
    return Column(name, "", [num(text, name) for text in cells])


def _off(line: MemoryLine) -> str:
    return f"{per_cent(line.residual.value, 1)}" if isinstance(line.residual, Measured) else "two points"


def _list(heading: str, lines: Sequence[str]) -> Markup | None:
    if not lines:
        return None
    return tag(
        "section", tag("h3", heading), tag("ul", [tag("li", line) for line in lines], class_="warnings")
    )


def _theirs(found: Concurrent) -> Markup:
    numbers = found.paper.numbers
    columns = [
        Column(name, "", [tag("td", text, data_label=name) for text in texts])
        for name, texts in (
            ("Board", [n.board for n in numbers]),
            ("Its figure", [n.text for n in numbers]),
            ("Known from", [n.source for n in numbers]),
            ("Here, other hardware", [words.beside(found, n) for n in numbers]),
        )
    ]
    table = scroll([tag("th", words.place(n), scope="row") for n in numbers], columns, "The paper's cell")
    heading = tag("h3", "Figures of the paper that could be recovered")
    return tag("section", heading, tag("p", words.OTHER_HARDWARE, class_="lead"), table)
