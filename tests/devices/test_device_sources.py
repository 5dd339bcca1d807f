"""Which sources a device has, and how much reading them costs."""

from fractions import Fraction

import pytest

from edgescope.devices.base import AbsentSource, NullDevice, SourceSpec, Unsupported
from edgescope.devices.cpu.device import CpuDevice
from edgescope.wings.jetson.device import JetsonDevice
from edgescope.wings.nvidia import NvidiaDevice
from fake_board import board, write
from fake_nvml import FakeNvml, NVMLError_NotSupported

HZ = 10


def reads(specs):
    """Readings of sources in one second of a sampler at ten ticks a second, edges left out."""
    return sum(Fraction(HZ, spec.every) for spec in specs if not spec.edges)


def jetson(tmp_path):
    return JetsonDevice(
        write(tmp_path, {"proc/device-tree/compatible": "nvidia,p3448-0000\0nvidia,tegra210\0"})
    )


@pytest.mark.parametrize(
    ("device", "sources", "a_second"),
    [
        (lambda root: CpuDevice(board(root)), 6, 22),
        (jetson, 10, 32),
        (lambda root: NvidiaDevice(FakeNvml()), 4, Fraction(9, 2)),
        (
            lambda root: NvidiaDevice(
                FakeNvml(refuse={"nvmlDeviceGetTotalEnergyConsumption": NVMLError_NotSupported(3)})
            ),
            4,
            12,
        ),
        (lambda root: NvidiaDevice(FakeNvml(gpus=2)), 8, 9),
        (lambda root: NvidiaDevice(FakeNvml(gpus=0)), 1, Fraction(1, 100_000)),
        (lambda root: NullDevice(), 0, 0),
    ],
    ids=["cpu", "jetson", "nvidia", "nvidia without energy", "two gpus", "no gpu", "null"],
)
def test_a_device_is_read_so_often(tmp_path, device, sources, a_second):
    specs = device(tmp_path).sources(50)
    assert (len(specs), reads(specs)) == (sources, a_second)


def test_what_counts_by_itself_is_read_at_the_edges_of_a_window():
    edges = [spec for spec in NvidiaDevice(FakeNvml()).sources(1) if spec.edges]
    assert [spec.kwargs["part"] for spec in edges] == ["energy"] and edges[0].every == 60 * HZ


def test_only_power_and_load_of_a_jetson_are_read_on_every_tick(tmp_path):
    often = {spec.target.rpartition(":")[2] for spec in jetson(tmp_path).sources(1) if spec.every == 1}
    assert often == {"Rails", "Gpu"}
    assert [s.kwargs["pid"] for s in jetson(tmp_path).sources(77) if "pid" in s.kwargs] == [77]


def test_elsewhere_there_is_no_jetson(tmp_path):
    device = JetsonDevice(tmp_path)
    assert device.present() and device.sources(1) == () and device.modes() == {}


def test_the_cpus_of_this_process_are_those_of_the_machine_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {5, 2} if pid == 0 else {0})
    assert CpuDevice().sources(1)[0].kwargs["cpus"] == [2, 5]
    assert CpuDevice(board(tmp_path)).sources(1)[0].kwargs["cpus"] == []


def test_a_null_device_is_there_and_has_nothing():
    null = NullDevice()
    assert (null.present(), null.machine(), null.modes()) == ("", ({}, {}), {})


def test_a_source_is_opened_with_what_it_was_given():
    spec = SourceSpec(
        "edgescope.devices.base:AbsentSource",
        {"channels": [("a", "W", "rail", "gauge", "x")], "reason": "no"},
    )
    assert (spec.every, spec.edges) == (1, False)
    source = spec.open()
    assert isinstance(source, AbsentSource) and [c.name for c in source.channels()] == ["a"]
    ((name, _, value),) = source.read()
    assert (name, value) == ("a", Unsupported("no"))
