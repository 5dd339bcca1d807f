"""Where a network's time goes, layer by layer: `edgescope.layers("resnet50", backend=["torch_eager", "openvino"])`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgescope import bench
from edgescope.analysis.predict import roofline
from edgescope.analysis.predict.layers import Joined, Placed, joined, placed
from edgescope.analysis.predict.roofline import Ceilings
from edgescope.bench.layers import layers as layers_of
from edgescope.models import zoo
from edgescope.records import Answer, Json, Trial
from edgescope.records.answers import plain
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

    @property
    def joined(self) -> tuple[Joined, ...]:
        """Return the layers of all engines side by side, by the path of their module."""
        return joined([[p.layer for p in engine] for engine in self.engines])

    def lines(self) -> Iterator[str]:
        """Yield each engine with its longest layers."""
        for trial, found in zip(self.trials, self.engines, strict=True):
            whole = sum(p.layer.seconds for p in found)
            yield f"{trial.model.partition('#')[0]} {trial.label}: {whole * 1e3:.3g} ms in {len(found)} layers"
            yield from (
                f"  {p.layer.seconds * 1e3:.3g} ms {p.share:.0%} {p.layer.name} {p.layer.kind} {p.bound_by}".rstrip()
                for p in found[:5]
            )

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each layer of each engine."""
        return [
            {"trial": t.label, "layer": p.layer.name, "kind": p.layer.kind, "seconds": p.layer.seconds}
            | {
                "share": p.share,
                "flops": p.layer.flops,
                "bytes": p.layer.bytes,
                "of_limit": plain(p.of_limit),
            }
            | {"bound_by": p.bound_by, "tensor_cores": p.tensor_cores, "precision": p.layer.precision}
            for t, found in zip(self.trials, self.engines, strict=True)
            for p in found
        ]


def layers(
    model: str | Trial, *, backend: Sequence[str] | str = (), store: Stored = None, **trial: Any
) -> Layers:
    """Return the time, FLOPs, bytes and share of the roofline of every layer, in one engine or in several.

    The keys are those of a Trial. The roofline needs this machine's ceilings (`edgescope doctor --ceilings cpu`), which
    are read from the store. The network runs in this process, after each other in each engine.
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
    engines = tuple(placed(layers_of(t), ceilings, t.device) for t in trials)
    return Layers(tuple(trials), engines, ceilings)
