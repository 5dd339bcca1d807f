"""NVIDIA GPUs through NVML, metric by metric: errors are caught per call, so one missing metric hides no other.

On a Jetson Orin NVML initialises, lists a GPU and then answers NotSupported to every question: a library that
loads proves nothing. Power comes three ways: instant (field 186, since driver 530), an average over about a
second (nvmlDeviceGetPowerUsage on Ampere and later), and an energy counter in millijoules that moves about
every 100 ms. See the NVML API reference.

`busy` says that some kernel ran; the GPM metrics, from Hopper on, say how much of the GPU it used. Each is the
difference of two samples of hardware counters (nvmlGpmSampleGet), so it holds for the time between them, which must be
longer than 100 ms: the counters are refreshed that often. Definitions: NVML API reference, GPM enums.

    sm_active       share of the SMs that had a warp assigned          NVML_GPM_METRIC_SM_UTIL
    sm_occupancy    warps that were active, of the theoretical maximum   NVML_GPM_METRIC_SM_OCCUPANCY
    tensor_active   share of time with any tensor operation              NVML_GPM_METRIC_ANY_TENSOR_UTIL
    dram_active     DRAM bandwidth used, of the theoretical maximum      NVML_GPM_METRIC_DRAM_BW_UTIL
"""

from __future__ import annotations

import ctypes
import math
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any

from edgescope.devices.base import ChannelSpec, Failed, Mode, SourceSpec, Unsupported, Value

#: Lists of processes with their memory. Clients of MPS are in the second; on an H200 (driver 580) in both.
_RUNNING = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")
_ABSENT = (
    ("gpu_power_w", "W", "gpu_board", "gauge", "NVML"),
    ("gpu_energy_j", "J", "gpu_board", "counter", "NVML"),
)


def pynvml() -> Any:
    """Return NVML's Python module; it takes as long to import as a fifth of edgescope."""
    import pynvml

    return pynvml


def has_library() -> bool:
    """Return whether this machine has NVML, which comes with the driver."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


class NvidiaDevice:
    """All GPUs that NVML lists; `nvml` is the pynvml module or one that behaves like it (None: the former)."""

    def __init__(self, nvml: Any = None) -> None:
        self._given = nvml

    @cached_property
    def _nvml(self) -> Any:
        return self._given or pynvml()

    def present(self) -> str:
        """Return '' if NVML lists a GPU, otherwise the reason; without a driver pynvml is not even imported."""
        if self._given is None and not has_library():
            return _why_not("NVMLError_LibraryNotFound", "")
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
            yield SourceSpec(f"{__name__}:NvmlSource", kwargs, every[part], edges=part == "energy")
        yield SourceSpec(f"{__name__}:GpmSource", {"index": gpu}, every=10)

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


Call = Callable[[Any, Any], float]
"""(nvml module, device handle) -> value in SI units; raises NVMLError."""

REASONS: Mapping[int, str] = {
    0x001: "gpu_idle",
    0x002: "application_clocks",
    0x004: "sw_power_cap",
    0x008: "hw_slowdown",
    0x010: "sync_boost",
    0x020: "sw_thermal_slowdown",
    0x040: "hw_thermal_slowdown",
    0x080: "hw_power_brake",
    0x100: "display_clocks",
    0x200: "board_limit",
    0x400: "reliability",
}
"""Bits of nvmlClocksEventReasons, and of the older nvmlClocksThrottleReasons, by name (nvml.h)."""
_HELD_DOWN: Mapping[str, int] = {
    "sw_cap_power": 0x004,
    "hw_brake_power": 0x080,
    "sw_thermal": 0x020,
    "hw_thermal": 0x040,
    "hw_slowdown_thermal": 0x008,
}
"""Bit -> cause that holds the clocks down; idleness and clocks set by a user are not among them. hw_slowdown alone is
heat, power brake or a fast trigger, and comes with 0x40 or 0x80 if the driver knows which."""


@dataclass(frozen=True)
class Metric:
    """One metric: channel name after `gpu<i>_`, unit, kind, the NVML call's name, and the call."""

    name: str
    unit: str
    kind: str
    source: str
    call: Call


def _instant_power_w(nvml: Any, handle: Any) -> float:
    field = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_POWER_INSTANT])[0]
    if field.nvmlReturn:
        raise nvml.NVMLError(field.nvmlReturn)
    return float(field.value.uiVal) / 1e3


