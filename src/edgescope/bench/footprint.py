"""What each process of a crew holds in memory: resident, its share of what is shared, and on the GPU.

Resident sets count pages that several processes share (libraries, a mapped model file) once in each; the proportional
set size divides them among their users, so only its sum is what the crew takes from the machine. On the GPU the driver
is asked; where it numbers processes differently from this container, it cannot be known which is whose.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope.bench.assembling import peak_rss
from edgescope.bench.watch import Devices
from edgescope.records import Absent, Field, Measured


@dataclass(frozen=True)
class Footprint:
    """One process's memory in bytes."""

    peak_rss: Field
    pss: Field
    gpu: Field


def footprints(pids: Sequence[int], devices: Devices, device: str) -> dict[int, Footprint]:
    """Return what each process holds now; `device` is where the trial computes."""
    on_gpu = _on_gpu(pids, devices) if device == "cuda" else {}
    none = Absent("the trial runs on the CPU")
    return {pid: Footprint(peak_rss(str(pid)), pss(pid), on_gpu.get(pid, none)) for pid in pids}


def pss(pid: int) -> Field:
    """Return a process's proportional set size from smaps_rollup (Linux 4.14)."""
    path = Path(f"/proc/{pid}/smaps_rollup")
    try:
        line = next(line for line in path.read_text().splitlines() if line.startswith("Pss:"))
    except (OSError, StopIteration) as error:
        return Absent(f"{path}: {error!r}")
    return Measured(float(line.split()[1]) * 1024, "bytes")


def _on_gpu(pids: Sequence[int], devices: Devices) -> Mapping[int, Field]:
    """Return what the drivers of the present devices say, the first that knows a process."""
    why: Field = Absent("no device here tells what a process holds")
    found: dict[int, Field] = dict.fromkeys(pids, why)
    for device in devices.values():
        ask = getattr(device, "process_memory", None)
        if ask is None or device.present():
            continue
        for pid, value in ask(pids).items():
            if not isinstance(found[pid], Measured):
                found[pid] = (
                    Measured(float(value), "bytes")
                    if isinstance(value, int | float)
                    else Absent(value.reason)
                )
    return found


def total(fields: Sequence[Field], what: str) -> Field:
    """Return the sum of several processes' figures; Absent with a reason where one of them is."""
    lacking = [f for f in fields if isinstance(f, Absent)]
    if lacking or not fields:
        return Absent(
            f"{what} of {len(lacking)} of {len(fields)} workers is not known: {lacking[0].reason}"
            if lacking
            else "no worker"
        )
    known = [f for f in fields if isinstance(f, Measured)]
    return Measured(sum(f.value for f in known), "bytes", n=len(known))
