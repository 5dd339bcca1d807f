"""The concurrent-inference paper's figures on this machine: over batch, precision and processes, one column a model.

Colour is the precision, dash and symbol are how processes share the device. The paper's recovered figures are open grey
diamonds: other boards, shown for orientation and never as if they could be compared. A figure with nothing to show is
Absent(reason).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from edgescope.analysis.cells.concurrency import PRECISIONS, Cell, sharing_words
from edgescope.papers.concurrent_inference.table import Concurrent
from edgescope.papers.paper import Number
from edgescope.plots.panels import Look, Marks, Panel, Point, Row, measured, panels
from edgescope.plots.style import BASELINE_COLOUR, COLOURS, Figure, Scale, interval
from edgescope.records import Absent, Measured

COLOUR = {p: COLOURS[i] for p, i in zip(PRECISIONS, (4, 0, 3, 2, 1), strict=True)}
DASHES = {"time_slicing": ("solid", "circle"), "mps": ("dash", "square"), "pinned": ("dot", "triangle-up")}
RATE = Scale(1.0, "samples/s")
WATTS = Scale(1.0, "W")
JOULES = Scale(1e3, "mJ")
SECONDS = Scale(1e3, "ms")
Pick = Callable[[Cell], bool]


def over_batch(table: Concurrent) -> Figure | Absent:
    """Return throughput against batch size of one process, a line a precision."""
    cells = _alone(table)
    if len({c.trial.batch for c in cells}) < 2:
        return Absent("only one batch size was measured with one process")
    rows = [
        Row("throughput", RATE, [_lines(table, cells, m, "throughput_sps", _batch) for m in table.models])
    ]
    rows += _power_rows(table, cells)
    return panels(table.models, rows, _powers(_batch(c) for c in cells), "batch size")


def _power_rows(table: Concurrent, cells: Sequence[Cell]) -> list[Row]:
    """Return rows of power and energy a sample, where any cell has them."""
    out = []
    for title, name, scale in (
        ("power", "power_w", WATTS),
        ("energy a sample", "energy_per_sample_j", JOULES),
    ):
        if any(c.value(name) is not None for c in cells):
            out.append(Row(title, scale, [_lines(table, cells, m, name, _batch) for m in table.models]))
    return out


def over_precision(table: Concurrent) -> Figure | Absent:
    """Return bars of throughput, memory, power and energy at each precision: one process, the smallest batch."""
    alone = _alone(table)
    if not alone:
        return Absent("no cell of one process finished")
    least = min(c.trial.batch for c in alone)
    cells = [c for c in alone if c.trial.batch == least]
    if len({c.trial.precision for c in cells}) < 2:
        return Absent("only one precision was measured")
    wanted = (
        ("throughput", "throughput_sps", RATE),
        ("memory", table.memory, _bytes(cells, table.memory)),
        ("power", "power_w", WATTS),
        ("energy a sample", "energy_per_sample_j", JOULES),
    )
    rows = [
        Row(title, scale, [_bars(cells, m, name) for m in table.models], zero=True)
        for title, name, scale in wanted
        if any(c.value(name) is not None for c in cells)
    ]
    order = [p for p in PRECISIONS if any(c.trial.precision == p for c in cells)]
    x = {"type": "category", "categoryorder": "array", "categoryarray": order}
    return panels(table.models, rows, x, f"precision (batch {least}, one process)")


def over_processes(table: Concurrent, batch: int) -> Figure | Absent:
    """Return total throughput, T/P, p99 and memory against the number of processes at one batch size."""
    cells = [c for c in table.measured if c.trial.batch == batch]
    if len({c.trial.processes for c in cells}) < 2:
        return Absent(f"only one number of processes was measured at batch {batch}")
    wanted = (
        ("throughput in all", "throughput_sps", RATE),
        ("throughput a process", "throughput_per_process_sps", RATE),
        ("p99 latency", "latency_p99_s", SECONDS),
        ("memory", table.memory, _bytes(cells, table.memory)),
    )
    rows = []
    for title, name, scale in wanted:
        if any(c.value(name) is not None for c in cells):
            shown = [_lines(table, cells, m, name, _processes) for m in table.models]
            rows.append(Row(title, scale, shown, zero=name == table.memory))
    for panel, model in zip(rows[-1].panels, table.models, strict=True):
        if panel.values and rows[-1].zero:
            panel.marks += _rule(table, model, batch)
    x = {"tickvals": sorted({x for row in rows for panel in row.panels for x in panel.places})}
    return panels(table.models, rows, x, f"processes (batch {batch})")


def _rule(table: Concurrent, model: str, batch: int) -> list[Marks]:
    """Return the paper's P x (model + 2 x batch) as a line for each precision."""
    out: dict[str, Marks] = {}
    for line in table.lines:
        t = line.series.cells[-1].trial
        if (t.model, t.batch) == (model, batch) and isinstance(line.rule, Measured):
            look = Look(f"{t.precision}, P × (model + 2 × batch)", COLOUR[t.precision], "dot", "")
            places = [c.trial.processes for c in line.series.cells]
            points = [
                Point(
                    p,
                    replace(line.rule, value=p * line.rule.value),
                    f"{look.name} = {p * line.rule.value * 1e-6:,.0f} MB",
                )
                for p in places
            ]
            out.setdefault(t.precision, Marks(look, points))
    return list(out.values())


