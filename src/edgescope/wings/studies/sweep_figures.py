"""Plots of a paper's sweep on this machine: over batch, precision and processes, with one column for each model.

Colour is the precision, dash and symbol are how processes share the device. The paper's recovered figures are open grey
diamonds: they come from other boards and are shown only for orientation. A figure with nothing to show is
Absent(reason).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from edgescope.analysis.cells.concurrency import PRECISIONS, Cell, sharing_words
from edgescope.plots.style import BASELINE_COLOUR, COLOURS, Figure, Scale, interval
from edgescope.records import Absent, Measured
from edgescope.wings.studies.panels import Look, Marks, Panel, Point, Row, measured, panels
from edgescope.wings.studies.paper import Number
from edgescope.wings.studies.sweep_table import SweepTable

COLOUR = {p: COLOURS[i] for p, i in zip(PRECISIONS, (5, 4, 0, 3, 2, 1), strict=True)}
DASHES = {"time_slicing": ("solid", "circle"), "mps": ("dash", "square"), "pinned": ("dot", "triangle-up")}
SCALES = {
    "samples/s": Scale(1.0, "samples/s"),
    "W": Scale(1.0, "W"),
    "J": Scale(1e3, "mJ"),
    "s": Scale(1e3, "ms"),
    "bytes": Scale(1e-6, "MB"),
}
POWER = (("power", "power_w", "W"), ("energy a sample", "energy_per_sample_j", "J"))
TRACED = (("EC, profiled", "ec_s", "s"), ("CS, profiled", "cs_s", "s"))
Quantity = tuple[str, str, str]
"""Title, figure, unit."""


def over_batch(table: SweepTable) -> Figure | Absent:
    """Return throughput against batch size of one process, with one line for each precision."""
    cells = _alone(table)
    ticks = sorted({float(c.trial.batch) for c in cells})
    if len(ticks) < 2:
        return Absent("only one batch size was measured with one process")
    rows = _rows(table, cells, [("throughput", "throughput_sps", "samples/s"), *POWER, *TRACED], "batch")
    x = {"type": "log", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]}
    return panels(table.models, rows, x, "batch size")


def over_precision(table: SweepTable) -> Figure | Absent:
    """Return bars of throughput, memory, power and energy at each precision: one process, the smallest batch."""
    alone = _alone(table)
    if not alone:
        return Absent("no cell of one process finished")
    least = min(c.trial.batch for c in alone)
    cells = [c for c in alone if c.trial.batch == least]
    order = [p for p in PRECISIONS if any(c.trial.precision == p for c in cells)]
    if len(order) < 2:
        return Absent("only one precision was measured")
    wanted = [("throughput", "throughput_sps", "samples/s"), ("memory", table.memory, "bytes"), *POWER]
    rows = _rows(table, cells, wanted, "precision")
    x = {"type": "category", "categoryorder": "array", "categoryarray": order}
    return panels(table.models, rows, x, f"precision (batch {least}, one process)")


def over_processes(table: SweepTable, batch: int) -> Figure | Absent:
    """Return total throughput, T/P, p99 and memory against the number of processes at one batch size."""
    cells = [c for c in table.measured if c.trial.batch == batch]
    if len({c.trial.processes for c in cells}) < 2:
        return Absent(f"only one number of processes was measured at batch {batch}")
    wanted = [
        ("throughput in all", "throughput_sps", "samples/s"),
        ("throughput a process", "throughput_per_process_sps", "samples/s"),
        ("p99 latency", "latency_p99_s", "s"),
        *TRACED,
        ("memory", table.memory, "bytes"),
    ]
    rows = _rows(table, cells, wanted, "processes")
    for panel, model in zip(rows[-1].panels, table.models, strict=True):
        if panel.values and rows[-1].zero:
            panel.marks += _rule(table, model, batch)
    x = {"tickvals": sorted({x for row in rows for panel in row.panels for x in panel.places})}
    return panels(table.models, rows, x, f"processes (batch {batch})")


def power_over_throughput(table: SweepTable) -> Figure | Absent:
    """Return power against total throughput of every cell: a plateau is a row of marks at one height."""
    cells = [c for c in table.measured if c.value("power_w") is not None]
    if not cells:
        why = next((f.reason for c in table.measured if isinstance(f := c["power_w"], Absent)), "no cell ran")
        return Absent(why)
    row = Row("power", SCALES["W"], [_scattered(cells, m) for m in table.models], zero=True)
    return panels(table.models, [row], {"rangemode": "tozero", "nticks": 5}, "throughput in all (samples/s)")


def _alone(table: SweepTable) -> list[Cell]:
    """Return the finished cells of one process that does not share the device."""
    return [c for c in table.measured if c.trial.processes == 1 and c.trial.sharing == "time_slicing"]


def _rows(table: SweepTable, cells: Sequence[Cell], wanted: Sequence[Quantity], axis: str) -> list[Row]:
    """Return a row of panels for each quantity that a cell has: bars over precisions, lines over other axes."""
    rows = []
    for title, name, unit in wanted:
        known = [v for c in cells if (v := c.value(name)) is not None]
        if not known:
            continue
        scale = Scale(1e-9, "GB") if unit == "bytes" and max(known) >= 2e9 else SCALES[unit]
        bars = axis == "precision"
        draw = _bars if bars else _lines
        shown = [draw(table, cells, model, name, axis) for model in table.models]
        rows.append(Row(title, scale, shown, zero=bars or unit == "bytes"))
    return rows


def _lines(table: SweepTable, cells: Sequence[Cell], model: str, name: str, axis: str) -> Panel:
    """Return one panel with a line for each precision and sharing; P = 1 begins every line of its precision."""
    mine = [c for c in cells if c.trial.model == model]
    several = len({c.trial.sharing for c in cells}) > 1
    panel = Panel()
    for precision in PRECISIONS:
        for sharing in dict.fromkeys(c.trial.sharing for c in mine):
            line = [c for c in mine if (c.trial.precision, c.trial.sharing) == (precision, sharing)]
            if sharing != "time_slicing" and line and all(c.trial.processes > 1 for c in line):
                begin = (precision, 1, "time_slicing")
                line = [c for c in mine if _how(c) == begin] + line
            points = _points(sorted(line, key=lambda c: getattr(c.trial, axis)), name, axis)
            panel.marks += [Marks(_look(line[-1], several), points)] if points else []
    panel.marks += _theirs(table, model, name, axis, cells)
    return panel


def _how(cell: Cell) -> tuple[str, int, str]:
    return cell.trial.precision, cell.trial.processes, cell.trial.sharing


def _bars(_: SweepTable, cells: Sequence[Cell], model: str, name: str, axis: str) -> Panel:
    mine = sorted((c for c in cells if c.trial.model == model), key=lambda c: c.trial.precision)
    found = [(c.trial.precision, _points([c], name, axis)) for c in mine]
    return Panel([Marks(Look(p, COLOUR[p]), points, bars=True) for p, points in found if points])


def _scattered(cells: Sequence[Cell], model: str) -> Panel:
    groups: dict[tuple[str, str], list[Cell]] = {}
    for c in cells:
        if c.trial.model == model and c.value("throughput_sps"):
            groups.setdefault((c.trial.precision, c.trial.sharing), []).append(c)
    found = ((g, _points(g, "power_w", lambda c: c.value("throughput_sps") or 0.0)) for g in groups.values())
    return Panel([Marks(_look(group[0], True), points, joined=False) for group, points in found])


def _look(cell: Cell, several: bool) -> Look:
    t = cell.trial
    kind, _, part = t.sharing.partition("=")
    dash, symbol = DASHES.get(kind, ("longdashdot", "star"))
    name = f"{t.precision}, {sharing_words(t)}" if several else t.precision
    return Look(name, COLOUR[t.precision], "longdash" if part else dash, symbol)


def _points(cells: Sequence[Cell], name: str, x: str | Callable[[Cell], float]) -> list[Point]:
    """Return the marks of the cells that have the figure; `x` is a key of the trial or a function of the cell."""
    points = []
    for cell in cells:
        if (y := measured(cell[name])) is not None:
            at = x(cell) if callable(x) else getattr(cell.trial, x)
            points.append(Point(at if isinstance(at, str) else float(at), y, hover(cell, y)))
    return points


def hover(cell: Cell, y: Measured) -> str:
    """Return the hover text of a mark: its cell, value, interval with its kind, and the verdict."""
    scale = SCALES.get(y.unit, Scale(1.0, y.unit))
    shown = interval(y, scale.factor, scale.unit)
    return f"{cell.place}: {shown}; {cell.interval}, {cell.verdict.trust.value}"


def _rule(table: SweepTable, model: str, batch: int) -> list[Marks]:
    """Return the paper's P x (model + 2 x batch) as a line for each precision."""
    out: dict[str, Marks] = {}
    for line in table.lines:
        t, rule = line.series.cells[-1].trial, line.rule
        if (t.model, t.batch) == (model, batch) and isinstance(rule, Measured):
            look = Look(f"{t.precision}, P × (model + 2 × batch)", COLOUR[t.precision], "dot", "")
            costs = [(p, p * rule.value) for p in (c.trial.processes for c in line.series.cells)]
            points = [Point(p, replace(rule, value=v), f"{look.name} = {v * 1e-6:,.0f} MB") for p, v in costs]
            out.setdefault(t.precision, Marks(look, points))
    return list(out.values())


