"""Rules that the claims of several papers share: how a figure changes along an axis of a sweep, and texts about it.

each(axis, voice)          the voice of every series along an axis
ends(axis, figure, says)   the figure at one end over that at the other
over_first(series, ...)    the figure at each number of processes over that at the first
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from edgescope.analysis.cells.concurrency import Cell, MemoryLine, Series, scaled
from edgescope.analysis.cells.replicates import of_fields, quotient
from edgescope.analysis.cells.sharing_gain import times
from edgescope.records import Absent, Field, Json, Machine, Measured
from edgescope.wings.studies.claim import Voice, brief, held, per_cent
from edgescope.wings.studies.sweep_table import SweepTable

Axis = Callable[[Iterable[Cell]], list[Series]]
Voices = Callable[[SweepTable], Iterable[Voice | None]]
#: Memory figure -> what it is, in words.
MEMORY = {
    "processes_pss_bytes": "proportional share of resident memory, summed",
    "processes_rss_bytes": "peak resident memory, summed",
    "gpu_processes_memory_bytes": "GPU memory of the processes, as the driver says",
    "gpu_board_memory_bytes": "memory in use on the GPU's board",
}


def each(axis: Axis, voice: Callable[[Series], Voice | None]) -> Voices:
    """Return the voices of a table's series along an axis."""
    return lambda table: map(voice, axis(table.cells))


def ends(
    axis: Axis,
    figure: str,
    says: tuple[str, str],
    *,
    rises: bool,
    first: bool = False,
    exact: bool = False,
) -> Voices:
    """Return the voices of a figure that must rise (`rises`) or fall along an axis: its last over its first, or `first`
    over last. `memory` is the figure that the table chose; `says`: `takes`, `the memory of`.
    """

    def voices(table: SweepTable) -> Iterator[Voice | None]:
        name = table.memory if figure == "memory" else figure
        for series in axis(table.cells):
            both = (series.cells[0], series.cells[-1])
            under, over = both[::-1] if first else both
            upper, lower = (getattr(c.trial, series.axis) for c in (over, under))
            words = (f"{series.words}: {upper} {says[0]} ", f" {says[1]} {lower}")
            yield held(of_fields(over[name], under[name]), words, both, rises=rises != first, exact=exact)

    return voices


def over_first(series: Series, figure: str, *, share: bool = False) -> list[tuple[int, Measured]]:
    """Return (P, figure over the figure at the first P) for each measured P; `share`: for one process's share of it."""
    first, *rest = series.cells
    found = [(c.trial.processes, quotient(c.runs, first.runs, figure)) for c in rest]
    ratios = [(p, scaled(r, first.trial.processes / p) if share else r) for p, r in found]
    return [(p, r) for p, r in ratios if isinstance(r, Measured)]


def at(known: Sequence[tuple[int, Measured]]) -> str:
    """Return `1.2x [1.1, 1.3] at P = 2, ...`."""
    return ", ".join(f"{times(r)} at P = {p}" for p, r in known)


def missing(table: SweepTable, figure: str, otherwise: str) -> str:
    """Return why a figure was not measured: the reason in the first finished cell, in short, or `otherwise`."""
    fields = [c[figure] for c in table.measured]
    return next((f"{figure}: {brief(f.reason)}" for f in fields if isinstance(f, Absent)), otherwise)


def memory_words(table: SweepTable) -> str:
    """Return the meaning of the table's memory figure."""
    return MEMORY.get(table.memory, table.memory)


def line_words(line: MemoryLine) -> str:
    """Return a memory line in words: the cost of a process, the start, and how far a point is off the line."""
    off = line.residual
    said = f", at most {per_cent(off.value, 1)} off the line" if isinstance(off, Measured) else ""
    return f"{line.series.words}: {megabytes(line.slope)} a process from {megabytes(line.start)}{said}"


def megabytes(field: Field) -> str:
    """Return `412 MB [405, 419]`, or `n/a`."""
    if isinstance(field, Absent):
        return "n/a"
    places = 0 if abs(field.value) >= 1e7 else 1

    def shown(value: float) -> str:
        return f"{round(value * 1e-6, places) + 0.0:,.{places}f}"  # adding 0.0 removes the sign of -0.0

    text = f"{shown(field.value)} MB"
    if field.lo is None or field.hi is None:
        return text
    return f"{text} [{shown(field.lo)}, {shown(field.hi)}]"


def usable_cores(machine: Machine | None) -> int | None:
    """Return the CPU cores of a machine that the process may use, physical ones if known, or None if unknown."""
    facts: Json = machine.stable.get("cpu") if machine else None
    state: Json = machine.state.get("cpu") if machine else None
    if not isinstance(facts, Mapping):
        return None
    known = [facts.get(name) for name in ("physical_cores", "logical_cores", "cores")]
    found = next((n for n in known if isinstance(n, int)), None)
    allowed = state.get("affinity") if isinstance(state, Mapping) else None
    if found is None or not isinstance(allowed, list | tuple) or not allowed:
        return found
    return min(found, len(allowed))
