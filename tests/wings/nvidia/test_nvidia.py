from __future__ import annotations

import os
import re
import time
from types import SimpleNamespace

import pynvml
import pytest

from edgescope.devices.base import AbsentSource, Failed, Unsupported
from edgescope.wings import nvidia
from edgescope.wings.nvidia import (
    METRICS,
    PARTS,
    REASONS,
    NvidiaDevice,
    NvmlSource,
    _compute_mode,
    facts,
    held_down,
    reason_names,
)
from fake_nvml import (
    FakeNvml,
    NVMLError_DriverNotLoaded,
    NVMLError_GpuIsLost,
    NVMLError_LibraryNotFound,
    NVMLError_NotSupported,
)


def values(nvml) -> dict:
    out = {}
    for part in PARTS:
        source = NvmlSource(0, part, nvml)
        rows = source.read()
        assert [name for name, _, _ in rows] == [c.name for c in source.channels()]
        out |= {name: value for name, _, value in rows}
    return out


def test_every_metric_belongs_to_one_part():
    names = [name for part in PARTS.values() for name in part]
    assert sorted(names) == sorted(m.name for m in METRICS)


def test_every_metric_in_si_units():
    got = values(FakeNvml())
    assert got["gpu0_power_w"] == 75.5
    assert got["gpu0_power_average_w"] == 76.0
    assert got["gpu0_energy_j"] == 1.0
    assert got["gpu0_sm_clock_hz"] == 1.98e9
    assert got["gpu0_busy"] == 0.5
    assert (got["gpu0_decoder_busy"], got["gpu0_encoder_busy"]) == (0.3, 0.0)
    assert got["gpu0_memory_used_bytes"] == 10
    assert got["gpu0_temperature_c"] == 41


def test_orin_initialises_and_answers_not_supported_to_everything():
    nvml = FakeNvml(refuse={"*": NVMLError_NotSupported(3)})
    device = NvidiaDevice(nvml)
    assert device.present() == ""
    got = values(nvml)
    assert all(isinstance(v, Unsupported) for v in got.values())
    assert got["gpu0_power_w"].reason == "NVML: NotSupported for NVML_FI_DEV_POWER_INSTANT"
    stable, state = device.machine()
    assert "NotSupported" in stable["gpus"][0]["name"]["absent"]
    assert "NotSupported" in state["gpus"][0]["power_limit_w"]["absent"]


def test_one_missing_metric_does_not_hide_another():
    got = values(FakeNvml(refuse={"nvmlDeviceGetTotalEnergyConsumption": NVMLError_NotSupported(3)}))
    assert isinstance(got["gpu0_energy_j"], Unsupported)
    assert got["gpu0_power_w"] == 75.5


def test_a_lost_gpu_is_failed():
    got = values(FakeNvml(refuse={"nvmlDeviceGetPowerUsage": NVMLError_GpuIsLost(15)}))
    assert isinstance(got["gpu0_power_average_w"], Failed)
    assert "GpuIsLost" in got["gpu0_power_average_w"].reason


def test_a_binding_without_the_call_is_unsupported():
    nvml = FakeNvml()
    nvml._answers = lambda: {"nvmlDeviceGetPowerUsage": 1000}
    got = values(nvml)
    assert got["gpu0_power_average_w"] == 1.0
    assert isinstance(got["gpu0_temperature_c"], Unsupported)


@pytest.mark.parametrize(
    ("reasons", "thermal", "power"),
    [
        (0x0, 0, 0),
        (0x1, 0, 0),
        (0x2, 0, 0),
        (0x20, 1, 0),
        (0x48, 1, 0),
        (0x4, 0, 1),
        (0x80, 0, 1),
        (0x25, 1, 1),
    ],
)
def test_idle_and_set_clocks_are_not_throttling(reasons, thermal, power):
    got = values(FakeNvml(reasons=reasons))
    flags = {n for n, v in got.items() if n.startswith("throttled_gpu0_") and v}
    assert any(n.endswith("_thermal") for n in flags) == thermal
    assert any(n.endswith("_power") for n in flags) == power


@pytest.mark.parametrize(
    ("reasons", "flags"),
    [
        (0x4, {"sw_cap_power"}),
        (0x8, {"hw_slowdown_thermal"}),
        (0x48, {"hw_thermal"}),
        (0x88, {"hw_brake_power"}),
        (0x20, {"sw_thermal"}),
        (0x113, set()),
    ],
)
def test_what_holds_the_clocks_down_is_told_by_name(reasons, flags):
    got = values(FakeNvml(reasons=reasons))
    assert {n.removeprefix("throttled_gpu0_") for n, v in got.items() if "throttled" in n and v} == flags