def _theirs(table: SweepTable, model: str, name: str, axis: str, cells: Sequence[Cell]) -> list[Marks]:
    """Return the paper's figures of this model and quantity; over processes, only those at the cells' batch."""
    batches = {c.trial.batch for c in cells}
    furthest = 2 * max(getattr(c.trial, axis) for c in cells)
    out: dict[str, list[Point]] = {}
    for n in sorted(table.paper.numbers, key=lambda n: (n.processes, n.batch)):
        fits = n.processes == 1 if axis == "batch" else n.batch in batches
        at = n.batch if axis == "batch" else n.processes
        if table.paper.is_of(n, model) and fits and at <= furthest and _says(n, name):
            kind = f", {n.precision}" if n.precision else ""
            key = f"paper: {n.board}{kind} (other hardware; {n.known})"
            text = f"{n.board}: {n.text} ({n.source}). Other hardware"
            out.setdefault(key, []).append(Point(float(at), Measured(n.value, "samples/s"), text))
    looks = {key: "diamond" if "Orin" in key else "star-diamond" for key in out}
    return [
        Marks(Look(key, BASELINE_COLOUR, symbol=looks[key]), points, theirs=True)
        for key, points in out.items()
    ]


def _says(number: Number, name: str) -> bool:
    """Return whether a number is about this figure; the throughput of one process is also its T/P at P = 1."""
    alone = number.figure == "throughput_sps" and number.processes == 1
    return number.figure == name or (name == "throughput_per_process_sps" and alone)
