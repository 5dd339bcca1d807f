"""The document of a recommendation: the pick with its reasons, the Pareto set, and remarks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgescope import units
from edgescope.analysis.cells.row import Row
from edgescope.metrics import METRICS, Metric
from edgescope.records import Field, Json, Measured, Trust
from edgescope.report import document as doc
from edgescope.units import counted
from edgescope.wings.recommend.recommendation import Recommendation

MOST = 14
"""Largest number of rows in the table; the others are only counted."""


def document(found: Recommendation, *, everything: bool = False) -> doc.Document:
    """Return the document of one recommendation; `everything` shows every cell, not only the Pareto set."""
    names = ", ".join(found.models)
    bounds = ", ".join(c.text for c in found.wanted.constraints)
    title = f"{names}: {found.wanted.goal.best}" + (f" with {bounds}" if bounds else "")
    remarks = tuple((doc.Mark("note  ", "name"), str(remark)) for remark in found.remarks)
    parts = (
        doc.Text(title, "strong"),
        _answer(found),
        *_table(found, everything),
        doc.Text(_counted(found), "lead", doc.DETAIL if found.pick else doc.MAIN),
        doc.Items(remarks, level=doc.DETAIL) if remarks else None,
    )
    return doc.Document(title, parts, facts(found))


def _answer(found: Recommendation) -> doc.Answer:
    reason, *rest = found.reasons
    more = (doc.Items(tuple(rest), level=doc.DETAIL),) if rest else ()
    if found.pick is None:
        return doc.Answer("No pick", "", (reason,), reason, more=more, kind="none")
    name = found.pick.name if len(found.models) > 1 else found.pick.label
    pick = (name, "  ", doc.badge(found.pick.verdict.trust))
    return doc.Answer("Use", pick, tuple(_short(found)), reason, more=more)


def _short(found: Recommendation) -> list[str]:
    """Return the objective's figure, the kept constraints and up to two other reasons, one line each."""
    assert found.pick is not None
    first, *rest = found.reasons
    figure = first.partition(": ")[2].partition(", 95 %")[0]
    kept = [r for r in rest if r.startswith(tuple(c.text for c in found.wanted.constraints or ()))]
    other = [r for r in rest if r not in kept and not r.startswith("measured while")]
    lines = [f"{found.wanted.goal.title.lower()} {figure}", *kept, *other[:2]]
    return [text if len(text) <= 156 else f"{text[:155]}…" for text in lines]


def _counted(found: Recommendation) -> str:
    """Return a sentence with the number of cells and processes, the machine, and how many failed."""
    runs = [r for c in found.choices for r in c.replicates.values()]
    machine = next((r.machine.id for r in runs), "")
    where = f" on machine {machine}" if machine else ""
    failed = sum(c.failed for c in found.choices)
    broken = sum(bool(c.broken) for c in found.choices)
    parts = [f"{counted(len(found.choices), 'cell')}, {counted(len(runs), 'process')}{where}"]
    parts += [f"{broken} break a constraint"] if broken else []
    parts += [f"{failed} did not run or gave wrong outputs"] if failed else []
    return "; ".join(parts)


def _table(found: Recommendation, everything: bool) -> list[doc.Table | doc.Text]:
    rows = list(found.choices if everything else found.front)
    for extra in (found.pick, found.nearest, found.best):
        if extra is not None and extra.cell not in {r.cell for r in rows}:
            rows.append(extra)
    if not rows:
        return []  # every cell failed: the reasons say so
    order = {c.cell: i for i, c in enumerate(found.choices)}
    rows.sort(key=lambda c: order[c.cell])
    shown = rows if everything else _fewest(rows, found)
    columns = sorted((m for m in METRICS.values() if _wanted(m, found, shown)), key=lambda m: not m.higher)
    told = {found.wanted.goal.name} | _asked(found)
    heads = [doc.Column.of(m, 0 if m.name in told else i) for i, m in enumerate(columns, start=1)]
    *most, last = [_word(METRICS[a]) for a in found.axes] or ["anything"]
    on = f"{', '.join(most)} and {last}" if most else last
    title = "every cell" if everything else f"Pareto set: nothing measured beats these on {on} at once"
    several = len(found.models) > 1
    body = tuple(_row(c, columns, found, several) for c in shown)
    parts: list[doc.Table | doc.Text] = [
        doc.Table((doc.Column("Variant", head="variant"), *heads), body, title)
    ]
    if len(shown) < len(rows):
        parts.append(doc.Text(f"and {len(rows) - len(shown)} more: --all", "lead", doc.DETAIL))
    return parts


