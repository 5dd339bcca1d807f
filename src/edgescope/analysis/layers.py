"""Each layer of a network beside the machine's ceilings: what bounds it, and how near to that bound it runs.

    limit = max(FLOPs / peak, bytes / bandwidth)

Bytes are those of a layer's inputs, weights and outputs, each once: what it must move if nothing stays in a cache. The
bandwidth is the best one that was measured with a working set of this size or more. A layer that takes several times
its limit is bound by neither: launching, poor reuse, or a kernel that does not use the units.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from edgescope import registry
from edgescope.analysis.roofline import Ceilings, bandwidth_at
from edgescope.records import Absent, Field, Measured

FAR = 0.15
"""A layer that reaches less of its limit than this is bound by something else."""
HEAVY = frozenset({"convolution", "linear", "matmul", "addmm", "bmm", "baddbmm", "conv", "gemm", "attention"})
"""Kinds of operators that tensor cores compute."""


@dataclass(frozen=True)
class Layer:
    """One operator of a network in one engine."""

    name: str
    """The module's path in PyTorch, the node's name in an ONNX file."""
    kind: str
    """The operator, as the engine calls it."""
    seconds: float
    """Time in one query: the median over queries of the sum of its executions."""
    flops: int = 0
    """Twice its multiply-accumulates; 0 if it has none."""
    bytes: int = 0
    """Inputs, weights and outputs, each once; 0 if the engine does not tell their shapes."""
    precision: str = "fp32"
    grouped: bool = False
    """Whether it is a convolution of so many groups that tensor cores have nothing to multiply (depthwise)."""
    times: tuple[float, ...] = ()
    """The times that `seconds` is the median of, in order; empty where only one figure is known."""
    executions: int = 1
    """How often it runs in one query: the body of a loop runs many times."""

    @property
    def quartiles(self) -> tuple[float, float] | None:
        """Return the lower and upper quartile of its times; None for fewer than three."""
        if len(self.times) < 3:
            return None
        low, _, high = statistics.quantiles(self.times, n=4, method="inclusive")
        return low, high

    @property
    def intensity(self) -> float:
        """Return FLOPs a byte; 0 if either is not known."""
        return self.flops / self.bytes if self.bytes else 0.0


@dataclass(frozen=True)
class Exported:
    """The layers of an engine that ran elsewhere, from files."""

    layers: tuple[Layer, ...]
    precision: str
    """Of its heavy layers; `unknown` if the files do not tell."""
    compute: Field
    """Median time of the whole engine, in a run without a profile."""
    files: tuple[str, ...]


@dataclass(frozen=True)
class Placed:
    """A layer beside its limit."""

    layer: Layer
    share: float
    """Of the time of all layers."""
    of_limit: Field
    """The limit / its time: its share of the roofline."""
    bound_by: str
    """compute, memory, neither (far from both), or '' without ceilings."""
    tensor_cores: str
    """yes, no with the reason, or '' where the machine has none or the layer multiplies nothing."""


def placed(layers: Sequence[Layer], ceilings: Ceilings | None, device: str) -> tuple[Placed, ...]:
    """Return every layer beside its limit, the longest first."""
    whole = sum(layer.seconds for layer in layers) or 1.0
    found = [
        Placed(layer, layer.seconds / whole, *_against(layer, ceilings), _tensor_cores(layer, device))
        for layer in layers
    ]
    return tuple(sorted(found, key=lambda p: -p.layer.seconds))


def _against(layer: Layer, ceilings: Ceilings | None) -> tuple[Field, str]:
    if ceilings is None:
        return Absent("this machine's ceilings were not measured"), ""
    if not layer.bytes:
        return Absent("the engine does not tell the shapes of this layer"), ""
    if layer.seconds <= 0:
        return Absent("it took no time by this clock"), ""
    memory = layer.bytes / bandwidth_at(ceilings.bandwidth, layer.bytes)
    peak, compute = ceilings.flops.get(layer.precision), 0.0
    if layer.flops:
        if not isinstance(peak, Measured):
            return Absent(f"no ceiling of {layer.precision} was measured"), ""
        compute = layer.flops / peak.value
    reach = max(memory, compute) / layer.seconds
    bound = "compute" if compute > memory else "memory"
    return Measured(reach, "share"), bound if reach >= FAR else "neither"


def _tensor_cores(layer: Layer, device: str) -> str:
    """Return whether a layer could have used tensor cores, by its precision and shape."""
    if not registry.place(device).cuda or not layer.flops:
        return ""
    if layer.precision == "fp32":
        return "no: fp32"
    return "no: depthwise" if layer.grouped else "yes"


@dataclass(frozen=True)
class LayerRow:
    """One layer as several engines ran it."""

    name: str
    seconds: tuple[float | None, ...]
    """By engine, in the order of the question; None where an engine has no layer of this name."""


def joined(engines: Sequence[Sequence[Layer]]) -> tuple[LayerRow, ...]:
    """Return the layers of several engines side by side, by name; a fused layer stands under its first name.

    Engines fuse: a layer may be called `conv1 + relu1` or `conv1,relu1`. It is found by any of the names in it, and its
    time stands once.
    """
    parts = [[(_names(layer.name), layer) for layer in layers] for layers in engines]
    order = dict.fromkeys(names[0] for each in parts for names, _ in each)
    of_any = [{n: names[0] for names, _ in each for n in names} for each in parts]
    leaders = {name: next((o[name] for o in of_any if name in o and o[name] != name), name) for name in order}
    rows: dict[str, list[float | None]] = {
        leader: [None] * len(engines) for leader in dict.fromkeys(leaders.values())
    }
    for i, each in enumerate(parts):
        for names, layer in each:
            row = rows[leaders[names[0]]]
            row[i] = (row[i] or 0.0) + layer.seconds
    return tuple(LayerRow(name, tuple(times)) for name, times in rows.items())


def _names(text: str) -> list[str]:
    parts = [p.strip() for p in text.replace(" + ", ",").split(",")]
    return [normal(p) for p in parts if p] or [text]


def normal(name: str) -> str:
    """Return a layer's name without what exporters put around it: `/features/0/Conv` is `features.0`.

    A child of a Sequential has its parent's name before its own: `/layer1/layer1.0/conv1/Conv` is `layer1.0.conv1`.
    """
    path: list[str] = []
    for part in name.strip("/").split("/"):
        nested = bool(path) and part.startswith(f"{path[-1]}.")
        path = [*(path[:-1] if nested else path), part]
    head, _, tail = ".".join(path).rpartition(".")
    known = {"conv", "gemm", "matmul", "relu", "add", "maxpool", "wrapped"}
    operator = tail.lower().split("_")[0] in known or (name.startswith("/") and tail[:1].isupper())
    return head if head and operator else ".".join(path)
