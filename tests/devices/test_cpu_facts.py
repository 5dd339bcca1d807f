from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from fake_board import board, write

from edgescope.devices.cpu import facts as cpu_facts
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.kernel_files import cpu_list, is_absent


@pytest.fixture
def facts(tmp_path: Path) -> tuple[dict, dict]:
    stable, state = CpuDevice(board(tmp_path)).machine()
    return dict(stable), dict(state)


def test_stable_facts_name_the_board(facts):
    stable, _ = facts
    assert stable["cpu"] == "Cortex-A78AE"
    assert stable["isa"] == ["asimd", "asimdhp", "asimddp"]
    assert (stable["logical_cores"], stable["physical_cores"], stable["numa_nodes"]) == (4, 4, 1)
    assert stable["memory_gib"] == 8
    assert stable["board"] == "NVIDIA Jetson Orin Nano #2345"
    assert stable["os"] == "Ubuntu 22.04.4 LTS"
    assert stable["virtualised"] is False or stable["virtualised"] == "no"


def test_state_facts(facts):
    _, state = facts
    assert state["online_cpus"] == [0, 1, 2]
    assert state["hostname"] == "edge-7"
    assert state["kernel"] == "6.1.0-edge"
    assert state["swap_used_bytes"] == 1000 * 1024
    assert state["load_average"] == [0.5, 0.25, 0.1]
    assert state["clocks"]["policy0"]["governor"] == "schedutil"
    assert state["clocks"]["policy2"]["cur_hz"] == 500_000_000
    assert state["boot_time_s"] == 1700000000
    assert state["psi_avg10"]["cpu"] == pytest.approx(0.015)


def test_what_cannot_be_read_says_why(facts):
    _, state = facts
    assert state["temperatures_c"]["cpu_thermal"] == 45.5
    assert "powered off" in state["temperatures_c"]["gpu_thermal"]["absent"]
    assert "/proc/pressure/io" in state["psi_avg10"]["io"]["absent"]
    assert is_absent(state["smt"])


def test_the_least_limit_of_the_cgroups_above_counts(facts):
    _, state = facts
    assert state["cgroup_cpu_limit"] == 1.5
    assert state["cgroup_memory_limit_bytes"] == 2**30


def test_cgroup_v1(tmp_path):
    write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/a\n3:cpu,cpuacct:/a/b\n0::/\n",
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": 50000,
            "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": 100000,
            "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_quota_us": -1,
            "sys/fs/cgroup/cpu,cpuacct/a/b/cpu.cfs_period_us": 100000,
            "sys/fs/cgroup/memory/a/memory.limit_in_bytes": 9223372036854771712,
        },
    )
    _, state = CpuDevice(tmp_path).machine()
    assert state["cgroup_cpu_limit"] == 0.5
    assert state["cgroup_memory_limit_bytes"] == {"absent": "no memory limit is set"}


def test_the_machine_keeps_its_name_when_it_is_renamed_updated_or_busy(tmp_path):
    device = CpuDevice(board(tmp_path))
    before, _ = device.machine()
    write(
        tmp_path,
        {
            "proc/sys/kernel/hostname": "other",
            "proc/sys/kernel/osrelease": "6.2",
            "proc/loadavg": "9 9 9 1/1 1",
            "proc/meminfo": "MemTotal: 8380000 kB\n",
        },
    )
    after, _ = device.machine()
    assert before == after


def test_an_empty_root_has_only_absent_facts(tmp_path):
    device = CpuDevice(tmp_path)
    assert "proc/stat" in device.present()
    stable, state = device.machine()
    for key in ("cpu", "isa", "memory_gib", "board", "os", "numa_nodes"):
        assert is_absent(stable[key]), key
    for key in ("hostname", "clocks", "temperatures_c", "load_average", "uptime_s", "cgroup_cpu_limit"):
        assert is_absent(state[key]), key


def test_x86_names_hypervisor(tmp_path):
    text = "model name\t: AMD  EPYC\nflags\t\t: fpu avx2 hypervisor avx512_vnni amx_int8\n"
    write(tmp_path, {"proc/cpuinfo": text})
    stable, _ = CpuDevice(tmp_path).machine()
    assert stable["cpu"] == "AMD EPYC"
    assert stable["isa"] == ["avx2", "avx512_vnni", "amx_int8"]
    assert stable["virtualised"] == "yes"


@pytest.mark.parametrize(("text", "cpus"), [("0-3,8\n", [0, 1, 2, 3, 8]), ("0", [0]), ("\n", [])])
def test_cpu_list(text, cpus):
    assert cpu_list(text) == cpus


def test_this_machine_answers_quickly():
    device = CpuDevice()
    assert device.present() == ""
    took = []
    for _ in range(5):
        start = time.perf_counter()
        stable, state = device.machine()
        took.append(time.perf_counter() - start)
    assert min(took) < 0.5
    assert stable["logical_cores"] >= len(state["affinity"]) >= 1
    assert state["memory_total_bytes"] > state["memory_available_bytes"] > 0


@pytest.mark.parametrize("text", ["0-99999999999", "nonsense", "3-"])
def test_a_list_of_cpus_that_no_machine_has_is_absent(tmp_path, text):
    root = write(board(tmp_path), {"sys/devices/system/cpu/online": text})
    assert set(cpu_facts.state(root)["online_cpus"]) in ({"absent"}, {3})


@pytest.mark.parametrize("text", ["", "0", "::", "0::/a\0b", "x:cpu", "0::/../../.."])
def test_a_damaged_control_group_sets_no_limit(tmp_path, text):
    root = write(board(tmp_path), {"proc/self/cgroup": text, "sys/fs/cgroup/cpu.max": "100000 0"})
    assert "absent" in cpu_facts.state(root)["cgroup_cpu_limit"]
    assert json.dumps(cpu_facts.state(write(root, {"proc/loadavg": "nan inf 0"})), allow_nan=False)