def _fewest(rows: Sequence[Row], found: Recommendation) -> list[Row]:
    """Return at most MOST rows: the best ones and those that the answer mentions."""
    named = {c.cell for c in (found.pick, found.nearest, found.best) if c is not None}
    spare = MOST - len(named)
    kept: list[Row] = []
    for row in rows:
        if row.cell in named or spare > 0:
            spare -= row.cell not in named
            kept.append(row)
    return kept


def _word(metric: Metric) -> str:
    """Return a metric's name within a sentence: `throughput`, `p99`."""
    return metric.title.lower() if metric.objective else metric.head


def _asked(found: Recommendation) -> set[str]:
    return {c.metric.name for c in found.wanted.constraints}


def _wanted(metric: Metric, found: Recommendation, rows: Sequence[Row]) -> bool:
    """Return whether to print a column: it is requested or usual, and measured in some row."""
    usual = {"table", "pareto"} & set(metric.shown) and not metric.artifact
    asked = metric.name in _asked(found) | {found.wanted.goal.name}
    return bool(asked or usual) and any(isinstance(r[metric.name], Measured) for r in rows)


def _row(choice: Row, columns: Sequence[Metric], found: Recommendation, several: bool) -> doc.Row:
    picked = found.pick is not None and choice.cell == found.pick.cell
    name = choice.name if several else choice.label
    marks: list[doc.Value] = [name, *_marks(choice, found, picked)]
    asked = _asked(found)
    cells = (_cell(choice[m.name], m.better == "lower" and m.name in asked) for m in columns)
    kind = "picked" if picked else "dim" if choice.rejected else ""
    return doc.Row((tuple(marks), *cells), kind, choice.cell)


def _cell(found: Field, judged: bool) -> doc.Value | doc.Cell:
    """Return a figure, with its upper end if a constraint judges it."""
    if not isinstance(found, Measured):
        return found
    if not judged or found.hi is None:
        return replace(found, lo=None, hi=None)
    text, end = units.show(found, interval=False), units.text(found.hi, found.unit)
    return doc.Cell(found, brief=text if end == text else f"{text} (<= {end})")


def _marks(choice: Row, found: Recommendation, picked: bool) -> list[doc.Mark]:
    words = [doc.Mark("pick", "pick")] if picked else []
    words += (
        [doc.Mark("nearest", "chip")]
        if found.nearest is not None and choice.cell == found.nearest.cell
        else []
    )
    for word, cells in (("tied", found.ties), ("undecided", found.undecided)):
        words += [doc.Mark(word, "chip")] if choice.cell in {c.cell for c in cells} else []
    broken = ", ".join(b.partition(" ")[0] for b in choice.broken)
    words += [doc.Mark(f"breaks {broken}", "chip")] if choice.broken else []
    words += [doc.Mark(choice.rejected.partition(":")[0], "chip")] if choice.failed else []
    trust = choice.verdict.trust
    words += [doc.Mark(trust.value, "chip")] if trust is not Trust.CLEAN and choice.replicates else []
    return words


def facts(found: Recommendation) -> Mapping[str, Any]:
    """Return {models, objective, constraints, pick, nearest, best, ties, reasons, front, axes, cells, remarks}."""
    named = {"pick": found.pick, "nearest": found.nearest, "best": found.best}
    return {
        "models": list(found.models),
        "objective": found.wanted.objective,
        "constraints": [c.text for c in found.wanted.constraints],
        **{name: row.cell if row else None for name, row in named.items()},
        "ties": [c.cell for c in found.ties],
        "undecided": [c.cell for c in found.undecided],
        "reasons": list(found.reasons),
        "front": [c.cell for c in found.front],
        "axes": list(found.axes),
        "cells": [_plain(c) for c in found.choices],
        "remarks": [str(r) for r in found.remarks],
    }


def _plain(choice: Row) -> dict[str, Json]:
    """Return one cell as data; constraints are judged on the ends of its figures."""
    plain = choice.to_json()
    del plain["speedup"]
    return plain | {"results": sorted(r.id for r in choice.replicates.values())}
