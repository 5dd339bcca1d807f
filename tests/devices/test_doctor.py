from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from fake_board import board, write
from fake_nvml import FakeNvml, NVMLError_LibraryNotFound

from edgescope.devices import doctor, readiness
from edgescope.devices.base import SourceSpec
from edgescope.devices.cpu import CpuDevice
from edgescope.devices.null import NullDevice
from edgescope.devices.nvidia import NvidiaDevice


def test_every_metric_has_a_status_a_reason_and_a_cost(tmp_path):
    nvml = FakeNvml(refuse={"nvmlInit": NVMLError_LibraryNotFound()})
    got = doctor.examine(
        {"cpu": CpuDevice(), "nvidia": NvidiaDevice(nvml), "null": NullDevice()}, watch_s=0.1
    )
    names = [m.name for m in got.metrics]
    assert len(names) == len(set(names))
    assert {"cpu_busy", "cpu_steal", "mem_available_bytes", "cpu_package_energy_j", "gpu_power_w"} <= set(
        names
    )
    for metric in got.metrics:
        assert (metric.status == "measured") == (metric.value is not None) == (not metric.reason)
        assert metric.source
    assert got.devices["cpu"] == got.devices["null"] == ""
    assert "libnvidia-ml" in got.devices["nvidia"]
    busy = next(m for m in got.metrics if m.name == "cpu_busy")
    assert busy.status == "measured" and 0 < busy.read_us < 1e5
    assert any(f.code == "E-PWR-3" for f in got.missing)


class Broken(NullDevice):
    def sources(self, pid):
        return [SourceSpec("edgescope.devices.nothing:Here")]


def test_a_source_that_cannot_be_opened_is_reported():
    (metric,) = doctor.examine({"broken": Broken()}, watch_s=0).metrics
    assert metric.status == "failed"
    assert "cannot be opened" in metric.reason


STATE = {"online_cpus": [0, 1], "affinity": [0, 1], "memory_total_bytes": 10**9}


def codes(findings):
    return [f.code for f in findings]


@pytest.mark.parametrize(
    ("values", "state", "code"),
    [
        ({"cpu_others": 0.3}, {}, "W-CPU-1"),
        ({"cpu_steal": 0.05}, {}, "W-CPU-2"),
        ({"load1": 2.5}, {}, "W-CPU-3"),
        ({"mem_available_bytes": 1e8}, {}, "W-MEM-1"),
        ({}, {"affinity": [1]}, "W-CPU-4"),
        ({}, {"cgroup_cpu_limit": 1.5}, "W-CPU-5"),
        ({}, {"clocks": {"policy0": {"governor": "schedutil"}}}, "W-CLK-1"),
        ({}, {"power_supply": {"BAT0": {"status": "Discharging"}}}, "W-PWR-1"),
    ],
)
def test_each_disturbance_is_found_and_has_a_remedy(tmp_path, values, state, code):
    found = readiness.disturbances(values, STATE | state, tmp_path)
    assert codes(found) == [code]
    assert found[0].fix


def test_a_quiet_machine_has_no_findings(tmp_path):
    values = {"cpu_others": 0.01, "cpu_steal": 0.0, "load1": 0.5, "mem_available_bytes": 9e8}
    state = STATE | {
        "clocks": {"policy0": {"governor": "performance"}},
        "cgroup_cpu_limit": {"absent": "no CPU quota is set"},
        "power_supply": {"absent": "mains"},
    }
    assert readiness.disturbances(values, state, tmp_path) == ()


def test_another_watcher_is_named(tmp_path):
    program = shutil.copy("/bin/sleep", tmp_path / "tegrastats")
    # A grandchild: children of this process are its own sampler and workers.
    shell = subprocess.Popen(["sh", "-c", f"{program} 30 & echo $!; wait"], stdout=-1, text=True)
    try:
        pid = int(shell.stdout.readline())
        found = readiness.disturbances({}, {})
        assert any(f.code == "W-PROC-1" and f.fix == f"kill {pid}" for f in found)
    finally:
        os.kill(pid, 9)
        shell.communicate()


def test_energy_that_a_permission_hides_has_its_one_command(tmp_path):
    root = board(tmp_path)
    file = root / "sys/class/powercap/intel-rapl:0/energy_uj"
    reasons = {"cpu_package_energy_j": f"no permission to read {file}"}
    (found,) = readiness.missing(reasons, set(reasons), root)
    assert found.fix == f"sudo chmod a+r {file}"


def test_one_readable_gpu_power_is_enough(tmp_path):
    names = {"gpu0_power_w", "gpu0_energy_j"}
    assert readiness.missing({"gpu0_energy_j": "NVML: NotSupported"}, names, tmp_path) == ()
    assert codes(readiness.missing({n: "NVML: NotSupported" for n in names}, names, tmp_path)) == ["E-PWR-3"]


def test_what_is_missing_on_a_plain_vm(tmp_path):
    write(tmp_path, {"proc/stat": "cpu 1 1 1 1 1 1 1 1\n"})
    reasons = {"cpu_freq_hz": "no cpufreq", "temperature_c": "none", "cpu_package_energy_j": "RAPL: no zone"}
    assert codes(readiness.missing(reasons, set(reasons), tmp_path)) == ["E-PWR-2", "W-CLK-2", "W-THR-1"]
