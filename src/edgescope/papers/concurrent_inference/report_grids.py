"""One quantity of the sweep as a grid: a row a model, precision, batch and sharing, a column a number of processes.

A hundred cells with ten figures each read badly as rows; as a grid one quantity fits on a screen, and the eye can run
along P.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from edgescope.analysis.cells.concurrency import Cell, sharing_words
from edgescope.papers.concurrent_inference.table import Concurrent
from edgescope.plots.style import Scale
from edgescope.records import Absent, Field, Measured
from edgescope.report.numbers import Format, joules, memory, rates, times, watts

Formatter = Callable[[Iterable[Field]], Format]


@dataclass(frozen=True)
class Quantity:
    """What a grid shows."""

    title: str
    figure: str
    """Name of the cell's figure; `memory` is the one that the table chose."""
    form: Formatter


def _plain(fields: Iterable[Field]) -> Format:
    return Format(Scale(1.0, ""), 3)


QUANTITIES: Mapping[str, Quantity] = {
    "throughput": Quantity("Throughput of all processes", "throughput_sps", rates),
    "per_process": Quantity("Throughput per process (T/P)", "throughput_per_process_sps", rates),
    "p99": Quantity("Latency, p99", "latency_p99_s", times),
    "memory": Quantity("Memory", "memory", memory),
    "power": Quantity("Power", "power_w", watts),
    "energy": Quantity("Energy a sample", "energy_per_sample_j", joules),
    "fairness": Quantity("Fairness (Jain's index of the processes' throughputs)", "fairness", _plain),
    "skew": Quantity("Start skew between processes", "start_skew_s", times),
}


@dataclass(frozen=True)
class GridRow:
    """One row: what its cells have in common, and a cell for each column, None where there is none."""

    model: str
    precision: str
    batch: int
    sharing: str
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Grid:
    """One quantity over the whole sweep."""

    quantity: Quantity
    processes: tuple[int, ...]
    rows: tuple[GridRow, ...]
    figure: str
    form: Format

    @property
    def title(self) -> str:
        """The quantity with its unit."""
        return f"{self.quantity.title} ({self.form.unit})" if self.form.unit else self.quantity.title

    @property
    def empty(self) -> bool:
        """Whether no cell has the quantity."""
        return all(c is None or c.value(self.figure) is None for r in self.rows for c in r.cells)

    def text(self, cell: Cell | None, *, interval: bool = True) -> str:
        """Return a cell's value, `oom` or another status where it did not run, `·` where it was not asked for."""
        if cell is None:
            return "·"
        if not cell.ok:
            return cell.status.value
        field = cell[self.figure]
        if isinstance(field, Absent):
            return "n/a"
        between = self.form.interval(field).replace("\u00a0–\u00a0", ", ") if interval else ""
        return self.form.number(field.value) + (f" [{between}]" if between else "")


def grid(found: Concurrent, name: str) -> Grid:
    """Return the grid of one of QUANTITIES."""
    quantity = QUANTITIES[name]
    figure = found.memory if quantity.figure == "memory" else quantity.figure
    columns = tuple(sorted({c.trial.processes for c in found.cells}))
    groups: dict[tuple[str, str, int, str], dict[int, Cell]] = {}
    for c in found.cells:
        t = c.trial
        alone = t.sharing == "time_slicing" and columns[-1:] == (1,)
        key = (t.model, t.precision, t.batch, "" if alone else sharing_words(t))
        groups.setdefault(key, {})[t.processes] = c
    rows = tuple(GridRow(*key, tuple(cells.get(p) for p in columns)) for key, cells in groups.items())
    return Grid(quantity, columns, rows, figure, quantity.form(c[figure] for c in found.measured))


def spreads(row: GridRow, figure: str) -> list[float]:
    """Return half the interval's width as a share of the value, of each cell that has one."""
    fields = [c[figure] for c in row.cells if c is not None and c.ok]
    known = [
        f for f in fields if isinstance(f, Measured) and f.lo is not None and f.hi is not None and f.value
    ]
    return [(f.hi - f.lo) / 2 / f.value for f in known if f.lo is not None and f.hi is not None]


def firsts(rows: Sequence[GridRow]) -> list[tuple[str, str, str, str]]:
    """Return the words of each row, what the row above said already left blank."""
    out: list[tuple[str, str, str, str]] = []
    before: tuple[str, ...] = ("", "", "", "")
    for row in rows:
        words = (row.model, row.precision, str(row.batch), row.sharing)
        same = next((i for i, (a, b) in enumerate(zip(words, before, strict=True)) if a != b), 3)
        out.append(("", "", "", "")[:same] + words[same:])  # type: ignore[arg-type]
        before = words
    return out
