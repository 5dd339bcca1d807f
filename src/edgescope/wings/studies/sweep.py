"""What the page of a paper's sweep says of one table: the answer, figures, cells, memory, then the paper's own numbers.

Its tables and the order of its parts are in sweep.toml; all read the same SweepTable, so a plot and its printed numbers
agree. Kernel-level figures stand beside the perturbation of their cell: cells that the profiler slowed too much are in
the table, and in nothing that is concluded from it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from edgescope import registry, units
from edgescope.analysis.cells.concurrency import (
    FIGURES,
    Cell,
    MemoryLine,
    Series,
    is_traced,
    key,
    over_batches,
    over_processes,
    setup,
    sharing_words,
    times,
)
from edgescope.analysis.cells.concurrency import place as place_of
from edgescope.analysis.cells.concurrency import wanted as fits
from edgescope.analysis.cells.replicates import of_fields
from edgescope.analysis.kernels.account import Account
from edgescope.analysis.kernels.rows import CDF
from edgescope.analysis.run.usage import ACTIVITY
from edgescope.records import Absent, Measured, Result, Trial, Trust
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.report.document import DETAIL, MAIN, Column, Items, Mark, Section, Table, Text, Tile
from edgescope.study import grid as cells_of
from edgescope.wings.studies import claim
from edgescope.wings.studies import paper as published
from edgescope.wings.studies.boards import LATENCY, MEMORY, Entry, entry, memory
from edgescope.wings.studies.claim import Answer, brief
from edgescope.wings.studies.page import Content, Reading, where
from edgescope.wings.studies.paper import Number, Paper
from edgescope.wings.studies.sweep_table import SweepTable, WarmRatio, memory_words, sweep_table
from edgescope.wings.studies.traced import FIGURES as TRACED
from edgescope.wings.studies.traced import TracedCell

WHISKERS = "Whiskers are 95 % intervals; hovering shows where they come from, and each cell's verdict."
THEIRS = " Open grey diamonds are the paper's recovered figures: other boards, so they cannot be compared."
CDFS = (
    "The share of queries whose EC (solid) or CS (dotted) is at most this long, each cell under a profiler."
)
DISTURBED = (Trust.DISTURBED, Trust.THROTTLED)
THROUGHPUT, PER_PROCESS = "throughput_sps", "throughput_per_process_sps"
QUANTITIES: Mapping[str, tuple[str, str, str]] = published.sweep()["quantity"]


def wanted(trial: Trial, models: Sequence[str] = (), **_: object) -> bool:
    """Return whether a stored trial belongs to this study."""
    return fits(trial) or is_traced(trial)


def content(
    paper: Paper,
    results: Iterable[Result],
    *,
    models: tuple[str, ...] = (),
    setup: str = "",
    study: Sequence[Trial] = (),
    show: str = "",
    traces: Mapping[str, Account] | None = None,
    left_out: int = 0,
    **_: object,
) -> Content:
    """Return what the page says; `study` has the cells of the study file, `show` is the quantity to print in any case.

    `traces` are the accounts of files that a profiler exported, by their names.
    """
    asked = [t for t in study if not models or t.model.startswith(models)]
    found = sweep_table(paper, results, of_setup=setup, left_out=left_out, asked=asked, traces=traces)
    return told(found, show)


def told(found: SweepTable, show: str = "") -> Content:
    """Return what the page says of a table."""
    no_traces = f"Not measurable here: {found.untraced}" if found.untraced else ""
    grown = list(growth(found.cells)) or [no_traces] * bool(no_traces)
    return Content(
        title=found.paper.heading + where(found.machine),
        answer=_answer(found),
        rows={
            "cells": list(map(partial(_row, found), found.cells)),
            "memory": [_line(m) for m in found.lines if isinstance(m.slope, Measured)],
            "traced": [_traced(t) for t in found.traced],
            "theirs": [_theirs(found, n) for n in found.paper.numbers],
        },
        lines={
            "figures": (*HEAD, *COLUMNS),
            "untraced": () if found.traced else (no_traces,),
            "growth": grown if found.traced else (),
            "warm": list(map(warm, found.warm)),
        },
        own={
            "shown": Section(QUANTITIES[show][0], (grid(found, show, MAIN),)) if show else None,
            "figures": Section("", tuple(_figures(found)), level=doc.PAGE) if found.measured else None,
            "cells": _cells(found, show),
            "failures": _failed(found),
        },
        claims=found.claims,
        data=_data(found),
        entries=list(entries(found)),
    )


def planned(paper: Paper, *, study: Sequence[Trial] = (), device: str = "cpu") -> tuple[Trial, ...]:
    """Return the cells of the study file, else those of the paper for a device, on a board those that one can run."""
    grids, there = paper.page["grid"], f"{device}_on_board"
    key = there if os.environ.get(registry.ON) and there in grids else device
    return tuple(study) or cells_of.grid(grids[key])


def entries(found: SweepTable) -> Iterator[Entry]:
    """Yield of each model the cell with most throughput, and the one with most at batch 1 in one process."""
    for model in found.models:
        mine = [c for c in found.measured if c.trial.model == model]
        alone = [c for c in mine if c.trial.batch == c.trial.processes == 1]
        name = model.partition("#")[0]
        for work, of in ((f"{name}, best", mine), (f"{name}, b1 P1", alone)):
            if of:
                yield _entry(found, work, max(of, key=lambda c: c.value(THROUGHPUT) or 0.0))


def _entry(found: SweepTable, work: str, cell: Cell) -> Entry:
    """Return a cell with its memory: of all, where CPU and GPU share it, else the figure that the table chose."""
    took = memory(cell.runs)
    jetson = found.machine is not None and "jetson" in found.machine.stable
    more = {MEMORY: took if jetson else cell[found.memory], LATENCY: cell[LATENCY]}
    how = f"{cell.place.removeprefix(cell.trial.model).strip()}, {cell.trial.backend}"
    return entry(work, how, cell.runs, more)


def _failed(found: SweepTable) -> Section | None:
    level, lines = DETAIL if found.measured else MAIN, tuple(failures(found))
    items = Items(lines, "", "warnings", level)
    return Section("Cells without a figure", (items,), level=level) if lines else None


# -- the answer ----------------------------------------------------------------------------------------------


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
        yield doc.Figure("cdf", "EC and CS of a query", CDFS, partial(_cdf_figure, found))


def _drawn(call: str, found: SweepTable, *more: int) -> Any:
    from edgescope.wings.studies import sweep_plot  # only a page needs plotly

    return getattr(sweep_plot, call)(found, *more)


def _cdf_figure(found: SweepTable) -> Any:
    from edgescope.wings.trace.lends import cdfs

    return cdfs([(place_of(t.trial), t.budget) for t in found.traced])


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


def _line(line: MemoryLine) -> Reading:
    figures = {name: getattr(line, name) for name in ("slope", "start", "residual", "rule", "against")}
    return {"series": line.series.words, **figures}


# -- the kernel level ----------------------------------------------------------------------------------------


def _traced(traced: TracedCell) -> Reading:
    facts = {"cell": place_of(traced.trial), "source": traced.source, "perturbation": traced.perturbation}
    return {**facts, **traced.figures, "busy": traced.busy, **traced.use}


def growth(cells: Sequence[Cell]) -> Iterator[str]:
    """Yield how EC and CS grow over processes and over batches, a line for each series with two traced cells."""
    for series in (*over_processes(cells), *over_batches(cells)):
        known = [c for c in series.cells if c.value("ec_s") and c.value("cs_s")]
        if len(known) > 1:
            both = ", ".join(
                f"{word} {_over(known, series, name)}" for word, name in (("EC", "ec_s"), ("CS", "cs_s"))
            )
            yield f"{series.words}: {both}, over {_axis(known[0], series)}"


def _over(known: Sequence[Cell], series: Series, name: str) -> str:
    """Return `1.2x at P = 2, 2.1x at P = 8`."""
    ratios = [(c, of_fields(c[name], known[0][name])) for c in known[1:]]
    return ", ".join(f"{times(r)} at {_axis(c, series)}" for c, r in ratios if isinstance(r, Measured))


def _axis(cell: Cell, series: Series) -> str:
    return f"P = {cell.trial.processes}" if series.axis == "processes" else f"batch {cell.trial.batch}"


def kernel_level(found: SweepTable) -> dict[str, Any]:
    """Return the traced cells as plain values, each with the points of its CDFs in seconds."""
    rows = [
        {"cell": place_of(t.trial), "profiler": t.source, "perturbation": t.perturbation}
        | {"inferences": len(t.budget.inferences) if t.budget else None, "gpu_busy": t.busy}
        | {"figures": dict(t.figures), "cdf_s": _cdfs(t)}
        for t in found.traced
    ]
    return {"cells": rows, "growth": list(growth(found.cells)), "absent": found.untraced or None}


def _cdfs(traced: TracedCell) -> Mapping[str, Mapping[str, float]]:
    if traced.budget is None:
        return {}
    both = {name: traced.budget.distribution(name).quantiles_ns for name in ("ec", "cs")}
    return {n: {f"{q:g}": ns * 1e-9 for q, ns in zip(CDF, found, strict=True)} for n, found in both.items()}


# -- the paper's own numbers ---------------------------------------------------------------------------------


def _theirs(found: SweepTable, number: Number) -> Reading:
    facts = {name: getattr(number, name) for name in ("place", "board", "text", "source")}
    return {**facts, "beside": beside(found, number)}


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


def _row(found: SweepTable, cell: Cell) -> Reading:
    """Return a cell for a CSV: each value with its interval and n, or why it is absent."""
    ok, none = cell.ok, Absent(f"{cell.status.value}: {cell.rejected}")
    facts = {name: getattr(cell.trial, name) for name in CELL} | {
        "setup": found.setup,
        "status": cell.status.value,
        "reason": cell.rejected,
        "verdict": cell.verdict.trust.value if ok else "",
        "runs": len(cell.runs),
        "interval": cell.interval,
        "machine": found.machine.id if found.machine else "",
    }
    return {**facts, **{name: cell[name] if ok else none for name in COLUMNS}}


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
        "kernel_level": kernel_level(found),
        "cells": [_cell(c) for c in found.cells],
        "memory_lines": [{**_line(m), "points": m.points, "linear": m.linear} for m in found.lines],
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
