"""The document about a paper's sweep on this machine: claims, figures, cells, memory, then the paper's own numbers.

All parts read the same SweepTable, so a plot and its printed numbers agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from edgescope import units
from edgescope.analysis.cells.concurrency import FIGURES, Cell, is_traced, key, setup, sharing_words
from edgescope.analysis.cells.concurrency import place as place_of
from edgescope.analysis.cells.concurrency import wanted as fits
from edgescope.analysis.cells.machines import called
from edgescope.analysis.cells.replicates import of_fields
from edgescope.analysis.cells.sharing_gain import times
from edgescope.analysis.cells.traced import FIGURES as TRACED
from edgescope.analysis.kernels.account import Account
from edgescope.analysis.run.usage import ACTIVITY
from edgescope.records import Absent, Measured, Result, Trial, Trust
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.report.document import (
    BRIEF,
    DATA,
    DETAIL,
    MAIN,
    Column,
    Items,
    Mark,
    Section,
    Table,
    Text,
    Tile,
)
from edgescope.wings.studies import claim, sweep_traces
from edgescope.wings.studies.claim import Answer, brief
from edgescope.wings.studies.paper import Number, Paper
from edgescope.wings.studies.sweep_table import SweepTable, WarmRatio, sweep_table
from edgescope.wings.studies.voices import memory_words

OTHER_HARDWARE = (
    "Its figures are given for orientation: they come from other hardware, so no ratio of ours to theirs is "
    "computed."
)
WHISKERS = "Whiskers are 95 % intervals; hovering shows where they come from, and each cell's verdict."
THEIRS = " Open grey diamonds are the paper's recovered figures: other boards, so they cannot be compared."
LINE = "A least-squares line over P. The rule is P × (model + 2 × batch): one batch computed, one waiting."
DISTURBED = (Trust.DISTURBED, Trust.THROTTLED)
THROUGHPUT, PER_PROCESS = "throughput_sps", "throughput_per_process_sps"
#: --show -> title, figure (`memory` is the one that the table chose) and unit.
QUANTITIES: Mapping[str, tuple[str, str, str]] = {
    "throughput": ("Throughput of all processes", THROUGHPUT, "samples/s"),
    "per_process": ("Throughput per process (T/P)", PER_PROCESS, "samples/s"),
    "p99": ("Latency, p99", "latency_p99_s", "s"),
    "memory": ("Memory", "memory", "bytes"),
    "power": ("Power", "power_w", "W"),
    "energy": ("Energy a sample", "energy_per_sample_j", "J"),
    "fairness": ("Fairness (Jain's index of the processes' throughputs)", "fairness", "1"),
    "skew": ("Start skew between processes", "start_skew_s", "s"),
    "ec": ("Execution context of a query (EC), under a profiler", "ec_s", "s"),
    "cs": ("A query's waits for the GPU (CS), under a profiler", "cs_s", "s"),
}


def wanted(trial: Trial, models: Sequence[str] = (), **_: object) -> bool:
    """Return whether a stored trial belongs to this study."""
    return fits(trial) or is_traced(trial)


def document(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    setup: str = "",
    study: Sequence[Trial] = (),
    show: str = "",
    traces: Mapping[str, Account] | None = None,
    left_out: int = 0,
    command: str = "",
) -> doc.Document:
    """Return the document; `study` holds the cells of the study file, `show` is the quantity to print in any case.

    `traces` are the accounts of files that a profiler exported, by their names.
    """
    asked = [t for t in study if not models or t.model.startswith(models)]
    found = sweep_table(paper, results, of_setup=setup, left_out=left_out, asked=asked, traces=traces)
    return of(found, show, command)


def of(found: SweepTable, show: str = "", command: str = "") -> doc.Document:
    """Return a table as a document."""
    many = Text("-v prints the evidence of each claim, every cell, and what did not run", "lead", BRIEF)
    parts = (
        _answer(found),
        Section(QUANTITIES[show][0], (grid(found, show, MAIN),)) if show else None,
        Section("", tuple(_figures(found)), level=doc.PAGE) if found.measured else None,
        claim.section(found.paper, found.claims) if found.measured else None,
        many if found.measured else None,
        _cells(found, show),
        sweep_traces.section(found) if found.measured else None,
        _memory(found),
        _listed("Warm workers against fresh processes", list(map(warm, found.warm))),
        _listed("Cells without a figure", failures(found), DETAIL if found.measured else MAIN),
        _theirs(found),
        _rows(found),
    )
    return doc.Document(title(found), parts, {"command": command, **_data(found)}, command)


def _listed(heading: str, lines: Sequence[str], level: doc.Level = DETAIL) -> Section | None:
    return Section(heading, (Items(tuple(lines), "", "warnings", level),), level=level) if lines else None


# -- the answer ----------------------------------------------------------------------------------------------


def title(found: SweepTable) -> str:
    """Return the heading of the document."""
    return found.paper.heading + (f" on {called(found.machine)}" if found.machine else "")


def summary(found: SweepTable) -> str:
    """Return what was measured, in a sentence or two."""
    n, kinds = len(found.measured), Counter(c.status.value for c in found.failed)
    each = ", ".join(f"{k} {status}" for status, k in kinds.most_common())
    failed = f"{units.counted(len(found.failed), 'cell')} gave no figure ({each}). " if kinds else ""
    if not n:
        what = found.paper.heading.lower()
        return f"No finished cell of {what} is in this store. {failed}Measure: {found.paper.measure}"
    models = units.counted(len({c.trial.model for c in found.measured}), "model")
    return f"{units.counted(n, 'cell')} of {models} ({found.setup}). {failed}".rstrip()


def _answer(found: SweepTable) -> doc.Answer:
    said = [str(r) for r in found.remarks]
    more = (Items(tuple(said), level=DETAIL), Items(tuple(notes(found)), kind="missing", level=DETAIL))
    if not found.measured:
        return doc.Answer(
            "Nothing to judge the claims by", "", (summary(found),), summary(found), (), more, "none"
        )
    best = max(found.measured, key=lambda c: c.value(THROUGHPUT) or 0.0)
    held = sum(c.found.answer is Answer.HOLDS for c in found.claims)
    decided = sum(c.found.answer in (Answer.HOLDS, Answer.FAILS) for c in found.claims)
    tiles = (
        Tile("Cells finished", len(found.measured), small=(f"of {len(found.cells)} requested",)),
        Tile("Most throughput", best.total, "samples/s", (best.place,)),
        Tile("Claims that hold", held, small=(f"of {decided} decided, {len(found.claims)} in all",)),
    )
    short = (summary(found), *_coverage(found), *said[:1])
    reason = f"{summary(found)} {claim.tally(found.claims, why=True)}."
    return doc.Answer("Claims", claim.tally(found.claims), short, reason, tiles, more)


def notes(found: SweepTable) -> list[str]:
    """Return notes about the table: where its figures come from, and what it leaves out."""
    return [*_coverage(found), *(_measured(found) if found.measured else ()), *_others(found)]


def _measured(found: SweepTable) -> Iterator[str]:
    kinds = Counter(c.interval for c in found.measured)
    yield "95 % intervals: " + "; ".join(
        f"{units.counted(n, 'cell')}: {kind}" for kind, n in kinds.most_common()
    )
    yield f"Memory: {memory_words(found)} ({found.memory})."
    if found.scope:
        yield f"Power and energy: scope {found.scope}."
    if all(c.trial.processes == 1 for c in found.measured):
        yield "Only one process was measured: this table does not show how processes share the device."
    if bad := [c.place for c in found.measured if c.verdict.trust in DISTURBED]:
        shown = "; ".join(bad[:3]) + (f" and {len(bad) - 3} more" if len(bad) > 3 else "")
        shown = f"all {len(bad)} cells" if len(bad) == len(found.measured) > 1 else shown
        yield f"Measured while the machine was disturbed or throttled: {shown}."
    lost = Counter(f"{r.status.value}: {brief(str(r.reason))}" for c in found.measured for r in c.lost)
    for why, n in lost.most_common(3):
        yield f"{n} more run{'s' * (n > 1)} of these cells gave no figure: {why}."
    skews = [(v, c.place) for c in found.measured if (v := c.value("start_skew_s")) is not None]
    if skews:
        most, cell = max(skews, key=lambda pair: pair[0])
        yield f"Workers started within {most * 1e3:.3g} ms of each other at worst ({cell})."


def _coverage(found: SweepTable) -> list[str]:
    """Return how much of the study finished, and which of its cells did not."""
    if not found.asked:
        return []
    there = f"{len(found.asked) - len(found.missing)} of the study's {len(found.asked)} cells"
    lacking = f"; missing: {_some([place_of(t) for t in found.missing])}" if found.missing else ""
    other = sorted({setup(t) for t in found.asked} - {found.setup})
    but = f" The study requests {'; '.join(other)}." if other and found.setup else ""
    return [f"Coverage: {there}{lacking}.{but}"]


def _others(found: SweepTable) -> Iterator[str]:
    for name, n in found.others:
        yield f"Also in this store, not shown: {n} cells of {name}. Try: --setup '{name}'"
    if found.left_out:
        why = "another scenario, several queries in flight, or colocated models"
        yield f"{found.left_out} results are left out: {why}."


def failures(found: SweepTable) -> list[str]:
    """Return one line for each reason why cells did not finish: the reason in short, how many cells and which."""
    reasons: dict[str, list[str]] = {}
    for c in found.failed:
        reasons.setdefault(f"{c.status.value}: {brief(c.rejected) or 'no reason given'}", []).append(c.place)
    return [f"{why} ({_some(places)})" for why, places in reasons.items()]


def _some(places: Sequence[str]) -> str:
    if len(places) == 1:
        return places[0]
    more = f" and {len(places) - 2} more" if len(places) > 2 else ""
    return f"{len(places)} cells: {'; '.join(places[:2])}{more}"


def warm(each: WarmRatio) -> str:
    """Return one cell's warm over fresh throughput."""
    shown = times(each.ratio) if isinstance(each.ratio, Measured) else f"n/a ({each.ratio.reason})"
    return f"{each.cell.place}: {shown} ({each.warm} warm, {each.fresh} fresh)"


