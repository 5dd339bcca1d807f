"""The answer of `edgescope recommend` as JSON."""

from __future__ import annotations

from edgescope.analysis.cells.recommend import Recommendation
from edgescope.analysis.cells.row import Row
from edgescope.records import Json


def answer(found: Recommendation) -> dict[str, Json]:
    """Return {models, objective, constraints, pick, nearest, best, ties, reasons, front, axes, cells, remarks}."""
    return {
        "models": list(found.models),
        "objective": found.wanted.objective,
        "constraints": [c.text for c in found.wanted.constraints],
        "pick": found.pick.cell if found.pick else None,
        "nearest": found.nearest.cell if found.nearest else None,
        "best": found.best.cell if found.best else None,
        "ties": [c.cell for c in found.ties],
        "reasons": list(found.reasons),
        "front": [c.cell for c in found.front],
        "axes": list(found.axes),
        "cells": [_plain(c) for c in found.choices],
        "remarks": [str(r) for r in found.remarks],
    }


def _plain(choice: Row) -> dict[str, Json]:
    """Return one cell; the ends of its figures are those that constraints are judged on."""
    plain = choice.to_json()
    del plain["speedup"]
    return plain | {"results": sorted(r.id for r in choice.replicates.values())}
