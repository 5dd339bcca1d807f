"""Predict the memory of a cell from smaller measured cells, before it starts, and skip cells that cannot fit.

On a board whose CPU and GPU share their memory, a cell that is too large does not fail: the board stops answering and
reboots. So a cell is not started if the measured growth shows that it cannot fit. It needs

    P x (bytes of a process at the largest measured batch b' <= b  +  bytes of one more sample x (b - b'))

after the paper's P x (model + 2 x batch) (arXiv 2508.08430), with both coefficients measured: linear in P through the
two largest numbers of processes measured at b', or proportional to P if only one was (too much is better than a
reboot). Only smaller cells predict a larger one, and growth that was not measured is not assumed.

A cell is also skipped if one of its family that is no larger in batch, processes and queries in flight ran out of
memory. A skipped cell is a Result with the status `skipped` and a reason that names the other cell.
"""

from __future__ import annotations

import contextlib
import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

import psutil

from edgescope.analysis.cells.concurrency import reused
from edgescope.analysis.run.usage import GPU, HOST, UNIFIED, gpu_number
from edgescope.devices.cpu.limits import Memory
from edgescope.errors import Message
from edgescope.isolate.fresh import FLOOR_BYTES, FLOOR_SHARE, Limits, floor_of
from edgescope.records import Json, Machine, Measured, Result, Role, Status, Trial, digest

#: Statuses of cells that ran to their end, so their memory was in use; their figures may still be wrong.
MEASURED = (Status.OK, Status.UNSTABLE, Status.WRONG_OUTPUT)
BOARD = "gpu_board_memory_bytes"
NOTHING: Mapping[str, float] = MappingProxyType({})
KNOWN = (*HOST, *GPU, *UNIFIED)
"""The metrics of which a cell's needs are made."""


class MemoryBudget(Protocol):
    """The memory that is available to cells."""

    unified: bool
    """Whether CPU and GPU share one memory."""

    def host(self) -> tuple[float, float]:
        """Return (available bytes, bytes that must remain free)."""

    def gpu(self) -> float | None:
        """Return the available bytes of the GPU's own memory, or None if there is no such memory or no figure."""


class ThisMachine:
    """The memory of this machine, read at each call; `free_gpu` is what its GPU's own memory had free at the start."""

    def __init__(self, limits: Limits, free_gpu: float | None = None, *, unified: bool = False) -> None:
        self.limits, self.free_gpu, self.unified = limits, free_gpu, unified

    def host(self) -> tuple[float, float]:
        """Return (bytes available once this process's workers have ended, the floor that isolate keeps free)."""
        with Memory() as memory:
            return memory.available() + _of_own_workers(), floor_of(self.limits.floor_bytes, memory)

    def gpu(self) -> float | None:
        """Return the bytes that were free on the GPU when the sweep began."""
        return self.free_gpu


class AsDescribed:
    """The memory of a machine according to the facts in a Result; it never changes."""

    def __init__(self, machine: Machine) -> None:
        self.state, self.stable = machine.state, machine.stable
        self.unified = "jetson" in machine.stable

    def host(self) -> tuple[float, float]:
        """Return (available bytes, infinite if unknown; isolate's default floor)."""
        facts = self.state.get("cpu")
        facts = facts if isinstance(facts, Mapping) else {}
        names = ("memory_available_bytes", "cgroup_memory_limit_bytes")
        known = [float(n) for n in map(facts.get, names) if isinstance(n, int | float)]
        total = facts.get("memory_total_bytes")
        share = FLOOR_SHARE * total if isinstance(total, int | float) else FLOOR_BYTES
        return min(known, default=math.inf), max(FLOOR_BYTES, share)

    def gpu(self) -> float | None:
        """Return the bytes that were free on CUDA's GPU 0, or None if unknown."""
        number = gpu_number(self.state)
        total = _of_board(self.stable, number, "memory_total_bytes")
        used = _of_board(self.state, number, "memory_used_bytes")
        return None if total is None or used is None else total - used


def _of_own_workers() -> int:
    """Return the unshared bytes of reused worker processes; the next cell replaces them."""
    total = 0
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            total += child.memory_full_info().uss
    return total


