"""The least time of a network on this machine (roofline), from the work it must compute and the bytes it must move.

    limit = max(2 MACs / peak, compulsory bytes / bandwidth) + transfers + launch floor

Peak, bandwidth, transfers and launch floor are measured on the machine itself (`edgescope doctor --roofline`), not
taken from a data sheet. The compulsory bytes are parameters, inputs and outputs, each once; activations are left out,
so the limit is a lower bound on time: a real engine has to write some of them. The bandwidth was measured on a working
set of this size or more, since weights that fit a cache are read from it. Two things can beat the limit: an algorithm
with fewer multiplications (Winograd), and a ceiling that was measured on a disturbed machine; a share above 1 says
that one did. Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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
