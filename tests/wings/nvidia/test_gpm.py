from __future__ import annotations

import gc
import math
import time

import pytest

from edgescope.devices.base import Failed, Unsupported
from edgescope.wings import nvidia
from edgescope.wings.nvidia import GpmSource, NvidiaDevice
from fake_nvml import FakeNvml, NVMLError_GpuIsLost, NVMLError_NotSupported

NAMES = ["gpu0_sm_active", "gpu0_sm_occupancy", "gpu0_tensor_active", "gpu0_dram_active"]


@pytest.fixture
def soon(monkeypatch):
    """No wait between samples."""
    monkeypatch.setattr(nvidia, "MIN_INTERVAL_NS", -1)


def values(source) -> dict:
    rows = source.read()
    assert [name for name, _, _ in rows] == [c.name for c in source.channels()] == NAMES
    return {name: value for name, _, value in rows}


@pytest.mark.usefixtures("soon")
def test_shares_are_the_difference_of_two_samples():
    nvml = FakeNvml()
    source = GpmSource(0, nvml)
    assert list(values(source).values()) == [0.125, 0.3, 0.5, 0.75]
    nvml.gpm = [0.0, 0.0, 0.0, 100.0]
    assert list(values(source).values()) == [0.0, 0.0, 0.0, 1.0]
    assert {c.kind for c in source.channels()} == {"interval"}


def test_counters_are_not_asked_more_often_than_they_move():
    nvml = FakeNvml()
    source = GpmSource(0, nvml)
    assert source.read() == []
    assert nvml.samples == 1


@pytest.mark.parametrize(
    ("nvml", "word"),
    [
        (FakeNvml(refuse={"*": NVMLError_NotSupported(3)}), "NotSupported"),
        (FakeNvml(refuse={"nvmlGpmQueryDeviceSupport": NVMLError_NotSupported(3)}), "NotSupported"),
        (FakeNvml(refuse={"nvmlGpmSampleAlloc": NVMLError_NotSupported(3)}), "NotSupported"),
    ],
)
def test_no_support_is_unsupported(nvml, word):
    got = values(GpmSource(0, nvml))
    assert all(isinstance(v, Unsupported) and word in v.reason for v in got.values())


def test_an_older_gpu_and_an_older_binding_say_so():
    nvml = FakeNvml()
    nvml.gpm_here = 0
    assert "Hopper" in values(GpmSource(0, nvml))["gpu0_sm_active"].reason

    class Old(FakeNvml):
        def __getattribute__(self, name):
            if name == "nvmlGpmQueryDeviceSupport":
                raise AttributeError(name)
            return super().__getattribute__(name)

    assert isinstance(values(GpmSource(0, Old()))["gpu0_sm_active"], Unsupported)


@pytest.mark.usefixtures("soon")
def test_one_missing_metric_does_not_hide_another():
    nvml = FakeNvml()
    nvml.gpm_codes = [0, 3, 15, 0]
    nvml.gpm = [50.0, 0.0, 0.0, math.nan]
    got = values(GpmSource(0, nvml))
    assert got["gpu0_sm_active"] == 0.5
    assert isinstance(got["gpu0_sm_occupancy"], Unsupported)
    assert isinstance(got["gpu0_tensor_active"], Failed)
    assert isinstance(got["gpu0_dram_active"], Failed), "NaN is no measurement"


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("call", ["nvmlGpmSampleGet", "nvmlGpmMetricsGet"])
def test_an_error_in_mid_run_is_failed_and_passes(call):
    nvml = FakeNvml()
    source = GpmSource(0, nvml)
    assert values(source)["gpu0_sm_active"] == 0.125
    nvml.refuse[call] = NVMLError_GpuIsLost(15)
    lost = values(source)
    assert all(isinstance(v, Failed) and "GpuIsLost" in v.reason for v in lost.values())
    del nvml.refuse[call]
    assert values(source)["gpu0_sm_active"] == 0.125


@pytest.mark.usefixtures("soon")
def test_a_first_sample_that_failed_is_not_compared_with():
    nvml = FakeNvml(refuse={"nvmlGpmSampleGet": NVMLError_GpuIsLost(15)})
    source = GpmSource(0, nvml)
    nvml.refuse.clear()
    assert all(isinstance(v, Failed) for v in values(source).values())
    assert values(source)["gpu0_sm_active"] == 0.125


@pytest.mark.slow
def test_buffers_are_freed_once_on_close_and_with_the_source():
    nvml = FakeNvml()
    source = GpmSource(0, nvml)
    assert len(nvml.buffers) == 2
    source.close()
    source.close()
    assert not nvml.buffers
    assert "closed" in values(source)["gpu0_sm_active"].reason
    other = GpmSource(0, nvml)
    assert len(nvml.buffers) == 2
    del other
    gc.collect()
    assert not nvml.buffers


def test_every_gpu_has_one():
    specs = [s for s in NvidiaDevice(FakeNvml(gpus=2)).sources(1) if s.target.endswith(":GpmSource")]
    assert [s.kwargs["index"] for s in specs] == [0, 1]


@pytest.mark.gpu("torch_eager")
def test_real_gpu():
    import torch

    source = GpmSource(0)
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    time.sleep(0.3)
    idle = values(source)
    stop = time.monotonic() + 1.0
    while time.monotonic() < stop:
        a @ a
        torch.cuda.synchronize()
    busy = values(source)
    if isinstance(busy["gpu0_sm_active"], Unsupported):
        assert torch.cuda.get_device_capability()[0] < 9, "Hopper and later have GPM metrics"
        return
    assert 0 <= idle["gpu0_tensor_active"] < 0.2
    assert 0.3 < busy["gpu0_sm_active"] <= 1.0
    assert 0.2 < busy["gpu0_tensor_active"] <= 1.0
    assert 0 <= busy["gpu0_dram_active"] <= 1.0
    source.close()
