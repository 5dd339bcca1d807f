"""The least time of a network, and of each of its layers, on this machine (roofline), from its work and its bytes.

    of a network   limit = max(2 MACs / peak, compulsory bytes / bandwidth) + transfers + launch floor
    of a layer     limit = max(FLOPs / peak, bytes / bandwidth)

Peak, bandwidth, transfers and launch floor are measured on the machine itself (`edgescope doctor --roofline`), not
taken from a data sheet. The compulsory bytes are parameters, inputs and outputs, each once; activations are left out,
so the limit is a lower bound on time: a real engine has to write some of them. The bandwidth was measured on a working
set of this size or more, since weights that fit a cache are read from it. Two things can beat the limit: an algorithm
with fewer multiplications (Winograd), and a ceiling that was measured on a disturbed machine; a share above 1 says
that one did. Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.

Bytes of a layer are its inputs, weights and outputs, each once: what it must move if nothing stays in a cache. A layer
that takes several times its limit is bound by neither: launching, poor reuse, or a kernel that does not use the units.
"""

from __future__ import annotations

import itertools
import json
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope import registry
from edgescope.errors import UsageError
from edgescope.records import Absent, Field, Json, Measured, Result

BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1}
HOST_BYTES = 4
"""Inputs and outputs of the zoo are float32 on the host."""
FIX = "edgescope doctor --roofline cpu"

Points = Sequence[tuple[float, float]]
"""(bytes, value) by rising bytes."""


@dataclass(frozen=True)
class Ceilings:
    """The measured ceilings of one machine."""

    machine_id: str
    device: str
    flops: dict[str, Field]
    """Precision -> largest FLOP/s of a matrix product; two FLOPs a multiply-accumulate."""
    bandwidth: Points
    """(bytes of the working set, bytes/s read or copied)."""
    launch_s: float
    """Seconds of launching nothing and waiting for it."""
    h2d: Points
    """(bytes, seconds) of a copy from host to device; empty if there is none."""
    d2h: Points


@dataclass(frozen=True)
class Work:
    """The least work of one query."""

    macs: int
    params: int
    input: int
    outputs: int
    """Values in and out."""
    precision: str = "fp32"

    @property
    def compulsory_bytes(self) -> int:
        """Return the bytes of parameters, inputs and outputs at this precision, each once."""
        return (self.params + self.input + self.outputs) * BYTES[self.precision]


@dataclass(frozen=True)
class Limit:
    """The parts of the bound, in seconds."""

    compute_s: float
    memory_s: float
    transfer_s: float
    launch_s: float

    @property
    def total_s(self) -> float:
        """Return the least time of one query."""
        return max(self.compute_s, self.memory_s) + self.transfer_s + self.launch_s

    @property
    def bound_by(self) -> str:
        """Return the name of the largest part: compute, memory, transfers or launch."""
        parts = {
            "compute": self.compute_s,
            "memory": self.memory_s,
            "transfers": self.transfer_s,
            "launch": self.launch_s,
        }
        return max(parts, key=lambda k: parts[k])


def limit(work: Work, ceilings: Ceilings) -> Limit | Absent:
    """Return the bound of one query, or Absent if no ceiling was measured for the precision."""
    peak = ceilings.flops.get(work.precision, Absent(f"no {work.precision} ceiling was measured"))
    if isinstance(peak, Absent):
        return peak
    moved = work.compulsory_bytes
    return Limit(
        2 * work.macs / peak.value,
        moved / bandwidth_at(ceilings.bandwidth, moved),
        _seconds(ceilings.h2d, work.input * HOST_BYTES) + _seconds(ceilings.d2h, work.outputs * HOST_BYTES),
        ceilings.launch_s,
    )


def bandwidth_at(points: Points, size: float) -> float:
    """Return the best bytes/s seen with a working set of `size` or more; beyond the largest measured one, its value."""
    return max((rate for n, rate in points if n >= size), default=points[-1][1])


def _seconds(points: Points, size: float) -> float:
    """Return the seconds of a copy of `size` bytes, interpolated between the points around it; 0 if there are none."""
    if not points:
        return 0.0
    first, last = points[0], points[-1]
    if size <= first[0]:
        return first[1]  # a copy's fixed cost: smaller ones are no faster
    for (n0, t0), (n1, t1) in itertools.pairwise(points):
        if size <= n1:
            return t0 + (t1 - t0) * (size - n0) / (n1 - n0)
    return last[1] * size / last[0]


def read(path: Path) -> Ceilings:
    """Return the ceilings in a file written by `edgescope doctor --roofline`; UsageError if it is no such file."""
    try:
        page = json.loads(path.read_text(encoding="utf-8"))
        return _ceilings(page["machine_id"], page["figures"])
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UsageError(
            "E-CEIL-1",
            f"{path} holds no ceilings",
            evidence=f"{type(error).__name__}: {error}",
            effect="No physical limit can be given",
            fix=FIX,
        ) from error


def kept(root: Path, machine_id: str, device: str, mode: str = "as_is") -> Path:
    """Return the file of a store that holds a machine's ceilings in one of its modes."""
    name = (
        f"ceilings-{device}"
        if mode == "as_is"
        else f"ceilings-{device}-{re.sub('[^A-Za-z0-9.=-]', '_', mode)}"
    )
    return root / machine_id / f"{name}.json"


def stored(root: Path, result: Result) -> Ceilings | None:
    """Return the ceilings of a result's machine, device and mode from a store, or None if they were not measured."""
    path = kept(root, result.machine.id, result.trial.device, result.trial.mode)
    return read(path) if path.is_file() else None


def _ceilings(machine_id: str, figures: Json) -> Ceilings:
    flops = {name: _field(found) for name, found in figures["flops"].items()}
    points = {
        k: [(float(p["bytes"]), float(p["value"])) for p in figures[k]] for k in ("bandwidth", "h2d", "d2h")
    }
    if not points["bandwidth"]:
        raise ValueError("no bandwidth was measured")
    launch = float(figures["launch_s"])
    return Ceilings(
        machine_id, figures["device"], flops, points["bandwidth"], launch, points["h2d"], points["d2h"]
    )


def _field(found: Json) -> Field:
    return Absent(found["absent"]) if "absent" in found else Measured(found["value"], "FLOP/s")


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
    parts = [[(_names_in(layer.name), layer) for layer in layers] for layers in engines]
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


def _names_in(text: str) -> list[str]:
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
