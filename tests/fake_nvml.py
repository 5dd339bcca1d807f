"""A stand-in that behaves like pynvml: same error classes, same calls, state that the test changes."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace


class NVMLError(Exception):
    def __new__(cls, code=None):
        kind = (
            {3: NVMLError_NotSupported, 15: NVMLError_GpuIsLost}.get(code, cls) if cls is NVMLError else cls
        )
        return Exception.__new__(kind)

    def __init__(self, code=None):
        super().__init__(code)
        self.value = code

    def __str__(self):
        return type(self).__name__.removeprefix("NVMLError_")


class NVMLError_NotSupported(NVMLError): ...


class NVMLError_GpuIsLost(NVMLError): ...


class NVMLError_LibraryNotFound(NVMLError): ...


class NVMLError_DriverNotLoaded(NVMLError): ...


class FakeNvml:
    """One H200-like GPU; `refuse` maps a call's name (or '*') to the error it raises."""

    NVMLError = NVMLError
    NVML_FI_DEV_POWER_INSTANT = 186
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL, NVML_GPM_METRIC_SM_OCCUPANCY = 2, 3
    NVML_GPM_METRIC_ANY_TENSOR_UTIL, NVML_GPM_METRIC_DRAM_BW_UTIL = 5, 10
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, refuse=None, reasons=0x1, gpus=1):
        self.refuse, self.reasons, self.gpus, self.power_mw, self.energy_mj = (
            refuse or {},
            reasons,
            gpus,
            75_500,
            1000,
        )
        self.initialised = False
        self.calls = Counter()
        self.gpm = [12.5, 30.0, 50.0, 75.0]
        self.gpm_codes = [0, 0, 0, 0]
        self.gpm_here, self.buffers, self.samples = 1, set(), 0

    def nvmlInit(self):
        if "nvmlInit" in self.refuse:
            raise self.refuse["nvmlInit"]
        self.initialised = True

    def nvmlDeviceGetCount(self):
        assert self.initialised
        return self.gpus

    def nvmlDeviceGetHandleByIndex(self, index):
        assert self.initialised
        assert 0 <= index < self.gpus
        return f"handle{index}"

    def nvmlDeviceGetFieldValues(self, handle, fields):
        answers = self._answers()
        code = 3 if "nvmlDeviceGetFieldValues" in self.refuse or "*" in self.refuse else 0
        assert answers and fields == [186]
        return [SimpleNamespace(nvmlReturn=code, value=SimpleNamespace(uiVal=self.power_mw))]

    def nvmlSystemGetDriverVersion(self):
        return b"580.10"

    def nvmlSystemGetCudaDriverVersion(self):
        return 13000

    def _refusal(self, name):
        if error := self.refuse.get(name) or self.refuse.get("*"):
            raise error

    def nvmlGpmQueryDeviceSupport(self, handle):
        self._refusal("nvmlGpmQueryDeviceSupport")
        return SimpleNamespace(isSupportedDevice=self.gpm_here)

    def nvmlGpmSampleAlloc(self):
        self._refusal("nvmlGpmSampleAlloc")
        buffer = SimpleNamespace(sample=None)
        self.buffers.add(id(buffer))
        return buffer

    def nvmlGpmSampleFree(self, buffer):
        self.buffers.remove(id(buffer))

    def nvmlGpmSampleGet(self, handle, buffer):
        self._refusal("nvmlGpmSampleGet")
        assert id(buffer) in self.buffers
        self.samples += 1
        buffer.sample = self.samples
        return buffer

    def c_nvmlGpmMetricsGet_t(self):
        return SimpleNamespace(
            metrics=[SimpleNamespace(metricId=0, nvmlReturn=0, value=0.0) for _ in range(20)]
        )

    def nvmlGpmMetricsGet(self, request):
        self._refusal("nvmlGpmMetricsGet")
        assert request.version == 1
        assert request.sample2.sample > request.sample1.sample
        by_id = {2: 0, 3: 1, 5: 2, 10: 3}
        for slot in request.metrics[: request.numMetrics]:
            slot.value = self.gpm[by_id[slot.metricId]]
            slot.nvmlReturn = self.gpm_codes[by_id[slot.metricId]]
        return request

    def _answers(self):
        return {
            "nvmlDeviceGetPowerUsage": self.power_mw + 500,
            "nvmlDeviceGetTotalEnergyConsumption": self.energy_mj,
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetMaxClockInfo": 1980,
            "nvmlDeviceGetDecoderUtilization": [30, 167_000],
            "nvmlDeviceGetEncoderUtilization": [0, 167_000],
            "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=50, memory=10),
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=10, total=1000),
            "nvmlDeviceGetTemperature": 41,
            "nvmlDeviceGetCurrentClocksEventReasons": self.reasons,
            "nvmlDeviceGetName": "NVIDIA H200",
            "nvmlDeviceGetUUID": b"GPU-1",
            "nvmlDeviceGetCudaComputeCapability": (9, 0),
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"0000:19:00.0"),
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetPowerManagementDefaultLimit": 700_000,
            "nvmlDeviceGetPersistenceMode": 1,
            "nvmlDeviceGetComputeMode": 0,
            "nvmlDeviceGetEccMode": (1, 1),
            "nvmlDeviceGetMigMode": (0, 0),
        }

    def __getattr__(self, name):
        answers = self._answers()
        if name not in answers:
            raise AttributeError(name)

        def call(*_args):
            self.calls[name] += 1
            error = self.refuse.get(name) or self.refuse.get("*")
            if error:
                raise error
            return self._answers()[name]

        return call