def _reasons(nvml: Any, handle: Any) -> int:
    return int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle))


METRICS: tuple[Metric, ...] = (
    Metric("power_w", "W", "gauge", "NVML_FI_DEV_POWER_INSTANT", _instant_power_w),
    Metric(
        "power_average_w",
        "W",
        "average",
        "nvmlDeviceGetPowerUsage",
        lambda nvml, h: float(nvml.nvmlDeviceGetPowerUsage(h)) / 1e3,
    ),
    Metric(
        "energy_j",
        "J",
        "counter",
        "nvmlDeviceGetTotalEnergyConsumption",
        lambda nvml, h: float(nvml.nvmlDeviceGetTotalEnergyConsumption(h)) / 1e3,
    ),
    Metric(
        "sm_clock_hz",
        "Hz",
        "gauge",
        "nvmlDeviceGetClockInfo(SM)",
        lambda nvml, h: float(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_SM)) * 1e6,
    ),
    Metric(
        "memory_clock_hz",
        "Hz",
        "gauge",
        "nvmlDeviceGetClockInfo(MEM)",
        lambda nvml, h: float(nvml.nvmlDeviceGetClockInfo(h, nvml.NVML_CLOCK_MEM)) * 1e6,
    ),
    Metric(
        "busy",
        "share",
        "average",
        "nvmlDeviceGetUtilizationRates.gpu: time with any kernel",
        lambda nvml, h: float(nvml.nvmlDeviceGetUtilizationRates(h).gpu) / 100,
    ),
    Metric(
        "decoder_busy",
        "share",
        "average",
        "nvmlDeviceGetDecoderUtilization: NVDEC",
        lambda nvml, h: float(nvml.nvmlDeviceGetDecoderUtilization(h)[0]) / 100,
    ),
    Metric(
        "encoder_busy",
        "share",
        "average",
        "nvmlDeviceGetEncoderUtilization: NVENC",
        lambda nvml, h: float(nvml.nvmlDeviceGetEncoderUtilization(h)[0]) / 100,
    ),
    Metric(
        "memory_used_bytes",
        "byte",
        "gauge",
        "nvmlDeviceGetMemoryInfo.used",
        lambda nvml, h: float(nvml.nvmlDeviceGetMemoryInfo(h).used),
    ),
    Metric(
        "temperature_c",
        "degC",
        "gauge",
        "nvmlDeviceGetTemperature(GPU)",
        lambda nvml, h: float(nvml.nvmlDeviceGetTemperature(h, nvml.NVML_TEMPERATURE_GPU)),
    ),
    Metric(
        "clock_event_reasons",
        "bitmask",
        "gauge",
        "nvmlDeviceGetCurrentClocksEventReasons: " + ", ".join(f"{b} {n}" for b, n in REASONS.items()),
        lambda nvml, h: float(_reasons(nvml, h)),
    ),
)
PARTS: Mapping[str, tuple[str, ...]] = {
    "power": ("power_w", "clock_event_reasons"),
    "energy": ("energy_j",),
    "state": (
        *("power_average_w", "sm_clock_hz", "memory_clock_hz", "busy", "decoder_busy", "encoder_busy"),
        *("memory_used_bytes", "temperature_c"),
    ),
}
"""Metrics that are read together: in a virtual machine with an H200 the energy counter took 3.4 ms, others 0.04 ms."""


def ask(nvml: Any, what: str, call: Callable[[], Any]) -> Any:
    """Return the answer, Unsupported or Failed; `what` names the call in the reason."""
    try:
        return call()
    except nvml.NVMLError as error:
        kind = type(error).__name__.removeprefix("NVMLError_")
        if kind in ("NotSupported", "FunctionNotFound", "NoPermission"):
            return Unsupported(f"NVML: {kind} for {what}")
        return Failed(f"NVML: {kind} for {what}: {error}")
    except (AttributeError, KeyError, IndexError, ValueError) as error:  # an older library or binding
        return Unsupported(f"NVML: {what} is not in this library ({error!r})")


def reason_names(mask: int) -> list[str]:
    """Return the names of the clock event reasons in a bitmask; an unknown bit keeps its number."""
    known = [name for bit, name in REASONS.items() if mask & bit]
    rest = mask & ~sum(REASONS)
    return known + ([f"{rest:#x}"] if rest else [])


