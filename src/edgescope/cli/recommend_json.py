"""The answer of `edgescope recommend` as JSON."""

from __future__ import annotations

import dataclasses

from edgescope.analysis.cells.choices import Choice
from edgescope.analysis.cells.recommend import Recommendation
from edgescope.records import Json
from edgescope.records.codec import to_plain


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


def _plain(choice: Choice) -> dict[str, Json]:
    """Return one cell; the ends of its figures are those that constraints are judged on."""
    skipped = ("replicates", "speedup", "trial")
    fields = {f.name: getattr(choice, f.name) for f in dataclasses.fields(choice) if f.name not in skipped}
    plain: dict[str, Json] = to_plain(fields)
    runs = sorted(r.id for r in choice.replicates.values())
    return plain | {"trial": choice.trial.to_json(), "results": runs}
