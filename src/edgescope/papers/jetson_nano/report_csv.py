"""The study's table as CSV in SI units: one line a network, each value with its interval, n, and why it is absent."""

from __future__ import annotations

import csv
import io

from edgescope.papers.jetson_nano.table import TIMES, NanoRow, NanoTable
from edgescope.records import Absent, Field, Measured

FACTS = (
    "model",
    "study_name",
    "device",
    "machine",
    "variant",
    "verdict_before",
    "verdict_after",
    "gate",
    "bound_by",
    "limit_precision",
)
FIELDS = ("speedup", "claimed", "limit_s", "of_limit", "params", "macs", "flops")
STUDY = ("before_s", "after_s", "ratio", "speedup", "recomputed", "params", "flops")
PARTS = ("", "_lo", "_hi", "_n", "_absent")


def render(found: NanoTable, command: str) -> str:
    """Return the CSV; `command` has no place in it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fields = [f"{side}_{t}" for side in ("before", "after") for t in TIMES] + list(FIELDS)
    head = [*FACTS, *(f + p for f in fields for p in PARTS), *(f"study_{s}" for s in STUDY)]
    writer.writerow([*head, "study_flops_count", "study_misprints"])
    writer.writerows(_line(found, row) for row in found.rows)
    return out.getvalue()


def _line(found: NanoTable, row: NanoRow) -> list[str]:
    machine = found.machine.id if found.machine else ""
    facts = [
        row.model,
        row.study.name,
        found.device,
        machine,
        row.variant,
        *row.verdicts,
        row.gate,
        row.bound_by,
        row.limit_precision,
    ]
    fields: list[Field] = [getattr(side, t) for side in (row.before, row.after) for t in TIMES]
    fields += [getattr(row, name) for name in FIELDS]
    macs = int(row.macs.value) if isinstance(row.macs, Measured) else None
    wrong = "; ".join(f"{m.column} {m.printed} should be {m.correct} ({m.why})" for m in row.study.misprints)
    study = [str(getattr(row.study, name)) for name in STUDY]
    return [*facts, *(c for f in fields for c in _cells(f)), *study, row.study.flops_count(macs), wrong]


def _cells(field: Field) -> list[str]:
    if isinstance(field, Absent):
        return ["", "", "", "", field.reason]
    ends = ["" if end is None else repr(end) for end in (field.lo, field.hi)]
    return [repr(field.value), *ends, str(field.n), ""]