# -- figures and cells ---------------------------------------------------------------------------------------


def _figures(found: SweepTable) -> Iterator[doc.Figure]:
    batches = sorted({c.trial.batch for c in found.measured if c.trial.processes > 1})
    drawn = (n for n in found.paper.numbers if n.figure in (THROUGHPUT, PER_PROCESS))
    theirs = THEIRS if any(found.paper.is_of(n, m) for n in drawn for m in found.models) else ""

    def figure(name: str, heading: str, caption: str, call: str, *more: int) -> doc.Figure:
        return doc.Figure(name, heading, caption, partial(_drawn, call, found, *more))

    yield figure("batch", "Over batch size, one process", WHISKERS + theirs, "over_batch")
    yield figure("precision", "Over precision", f"Bars begin at 0. {WHISKERS}", "over_precision")
    how = f"Colour is the precision, dash how the processes share the device. {WHISKERS}{theirs}"
    for b in batches:
        yield figure(f"processes-{b}", f"Over processes, batch {b}", how, "over_processes", b)
    every = "Every cell. A plateau of power is a row of marks at one height while throughput still changes."
    yield figure("power", "Power against throughput", every, "power_over_throughput")
    if found.traced:
        drawn_cdfs = partial(sweep_traces.figure, found)
        yield doc.Figure("cdf", "EC and CS of a query", sweep_traces.CAPTION, drawn_cdfs)


