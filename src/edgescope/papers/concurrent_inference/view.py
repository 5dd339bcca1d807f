"""The concurrent sweep on a terminal: what stands out, one quantity as a grid, the paper's rules, what did not run."""

from __future__ import annotations

from rich.text import Text

from edgescope.analysis.cells.concurrency import Cell
from edgescope.papers.concurrent_inference import report_words as words
from edgescope.papers.concurrent_inference.report_grids import Grid, firsts, grid, spreads
from edgescope.papers.concurrent_inference.rule import Answer, per_cent
from edgescope.papers.concurrent_inference.table import Concurrent
from edgescope.report import terminal

STYLES = {Answer.HOLDS: "green", Answer.FAILS: "red", Answer.UNSURE: "yellow", Answer.UNKNOWN: "dim"}
FAILURES = 6


def show(found: Concurrent, name: str) -> None:
    """Print everything that a person should read without opening the page."""
    console = terminal.console()
    for remark in found.remarks:
        console.print(Text(str(remark), style="bold"))
    console.print(Text(words.summary(found)))
    if not found.measured:
        _failures(found)
        return
    console.print()
    _grid(grid(found, name))
    console.print()
    _rules(found)
    console.print()
    for line in words.notes(found):
        terminal.note(line)
    for each in found.warm:
        terminal.note(f"warm workers over fresh processes, {words.warm(each)}")
    _failures(found)


def _grid(g: Grid) -> None:
    if g.empty:
        terminal.note(f"{g.quantity.title}: not measured in any cell")
        return
    head = ["model", "precision", "batch", "sharing", *(f"P = {p}" for p in g.processes), "95 %"]
    rows: list[list[str | Text]] = []
    for first, row in zip(firsts(g.rows), g.rows, strict=True):
        widths = spreads(row, g.figure)
        about = f"± {per_cent(max(widths), 1)}" if widths else ""
        values = [_value(g, c) for c in row.cells]
        rows.append([*first, *values, Text(about, style="dim")])
    terminal.table(head, rows, title=g.title)


def _value(g: Grid, cell: Cell | None) -> Text:
    failed = cell is not None and not cell.ok
    return Text(g.text(cell, interval=False), justify="right", style="red" if failed else "")


def _rules(found: Concurrent) -> None:
    rows: list[list[str | Text]] = []
    for checked in found.rules:
        answer = checked.found.answer
        mark = Text(f"{words.MARKS[answer]} {answer.value}", style=STYLES[answer])
        rows.append([Text(checked.rule.title), mark, Text(checked.found.found)])
    terminal.table(("the paper's rules", "", "found here"), rows)


def _failures(found: Concurrent) -> None:
    lines = words.failures(found)
    for line in lines[:FAILURES]:
        terminal.note(f"no figure: {line}")
    if len(lines) > FAILURES:
        terminal.note(f"and {len(lines) - FAILURES} more reasons: --output page.html lists them")
