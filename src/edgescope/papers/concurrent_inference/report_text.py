"""The sweep as Markdown that can be pasted into a page of documentation: figures as tables, rules, the paper's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from edgescope.analysis.cells.concurrency import MemoryLine
from edgescope.analysis.cells.sharing_gain import times
from edgescope.papers.concurrent_inference import report_words as words
from edgescope.papers.concurrent_inference.report_grids import QUANTITIES, Grid, firsts, grid
from edgescope.papers.concurrent_inference.rule import Checked, per_cent
from edgescope.papers.concurrent_inference.rules_memory import megabytes
from edgescope.papers.concurrent_inference.table import Concurrent
from edgescope.records import Field, Measured
from edgescope.report.markdown import escaped

LINES = (
    "Series",
    "A process costs",
    "At P = 0",
    "Off the line at most",
    "model + 2 × batch",
    "Cost over rule",
)
RULES = ("Rule", "The paper says", "Here", "Found", "Cells")
PAPER = ("The paper's cell", "Board", "Its figure", "Known from", "Here, other hardware")


def render(found: Concurrent, command: str) -> str:
    """Return the page."""
    grids = [g for g in (grid(found, name) for name in QUANTITIES) if not g.empty] if found.measured else []
    parts = [
        f"## {escaped(words.title(found))}",
        _list(str(r) for r in found.remarks),
        escaped(words.summary(found)),
        _list(words.notes(found)),
        *(part for g in grids for part in (f"### {escaped(g.title)}", _grid(g))),
        *_memory(found),
        "### The paper's rules",
        _table(RULES, [_rule(c) for c in found.rules]),
        *_section("### Warm workers against fresh processes", [words.warm(w) for w in found.warm]),
        *_section("### Cells without a figure", words.failures(found)),
        f"### Figures of the paper that could be recovered ({found.paper.source})",
        words.OTHER_HARDWARE,
        _table(PAPER, [_number(found, i) for i in range(len(found.paper.numbers))]),
        f"Made by `{command.replace('`', '')}`.",
    ]
    return "\n\n".join(p for p in parts if p) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"* {escaped(line)}" for line in lines)


def _section(heading: str, lines: Sequence[str]) -> list[str]:
    return [heading, _list(lines)] if lines else []


def _grid(g: Grid) -> str:
    head = ["Model", "Precision", "Batch", "Sharing", *(f"P = {p}" for p in g.processes)]
    rows = [
        [*map(escaped, first), *(escaped(g.text(c)) for c in row.cells)]
        for first, row in zip(firsts(g.rows), g.rows, strict=True)
    ]
    rule = ["---"] * 4 + ["---:"] * len(g.processes)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def _memory(found: Concurrent) -> list[str]:
    known = [m for m in found.lines if isinstance(m.slope, Measured)]
    return ["### Memory against processes", _table(LINES, [_line(m) for m in known])] if known else []


def _line(line: MemoryLine) -> list[str]:
    off = f"{per_cent(line.residual.value, 1)}" if isinstance(line.residual, Measured) else "two points"
    cells = [megabytes(line.slope), megabytes(line.start), off, megabytes(line.rule), _ratio(line.against)]
    return [escaped(c) for c in (line.series.words, *cells)]


def _ratio(field: Field) -> str:
    return times(field) if isinstance(field, Measured) else "n/a"


def _rule(checked: Checked) -> list[str]:
    rule, f = checked.rule, checked.found
    answer = f"{words.MARKS[f.answer]} {f.answer.value}"
    evidence = f" For example: {f.evidence[0]}" if f.evidence else ""
    says = f"{rule.says} ({rule.known})"
    return [escaped(rule.title), escaped(says), answer, escaped(f.found + "." + evidence), str(f.cells or "")]


def _number(found: Concurrent, index: int) -> list[str]:
    n = found.paper.numbers[index]
    return [escaped(c) for c in (words.place(n), n.board, n.text, n.source, words.beside(found, n))]