def _drawn(call: str, found: SweepTable, *more: int) -> Any:
    from edgescope.wings.studies import sweep_figures  # only a page needs plotly

    return getattr(sweep_figures, call)(found, *more)


def _cells(found: SweepTable, show: str) -> Section | None:
    """Return a grid for each quantity that was measured in some cell."""
    if not found.measured:
        return None
    tables = {name: grid(found, name) for name in QUANTITIES if name != show}
    folded = ((QUANTITIES[name][0], t) for name, t in tables.items() if t is not None)
    parts = [Section(title, (t,), "folded", level=DETAIL) for title, t in folded]
    lost = ", ".join(QUANTITIES[name][0] for name, t in tables.items() if t is None)
    lead = "A column is a number of processes P. Small figures are 95 % intervals."
    said = f"{lead} Not measured: {lost}." if lost else lead
    return Section("Every cell", (Text(said, "lead", DETAIL), *parts), level=DETAIL)


def grid(found: SweepTable, name: str, level: doc.Level = DETAIL) -> Table | None:
    """Return a table of one quantity: a row per model, precision, batch and sharing, a column per number of processes.

    A hundred cells with ten figures each read badly as rows; the eye can follow P along a row. None if no cell has it.
    """
    _, figure, unit = QUANTITIES[name]
    figure = found.memory if figure == "memory" else figure
    if all(c.value(figure) is None for c in found.measured):
        return None
    processes = sorted({c.trial.processes for c in found.cells})
    groups: dict[str, dict[int, Cell]] = {}
    for c in found.cells:
        t = c.trial
        alone = t.sharing == "time_slicing" and processes == [1]
        shared = "" if alone else f", {sharing_words(t)}"
        groups.setdefault(f"{t.model} {t.precision} batch {t.batch}{shared}", {})[t.processes] = c
    columns = (Column("Cell"), *(Column(f"P = {p}", unit, rank=i) for i, p in enumerate(processes)))
    rows = (
        doc.Row((words, *(_value(cells.get(p), figure) for p in processes)))
        for words, cells in groups.items()
    )
    return Table(columns, tuple(rows), level=level, grid=True)


