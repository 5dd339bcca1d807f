"""The document of a prediction over modes: the pick, the Pareto front, and how well the models predict
left-out modes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgescope import units
from edgescope.metrics import METRICS
from edgescope.records import Absent, Field, Measured
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.units import counted
from edgescope.wings.predict.prediction import ModeRow, Prediction
from edgescope.wings.predict.surfaces import Chosen

if TYPE_CHECKING:
    from edgescope.wings.predict.profiling import Confirmed

COLUMNS = ("throughput_sps", "latency_mean_s", "power_w", "energy_per_sample_j", "epoch_s", "epoch_j")
#: Largest number of modes in the table.
MOST = 14


def document(
    name: str,
    found: Prediction,
    confirmed: Confirmed | Absent,
    pick: ModeRow | None,
    *,
    everything: bool = False,
) -> doc.Document:
    """Return the document of one prediction; `everything` shows every mode, not only the Pareto front."""
    bounds = ", ".join(c.text for c in found.wanted.constraints)
    title = f"{name}: {found.wanted.goal.best}" + (f" with {bounds}" if bounds else "")
    known = len(found.profile.seconds)
    parts = (
        doc.Text(title, "strong"),
        _answer(found, confirmed, pick),
        _table(found, pick, everything),
        doc.Text(f"{counted(len(found.grid), 'mode')}, {known} of them profiled", "lead"),
        _models(found),
    )
    return doc.Document(title, parts, facts(name, found, confirmed, pick))


def _answer(found: Prediction, confirmed: Confirmed | Absent, pick: ModeRow | None) -> doc.Answer:
    if pick is None:
        best = next(iter(found.ranked), None)
        why = (
            "no mode has the objective's figure"
            if best is None
            else f"the nearest, {best.name}: {'; '.join(best.broken)}"
        )
        if best is None and isinstance(gap := found.rows[0][found.wanted.goal.name], Absent):
            why = gap.reason
        return doc.Answer("No pick", "", (why,), why, kind="none")
    shown = [n for n in COLUMNS if isinstance(pick[n], Measured)]
    lines = ["predicted: " + ", ".join(f"{METRICS[n].title.lower()} {units.show(pick[n])}" for n in shown)]
    if isinstance(confirmed, Absent):
        lines.append(f"not confirmed: {confirmed.reason}")
    else:
        runs = max(f.n for f in confirmed.figures.values())
        texts = (f"{METRICS[n].title.lower()} {units.show(f)}" for n, f in confirmed.figures.items())
        lines.append(f"measured in {counted(runs, 'process')}: {', '.join(texts)}")
    return doc.Answer("Use", pick.name, tuple(lines), "; ".join(lines))


def _table(found: Prediction, pick: ModeRow | None, everything: bool) -> doc.Table:
    rows = list(found.rows if everything else spread(found.front, MOST))
    rows += [pick] if pick is not None and pick not in rows else []
    rows.sort(key=found.cost)
    asked = {found.wanted.goal.name, *(c.metric.name for c in found.wanted.constraints)}
    names = [n for n in COLUMNS if n in asked or any(isinstance(r[n], Measured) for r in rows)]
    heads = [
        doc.Column.of(METRICS[n], 0 if n in asked else i, _scope(found, n))
        for i, n in enumerate(names, start=1)
    ]
    title = "every mode" if everything else "Pareto front, predicted: no other mode is faster and draws less"
    body = tuple(_row(r, names, found, pick) for r in rows)
    return doc.Table((doc.Column("mode"), *heads), body, title)


def _scope(found: Prediction, name: str) -> str:
    return found.profile.scope if METRICS[name].scope else ""


def spread(front: Sequence[ModeRow], most: int) -> list[ModeRow]:
    """Return at most `most` rows of a front, evenly spread, both ends included."""
    if len(front) <= most:
        return list(front)
    return [front[round(i * (len(front) - 1) / (most - 1))] for i in range(most)]


def _row(row: ModeRow, names: Sequence[str], found: Prediction, pick: ModeRow | None) -> doc.Row:
    picked = pick is not None and row.mode == pick.mode
    marks: list[doc.Value] = [row.name, *([doc.Mark("pick", "pick")] if picked else [])]
    marks += [doc.Mark("profiled", "chip")] if row.profiled else []
    marks += (
        [doc.Mark(f"breaks {', '.join(b.partition(' ')[0] for b in row.broken)}", "chip")]
        if row.broken
        else []
    )
    cells = (_cell(row[n]) for n in names)
    return doc.Row((tuple(marks), *cells), "picked" if picked else "dim" if row.broken else "")


def _cell(found: Field) -> doc.Value | doc.Cell:
    return found if isinstance(found, Absent) else doc.Cell(found, brief=units.show(found))


def _models(found: Prediction) -> doc.Section:
    """Return how far each model was off the modes that were left out of its fit."""
    rows = [*_errors("time", found.time)]
    rows += [] if isinstance(found.power, Absent) else _errors("power", found.power)
    heads = (
        doc.Column("quantity"),
        doc.Column("model"),
        doc.Column("mean error of a left-out mode", "share"),
    )
    if rows:
        parts: tuple[doc.Part, ...] = (doc.Table(heads, tuple(rows)),)
    else:
        parts = (doc.Text("too few modes were profiled to leave one out: 4 are needed"),)
    return doc.Section("How well the models predict", parts, level=doc.DETAIL)


def _errors(quantity: str, chosen: Chosen) -> list[doc.Row]:
    return [
        doc.Row((quantity, model, Measured(error, "share")), "picked" if model == chosen.model else "")
        for model, error in sorted(chosen.errors.items(), key=lambda item: item[1])
    ]


def facts(
    name: str, found: Prediction, confirmed: Confirmed | Absent, pick: ModeRow | None
) -> dict[str, Any]:
    """Return {name, objective, constraints, pick, measured, models, modes} as plain values."""
    models = {"time": found.time} | ({} if isinstance(found.power, Absent) else {"power": found.power})
    return {
        "name": name,
        "objective": found.wanted.objective,
        "constraints": [c.text for c in found.wanted.constraints],
        "pick": pick.name if pick else None,
        "measured": to_plain(confirmed if isinstance(confirmed, Absent) else dict(confirmed.figures)),
        "models": {k: {"chosen": c.model, "left_out_errors": dict(c.errors)} for k, c in models.items()},
        "front": [r.name for r in found.front],
        "modes": [_mode(found, r) for r in found.rows],
    }


def _mode(found: Prediction, row: ModeRow) -> dict[str, Any]:
    knobs, figures = found.grid.row(row.mode), to_plain({n: row[n] for n in COLUMNS})
    plain = {"name": row.name, "knobs": knobs, "profiled": row.profiled, "broken": list(row.broken)}
    return {**plain, **figures}