def power_over_throughput(table: Concurrent) -> Figure | Absent:
    """Return power against total throughput of every cell: a plateau is a row of marks at one height."""
    cells = [c for c in table.measured if c.value("power_w") is not None]
    if not cells:
        why = next((f.reason for c in table.measured if isinstance(f := c["power_w"], Absent)), "no cell ran")
        return Absent(why)
    row = Row("power", WATTS, [_scattered(cells, m) for m in table.models], zero=True)
    return panels(table.models, [row], {"rangemode": "tozero", "nticks": 5}, "throughput in all (samples/s)")


def _bytes(cells: Sequence[Cell], name: str) -> Scale:
    """Return GB where the largest fills two of them, else MB."""
    most = max((v for c in cells if (v := c.value(name)) is not None), default=0.0)
    return Scale(1e-9, "GB") if most >= 2e9 else Scale(1e-6, "MB")


def _alone(table: Concurrent) -> list[Cell]:
    """Return the finished cells of one process that shares with nobody."""
    return [c for c in table.measured if c.trial.processes == 1 and c.trial.sharing == "time_slicing"]


def _batch(cell: Cell) -> float:
    return float(cell.trial.batch)


def _processes(cell: Cell) -> float:
    return float(cell.trial.processes)


def _powers(values: Iterable[float]) -> dict[str, object]:
    """Return a logarithmic axis with a tick at each value that was measured."""
    ticks = sorted(set(values))
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{t:g}" for t in ticks]}


def _lines(
    table: Concurrent, cells: Sequence[Cell], model: str, name: str, x: Callable[[Cell], float]
) -> Panel:
    """Return one panel: a line a precision and sharing; P = 1 begins every line of its precision."""
    mine = [c for c in cells if c.trial.model == model]
    panel = Panel()
    for precision in PRECISIONS:
        for sharing in dict.fromkeys(c.trial.sharing for c in mine):
            line = [c for c in mine if (c.trial.precision, c.trial.sharing) == (precision, sharing)]
            if sharing != "time_slicing" and line and all(c.trial.processes > 1 for c in line):
                line = [c for c in mine if _begins(c, precision)] + line
            points = _points(sorted(line, key=x), name, x)
            if points:
                panel.marks.append(Marks(_look(line[-1], len({c.trial.sharing for c in cells}) > 1), points))
    panel.marks += _theirs(table, model, name, x, cells)
    return panel


def _begins(cell: Cell, precision: str) -> bool:
    t = cell.trial
    return (t.precision, t.processes, t.sharing) == (precision, 1, "time_slicing")