def _value(cell: Cell | None, figure: str) -> doc.Value:
    """Return a cell's value, its status (such as `oom`) if it did not run, or `·` if it was not requested."""
    if cell is None:
        return "·"
    return cell[figure] if cell.ok else Mark(cell.status.value, "bad", cell.rejected)


def _memory(found: SweepTable) -> Section | None:
    lines = [m for m in found.lines if isinstance(m.slope, Measured)]
    columns = (
        Column("Series"),
        Column("A process costs", "bytes"),
        Column("At P = 0", "bytes", rank=2),
        Column("Off the line at most", "share", rank=3),
        Column("model + 2 × batch", "bytes", rank=1),
        Column("Cost over rule", "ratio"),
    )
    rows = [doc.Row((m.series.words, m.slope, m.start, m.residual, m.rule, m.against)) for m in lines]
    table = Table(columns, tuple(rows), lead=LINE, level=DETAIL)
    return Section("Memory against processes", (table,), level=DETAIL) if lines else None


# -- the paper's own numbers ---------------------------------------------------------------------------------


def _theirs(found: SweepTable) -> Section:
    heads = ("The paper's cell", "Board", "Its figure", "Known from", "Here, other hardware")
    rows = [doc.Row((n.place, n.board, n.text, n.source, beside(found, n))) for n in found.paper.numbers]
    table = Table(
        tuple(map(Column, heads)), tuple(rows), lead=f"{found.paper.boards}. {OTHER_HARDWARE}", level=DETAIL
    )
    heading = f"Figures of the paper that could be recovered ({found.paper.source})"
    return Section(heading, (table,), level=DETAIL)


