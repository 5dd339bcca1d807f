"""The sweep as CSV in SI units: one line a cell, each value with its interval, n, and why it is absent."""

from __future__ import annotations

import csv
import io

from edgescope.analysis.cells.concurrency import FIGURES, Cell
from edgescope.analysis.run.usage import ACTIVITY
from edgescope.papers.concurrent_inference.table import Concurrent
from edgescope.records import Absent, Field

FACTS = (
    *("model", "setup", "precision", "batch", "processes", "sharing", "status", "reason", "verdict"),
    *("runs", "interval", "machine", "cell"),
)
FIELDS = (
    "throughput_sps",
    "throughput_per_process_sps",
    "latency_p50_s",
    "latency_p99_s",
    *FIGURES[1:],
    *ACTIVITY,
)
PARTS = ("", "_lo", "_hi", "_n", "_absent")


def render(found: Concurrent, command: str) -> str:
    """Return the CSV; `command` has no place in it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*FACTS, *(name + part for name in FIELDS for part in PARTS)])
    writer.writerows(_line(found, cell) for cell in found.cells)
    return out.getvalue()


def _line(found: Concurrent, cell: Cell) -> list[str]:
    t = cell.trial
    machine = found.machine.id if found.machine else ""
    asked = [t.model, found.setup, t.precision, str(t.batch), str(t.processes), t.sharing]
    facts = [
        cell.status.value,
        cell.rejected,
        cell.verdict.trust.value if cell.ok else "",
        str(len(cell.runs)),
    ]
    values = [part for name in FIELDS for part in _parts(_field(cell, name))]
    return [*asked, *facts, cell.interval, machine, t.cell, *values]


def _field(cell: Cell, name: str) -> Field:
    return cell[name] if cell.ok else Absent(f"{cell.status.value}: {cell.rejected}")


def _parts(field: Field) -> list[str]:
    if isinstance(field, Absent):
        return ["", "", "", "", field.reason]
    ends = ["" if end is None else repr(end) for end in (field.lo, field.hi)]
    return [repr(field.value), *ends, str(field.n), ""]
