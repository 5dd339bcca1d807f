"""Where a network's time goes, layer by layer: `edgescope.layers("resnet50", backend=["torch_eager", "openvino"])`.

The document about it has one table an engine, and all engines side by side by module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgescope import bench, units
from edgescope.analysis import roofline
from edgescope.analysis.roofline import Ceilings, Exported, LayerRow, Placed, joined, placed
from edgescope.backends.base import counted, precision_of
from edgescope.bench.layers import exported as exported_by
from edgescope.bench.layers import profiled, ran
from edgescope.errors import Message
from edgescope.models import zoo
from edgescope.records import Absent, Answer, Json, Measured, Trial, Trust, Verdict
from edgescope.records.answers import plain
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.runner.setup import Stored, store_of
from edgescope.study import grid


@dataclass(frozen=True, repr=False)
class Layers(Answer):
    """The layers of a network in one or several engines, the longest first."""

    trials: tuple[Trial, ...]
    engines: tuple[tuple[Placed, ...], ...]
    """The layers of each trial."""
    ceilings: Ceilings | None
    """The ceilings of this machine, or None if they were not measured."""
    verdicts: tuple[Verdict | None, ...] = ()
    """Whether the times of each engine may be trusted; None of files from elsewhere."""
    exported: Exported | None = None
    """The last engine, where its layers come from files that trtexec exported elsewhere."""

    @property
    def joined(self) -> tuple[LayerRow, ...]:
        """Return the layers of all engines side by side, by the path of their module."""
        return joined([[p.layer for p in engine] for engine in self.engines])

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the name of each engine."""
        own = [_label(t, engine) for t, engine in zip(self.trials, self.engines, strict=True)]
        return (*own[:-1], f"trtexec {self.exported.precision}") if self.exported else tuple(own)

    @property
    def judged(self) -> tuple[Verdict | None, ...]:
        """Return the verdict on each engine's times, None where there is none."""
        return (*self.verdicts, *[None] * (len(self.engines) - len(self.verdicts)))

    @property
    def bases(self) -> tuple[str, ...]:
        """Return how many runs each engine's times are of, and in which precision it ran."""
        return tuple(map(_basis, self.engines))

    @property
    def notes(self) -> tuple[str, ...]:
        """Return what the layers of files lack, and how their sum compares with the engine's own time."""
        told = tuple(filter(None, map(_otherwise, self.trials, self.engines)))
        if self.exported is None:
            return told
        return (*told, self._of_files(self.exported))

    def _of_files(self, exported: Exported) -> str:
        whole, files = exported.compute, ", ".join(exported.files)
        own = sum(layer.seconds for layer in exported.layers)
        if isinstance(whole, Absent):
            return f"trtexec: layers from {files}; they sum to {own * 1e3:.3g} ms; {whole.reason}"
        times = f"the engine takes {whole.value * 1e3:.3g} ms (median of {whole.n} queries) without a profile"
        return f"trtexec: layers from {files}; they sum to {own * 1e3:.3g} ms; {times}"

    def lines(self) -> Iterator[str]:
        """Yield each engine with its longest layers."""
        model = self.trials[0].model.partition("#")[0]
        for label, found, verdict in zip(self.labels, self.engines, self.judged, strict=True):
            whole = sum(p.layer.seconds for p in found)
            trust = f", {verdict.trust.value}" if verdict else ""
            yield f"{model} {label}: {whole * 1e3:.3g} ms in {len(found)} layers{trust}; {_basis(found)}"
            yield from (
                f"  {p.layer.seconds * 1e3:.3g} ms {p.share:.0%} {p.layer.name} {p.layer.kind} {p.bound_by}".rstrip()
                for p in found[:5]
            )
        yield from self.notes

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each layer of each engine."""
        return [
            {"trial": label, "layer": p.layer.name, "kind": p.layer.kind, "seconds": p.layer.seconds}
            | {
                "quartiles": p.layer.quartiles,
                "runs": len(p.layer.times),
                "executions": p.layer.executions,
                "verdict": verdict.trust.value if verdict else None,
                "share": p.share,
                "flops": p.layer.flops,
                "bytes": p.layer.bytes,
                "of_limit": plain(p.of_limit),
            }
            | {"bound_by": p.bound_by, "tensor_cores": p.tensor_cores, "precision": p.layer.precision}
            for label, found, verdict in zip(self.labels, self.engines, self.judged, strict=True)
            for p in found
        ]


def _label(trial: Trial, found: Sequence[Placed]) -> str:
    """Return a trial's label with the precision that its heavy layers ran in."""
    kinds = ran([p.layer for p in found])
    word = precision_of(kinds) if kinds else trial.precision
    return trial.label.replace(f" {trial.precision} b", f" {word} b", 1)


def _otherwise(trial: Trial, found: Sequence[Placed]) -> str:
    """Return what ran in another precision than was asked for, '' if nothing did."""
    kinds = ran([p.layer for p in found])
    if not kinds or trial.precision in (precision_of(kinds), "as_is", "tf32"):
        return ""
    return str(
        Message(
            "W-LAYER-2",
            f"{trial.backend} ran other precisions than the {trial.precision} that was asked for",
            evidence=f"of the layers that multiply, {counted(kinds)}",
            effect=f"The times are not those of {trial.precision}",
            fix="--precision as_is, or another --backend",
        )
    )


def _basis(found: Sequence[Placed]) -> str:
    """Return what the times of an engine are: the number of runs and what ran in which precision."""
    runs, kinds = max((len(p.layer.times) for p in found), default=0), ran([p.layer for p in found])
    told = f"medians of {runs} runs" if runs > 1 else "one figure a layer"
    return f"{told}; what multiplies ran in {counted(kinds)}" if kinds else told


def layers(
    model: str | Trial,
    *,
    backend: Sequence[str] | str = (),
    trtexec: Sequence[Path | str] = (),
    store: Stored = None,
    **trial: Any,
) -> Layers:
    """Return the time, FLOPs, bytes and share of the roofline of every layer, in one engine or in several.

    The keys are those of a Trial. The roofline needs this machine's ceilings (`edgescope doctor --roofline cpu`), which
    are read from the store. The network runs in this process, after each other in each engine. `trtexec` are files of
    --exportProfile, --exportLayerInfo and --exportTimes, from any machine: they become one more engine, without a
    roofline. For a model that is an ONNX file, its nodes name the layers' modules.
    """
    if isinstance(model, Trial):
        trials = [model]
    else:
        names = [backend] if isinstance(backend, str) else list(backend)
        keys: Mapping[str, Any] = {"model": model, **trial, **({"backend": names} if names else {})}
        trials = [grid.pinned(made, zoo.pin) for made in grid.grid(keys)]
    here = bench.here()
    kept = roofline.kept(store_of(store).root, here.id, trials[0].device, trials[0].mode)
    ceilings = roofline.read(kept) if kept.is_file() else None
    exported = exported_by([Path(f) for f in trtexec], trials[0]) if trtexec else None
    profiles = [profiled(t) for t in trials]
    engines = [placed(p.layers, ceilings, t.device) for p, t in zip(profiles, trials, strict=True)]
    if exported is not None:
        elsewhere = Absent("the layers come from a file, the ceilings from this machine")
        engines.append(tuple(replace(p, of_limit=elsewhere) for p in placed(exported.layers, None, "cuda")))
        trials.append(replace(trials[0], backend="trtexec", device="cuda", options={}, mode=Trial.mode))
    verdicts = tuple(p.verdict for p in profiles)
    return Layers(tuple(trials), tuple(engines), ceilings, verdicts, exported)


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
