"""The document about the layers of a network: one table an engine, and all engines side by side by module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgescope.analysis.predict.layers import Placed
from edgescope.records import Absent, Json, Measured, Trial
from edgescope.records.codec import to_plain
from edgescope.report import document as doc

if TYPE_CHECKING:
    from edgescope.verbs.layers import Layers

TOP = 12
"""Layers that a terminal shows without -v."""


def document(found: Layers, *, command: str = "") -> doc.Document:
    """Return the document; with several engines it begins with their layers side by side."""
    trials, engines = found.trials, found.engines
    several = len(trials) > 1
    parts: list[doc.Part | None] = [_beside(found)] if several else []
    for label, layers in zip(found.labels, engines, strict=True):
        parts.append(doc.Section(label, _engine(layers), level=doc.DETAIL if several else doc.MAIN))
    parts += map(doc.Text, found.notes)
    if found.ceilings is None:
        fix = f"edgescope doctor --roofline {trials[0].device}"
        text = f"W-LAYER-1: no roofline: this machine's ceilings were not measured. Try: {fix}"
        parts.append(doc.Text(doc.Mark(text, "warn")))
    data = [
        {"engine": label, **_data(t, layers)}
        for label, t, layers in zip(found.labels, trials, engines, strict=True)
    ]
    return doc.Document(
        f"Layers of {trials[0].model.partition('#')[0]}", tuple(parts), {"engines": data}, command
    )


def _engine(layers: Sequence[Placed]) -> tuple[doc.Part, ...]:
    tables: list[doc.Part] = [_table(layers[:TOP], doc.BRIEF), _table(layers, doc.DETAIL)]
    whole = sum(p.layer.seconds for p in layers)
    sums = [
        (word, sum(p.layer.seconds for p in layers if p.bound_by == word))
        for word in ("compute", "memory", "neither")
    ]
    if any(seconds for _, seconds in sums):
        named = ", ".join(f"{word} {seconds / whole:.0%}" for word, seconds in sums if seconds)
        tables.append(doc.Text(f"Of the time is bound by: {named}."))
    missed = [p for p in layers if p.tensor_cores.startswith("no")]
    if missed:
        share = sum(p.layer.seconds for p in missed) / whole
        tables.append(
            doc.Text(f"{len(missed)} layers, {share:.0%} of the time, multiply without tensor cores.")
        )
    return tuple(tables)


def _table(layers: Sequence[Placed], level: doc.Level) -> doc.Table:
    heads = (
        doc.Column("Layer", head="layer"),
        doc.Column("Operator", head="operator", rank=3),
        doc.Column("Time", "s", head="time"),
        doc.Column("Of the time", "share", head="of time"),
        doc.Column("GFLOP", "1", head="GFLOP", rank=4),
        doc.Column("MB moved", "1", head="MB", rank=5),
        doc.Column("FLOP/byte", "1", head="FLOP/byte", rank=2),
        doc.Column("Of its limit", "share", head="of limit", rank=1),
        doc.Column("Bound by", head="bound by"),
        doc.Column("Tensor cores", head="tensor cores", rank=6),
    )
    return doc.Table(heads, tuple(_row(p) for p in layers), level=level)


def _row(p: Placed) -> doc.Row:
    layer, nothing = p.layer, Absent("the engine does not tell its shapes")
    known = bool(layer.bytes)
    return doc.Row(
        (
            layer.name,
            layer.kind,
            Measured(layer.seconds, "s"),
            Measured(p.share, "share"),
            Measured(layer.flops / 1e9, "1") if known else nothing,
            Measured(layer.bytes / 1e6, "1") if known else nothing,
            Measured(layer.intensity, "1") if known else nothing,
            p.of_limit,
            p.bound_by,
            p.tensor_cores,
        )
    )


def _beside(found: Layers) -> doc.Table:
    """Return the layers of all engines side by side, those that differ most first."""
    heads = (doc.Column("Layer", head="layer"), *(doc.Column(label, "s") for label in found.labels))
    absent = Absent("fused into another layer, or no layer of this name")
    rows = sorted(found.joined, key=lambda j: -max(t or 0.0 for t in j.seconds))
    cells = (doc.Row((j.name, *(absent if t is None else Measured(t, "s") for t in j.seconds))) for j in rows)
    return doc.Table(heads, tuple(cells))


def _data(trial: Trial, layers: Sequence[Placed]) -> dict[str, Json]:
    return {"trial": trial.to_json(), "layers": [to_plain(p) for p in layers]}