def beside(found: SweepTable, number: Number) -> str:
    """Return our figure of the same cell, or why there is none: printed beside the paper's, never divided by it."""
    if number.unmeasured:
        return number.unmeasured
    models = [m for m in found.models if not number.model or found.paper.is_of(number, m)]
    mine = [c for c in found.measured if c.trial.model in models and _same(c, number)]
    if name := {"memory_growth": found.memory, "ec_growth": "ec_s"}.get(number.figure):
        if name == "ec_s" and found.untraced:
            return found.untraced
        alone = [c for c in found.measured if c.trial.processes == 1]
        pairs = [(c, a) for c in mine for a in alone if key(c.trial)[:-2] == key(a.trial)[:-2]]
        ratios = [(c, of_fields(c[name], a[name])) for c, a in pairs]
        shown = [f"{times(r)} ({_how(c)})" for c, r in ratios if isinstance(r, Measured)]
    else:
        shown = [f"{_rate(c, number.figure)} ({_how(c)})" for c in mine]
    return "; ".join(shown) or "not measured here"


def _same(cell: Cell, number: Number) -> bool:
    t = cell.trial
    same = (t.batch, t.processes) == (number.batch, number.processes)
    return same and (not number.precision or t.precision == number.precision)


def _how(cell: Cell) -> str:
    parts = cell.place.removeprefix(f"{cell.trial.model} ").split(", ")
    return ", ".join(p for p in parts if not p.startswith("P ="))


def _rate(cell: Cell, figure: str) -> str:
    y = cell[figure]
    if isinstance(y, Absent):
        return "n/a"
    return f"{y.value:,.0f}" + (
        f" [{y.lo:,.0f}, {y.hi:,.0f}]" if y.lo is not None and y.hi is not None else ""
    )


# -- what a program reads ------------------------------------------------------------------------------------


CELL = ("model", "precision", "batch", "processes", "sharing", "cell")
HEAD = ("model", "setup", *CELL[1:5], "status", "reason", "verdict", "runs", "interval", "machine", "cell")
SENSED = (*FIGURES[1:], *ACTIVITY)
COLUMNS = (THROUGHPUT, PER_PROCESS, "latency_p50_s", "latency_p99_s", *dict.fromkeys((*SENSED, *TRACED)))


def _rows(found: SweepTable) -> Table:
    """Return one row for each cell, for a CSV: each value with its interval and n, or why it is absent."""
    machine = found.machine.id if found.machine else ""
    rows = []
    for c in found.cells:
        model, *axes, cell = (getattr(c.trial, name) for name in CELL)
        end = (c.status.value, c.rejected, c.verdict.trust.value if c.ok else "", len(c.runs), c.interval)
        none = Absent(f"{c.status.value}: {c.rejected}")
        fields = (c[name] if c.ok else none for name in COLUMNS)
        rows.append(doc.Row((model, found.setup, *axes, *end, machine, cell, *fields)))
    return Table(tuple(Column(name, key=name) for name in (*HEAD, *COLUMNS)), tuple(rows), level=DATA)


def _data(found: SweepTable) -> dict[str, Any]:
    page = found.paper
    return {
        "machine": found.machine.id if found.machine else None,
        "setup": found.setup,
        "other_setups": dict(found.others),
        "left_out": found.left_out,
        "memory": found.memory,
        "scope": found.scope,
        "remarks": [to_plain(r) for r in found.remarks],
        "claims": claim.plain(found.claims),
        "kernel_level": sweep_traces.data(found),
        "cells": [_cell(c) for c in found.cells],
        "memory_lines": [
            {"series": m.series.words, "points": m.points, "linear": m.linear}
            | {name: getattr(m, name) for name in ("slope", "start", "residual", "rule", "against")}
            for m in found.lines
        ],
        "warm_over_fresh": [
            {"cell": w.cell.place, "ratio": w.ratio, "warm": w.warm, "fresh": w.fresh} for w in found.warm
        ],
        "paper": {name: getattr(page, name) for name in ("title", "source", "boards", "method", "numbers")},
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {name: getattr(cell.trial, name) for name in CELL} | {
        "status": cell.status.value,
        "reason": cell.rejected,
        "verdict": cell.verdict.trust.value if cell.ok else None,
        "runs": [r.id for r in cell.runs],
        "interval": cell.interval,
        "figures": dict(cell.metrics),
    }