def test_every_reason_of_the_public_header_has_a_name():
    bits = {
        getattr(pynvml, name)
        for name in dir(pynvml)
        if name.startswith(("nvmlClocksEventReason", "nvmlClocksThrottleReason"))
    }
    single = {bit for bit in bits if bit and not bit & (bit - 1)}
    assert single == set(REASONS)
    assert reason_names(0x5) == ["gpu_idle", "sw_power_cap"]
    assert reason_names(0x1001) == ["gpu_idle", "0x1000"]
    power = next(c for c in NvmlSource(0, "power", FakeNvml()).channels() if "event" in c.name)
    assert all(name in power.source for name in REASONS.values())


@pytest.mark.parametrize(
    ("error", "word"),
    [(NVMLError_LibraryNotFound(), "libnvidia-ml"), (NVMLError_DriverNotLoaded(), "driver is not loaded")],
)
def test_absence_says_why_and_reaches_the_readings(error, word):
    device = NvidiaDevice(FakeNvml(refuse={"nvmlInit": error}))
    assert word in device.present()
    assert word in device.machine()[1]["absent"]
    (spec,) = device.sources(1)
    rows = AbsentSource(**spec.kwargs).read()
    assert {name for name, _, _ in rows} == {"gpu_power_w", "gpu_energy_j"}
    assert all(word in value.reason for _, _, value in rows)


def test_without_the_drivers_library_the_module_that_reads_it_is_not_imported(monkeypatch):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(nvidia, "pynvml", lambda: pytest.fail("imported"))
    monkeypatch.setattr(nvidia.ctypes, "CDLL", missing)
    assert "libnvidia-ml" in NvidiaDevice().present()


def test_no_gpu_listed():
    assert NvidiaDevice(FakeNvml(gpus=0)).present() == "NVML lists no GPU"


def test_facts():
    stable, state = NvidiaDevice(FakeNvml(gpus=2)).machine()
    assert len(stable["gpus"]) == 2
    assert stable["gpus"][0] == {
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "compute_capability": "9.0",
        "memory_total_bytes": 1000,
    }
    assert (state["driver"], state["cuda_driver"]) == ("580.10", "13.0")
    assert state["gpus"][0]["power_limit_w"] == 700.0
    assert state["gpus"][0]["compute_mode"] == "default"
    assert state["gpus"][0]["clock_events"] == ["gpu_idle"]
    assert len(NvidiaDevice(FakeNvml(gpus=2)).sources(1)) == 2 * (len(PARTS) + 1)


def test_the_dear_counter_alone_is_for_edges_and_never_asked_with_the_rest():
    """A read of it took 2.8 ms on an H200, others 0.04 ms."""
    nvml = FakeNvml()
    specs = NvidiaDevice(nvml).sources(1)
    assert [spec.kwargs.get("part") for spec in specs if spec.edges] == ["energy"]
    asked = nvml.calls["nvmlDeviceGetTotalEnergyConsumption"]  # once, to know whether it answers
    for spec in specs:
        if spec.target.endswith("NvmlSource") and not spec.edges:
            NvmlSource(**spec.kwargs, nvml=nvml).read()
    assert nvml.calls["nvmlDeviceGetTotalEnergyConsumption"] == asked == 1
    (edge,) = (NvmlSource(**spec.kwargs, nvml=nvml) for spec in specs if spec.edges)
    assert [name for name, _, _ in edge.read()] == ["gpu0_energy_j"]
    assert nvml.calls["nvmlDeviceGetTotalEnergyConsumption"] == 2


def test_power_is_read_at_the_whole_rate_where_nothing_counts_energy():
    def power(nvml):
        return next(s.every for s in NvidiaDevice(nvml).sources(1) if s.kwargs.get("part") == "power")

    lacks = {"nvmlDeviceGetTotalEnergyConsumption": NVMLError_NotSupported(3)}
    assert (power(FakeNvml()), power(FakeNvml(refuse=lacks))) == (4, 1)


@pytest.mark.gpu
def test_real_gpu():
    device = NvidiaDevice()
    assert device.present() == ""
    stable, state = device.machine()
    assert stable["gpus"][0]["uuid"].startswith("GPU-")
    assert state["gpus"][0]["power_limit_w"] > 0
    assert device.sources(os.getpid())
    first = values(None)
    time.sleep(0.5)
    second = values(None)
    assert 5 < second["gpu0_power_w"] < 2000
    joules = second["gpu0_energy_j"] - first["gpu0_energy_j"]
    assert 0 < joules < 2000
    assert second["gpu0_sm_clock_hz"] > 1e8


class Sharing(FakeNvml):
    """Two GPUs that list processes, one of them a client of MPS, one of unknown size."""

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        rows = {"handle0": [(10, 3_000), (11, None)], "handle1": [(10, 500)]}[handle]
        return [SimpleNamespace(pid=pid, usedGpuMemory=held) for pid, held in rows]

    def nvmlDeviceGetMPSComputeRunningProcesses(self, handle):
        if "mps" in self.refuse:
            raise self.refuse["mps"]
        mine = [SimpleNamespace(pid=12, usedGpuMemory=700), SimpleNamespace(pid=10, usedGpuMemory=3_000)]
        return mine if handle == "handle0" else []


