"""Plots of a paper's sweep on this machine: over batch, precision and processes, with one column for each model.

Small panels in rows and columns with shared axes: one column for each model, one row for each quantity. Colour is the
precision, dash and symbol are how processes share the device. The paper's recovered figures are open grey diamonds:
they come from other boards and are shown only for orientation. A line is named once in the legend, however many panels
it runs through. A figure with nothing to show is Absent(reason).
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from plotly.subplots import make_subplots

from edgescope.analysis.cells.concurrency import PRECISIONS, Cell, sharing_words
from edgescope.plots.style import (
    BASELINE_COLOUR,
    COLOURS,
    INK,
    Figure,
    Scale,
    axis,
    axis_kind,
    bounds,
    interval,
    layout,
    log_ticks,
)
from edgescope.records import Absent, Measured
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
        if isinstance(y := cell[name], Measured):
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


# -- panels in rows and columns ------------------------------------------------------------------------------

PANEL_PX, HEAD_PX = 230, 120


@dataclass(frozen=True)
class Look:
    """The look of one line, or of one group of bars."""

    name: str
    colour: str
    dash: str = "solid"
    symbol: str = "circle"
    """'' draws no marks."""


@dataclass(frozen=True)
class Point:
    """One mark: its position, its value with its interval, and its hover text."""

    x: float | str
    y: Measured
    hover: str


@dataclass(frozen=True)
class Marks:
    """The marks of one look in one panel."""

    look: Look
    points: Sequence[Point]
    joined: bool = True
    bars: bool = False
    theirs: bool = False
    """Whether the figures come from another board: drawn open and grey, never joined to ours."""


@dataclass
class Panel:
    """One panel's marks."""

    marks: list[Marks] = field(default_factory=list)

    @property
    def values(self) -> list[float]:
        """Return the drawn values, in SI units."""
        return [p.y.value for m in self.marks for p in m.points]

    @property
    def places(self) -> list[float]:
        """Return the positions of the marks on a numbered axis."""
        return [float(p.x) for m in self.marks for p in m.points]


@dataclass(frozen=True)
class Row:
    """One row of panels: its quantity, the scale that it prints in, and whether 0 belongs on its axis."""

    title: str
    scale: Scale
    panels: Sequence[Panel]
    zero: bool = False


def panels(columns: Sequence[str], rows: Sequence[Row], x: dict[str, Any], x_title: str) -> Figure:
    """Return the figure of these rows; `x` holds plotly's settings that the horizontal axes share."""
    figure = make_subplots(
        rows=len(rows),
        cols=len(columns),
        subplot_titles=[html.escape(c) for c in columns],
        vertical_spacing=0.09 if len(rows) > 1 else 0.0,
        horizontal_spacing=0.09 if len(columns) > 1 else 0.0,
    )
    named: set[str] = set()
    for i, row in enumerate(rows, start=1):
        for j, panel in enumerate(row.panels, start=1):
            for marks in panel.marks:
                _draw(figure, marks, row.scale, (i, j), named)
            _axes(figure, row, panel, (i, j))
            figure.update_xaxes(axis(x_title if i == len(rows) else "", **x), row=i, col=j)
    head = HEAD_PX + 9 * max(
        0, len(named) - 4
    )  # a legend of many names takes two lines, more on a narrow screen
    figure.update_layout(layout(height=head + PANEL_PX * len(rows), showlegend=True))
    figure.update_layout(
        legend={
            "orientation": "h",
            "y": 0.995,
            "yanchor": "top",
            "yref": "container",
            "x": 0,
            "font": {"size": 12},
        },
        margin={"l": 12, "r": 16, "t": head - 24, "b": 12},
        barmode="group",
        bargap=0.25,
    )
    figure.update_annotations(font={"size": 13.5, "color": INK})
    return figure


def _axes(figure: Figure, row: Row, panel: Panel, at: tuple[int, int]) -> None:
    """Give a panel its vertical axis; the first of a row names the quantity."""
    shown = [v * row.scale.factor for v in panel.values]
    unit = f" ({row.scale.unit})" if row.scale.unit else ""
    kind = "linear" if row.zero else axis_kind(shown)
    title = f"{row.title}{unit}" if at[1] == 1 else ""
    more: dict[str, Any] = {"type": kind}
    if kind == "linear" and (row.zero or not shown):
        more["rangemode"] = "tozero"
    if kind == "log":
        low, high = min(shown) / 1.3, max(shown) * 1.3
        ticks = log_ticks(low, high)
        more |= {"tickvals": ticks, "ticktext": [f"{t:,.10g}" for t in ticks]}
        more["range"] = [math.log10(low), math.log10(high)]
    figure.update_yaxes(axis(title, **more), row=at[0], col=at[1])
    if not shown:
        figure.add_annotation(
            text="not measured",
            showarrow=False,
            x=0.5,
            y=0.5,
            xref="x domain",
            yref="y domain",
            row=at[0],
            col=at[1],
        )


def _draw(figure: Figure, marks: Marks, scale: Scale, at: tuple[int, int], named: set[str]) -> None:
    if not marks.points:
        return
    look, f = marks.look, scale.factor
    shared: dict[str, Any] = {
        "x": [p.x for p in marks.points],
        "y": [p.y.value * f for p in marks.points],
        "name": html.escape(look.name),
        "legendgroup": look.name,
        "showlegend": look.name not in named,
        "text": [html.escape(p.hover) for p in marks.points],
        "hovertemplate": "%{text}<extra></extra>",
        "error_y": _whiskers(marks, f),
    }
    named.add(look.name)
    if marks.bars:
        figure.add_bar(**shared, marker={"color": look.colour}, textposition="none", row=at[0], col=at[1])
        return
    mode = "lines+markers" if marks.joined and not marks.theirs else "markers"
    mode = mode if look.symbol else "lines"
    marker = {
        "symbol": f"{look.symbol}-open" if marks.theirs else look.symbol or "circle",
        "size": 11 if marks.theirs else 8,
    }
    figure.add_scatter(
        **shared,
        mode=mode,
        line={"color": look.colour, "dash": look.dash, "width": 2},
        marker=marker | {"color": look.colour, "line": {"width": 2 if marks.theirs else 0}},
        row=at[0],
        col=at[1],
    )


def _whiskers(marks: Marks, factor: float) -> dict[str, Any]:
    below, above = zip(*(bounds(p.y) for p in marks.points), strict=True)
    return {
        "type": "data",
        "visible": any(below) or any(above),
        "array": [v * factor for v in above],
        "arrayminus": [v * factor for v in below],
        "thickness": 1.3,
        "width": 3,
        "color": BASELINE_COLOUR if marks.bars else marks.look.colour,
    }
