"""The document about the layers of a network: one table an engine, and all engines side by side by module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgescope import units
from edgescope.analysis.layers import Placed
from edgescope.records import Absent, Json, Measured, Trial, Trust, Verdict
from edgescope.records.codec import to_plain
from edgescope.report import document as doc

if TYPE_CHECKING:
    from edgescope.wings.layers.verb import Layers


def document(found: Layers, *, command: str = "") -> doc.Document:
    """Return the document; with several engines it begins with their layers side by side."""
    trials, engines = found.trials, found.engines
    several = len(trials) > 1
    parts: list[doc.Part | None] = [_beside(found)] if several else []
    told = zip(found.labels, engines, found.judged, found.bases, strict=True)
    for label, layers, verdict, basis in told:
        about = (_about(label, layers, verdict, basis),)
        parts += about if several else ()
        inside = (*(() if several else about), *_engine(layers))
        parts.append(doc.Section(label, inside, level=doc.DETAIL if several else doc.MAIN))
    parts += map(doc.Text, found.notes)
    if found.ceilings is None:
        fix = f"edgescope doctor --roofline {trials[0].device}"
        text = f"W-LAYER-1: no roofline: this machine's ceilings were not measured. Try: {fix}"
        parts.append(doc.Text(doc.Mark(text, "warn")))
    data = [
        {"engine": label, **_data(t, layers, verdict)}
        for label, t, layers, verdict in zip(found.labels, trials, engines, found.judged, strict=True)
    ]
    return doc.Document(
        f"Layers of {trials[0].model.partition('#')[0]}", tuple(parts), {"engines": data}, command
    )


def _about(label: str, layers: Sequence[Placed], verdict: Verdict | None, basis: str) -> doc.Text:
    """Return `onnxruntime fp32 b1: CLEAN. 3.1 ms in 12 layers; medians of 10 runs; ...`."""
    whole = units.show(Measured(sum(p.layer.seconds for p in layers), "s"))
    trust: doc.Value = "not judged: the times come from files"
    if verdict is not None:
        evidence = "" if verdict.trust is Trust.CLEAN else f": {'; '.join(verdict.evidence[:2])}"
        trust = (doc.badge(verdict.trust), doc.Mark(evidence, "dim"))
    return doc.Text((f"{label}: ", trust, f". {whole} in {len(layers)} layers; {basis}."))


def _engine(layers: Sequence[Placed]) -> tuple[doc.Part, ...]:
    tables: list[doc.Part] = [_table(layers)]
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


def _table(layers: Sequence[Placed]) -> doc.Table:
    """Return the table of some layers, without the columns that nothing is known for."""
    heads = (
        doc.Column("Layer", head="layer"),
        doc.Column("Operator", head="operator", rank=5),
        doc.Column("Precision", head="ran in", rank=3),
        doc.Column("Time", "s", head="time"),
        doc.Column("Lower quartile", "s", head="25 %", rank=2),
        doc.Column("Upper quartile", "s", head="75 %", rank=2),
        doc.Column("Times a query", "1", head="runs", rank=4),
        doc.Column("Of the time", "share", head="of time"),
        doc.Column("GFLOP", "1", head="GFLOP", rank=7),
        doc.Column("MB moved", "1", head="MB", rank=8),
        doc.Column("FLOP/byte", "1", head="FLOP/byte", rank=6),
        doc.Column("Of its limit", "share", head="of limit", rank=1),
        doc.Column("Bound by", head="bound by"),
        doc.Column("Tensor cores", head="tensor cores", rank=9),
    )
    rows = [_row(p) for p in layers]
    known = [i for i in range(len(heads)) if any(not _empty(row[i]) for row in rows)]
    cells = tuple(doc.Row(tuple(row[i] for i in known)) for row in rows)
    return doc.Table(tuple(heads[i] for i in known), cells)


def _empty(value: doc.Value) -> bool:
    return value in ("", None) or isinstance(value, Absent)


def _row(p: Placed) -> tuple[doc.Value, ...]:
    layer, nothing = p.layer, Absent("the engine does not tell its shapes")
    known, once = bool(layer.bytes), Absent("the engine tells one time")
    return (
        layer.name,
        layer.kind,
        layer.precision,
        Measured(layer.seconds, "s"),
        *(Measured(q, "s") for q in layer.quartiles or ()),
        *(() if layer.quartiles else (once, once)),
        Measured(layer.executions, "1") if layer.executions > 1 else None,
        Measured(p.share, "share"),
        Measured(layer.flops / 1e9, "1") if known else nothing,
        Measured(layer.bytes / 1e6, "1") if known else nothing,
        Measured(layer.intensity, "1") if known else nothing,
        p.of_limit,
        p.bound_by,
        p.tensor_cores,
    )


def _beside(found: Layers) -> doc.Table:
    """Return the layers of all engines side by side, those that differ most first."""
    heads = (doc.Column("Layer", head="layer"), *(doc.Column(label, "s") for label in found.labels))
    absent = Absent("fused into another layer, or no layer of this name")
    rows = sorted(found.joined, key=lambda j: -max(t or 0.0 for t in j.seconds))
    cells = (doc.Row((j.name, *(absent if t is None else Measured(t, "s") for t in j.seconds))) for j in rows)
    return doc.Table(heads, tuple(cells))


def _data(trial: Trial, layers: Sequence[Placed], verdict: Verdict | None) -> dict[str, Json]:
    told = to_plain(verdict) if verdict is not None else None
    return {"trial": trial.to_json(), "verdict": told, "layers": [to_plain(p) for p in layers]}