@dataclass(frozen=True, slots=True)
class Held:
    """What a measured cell held, and its size: all that is kept of it while a sweep of ten thousand goes on."""

    id: str
    batch: int
    processes: int
    in_flight: int
    bytes: Mapping[str, float]
    """Metric -> bytes, of those that were measured."""

    @classmethod
    def of(cls, result: Result) -> Held:
        """Return what a result held."""
        found = {name: bytes_ for name in KNOWN if (bytes_ := _held(result, name))}
        return cls(result.id, *size(result.trial), found or NOTHING)


@dataclass(frozen=True)
class Need:
    """The least bytes that a cell needs, and the measured cell that shows it."""

    bytes: float
    by: Held


class Forecast:
    """The memory of the measured cells, by family."""

    def __init__(self, room: MemoryBudget, results: Iterable[Result] = ()) -> None:
        self.room = room
        self.cells: dict[str, list[Held]] = {}
        for result in results:
            self.add(result)

    def add(self, result: Result) -> None:
        """Add a result."""
        if result.status in MEASURED:
            self.cells.setdefault(family(result.trial), []).append(Held.of(result))

    def need(self, trial: Trial, names: Sequence[str]) -> Need | None:
        """Return the least bytes that this trial needs, or None if no smaller cell was measured.

        If several of the metrics `names` were measured, the one with the largest batch counts, then the first: metrics
        count shared pages differently, so one line never combines two of them.
        """
        smaller = [
            r for r in (*self.cells.get(family(trial), ()), *self._alone(trial)) if no_larger(r, trial)
        ]
        found = [need for name in names if (need := _by(name, smaller, trial))]
        return max(found, key=lambda need: need.by.batch, default=None)

    def _alone(self, trial: Trial) -> list[Held]:
        """Return single-process cells that differ only in the sharing, which does not affect a single process."""
        if trial.sharing == "time_slicing" or trial.processes == 1:
            return []
        return [
            r for r in self.cells.get(family(replace(trial, sharing="time_slicing")), ()) if r.processes == 1
        ]

    def reason(self, trial: Trial) -> Message | None:
        """Return why this trial would not fit, or None if it may fit."""
        free, floor = self.room.host()
        host, gpu = self.need(trial, HOST), self.need(trial, GPU)
        if self.room.unified:
            both = Need(host.bytes + gpu.bytes, host.by) if host and gpu else host
            known = [need for need in (both, self.need(trial, UNIFIED)) if need]
            host, gpu = max(known, key=lambda need: need.bytes, default=None), None
        if host and free - host.bytes < floor:
            return _reason(host, f"{_gb(free)} is available, and {_gb(floor)} must remain free")
        rest = self.room.gpu()
        if gpu and rest is not None and gpu.bytes > rest:
            return _reason(gpu, f"{_gb(rest)} of the GPU's memory is available")
        return None


def fitting(seen: Result, trial: Trial, most: int) -> int:
    """Return how many processes of `trial` fit into memory, 1 to `most`, judged by the memory of `seen`."""
    forecast = Forecast(AsDescribed(seen.machine), [seen])

    def full(processes: int) -> bool:
        return bool(forecast.reason(replace(trial, processes=processes)))

    return max(1, bisect_left(range(1, most + 1), True, key=full))


def _by(name: str, smaller: Sequence[Held], trial: Trial) -> Need | None:
    """Return the need of a larger cell according to one metric of these cells, or None if none has it."""
    known = [cell for cell in smaller if name in cell.bytes]
    # of equal sizes, the one that held most stays
    held = {(c.batch, c.processes): (c.bytes[name], c) for c in sorted(known, key=lambda c: c.bytes[name])}
    if not held:
        return None
    base = max(batch for batch, _ in held)
    column = {p: bytes_ for (b, p), (bytes_, _) in held.items() if b == base}
    more = _per_sample({key: bytes_ for key, (bytes_, _) in held.items()})
    total = _line(column, trial.processes) + trial.processes * more * (trial.batch - base)
    return Need(total, held[base, max(column)][1])


def _held(result: Result, name: str) -> float:
    """Return the bytes of a metric, 0 if not measured; a GPU-wide figure without the bytes in use before the run."""
    found = result.metrics.get(name)
    if not isinstance(found, Measured):
        return 0.0
    return found.value if name != BOARD or reused(result) else max(0.0, found.value - _before(result))