def _look(cell: Cell, crowd: bool) -> Look:
    t = cell.trial
    dash, symbol = DASHES.get(t.sharing.partition("=")[0], ("longdashdot", "star"))
    name = f"{t.precision}, {sharing_words(t)}" if crowd else t.precision
    return Look(name, COLOUR[t.precision], dash if "=" not in t.sharing else "longdash", symbol)


def _points(cells: Sequence[Cell], name: str, x: Callable[[Cell], float]) -> list[Point]:
    found = [(c, measured(c[name])) for c in cells]
    return [Point(x(c), y, hover(c, name, y)) for c, y in found if y is not None]


def hover(cell: Cell, name: str, y: Measured) -> str:
    """Return what a mark says of itself: its cell, value, interval, where that is from, and the verdict."""
    units = {"samples/s": (1.0, "samples/s"), "bytes": (1e-6, "MB"), "s": (1e3, "ms"), "J": (1e3, "mJ")}
    factor, unit = units.get(y.unit, (1.0, y.unit))
    return f"{cell.place}: {interval(y, factor, unit)}; {cell.interval}, {cell.verdict.trust.value}"


def _bars(cells: Sequence[Cell], model: str, name: str) -> Panel:
    panel = Panel()
    for cell in sorted((c for c in cells if c.trial.model == model), key=lambda c: c.trial.precision):
        y = measured(cell[name])
        if y is not None:
            p = cell.trial.precision
            panel.marks.append(Marks(Look(p, COLOUR[p]), [Point(p, y, hover(cell, name, y))], bars=True))
    return panel


def _scattered(cells: Sequence[Cell], model: str) -> Panel:
    panel = Panel()
    groups: dict[tuple[str, str], list[Cell]] = {}
    for c in cells:
        if c.trial.model == model:
            groups.setdefault((c.trial.precision, c.trial.sharing), []).append(c)
    for group in groups.values():
        found = [(c, measured(c["power_w"]), c.value("throughput_sps")) for c in group]
        points = [Point(x, y, hover(c, "power_w", y)) for c, y, x in found if y is not None and x]
        panel.marks.append(Marks(_look(group[0], True), points, joined=False))
    return panel


def _theirs(
    table: Concurrent, model: str, name: str, x: Callable[[Cell], float], cells: Sequence[Cell]
) -> list[Marks]:
    """Return the paper's figures of this model and quantity, at the cells' batch where the axis is processes."""
    over = {x(c) for c in cells}
    batches = {c.trial.batch for c in cells}
    mine = [n for n in table.paper.numbers if n.figure == name and table.paper.is_of(n, model)]
    if x is _batch:
        mine = [n for n in mine if n.processes == 1]
    else:
        mine = [n for n in mine if n.batch in batches] + _alone_per_process(table, model, name, batches)
    out: dict[str, list[Point]] = {}
    for n in sorted(mine, key=lambda n: (n.processes, n.batch)):
        at = float(n.batch if x is _batch else n.processes)
        if at <= 2 * max(over):
            y = Measured(n.value, "samples/s")
            out.setdefault(_their_name(n), []).append(
                Point(at, y, f"{n.board}: {n.text} ({n.source}). Other hardware")
            )
    return [
        Marks(
            Look(key, BASELINE_COLOUR, symbol="diamond" if "Orin" in key else "star-diamond"),
            points,
            theirs=True,
        )
        for key, points in out.items()
    ]


def _alone_per_process(table: Concurrent, model: str, name: str, batches: set[int]) -> list[Number]:
    """Return the paper's throughputs of one process, which are its T/P at P = 1."""
    if name != "throughput_per_process_sps":
        return []
    numbers = [n for n in table.paper.numbers if n.figure == "throughput_sps" and n.processes == 1]
    return [n for n in numbers if table.paper.is_of(n, model) and n.batch in batches]


def _their_name(number: Number) -> str:
    kind = f", {number.precision}" if number.precision else ""
    return f"paper: {number.board}{kind} (other hardware; {number.known})"
