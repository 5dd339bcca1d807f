"""The sweep as JSON: cells, rules, remarks and lines; a figure is {value, lo, hi, n, unit} or {absent: reason}."""

from __future__ import annotations

import json

from edgescope.analysis.cells.concurrency import Cell, MemoryLine
from edgescope.papers.concurrent_inference.rule import Checked
from edgescope.papers.concurrent_inference.table import Concurrent
from edgescope.records import Json
from edgescope.records.codec import to_plain


def render(found: Concurrent, command: str) -> str:
    """Return the JSON; `command` is what made it."""
    return json.dumps({"command": command, **plain(found)}, indent=1) + "\n"


def plain(found: Concurrent) -> dict[str, Json]:
    """Return the table as plain values."""
    return {
        "machine": found.machine.id if found.machine else None,
        "setup": found.setup,
        "other_setups": dict(found.others),
        "left_out": found.left_out,
        "memory": found.memory,
        "scope": found.scope,
        "remarks": [to_plain(r) for r in found.remarks],
        "rules": [_rule(c) for c in found.rules],
        "cells": [_cell(c) for c in found.cells],
        "memory_lines": [_line(m) for m in found.lines],
        "warm_over_fresh": [
            {"cell": w.cell.place, "ratio": to_plain(w.ratio), "warm": w.warm, "fresh": w.fresh}
            for w in found.warm
        ],
        "paper": to_plain(found.paper),
    }


def _cell(cell: Cell) -> dict[str, Json]:
    t = cell.trial
    return {
        "model": t.model,
        "precision": t.precision,
        "batch": t.batch,
        "processes": t.processes,
        "sharing": t.sharing,
        "cell": t.cell,
        "status": cell.status.value,
        "reason": cell.rejected,
        "verdict": cell.verdict.trust.value if cell.ok else None,
        "runs": [r.id for r in cell.runs],
        "interval": cell.interval,
        "figures": {name: to_plain(field) for name, field in cell.metrics.items()},
    }


def _rule(checked: Checked) -> dict[str, Json]:
    f = checked.found
    rule: dict[str, Json] = to_plain(checked.rule)
    return rule | {"answer": f.answer.value, "found": f.found, "cells": f.cells, "evidence": list(f.evidence)}


def _line(line: MemoryLine) -> dict[str, Json]:
    fields = {
        name: to_plain(getattr(line, name)) for name in ("slope", "start", "residual", "rule", "against")
    }
    return {"series": line.series.words, "points": line.points, "linear": line.linear, **fields}