def _before(result: Result) -> float:
    """Return the bytes in use on the run's GPU when it began, from the machine's facts; 0 if unknown."""
    state = result.machine.state
    return _of_board(state, gpu_number(state), "memory_used_bytes") or 0.0


def _of_board(facts: Mapping[str, Json], number: int | None, name: str) -> float | None:
    """Return one figure of NVML's GPU `number` from a machine's facts, or None if it is missing."""
    nvidia = facts.get("nvidia")
    gpus = nvidia.get("gpus") if isinstance(nvidia, Mapping) else None
    mine = gpus[number] if isinstance(gpus, list) and number is not None and number < len(gpus) else None
    found = mine.get(name) if isinstance(mine, Mapping) else None
    return float(found) if isinstance(found, int | float) else None


def _line(column: Mapping[int, float], processes: int) -> float:
    """Return the bytes of `processes`, on a line through the two largest measured numbers, or in proportion."""
    *before, last = sorted(column)
    if not before:
        return column[last] * processes / last
    slope = max(0.0, (column[last] - column[before[-1]]) / (last - before[-1]))
    return column[last] + slope * (processes - last)


def _per_sample(held: Mapping[tuple[int, int], float]) -> float:
    """Return the bytes of one more sample per process: the smallest slope between two batches at equal processes."""
    slopes = []
    for p in {p for _, p in held}:
        batches = sorted(b for b, q in held if q == p)
        if len(batches) > 1:
            low, high = batches[-2:]
            slopes.append((held[high, p] - held[low, p]) / (high - low) / p)
    return max(0.0, min(slopes, default=0.0))


def _gb(count: float) -> str:
    return f"{count / 1e9:.2f} GB"


def _reason(need: Need, room: str) -> Message:
    return Message(
        "I-PRUNE-2",
        f"not tried: it needs {_gb(need.bytes)} or more, and {room}",
        evidence=f"from {sized(need.by)}, result {need.by.id}",
        effect="It was not started, so that the machine stays up; there is no number for this cell",
        fix=f"a smaller batch or fewer processes; {AGAIN} tries it nevertheless",
    )


AGAIN = "edgescope sweep ... --no-prune --retry skipped"


def family(trial: Trial) -> str:
    """Return a key of the cells that differ only in size, load and duration."""
    shapes = {name: list(shape[1:]) for name, shape in trial.shapes.items()}
    return digest([trial.key(Role.ARTIFACT | Role.SHARING | Role.MODE, but=("shapes",)), shapes])


def size(of: Trial | Held) -> tuple[int, int, int]:
    """Return (batch, processes, in_flight)."""
    return of.batch, of.processes, of.in_flight


def no_larger(one: Trial | Held, other: Trial) -> bool:
    """Return whether a trial or a cell is no larger than a trial in any size."""
    return all(mine <= theirs for mine, theirs in zip(size(one), size(other), strict=True))


def sized(of: Trial | Held) -> str:
    """Return `b4 P2 T2`; P and T only if they are not 1."""
    parts = dict(zip("bPT", size(of), strict=True))
    return " ".join(f"{letter}{n}" for letter, n in parts.items() if letter == "b" or n > 1)


class Exhausted:
    """The cells that ran out of memory so far, by family."""

    def __init__(self, results: Iterable[Result] = ()) -> None:
        self.cells: dict[str, dict[str, Held]] = {}
        for result in results:
            self.add(result)

    def add(self, result: Result) -> None:
        """Add a result."""
        if result.status is Status.OOM:
            self.cells.setdefault(family(result.trial), {})[result.trial.id] = Held.of(result)

    def smaller(self, trial: Trial) -> Held | None:
        """Return the smallest cell that ran out of memory and is not larger than this trial in any size; else None."""
        known = self.cells.get(family(trial), {})
        found = [cell for id_, cell in known.items() if id_ != trial.id and no_larger(cell, trial)]
        return min(found, key=size, default=None)

    def reason(self, trial: Trial) -> Message | None:
        """Return why this trial need not be tried, or None if it must be tried."""
        found = self.smaller(trial)
        if found is None:
            return None
        return Message(
            "I-PRUNE-1",
            f"not tried: {sized(found)} of the same model and engine ran out of memory",
            evidence=f"result {found.id}",
            effect="There is no number for this cell",
            fix=AGAIN,
        )