def held_down(mask: int) -> list[str]:
    """Return the causes in a bitmask that hold the clocks down; hw_slowdown only if no other cause is set."""
    causes = [why for why, bit in _HELD_DOWN.items() if mask & bit]
    return [why for why in causes if why != "hw_slowdown_thermal" or not mask & 0x0C0]


class NvmlSource:
    """One part of one GPU's metrics, read through NVML, which is initialised in the reading process."""

    def __init__(self, index: int, part: str, nvml: ModuleType | Any = None) -> None:
        self._metrics = [m for m in METRICS if m.name in PARTS[part]]
        self._held = tuple(_HELD_DOWN) if "clock_event_reasons" in PARTS[part] else ()
        self._nvml: Any = nvml or pynvml()
        self._nvml.nvmlInit()
        self._handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        self._prefix = f"gpu{index}"

    def channels(self) -> Sequence[ChannelSpec]:
        """Return this part's channels and, with the clock events, those of the throttling causes."""
        own = [
            ChannelSpec(f"{self._prefix}_{m.name}", m.unit, "gpu_board", m.kind, f"NVML {m.source}")
            for m in self._metrics
        ]
        held = [
            ChannelSpec(
                f"throttled_{self._prefix}_{why}", "flag", "gpu_board", "gauge", "NVML clock event reasons"
            )
            for why in self._held
        ]
        return own + held

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return one row per channel, each with the time of its own call."""
        rows: list[tuple[str, int, Value]] = []
        value: Value = 0.0
        for metric in self._metrics:
            value = ask(
                self._nvml, metric.source.partition(":")[0], partial(metric.call, self._nvml, self._handle)
            )
            rows.append((f"{self._prefix}_{metric.name}", time.monotonic_ns(), value))
        for why in self._held:  # the last metric is the bitmask
            flag = float(why in held_down(int(value))) if isinstance(value, float) else value
            rows.append((f"throttled_{self._prefix}_{why}", rows[-1][1], flag))
        return rows


def facts(nvml: Any, handle: Any) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return (stable, state) facts of one GPU; an unanswered question is {"absent": reason}."""

    def get(name: str, convert: Callable[[Any], Any] = lambda x: x, *args: Any) -> Any:
        answer = ask(nvml, name, lambda: convert(getattr(nvml, name)(handle, *args)))
        return {"absent": answer.reason} if isinstance(answer, Unsupported | Failed) else answer

    stable = {
        "name": get("nvmlDeviceGetName", text),
        "uuid": get("nvmlDeviceGetUUID", text),
        "compute_capability": get("nvmlDeviceGetCudaComputeCapability", lambda v: f"{v[0]}.{v[1]}"),
        "memory_total_bytes": get("nvmlDeviceGetMemoryInfo", lambda m: int(m.total)),
    }
    state = {
        "pci": get("nvmlDeviceGetPciInfo", lambda p: text(p.busId)),
        "power_limit_w": get("nvmlDeviceGetEnforcedPowerLimit", lambda mw: mw / 1e3),
        "power_limit_default_w": get("nvmlDeviceGetPowerManagementDefaultLimit", lambda mw: mw / 1e3),
        "persistence": get("nvmlDeviceGetPersistenceMode", bool),
        "compute_mode": get("nvmlDeviceGetComputeMode", _compute_mode),
        "sm_clock_hz": get("nvmlDeviceGetClockInfo", lambda mhz: mhz * 1e6, 1),
        "sm_clock_max_hz": get("nvmlDeviceGetMaxClockInfo", lambda mhz: mhz * 1e6, 1),
        "temperature_c": get("nvmlDeviceGetTemperature", float, 0),
        "clock_events": get("nvmlDeviceGetCurrentClocksEventReasons", lambda m: reason_names(int(m))),
        "memory_used_bytes": get("nvmlDeviceGetMemoryInfo", lambda m: int(m.used)),
        "ecc": get("nvmlDeviceGetEccMode", lambda e: bool(e[0])),
        "mig": get("nvmlDeviceGetMigMode", lambda m: bool(m[0])),
    }
    return stable, state


def _compute_mode(mode: int) -> str:
    return {0: "default", 2: "prohibited", 3: "exclusive_process"}.get(mode, str(mode))


