"""The table of a paper's sweep on this machine: cells, memory lines, claims, remarks; and the rules of its claims.

A table holds one machine and one setup (engine, device, options, mode), since the axes of such a paper are precision,
batch, number of processes and how they share the device; a store with several setups shows the one with most finished
cells and names the others. Cells that did not run stay in the table with their reasons.

Rules that the claims of several papers share say how a figure changes along an axis:

each(axis, voice)          the voice of every series along an axis
ends(axis, figure, says)   the figure at one end over that at the other
over_first(series, ...)    the figure at each number of processes over that at the first
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from edgescope.analysis.cells import concurrency as remarks
from edgescope.analysis.cells import machines
from edgescope.analysis.cells.concurrency import (
    PRECISIONS,
    Cell,
    MemoryLine,
    Series,
    axes,
    cells,
    is_traced,
    memory_line,
    over_processes,
    scaled,
    setup,
    times,
    wanted,
)
from edgescope.analysis.cells.replicates import of_fields, quotient
from edgescope.analysis.kernels.account import Account
from edgescope.analysis.run.energy import usual
from edgescope.analysis.run.usage import GPU, UNIFIED
from edgescope.command import bench_arguments
from edgescope.errors import UsageError
from edgescope.records import Absent, Field, Json, Machine, Measured, Result, Trial
from edgescope.wings.studies.claim import Answered, Voice, answered, brief, held, per_cent
from edgescope.wings.studies.paper import Paper
from edgescope.wings.studies.traced import TracedCell, of_file, of_results, with_traces

#: Figures of the memory of several processes, the best first; one of them is used throughout a table.
MEMORY = (*UNIFIED, *GPU, "processes_pss_bytes", "processes_rss_bytes")
#: The name of a trace's file, without its endings: resnet50-fp16-b1-p4, resnet50-fp16-b1-p4-mps.
#: "[-]" and not "-", or tests/project/test_hints.py takes -b and -p for flags that a message names.
OF_CELL = re.compile(r"(.+)-([a-z]+\d+)[-]b(\d+)[-]p(\d+)(?:-(.+))?")


@dataclass(frozen=True)
class WarmRatio:
    """The throughput of one cell with reused workers (--reuse-workers) over that with fresh processes."""

    cell: Cell
    ratio: Field
    """Total throughput, warm over fresh."""
    warm: int
    fresh: int


@dataclass(frozen=True)
class SweepTable:
    """Everything that the document shows."""

    paper: Paper
    machine: Machine | None
    setup: str
    """Engine, device, options, mode and io that all cells share; '' without any."""
    others: tuple[tuple[str, int], ...]
    """Setups that are not shown, and their finished cells."""
    cells: tuple[Cell, ...]
    memory: str
    """The memory figure that is shown and drawn."""
    lines: tuple[MemoryLine, ...]
    warm: tuple[WarmRatio, ...]
    remarks: tuple[remarks.Remark, ...]
    scope: str
    """The scope of the power meter; '' if no power was measured."""
    left_out: int
    """Number of results that are no closed loop of one query at a time per process, or have colocated models."""
    asked: tuple[Trial, ...] = ()
    """The cells of the study file, or () without one."""
    traced: tuple[TracedCell, ...] = ()
    """Runs of these cells under a profiler."""

    @cached_property
    def claims(self) -> tuple[Answered, ...]:
        """Return every claim of the paper with its answer, in the paper's order."""
        return answered(self.paper, self, "" if self.measured else "no cell finished")

    @property
    def untraced(self) -> str:
        """Return why no cell has kernel-level figures, with the command that gives them; '' if one has."""
        absent = [t.judged["ec_s"] for t in self.traced]
        if any(isinstance(f, Measured) for f in absent):
            return ""
        why = next((f.reason for f in absent if isinstance(f, Absent)), "no cell was traced")
        return f"{why}. Try: {self._tracing()}" if self.measured else why

    def _tracing(self) -> str:
        """Return the command that traces the cells of the first model over processes, on a GPU."""
        t = self.measured[0].trial
        if not t.place.cuda:
            t = replace(t, device="cuda", backend="torch_eager", options={})
        alone = replace(t, processes=1, sharing=Trial.sharing, tracer="cupti", min_s=1.0, max_s=1.0)
        _, model, *rest = bench_arguments(alone)
        processes = ",".join(map(str, sorted({c.trial.processes for c in self.cells})))
        return f"edgescope sweep --model {shlex.quote(model)} {shlex.join(rest)} --processes {processes}"

    @property
    def missing(self) -> tuple[Trial, ...]:
        """Return the study's cells without a finished run, whatever setup the study requests."""
        done = {axes(c.trial) for c in self.measured}
        return tuple(t for t in self.asked if axes(t) not in done)

    @property
    def measured(self) -> tuple[Cell, ...]:
        """Return the cells with a finished run."""
        return tuple(c for c in self.cells if c.ok)

    @property
    def failed(self) -> tuple[Cell, ...]:
        """Return the cells without a finished run."""
        return tuple(c for c in self.cells if not c.ok)

    @property
    def models(self) -> tuple[str, ...]:
        """Return the models in order."""
        return tuple(dict.fromkeys(c.trial.model for c in self.cells))


