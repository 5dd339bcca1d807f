"""NVIDIA GPUs through NVML; every metric is probed separately."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pynvml

from edgescope.devices.base import Failed, Mode, SourceSpec, Unsupported, Value
from edgescope.wings.nvidia.nvml import PARTS, ask, facts, text

#: Lists of processes with their memory. Clients of MPS are in the second; on an H200 (driver 580) in both.
_RUNNING = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
_NVML = "edgescope.wings.nvidia.nvml"
_ABSENT = (
    ("gpu_power_w", "W", "gpu_board", "gauge", "NVML"),
    ("gpu_energy_j", "J", "gpu_board", "counter", "NVML"),
)


class NvidiaDevice:
    """All GPUs that NVML lists; `nvml` is the pynvml module or one that behaves like it."""

    def __init__(self, nvml: Any = pynvml) -> None:
        self._nvml = nvml

    def present(self) -> str:
        """Return '' if NVML lists a GPU, otherwise the reason."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            return _why_not(type(error).__name__, str(error))
        count = self._count()
        if isinstance(count, Unsupported | Failed):
            return count.reason
        return "" if count else "NVML lists no GPU"

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return (stable, state): driver, CUDA driver version and every GPU's facts."""
        reason = self.present()
        if reason:
            return {}, {"absent": reason}
        pairs = [facts(self._nvml, self._nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(self._count())]
        state = {
            "driver": self._system("nvmlSystemGetDriverVersion", text),
            "cuda_driver": self._system(
                "nvmlSystemGetCudaDriverVersion", lambda v: f"{v // 1000}.{v % 1000 // 10}"
            ),
            "gpus": [state for _, state in pairs],
        }
        return {"gpus": [stable for stable, _ in pairs]}, state

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return every GPU's parts and GPM metrics; without a GPU, why power and energy are missing.

        If the energy counter answers (it is read at a window's edges), power is read at 2.5 Hz: a call after 0.1 s
        without one costs 0.1 ms on an H100.
        """
        reason = self.present()
        if reason:
            kwargs = {"channels": _ABSENT, "reason": reason}
            return (SourceSpec("edgescope.devices.base:AbsentSource", kwargs, every=1_000_000),)
        return tuple(spec for i in range(self._count()) for spec in self._sources_of(i))

    def _sources_of(self, gpu: int) -> Iterator[SourceSpec]:
        handle = self._nvml.nvmlDeviceGetHandleByIndex(gpu)
        call = "nvmlDeviceGetTotalEnergyConsumption"
        counts = isinstance(ask(self._nvml, call, lambda: int(getattr(self._nvml, call)(handle))), int)
        every = {"power": 4 if counts else 1, "energy": 600, "state": 10}
        for part in PARTS:
            kwargs = {"index": gpu, "part": part}
            yield SourceSpec(f"{_NVML}:NvmlSource", kwargs, every[part], edges=part == "energy")
        yield SourceSpec(f"{_NVML}:GpmSource", {"index": gpu}, every=10)

    def process_memory(self, pids: Sequence[int]) -> Mapping[int, Value]:
        """Return each process's bytes on all GPUs according to the driver, or why they are not known.

        In a container with its own process numbers, the driver's numbers cannot be assigned.
        """
        listed: dict[int, Value] = {}
        problem: Unsupported | Failed | None = None
        for i in range(self._count()):
            handle = self._nvml.nvmlDeviceGetHandleByIndex(i)
            on_this: dict[int, Value] = {}
            for name in _RUNNING:
                answer = ask(self._nvml, name, partial(_held, self._nvml, name, handle))
                if isinstance(answer, Unsupported | Failed):
                    problem = problem or answer
                    continue
                on_this = {**dict(answer), **on_this}  # a client of MPS may stand in both lists
            for pid, held in on_this.items():
                listed[pid] = _sum(listed.get(pid, 0.0), held)
        closed = problem.reason if problem and not listed else "a container with its own process numbers?"
        others = f"NVML lists {len(listed)} processes, and this process is not among them: {closed}"
        return {pid: listed.get(pid, Unsupported(others)) for pid in pids}

    def modes(self) -> Mapping[str, Mode]:
        """Return no settings: none is changed here yet."""
        return {}

    def _count(self) -> Any:
        return ask(self._nvml, "nvmlDeviceGetCount", lambda: int(self._nvml.nvmlDeviceGetCount()))

    def _system(self, name: str, convert: Any) -> Any:
        answer = ask(self._nvml, name, lambda: convert(getattr(self._nvml, name)()))
        return {"absent": answer.reason} if isinstance(answer, Unsupported | Failed) else answer


def _held(nvml: Any, name: str, handle: Any) -> list[tuple[int, Value]]:
    """Return (process, bytes) of one list; a figure that the driver leaves open is Unsupported."""
    closed = Unsupported("NVML: the driver does not tell what a process holds here")
    return [
        (int(p.pid), closed if p.usedGpuMemory is None else float(p.usedGpuMemory))
        for p in getattr(nvml, name)(handle)
    ]


def _sum(a: Value, b: Value) -> Value:
    return a + b if isinstance(a, float) and isinstance(b, float) else b if isinstance(a, float) else a


def _why_not(kind: str, message: str) -> str:
    known = {
        "NVMLError_LibraryNotFound": "no NVIDIA driver found (libnvidia-ml.so.1)",
        "NVMLError_DriverNotLoaded": "NVML: the NVIDIA driver is not loaded (or this container has no GPU)",
        "NVMLError_NoPermission": "NVML: no permission to talk to the driver",
    }
    return known.get(kind, f"NVML: {message}")