def test_what_a_process_holds_is_summed_over_gpus_counted_once_and_never_guessed():
    device = NvidiaDevice(Sharing(gpus=2))
    assert device.present() == ""
    held = device.process_memory([10, 11, 12, 99])
    assert (held[10], held[12]) == (3_500.0, 700.0)
    assert "does not tell" in held[11].reason
    assert re.search(r"NVML lists 3 processes, .* not among", held[99].reason)


def test_where_no_list_is_readable_every_process_has_the_reason():
    device = NvidiaDevice(FakeNvml())
    device.present()
    assert (
        "nvmlDeviceGetComputeRunningProcesses is not in this library" in device.process_memory([1])[1].reason
    )


class Asked:
    """An NVML that answers each question with its arguments."""

    NVMLError = FakeNvml.NVMLError

    def __getattr__(self, name):
        def call(handle, *words):
            asked[name] = words
            return getattr(FakeNvml(), name)(handle, *words)

        asked = self.__dict__.setdefault("asked", {})
        return call


def test_facts_ask_for_the_clock_of_the_multiprocessors_and_the_chips_temperature():
    nvml = Asked()
    stable, state = facts(nvml, "h")
    words = {name: words for name, words in nvml.asked.items() if words}
    assert words == {
        "nvmlDeviceGetClockInfo": (FakeNvml.NVML_CLOCK_SM,),
        "nvmlDeviceGetMaxClockInfo": (FakeNvml.NVML_CLOCK_SM,),
        "nvmlDeviceGetTemperature": (FakeNvml.NVML_TEMPERATURE_GPU,),
    }
    assert stable == {
        "name": "NVIDIA H200",
        "uuid": "GPU-1",
        "compute_capability": "9.0",
        "memory_total_bytes": 1000,
    }
    assert state == {
        "pci": "0000:19:00.0",
        "power_limit_w": 700.0,
        "power_limit_default_w": 700.0,
        "persistence": True,
        "compute_mode": "default",
        "sm_clock_hz": 1.98e9,
        "sm_clock_max_hz": 1.98e9,
        "temperature_c": 41.0,
        "clock_events": ["gpu_idle"],
        "memory_used_bytes": 10,
        "ecc": True,
        "mig": False,
    }


@pytest.mark.parametrize(
    ("mask", "names", "causes"),
    [
        (0, [], []),
        (0x1 | 0x2, ["gpu_idle", "application_clocks"], []),
        (0x400, ["reliability"], []),
        (0x8, ["hw_slowdown"], ["hw_slowdown_thermal"]),
        (0x48, ["hw_slowdown", "hw_thermal_slowdown"], ["hw_thermal"]),
        (0x88, ["hw_slowdown", "hw_power_brake"], ["hw_brake_power"]),
        (0x9, ["gpu_idle", "hw_slowdown"], ["hw_slowdown_thermal"]),
        (0x108, ["hw_slowdown", "display_clocks"], ["hw_slowdown_thermal"]),
        (0x24, ["sw_power_cap", "sw_thermal_slowdown"], ["sw_cap_power", "sw_thermal"]),
        (0x1800, ["0x1800"], []),
        (0x801, ["gpu_idle", "0x800"], []),
    ],
)
def test_bits_are_told_by_name_and_those_that_hold_clocks_down_by_cause(mask, names, causes):
    assert (reason_names(mask), held_down(mask)) == (names, causes)


@pytest.mark.parametrize(
    ("mode", "word"), [(0, "default"), (1, "1"), (2, "prohibited"), (3, "exclusive_process"), (4, "4")]
)
def test_compute_modes_have_names(mode, word):
    assert _compute_mode(mode) == word


def test_the_driver_and_its_cuda_have_versions():
    _, state = NvidiaDevice(FakeNvml()).machine()
    assert (state["driver"], state["cuda_driver"], len(state["gpus"])) == ("580.10", "13.0", 1)
    nvml = FakeNvml(gpus=2)
    nvml.nvmlSystemGetCudaDriverVersion = lambda: 12080
    stable, state = NvidiaDevice(nvml).machine()
    assert state["cuda_driver"] == "12.8" and len(stable["gpus"]) == 2


def test_a_process_that_no_list_names_may_be_in_a_container():
    nvml = FakeNvml()
    nvml.nvmlInit()
    nvml.nvmlDeviceGetComputeRunningProcesses = nvml.nvmlDeviceGetMPSComputeRunningProcesses = lambda handle: []
    found = NvidiaDevice(nvml).process_memory([7])[7]
    assert "lists 0 processes" in found.reason and found.reason.endswith("process numbers?")


def test_a_count_that_is_refused_is_why_there_is_no_gpu():
    nvml = FakeNvml()

    def refused():
        raise NVMLError_NotSupported(3)

    nvml.nvmlDeviceGetCount = refused
    device = NvidiaDevice(nvml)
    assert device.present() == "NVML: NotSupported for nvmlDeviceGetCount" and device.modes() == {}
