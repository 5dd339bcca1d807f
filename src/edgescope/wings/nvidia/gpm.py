"""The utilisation of an NVIDIA GPU's parts: NVML's GPM metrics, from Hopper on.

`busy` in nvml.py says that some kernel ran; these say how much of the GPU it used. Each is the difference of two
samples of hardware counters (nvmlGpmSampleGet), so it holds for the time between them, which must be longer
than 100 ms: the counters are refreshed that often. Definitions: NVML API reference, GPM enums.

    sm_active       share of the SMs that had a warp assigned          NVML_GPM_METRIC_SM_UTIL
    sm_occupancy    warps that were active, of the theoretical maximum   NVML_GPM_METRIC_SM_OCCUPANCY
    tensor_active   share of time with any tensor operation              NVML_GPM_METRIC_ANY_TENSOR_UTIL
    dram_active     DRAM bandwidth used, of the theoretical maximum      NVML_GPM_METRIC_DRAM_BW_UTIL
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

import pynvml

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.wings.nvidia.nvml import ask

METRICS = {
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
        self._nvml: Any = nvml or pynvml
        self._names = {f"gpu{index}_{name}": metric for name, metric in METRICS.items()}
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
