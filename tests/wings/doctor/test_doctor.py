"""The doctor's report: every metric's fate, what is missing and its one command, and how it looks."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from edgescope.devices.base import ChannelSpec, NullDevice, SourceSpec, Unsupported
from edgescope.devices.cpu.device import CpuDevice
from edgescope.records import Machine
from edgescope.records.codec import to_plain
from edgescope.wings.doctor import report, unlock, view
from edgescope.wings.doctor import report as doctor
from edgescope.wings.nvidia import NvidiaDevice
from fake_board import board, write
from fake_nvml import FakeNvml, NVMLError_LibraryNotFound, NVMLError_NotSupported


def metric(name, *, unit="1", status="unsupported", reason="", value=None, device="cpu", **more):
    plain = {"scope": "system", "kind": "gauge", "source": "somewhere", "read_us": 1.0, "every": 1}
    plain |= more
    return report.Metric(
        device=device, name=name, unit=unit, status=status, reason=reason, value=value, **plain
    )


def seen(name, value, **more):
    return metric(name, status="measured", value=value, **more)


def codes(findings):
    return [f.code for f in findings]


@pytest.mark.process
def test_every_metric_has_a_status_a_reason_and_a_cost():
    nvml = FakeNvml(refuse={"nvmlInit": NVMLError_LibraryNotFound()})
    devices = {"cpu": CpuDevice(), "nvidia": NvidiaDevice(nvml), "null": NullDevice()}
    got = doctor.examine(devices, watch_s=0.1)
    names = [m.name for m in got.metrics]
    assert len(names) == len(set(names))
    assert {"cpu_busy", "cpu_steal", "mem_available_bytes", "cpu_package_energy_j", "gpu_power_w"} <= set(
        names
    )
    for m in got.metrics:
        assert (m.status == "measured") == (m.value is not None) == (not m.reason)
        assert m.source
        assert m.sampled_hz == 10 / m.every
    assert got.devices["cpu"] == got.devices["null"] == ""
    assert "libnvidia-ml" in got.devices["nvidia"]
    busy = next(m for m in got.metrics if m.name == "cpu_busy")
    assert busy.status == "measured" and 0 < busy.read_us < 1e5
    json.dumps(to_plain(got))


@pytest.mark.process
def test_how_far_apart_the_cpus_are_is_asked_of_this_machine_only(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor.Prober, "seconds", lambda prober: 207e-9)
    virtual = Machine({"cpu": {"virtualised": "yes"}}, {"cpu": {}})
    monkeypatch.setattr(doctor, "machine", lambda devices: virtual)
    found = {
        root: doctor.examine({"null": NullDevice()}, watch_s=0.1, root=root) for root in (Path("/"), tmp_path)
    }
    assert "W-CPU-7" in codes(found[Path("/")].disturbances)
    assert "W-CPU-7" not in codes(found[tmp_path].disturbances)


class Broken(NullDevice):
    def sources(self, pid):
        return [SourceSpec("edgescope.devices.nothing:Here")]


@pytest.mark.process
def test_a_source_that_cannot_be_opened_is_reported():
    (m,) = doctor.examine({"broken": Broken()}, watch_s=0).metrics
    assert m.status == "failed"
    assert "cannot be opened" in m.reason


class Raising:
    """A source whose driver raises in the middle of the examination."""

    def channels(self):
        return [ChannelSpec("x_power_w", "W", "rail", "gauge", "driver")]

    def read(self):
        raise RuntimeError("the bus is gone")


class RaisingDevice(NullDevice):
    def sources(self, pid):
        return [SourceSpec(f"{__name__}:Raising")]


@pytest.mark.process
def test_a_source_that_raises_is_reported():
    (m,) = doctor.examine({"r": RaisingDevice()}, watch_s=0.1).metrics
    assert m.status == "failed"
    assert "the bus is gone" in m.reason


class Stepping:
    """A sensor that is new on every fifth reading."""

    reads = 0

    def channels(self):
        return [ChannelSpec("x_power_w", "W", "rail", "gauge", "sensor")]

    def read(self):
        type(self).reads += 1
        return [("x_power_w", 0, float(self.reads // 5))]


class SteppingDevice(NullDevice):
    def sources(self, pid):
        return [SourceSpec(f"{__name__}:Stepping", every=2)]


@pytest.mark.process
def test_the_refresh_of_a_sensor_is_seen():
    """Read 20 times a second and new every fifth time: 4 Hz, less where a busy machine does not keep the pace."""
    (m,) = doctor.examine({"s": SteppingDevice()}, watch_s=1.0).metrics
    assert 0.3 < m.seen_hz < 6
    assert m.sampled_hz == 5
    assert m.refresh_s is None


class Beside(NullDevice):
    def __init__(self, file):
        self.file = str(file)

    def sources(self, pid):
        return [SourceSpec(f"{__name__}:FromFile", {"path": self.file})]


class FromFile:
    def __init__(self, path):
        self.path = path

    def channels(self):
        return [ChannelSpec("a_power_w", "W", "rail", "gauge", f"{self.path} x current")]

    def read(self):
        return [("a_power_w", 0, 2.5)]


@pytest.mark.process
def test_the_refresh_that_hwmon_publishes_is_reported(tmp_path):
    write(tmp_path, {"sys/h/in1_input": "5000", "sys/h/update_interval": "430\n"})
    for source, root in ((tmp_path / "sys/h/in1_input", tmp_path), (Path("/sys/h/in1_input"), tmp_path)):
        (m,) = doctor.examine({"b": Beside(source)}, watch_s=0, root=root).metrics
        assert m.refresh_s == pytest.approx(0.43)


def test_energy_that_a_permission_hides_has_its_one_command(tmp_path):
    root = board(tmp_path)
    file = root / "sys/class/powercap/intel-rapl:0/energy_uj"
    hidden = metric("cpu_package_energy_j", unit="J", reason=f"no permission to read {file}")
    (found,) = unlock.missing([hidden], root)
    assert (found.code, found.fix) == ("E-PWR-1", f"sudo chmod a+r {file}")
    other = seen("gpu0_power_w", 60.0, unit="W", device="nvidia")
    (found,) = unlock.missing([hidden, other], root)
    assert (found.code, found.fix) == ("E-PWR-2", f"sudo chmod a+r {file}")


def test_one_readable_gpu_power_is_enough(tmp_path):
    root = board(tmp_path)
    cpu = seen("cpu_package_energy_j", 9.0, unit="J")
    energy = metric("gpu0_energy_j", unit="J", reason="NVML: NotSupported for x", device="nvidia")
    power = seen("gpu0_power_w", 60.0, unit="W", device="nvidia")
    assert unlock.missing([cpu, energy, power], root) == ()
    assert codes(unlock.missing([cpu, energy], root)) == ["E-PWR-3"]


def test_what_is_missing_on_a_plain_vm(tmp_path):
    write(tmp_path, {"proc/stat": "cpu 1 1 1 1 1 1 1 1\n"})
    lost = [
        metric("cpu_freq_hz", unit="Hz", reason="no cpufreq"),
        metric("temperature_c", unit="degC", reason="none"),
        metric("cpu_package_energy_j", unit="J", reason="RAPL: no zone"),
    ]
    assert codes(unlock.missing(lost, tmp_path)) == ["E-PWR-1", "W-CLK-2", "W-TEMP-1", "W-THR-2"]


def test_what_is_for_root_only_is_one_finding_with_one_command(tmp_path):
    root = board(tmp_path)
    debug = "no permission to read /sys/kernel/debug/clk/emc/clk_rate; debugfs is for root: run as root"
    lost = [
        metric("emc_clock_hz", unit="Hz", reason=debug),
        metric("emc_busy", unit="share", reason=debug),
        metric("oc1_events", reason="no permission to read /sys/class/hwmon/hwmon3/oc1_event_cnt"),
    ]
    first, second = unlock.missing(lost, root)
    assert (first.code, second.code) == ("W-PERM-1", "W-PERM-2")
    assert first.text.startswith("2 metrics are in debugfs")
    assert second.fix == "sudo chmod a+r /sys/class/hwmon/hwmon3/oc1_event_cnt"


@pytest.mark.parametrize(
    ("files", "fix"),
    [
        ({"proc/sys/kernel/osrelease": "4.9.337-tegra\n"}, ""),
        ({"etc/nv_tegra_release": "# R32 (release), REVISION: 7.3, GCID: 1, BOARD: t210ref\n"}, ""),
        ({"proc/sys/kernel/osrelease": "4.20.0\n"}, "psi=1"),
        ({"proc/sys/kernel/osrelease": "5.15.148-tegra\n"}, "psi=1"),
        ({}, "psi=1"),
    ],
)
def test_a_kernel_too_old_for_pressure_is_not_to_be_booted_otherwise(tmp_path, files, fix):
    write(tmp_path, files)
    (found,) = unlock._pressure([metric("psi_cpu_some", reason="no /proc/pressure/cpu")], tmp_path)
    assert found.code == "W-PSI-1" and fix in found.fix and bool(found.fix) is bool(fix)
    assert ("Linux 4.9" in found.text and "from 4.20 on" in found.text) == (fix == "")


def test_a_powered_off_zone_is_not_a_missing_sensor(tmp_path):
    off = metric("temperature_gpu_c", unit="degC", reason="the sensor is powered off (reads -256 C)")
    assert unlock.missing([off], board(tmp_path)) == ()


def test_an_nvml_that_answers_nothing_is_said_once(tmp_path):
    """As on an Orin: it initialises, lists a GPU and answers NotSupported to everything."""
    nvml = FakeNvml(refuse={"*": NVMLError_NotSupported()})
    device = NvidiaDevice(nvml)
    assert device.present() == ""
    lost = [
        metric(f"gpu0_{n}", unit="W", reason=f"NVML: NotSupported for {n}", device="nvidia")
        for n in ("power_w", "power_average_w", "busy", "memory_used_bytes")
    ]
    rail = seen("vdd_in_power_w", 4.97, unit="W", device="jetson")
    flag = seen("throttled_cpu_thermal", 0.0, unit="flag", device="jetson")
    (found,) = unlock.missing([*lost, rail, flag], board(tmp_path))
    assert found.code == "I-NVML-1"
    assert "all 4 metrics" in found.text


@pytest.mark.process
def test_a_container_without_sys_is_one_finding_with_the_whole_command(tmp_path):
    write(
        tmp_path, {".dockerenv": "", "proc/stat": "cpu 1 1 1 1 1 1 1 1\n", "proc/meminfo": "MemTotal: 1 kB\n"}
    )
    report = doctor.examine({"cpu": CpuDevice(tmp_path)}, watch_s=0, root=tmp_path)
    assert report.container == "docker"
    first = report.missing[0]
    assert first.code == "W-BOX-1"
    assert first.fix.startswith("docker run -v /sys:/sys:ro")
    assert next(f for f in report.missing if f.code == "E-PWR-1").fix == first.fix
    values = {m.name: m for m in report.metrics}
    assert values["cpu_freq_hz"].value is None and values["cpu_freq_hz"].reason


@pytest.mark.process
def test_a_fake_board_is_examined_whole(tmp_path):
    """Fake files (constructed): one zone powered off, swap nearly full, cores offline, a governor that moves clocks."""
    root = board(tmp_path)
    write(
        root,
        {
            "sys/devices/system/cpu/present": "0-3\n",
            "sys/class/thermal/thermal_zone0/trip_point_0_type": "passive",
            "sys/class/thermal/thermal_zone0/trip_point_0_temp": "48000",
        },
    )
    report = doctor.examine({"cpu": CpuDevice(root)}, watch_s=0, root=root)
    by = {f.code: f for f in report.disturbances}
    assert {"W-THR-3", "W-CPU-6", "W-CLK-3", "W-MEM-2"} <= set(by)
    assert by["W-THR-3"].evidence == "45.5 C, trip 48.0 C"
    off = next(m for m in report.metrics if m.name == "temperature_gpu_thermal_c")
    assert off.value is None and "powered off" in off.reason
    assert "temperature_gpu_thermal_c" not in report.trips


@pytest.mark.process
def test_a_read_only_sys_is_still_measured(tmp_path):
    root = board(tmp_path)
    for path in root.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    report = doctor.examine({"cpu": CpuDevice(root)}, watch_s=0, root=root)
    assert {m.status for m in report.metrics if m.name in ("cpu_freq_hz", "mem_available_bytes")} == {
        "measured"
    }


def shown(report, width, **more):
    return [text for text, _ in view.lines(report, width, **more)]


def example(tmp_path, metrics):
    root = board(tmp_path)
    report = doctor.examine({"cpu": CpuDevice(root)}, watch_s=0, root=root)
    values = {f.name: getattr(report, f.name) for f in doctor.Report.__dataclass_fields__.values()}
    return doctor.Report(**values | {"metrics": tuple(metrics)})


@pytest.mark.process
@pytest.mark.parametrize("width", [80, 100, 120, 160])
@pytest.mark.parametrize("everything", [False, True])
def test_no_line_but_a_command_is_wider_than_the_terminal(tmp_path, width, everything):
    zones = [
        seen(
            f"temperature_zone{i}{'_of_some_length' * i}_c", 40.0 + i, unit="degC", source="/sys/" + "x" * 60
        )
        for i in range(4)
    ]
    lost = [metric(f"emc{i}", reason="no " + "/a" * 20 + " and so on " * 9) for i in range(9)]
    report = example(tmp_path, [*zones, *lost])
    for text in shown(report, width, everything=everything, noise="words " * 60):
        if "Try:" not in text and not text.startswith("    /sys"):
            assert len(text) <= width, text


@pytest.mark.process
def test_what_is_alike_is_one_line_until_all_is_asked_for(tmp_path):
    zones = [seen(f"temperature_zone{i}_c", 40.0 + i, unit="degC") for i in range(9)]
    flags = [seen(f"throttled_{i}_thermal", float(i == 3), unit="flag") for i in range(12)]
    report = example(tmp_path, [*zones, *flags])
    short = "\n".join(shown(report, 80))
    assert "temperatures x 9" in short and "40.0-48.0 C" in short
    assert "throttle flags x 12" in short and "1 raised" in short
    full = "\n".join(shown(report, 80, everything=True))
    assert all(m.name in full for m in report.metrics)


@pytest.mark.slow
def test_a_zone_that_always_says_100_is_in_no_range(tmp_path):
    zones = [seen(f"temperature_zone{i}_c", 40.0 + i, unit="degC") for i in range(3)]
    pmic = seen("temperature_pmic_die_c", 100.0, unit="degC", source="/sys/zone3/temp")
    for width in (80, 120):
        text = "\n".join(shown(example(tmp_path, [*zones, pmic]), width))
        assert "40.0-42.0 C" in text and "temperatures x 3" in text
        assert next(row for row in text.splitlines() if "pmic" in row).split()[1:4] == [
            "100",
            "C",
            "constant",
        ]
    assert "always says so" in text
    warm = seen("temperature_pmic_die_c", 43.0, unit="degC")  # where it is a thermometer
    assert "temperatures x 4" in "\n".join(shown(example(tmp_path, [*zones, warm]), 80))


@pytest.mark.process
def test_what_is_not_measured_is_grouped_by_reason(tmp_path):
    lost = [
        metric(f"gpu0_{n}", reason=f"NVML: NotSupported for {n}", device="nvidia") for n in ("a", "b", "c")
    ]
    text = "\n".join(shown(example(tmp_path, lost), 100, everything=True))
    assert "gpu0_a, gpu0_b, gpu0_c" in text
    assert text.count("NotSupported") == 1
    assert "3 not measured here: edgescope doctor --all" in "\n".join(shown(example(tmp_path, lost), 100))


@pytest.mark.process
def test_a_column_without_room_is_announced(tmp_path):
    report = example(tmp_path, [seen("cpu_busy", 0.1, unit="share", source="/proc/stat")])
    wide, narrow = ("\n".join(shown(report, width)) for width in (120, 80))
    assert "/proc/stat" in wide and "sources" not in wide
    assert "/proc/stat" not in narrow and "sources: edgescope doctor --all" in narrow


@pytest.mark.process
def test_what_nothing_unlocks_is_still_missing(tmp_path):
    report = example(tmp_path, [metric("a", reason="no a"), metric("b", reason="no b")])
    report = dataclasses.replace(report, missing=())
    text = "\n".join(shown(report, 80))
    assert "missing here: 2 metrics that no command unlocks: edgescope doctor --all" in text
    assert "missing here: nothing" in "\n".join(shown(dataclasses.replace(report, metrics=()), 80))


def test_unsupported_is_never_a_number():
    status, reason, number = report._fate(Unsupported("no sensor"))
    assert (status, reason, number) == ("unsupported", "no sensor", None)