def text(value: Any) -> str:
    """Return str: older bindings answer in bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


# -- the utilisation of the GPU's parts (GPM) ----------------------------------------------------------------

GPM_METRICS = {
    "sm_active": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "tensor_active": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram_active": "NVML_GPM_METRIC_DRAM_BW_UTIL",
}
MIN_INTERVAL_NS = 100_000_000
_NO_EARLIER = Failed("NVML: no earlier GPM sample to compare with")


class GpmSource:
    """One GPU's GPM metrics; its two sample buffers are freed on close, or with the source."""

    def __init__(self, index: int, nvml: ModuleType | Any = None) -> None:
        self._nvml: Any = nvml or pynvml()
        self._names = {f"gpu{index}_{name}": metric for name, metric in GPM_METRICS.items()}
        self._buffers: list[Any] = []
        self._free = weakref.finalize(self, _free, self._nvml, self._buffers)
        self._last_ns, self._primed = 0, False
        self._closed: Unsupported | Failed | None = ask(self._nvml, "GPM", lambda: self._open(index))
        if self._closed is None:
            self._primed = self._sample(0) is None

    def _open(self, index: int) -> Unsupported | None:
        """Prepare the buffers; return None, or the reason why there are none."""
        self._nvml.nvmlInit()
        self._handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
        if not self._nvml.nvmlGpmQueryDeviceSupport(self._handle).isSupportedDevice:
            return Unsupported("NVML: this GPU has no GPM metrics (Hopper and later have)")
        for _ in range(2):
            self._buffers.append(self._nvml.nvmlGpmSampleAlloc())
        return None

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the four channels; each share is for the time since the previous reading."""
        return tuple(
            ChannelSpec(name, "share", "gpu_board", "interval", f"NVML {metric}")
            for name, metric in self._names.items()
        )

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return the shares since the previous reading; none if less than 100 ms have passed."""
        if self._closed is not None:
            return self._all(self._closed)
        if time.monotonic_ns() - self._last_ns <= MIN_INTERVAL_NS:
            return []
        if problem := self._sample(1):
            return self._all(problem)
        earlier, self._primed = self._primed, True
        got = ask(self._nvml, "nvmlGpmMetricsGet", self._difference) if earlier else _NO_EARLIER
        self._buffers.reverse()
        return self._all(got) if isinstance(got, Unsupported | Failed) else got

    def _all(self, value: Unsupported | Failed) -> Sequence[tuple[str, int, Value]]:
        return [(name, time.monotonic_ns(), value) for name in self._names]

    def _sample(self, which: int) -> Unsupported | Failed | None:
        """Fill a buffer; return None, or why it could not be filled."""
        call = self._nvml.nvmlGpmSampleGet
        answer = ask(
            self._nvml, "nvmlGpmSampleGet", lambda: call(self._handle, self._buffers[which]) and None
        )
        if answer is None:
            self._last_ns = time.monotonic_ns()
        return answer  # type: ignore[no-any-return]

    def _difference(self) -> Sequence[tuple[str, int, Value]]:
        nvml = self._nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version, request.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, len(self._names)
        request.sample1, request.sample2 = self._buffers
        for slot, metric in zip(request.metrics, self._names.values(), strict=False):
            slot.metricId = getattr(nvml, metric)
        nvml.nvmlGpmMetricsGet(request)
        return [
            (name, self._last_ns, self._share(metric, slot))
            for slot, (name, metric) in zip(request.metrics, self._names.items(), strict=False)
        ]

    def _share(self, metric: str, slot: Any) -> Value:
        if slot.nvmlReturn:
            return ask(self._nvml, metric, lambda: _raise(self._nvml.NVMLError(slot.nvmlReturn)))  # type: ignore[no-any-return]
        if not math.isfinite(slot.value):
            return Failed(f"NVML: {metric} is {slot.value}")
        return float(slot.value) / 100

    def close(self) -> None:
        """Free the buffers; a later read reports that they are gone."""
        self._free()
        self._closed = Unsupported("the GPM source was closed")


def _raise(error: Exception) -> None:
    raise error


def _free(nvml: Any, buffers: list[Any]) -> None:
    """Free both buffers, ignoring errors of the library."""
    while buffers:
        buffer = buffers.pop()
        ask(nvml, "nvmlGpmSampleFree", partial(nvml.nvmlGpmSampleFree, buffer))
