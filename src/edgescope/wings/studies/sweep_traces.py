"""The kernel-level part of a sweep's document: EC, CS, launching and the use of the SMs in cells under a profiler.

Each figure stands beside the perturbation of its cell. Cells that the profiler slowed too much are in the table, and in
nothing that is concluded from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgescope.analysis.cells.concurrency import Cell, Series, over_batches, over_processes, place
from edgescope.analysis.cells.replicates import of_fields
from edgescope.analysis.cells.sharing_gain import times
from edgescope.analysis.cells.traced import TracedCell
from edgescope.analysis.kernels.distribution import CDF
from edgescope.records import Measured
from edgescope.report import document as doc
from edgescope.report.document import DETAIL, Column, Items, Section, Table, Text
from edgescope.wings.studies.sweep_table import SweepTable

LEAD = (
    "Medians over the queries of a run under a profiler. EC is a query's time on the host outside of waits for the "
    "GPU, CS its time in them; launching is the part of EC in calls that put work on the GPU or off the CPU, blocked "
    "the time in which only other processes' work ran."
)
CAPTION = (
    "The share of queries whose EC (solid) or CS (dotted) is at most this long, each cell under a profiler."
)
COLUMNS = (
    Column("Cell"),
    Column("Profiler", rank=6),
    Column("Phase 2 / phase 1", "ratio", rank=4),
    Column("EC", "s"),
    Column("CS", "s"),
    Column("Launching", "s", rank=1),
    Column("Blocked", "s", rank=2),
    Column("A launch", "s", rank=3),
    Column("GPU busy", "share", rank=5),
    Column("SM active", "share", rank=7),
    Column("SM issue", "share", rank=8),
    Column("Tensor active", "share", rank=9),
)


def section(found: SweepTable) -> Section:
    """Return the table of traced cells with their growth, or why there is none and the command that makes it."""
    heading = "Kernel level"
    if not found.traced:
        return Section(heading, (Text(f"Not measurable here: {found.untraced}"),), level=DETAIL)
    rows = tuple(doc.Row((place(t.trial), t.source, t.perturbation, *_values(t))) for t in found.traced)
    lines = tuple(growth(found.cells)) or (
        (f"Not measurable here: {found.untraced}",) if found.untraced else ()
    )
    table = Table(COLUMNS, rows, lead=LEAD, level=DETAIL, grid=True)
    return Section(heading, (table, Items(lines, "Growth", level=DETAIL)), level=DETAIL)


def _values(traced: TracedCell) -> Iterator[doc.Value]:
    own = traced.figures
    yield from (own[name] for name in ("ec_s", "cs_s", "launching_s", "blocked_s", "launch_s"))
    yield traced.busy
    yield from traced.use.values()


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


def figure(found: SweepTable) -> Any:
    """Return the CDFs of EC and CS of the traced cells."""
    from edgescope.plots import kernels  # only a page needs plotly

    return kernels.cdfs([(place(t.trial), t.budget) for t in found.traced])


def data(found: SweepTable) -> dict[str, Any]:
    """Return the traced cells as plain values, each with the points of its CDFs in seconds."""
    rows = [
        {"cell": place(t.trial), "profiler": t.source, "perturbation": t.perturbation}
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
