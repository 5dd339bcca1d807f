"""The study's table as one self-contained page: what it comes to, the figure, the tables, what is wrong and why."""

from __future__ import annotations

from edgescope.papers.jetson_nano import report_words as words
from edgescope.papers.jetson_nano.figures import beside_study
from edgescope.papers.jetson_nano.paper import StudyRow
from edgescope.papers.jetson_nano.table import TIMES, NanoRow, NanoTable
from edgescope.records import Measured
from edgescope.report.figures import plotted
from edgescope.report.html import shell
from edgescope.report.markup import Markup, join, tag
from edgescope.report.numbers import ratios, shares
from edgescope.report.page_table import Column, column, num, scroll

FIGURE = (
    "Filled circles are this machine, with 95 % intervals; open circles are the same processes timed as the study did; "
    "diamonds are the study on its board. Crosses are printed ratios that its own seconds contradict."
)


def render(found: NanoTable, command: str) -> str:
    """Return the page."""
    body = join(
        tag("header", tag("h1", words.title(found))),
        _answer(found),
        plotted("speedups", "Speed-ups, ours and the study's", FIGURE, beside_study(found)),
        _here(found),
        _printed(found),
        _sizes(found),
        tag("section", tag("h3", "Made by"), tag("pre", tag("code", command))),
    )
    return shell(words.title(found), body, plots=True)


def _answer(found: NanoTable) -> Markup:
    page = found.study
    tiles = (
        ("Geometric mean here", words.ratio(found.geometric), "steady before / steady after, gated"),
        ("Timed the study's way", words.ratio(found.claimed), "cold before / warm after, same processes"),
        ("The study, recomputed", f"{page.geometric_mean:.2f}×", f"arithmetic {page.arithmetic_mean:.2f}×"),
        (
            "The study, printed",
            f"{page.mean_speedup_in_conclusion}×",
            f"abstract: {page.mean_speedup_in_abstract}",
        ),
    )
    return tag(
        "section",
        tag("p", "What the table comes to", class_="eyebrow"),
        tag("p", words.summary(found), class_="reason"),
        tag("dl", [_tile(*t) for t in tiles], class_="tiles"),
        class_="answer" if found.measured else "answer none",
    )


def _tile(name: str, text: str, small: str) -> Markup:
    value, _, between = text.partition(" ")
    return tag(
        "div",
        tag("dt", name),
        tag("dd", value),
        tag(
            "dd",
            join(between.strip("[]").replace(", ", " – "), tag("br") if between else None, small),
            class_="small",
        ),
    )


def _here(found: NanoTable) -> Markup:
    rows = found.rows
    before = [column(f"{words.TIMES[t]} before", [getattr(r.before, t) for r in rows]) for t in TIMES]
    columns = [
        *before,
        column("Steady after", [r.after.steady_s for r in rows]),
        column("Speed-up", [r.speedup for r in rows], ratios, "steady / steady"),
        column("Study's way", [r.claimed for r in rows], ratios, "cold / warm"),
        column("Of the limit", [r.of_limit for r in rows], shares),
        Column("The study", "its seconds", [num(f"{r.study.recomputed:.2f}×", "The study") for r in rows]),
    ]
    if not any(isinstance(r.of_limit, Measured) for r in rows):
        columns = [c for c in columns if c.words != "Of the limit"]
    notes = [tag("li", line) for line in words.row_notes(found)]
    return tag(
        "section",
        tag("h3", "Before and after, timed four ways"),
        scroll([_network(r) for r in rows], columns),
        tag("ul", [tag("li", line) for line in words.LEGEND], class_="missing"),
        tag("details", tag("summary", "Gates, rejections, gaps"), tag("ul", notes, class_="missing"))
        if notes
        else None,
    )


def _network(row: NanoRow) -> Markup:
    """Return the row's heading: the network, the pick, and each verdict that was given to its numbers."""
    badges = [tag("span", v, class_=f"badge {v.lower()}") for v in dict.fromkeys(filter(None, row.verdicts))]
    below = tag("div", row.variant, tag("br"), badges, class_="why") if row.variant else None
    return tag("th", row.model, below, scope="row")


def _printed(found: NanoTable) -> Markup:
    rows = [r.study for r in found.rows]
    columns = [
        Column("Before", "s", [num(f"{s.before_s:.4f}", "Before (s)") for s in rows]),
        Column("After", "s", [num(f"{s.after_s:.4f}", "After (s)") for s in rows]),
        Column("Ratio", "as printed", [_quotient(s, "ratio", s.ratio) for s in rows]),
        Column("Speed-up", "as printed", [_quotient(s, "speed-up", s.speedup) for s in rows]),
        Column("Before / after", "recomputed", [num(f"{s.recomputed:.3f}", "Before / after") for s in rows]),
    ]
    notes = [tag("li", line) for line in words.study_notes(found)]
    return tag(
        "section",
        tag("h3", "The study as printed"),
        tag("p", f"{found.study.title}, {found.study.source}, on a {found.study.board}.", class_="lead"),
        scroll([tag("th", s.name, scope="row") for s in rows], columns),
        tag("ul", notes, class_="missing"),
    )


def _quotient(row: StudyRow, column: str, printed: str) -> Markup:
    """Return the printed value; a misprint struck out, with the corrected value and the arithmetic below."""
    wrong = next((m for m in row.misprints if m.column == column), None)
    if wrong is None:
        return num(printed, column)
    new = join(tag("s", printed, class_="dim"), " ", tag("b", wrong.correct))
    return num(new, column, more=tag("span", wrong.why, class_="ci"))


def _sizes(found: NanoTable) -> Markup:
    rows = found.rows
    columns = [
        Column("Parameters", "ours", [num(words.count(r.params), "Parameters") for r in rows]),
        Column(
            "Parameters", "the study", [num(f"{r.study.params:,}", "The study: parameters") for r in rows]
        ),
        Column("MACs", "ours", [num(words.count(r.macs), "MACs") for r in rows]),
        Column("FLOPs", "ours, 2 × MACs", [num(words.count(r.flops), "FLOPs") for r in rows]),
        Column("FLOPS column", "the study", [num(f"{r.study.flops:,}", "FLOPS column") for r in rows]),
        Column(
            "which counts", "", [tag("td", words.flops_count(r), data_label="which counts") for r in rows]
        ),
    ]
    lead = "A multiply-accumulate (MAC) is two floating-point operations; convolutions and matrix products are counted."
    return tag(
        "section",
        tag("h3", "Sizes"),
        tag("p", lead, class_="lead"),
        scroll([tag("th", r.model, scope="row") for r in rows], columns),
    )