def sweep_table(
    paper: Paper,
    results: Iterable[Result],
    *,
    of_setup: str = "",
    left_out: int = 0,
    asked: Iterable[Trial] = (),
    traces: Mapping[str, Account] | None = None,
) -> SweepTable:
    """Return the table of these results; UsageError if machines are mixed or a filter matches nothing.

    `of_setup` is a text that the setup contains, `left_out` how many results
    the caller left out, `asked` the trials of the study file, `traces` the accounts of files by name. Raw rows
    (Store.fulls) give pooled percentiles, the activity of a GPU's parts, and what traced runs saw.
    """
    here = machines.one(results)
    mine = [r for r in here if wanted(r.trial)]
    name, others = _one_setup(mine, of_setup)
    found = tuple(sorted(cells(r for r in mine if setup(r.trial) == name), key=_order))
    runs = [r for r in here if is_traced(r.trial)]
    traced = of_results((r for r in runs if setup(r.trial) == name), found)
    traced += [of_file(_named(file, found), one, file) for file, one in (traces or {}).items()]
    found = tuple(with_traces(found, traced))
    memory = _memory(found)
    lines = tuple(memory_line(s, memory) for s in over_processes(found))
    return SweepTable(
        paper=paper,
        machine=next((r.machine for r in here if machines.known(r)), None),
        setup=name,
        others=others,
        cells=found,
        memory=memory,
        lines=lines,
        warm=tuple(_warm(c) for c in found if c.reused and c.fresh),
        remarks=remarks.of_cells(found),
        scope=usual([r for c in found for r in c.runs]),
        left_out=left_out + len(here) - len(mine) - len(runs),
        asked=tuple({axes(t): t for t in asked if wanted(t)}.values()),
        traced=tuple(sorted(traced, key=_order)),
    )


def _named(file: str, found: Sequence[Cell]) -> Trial:
    """Return the trial of the cell that a trace's file is named after; UsageError if there is none."""
    named = OF_CELL.fullmatch(file)
    if named:
        model, precision, batch, processes, sharing = named.groups()
        place = (model, precision, int(batch), int(processes), sharing or Trial.sharing)
        for cell in found:
            if cell.ok and axes(cell.trial) == place:
                return cell.trial
    known = ", ".join(dict.fromkeys(file_name(c.trial) for c in found if c.ok))
    what = f"the trace {file!r} is named after no measured cell"
    raise UsageError("E-PAPER-3", what, evidence=f"cells: {known}"[:300], fix="name the file after its cell")


def file_name(trial: Trial) -> str:
    """Return the name of the file with a cell's trace, without its endings."""
    shared = "" if trial.sharing == Trial.sharing else f"-{trial.sharing}"
    model = trial.model.partition("#")[0]
    return f"{model}-{trial.precision}-b{trial.batch}-p{trial.processes}{shared}"


def _order(cell: Cell | TracedCell) -> tuple[object, ...]:
    t = cell.trial
    own = (t.sharing != "time_slicing", t.sharing)
    return (t.model, -PRECISIONS.index(t.precision), t.batch, *own, t.processes)


def _one_setup(results: Sequence[Result], words: str) -> tuple[str, tuple[tuple[str, int], ...]]:
    """Return the setup to show, the one with the most finished cells, and the others with their counts."""
    done = Counter({name: 0 for name in dict.fromkeys(setup(r.trial) for r in results)})
    done.update(setup(c.trial) for c in cells(results) if c.ok)
    fits = [name for name in done if words in name]
    if results and not fits:
        known = f"there are {'; '.join(done)}"
        raise UsageError("E-PAPER-2", f"no setup has {words!r} in it", evidence=known, fix="--setup ''")
    if not fits:
        return "", ()
    exact = [name for name in fits if name == words]
    best = exact[0] if exact else max(fits, key=lambda name: done[name])
    return best, tuple((name, n) for name, n in done.most_common() if name != best)


def _memory(found: Sequence[Cell]) -> str:
    """Return the first of MEMORY that a series has at three numbers of processes, else at two, else the most common."""
    reach = {n: max((_known(s, n) for s in over_processes(found)), default=0) for n in MEMORY}
    for least in (3, 2):
        if enough := [name for name in MEMORY if reach[name] >= least]:
            return enough[0]
    return max(MEMORY, key=lambda name: sum(c.value(name) is not None for c in found))


def _known(series: Series, name: str) -> int:
    return sum(c.value(name) is not None for c in series.cells)


def _warm(cell: Cell) -> WarmRatio:
    return WarmRatio(
        cell, quotient(cell.reused, cell.fresh, "throughput_sps"), len(cell.reused), len(cell.fresh)
    )


Axis = Callable[[Iterable[Cell]], list[Series]]
Voices = Callable[[SweepTable], Iterable[Voice | None]]
#: Memory figure -> what it is, in words.
MEMORY_WORDS = {
    "unified_memory_bytes": "what all processes took of the memory that CPU and GPU share",
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
    return MEMORY_WORDS.get(table.memory, table.memory)


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
