from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path

import pytest

from edgescope.devices.base import Failed, Unsupported
from edgescope.devices.cpu import facts as cpu_facts
from edgescope.devices.cpu.device import CpuDevice
from edgescope.devices.cpu.limits import Memory, cpu_limit, memory_limit
from edgescope.devices.kernel_files import KernelFile, cpu_list, is_absent, why
from fake_board import board, write


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


@pytest.mark.parametrize(
    ("implementer", "part", "name"),
    [
        *(("0x41", "0xd03", "Cortex-A53"), ("0x41", "0xd04", "Cortex-A35"), ("0x41", "0xd05", "Cortex-A55")),
        *(("0x41", "0xd07", "Cortex-A57"), ("0x41", "0xd08", "Cortex-A72"), ("0x41", "0xd09", "Cortex-A73")),
        *(("0x41", "0xd0a", "Cortex-A75"), ("0x41", "0xd0b", "Cortex-A76"), ("0x41", "0xd0c", "Neoverse-N1")),
        *(("0x41", "0xd0d", "Cortex-A77"), ("0x41", "0xd40", "Neoverse-V1"), ("0x41", "0xd41", "Cortex-A78")),
        *(
            ("0x41", "0xd42", "Cortex-A78AE"),
            ("0x41", "0xd49", "Neoverse-N2"),
            ("0x41", "0xd4f", "Neoverse-V2"),
        ),
        *(("0x41", "0xd83", "Neoverse-V3AE"), ("0x4e", "0x003", "NVIDIA Denver 2")),
        *(("0x4e", "0x004", "NVIDIA Carmel"), ("0x42", "0xd40", "implementer 0x42 part 0xd40")),
    ],
)
def test_a_core_of_arm_is_named_by_its_maker_and_part(tmp_path, implementer, part, name):
    core = f"CPU implementer\t: {implementer}\nCPU part\t: {part}\n"
    root = write(tmp_path, {"proc/cpuinfo": core * 2})
    assert cpu_facts.name(root) == name
    other = (
        "CPU implementer\t: 0x41\nCPU part\t: 0xd0d\n" if name != "Cortex-A77" else core.replace("d0d", "d08")
    )
    mixed = write(tmp_path / "mixed", {"proc/cpuinfo": core * 3 + other})
    assert cpu_facts.name(mixed).startswith(f"3 x {name} + 1 x Cortex-A")


@pytest.mark.parametrize(
    ("limit", "absent"), [((1 << 60) - 4096, False), (1 << 60, True), ((1 << 60) + 4096, True), (4096, False)]
)
def test_a_limit_of_memory_near_the_largest_number_is_none(tmp_path, limit, absent):
    root = write(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/box\n",
            "sys/fs/cgroup/memory/box/memory.limit_in_bytes": f"{limit}\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{(1 << 63) - 4096}\n",
            "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "0\n",
            "sys/fs/cgroup/memory/box/memory.stat": "inactive_file 0\n",
            "proc/meminfo": f"MemTotal: {1 << 52} kB\nMemAvailable: 4 kB\n",
        },
    )
    assert memory_limit(root) == ({"absent": "no memory limit is set"} if absent else limit)
    with Memory(root) as memory:
        assert memory.total == ((1 << 62) if absent else limit)


@pytest.mark.parametrize(
    ("quota", "period", "limit"),
    [
        ("50000", "100000", 0.5),
        ("250000", "100000", 2.5),
        ("-1", "100000", None),
        ("0", "100000", None),
        ("9", "0", None),
    ],
)
def test_a_quota_of_cgroup_v1_is_of_its_period(tmp_path, quota, period, limit):
    box = "sys/fs/cgroup/cpu,cpuacct/box"
    files = {
        "proc/self/cgroup": "3:cpu,cpuacct:/box\n",
        f"{box}/cpu.cfs_quota_us": quota,
        f"{box}/cpu.cfs_period_us": period,
    }
    found = cpu_limit(write(tmp_path, files))
    assert found == (limit if limit else {"absent": "no CPU quota is set"})


def test_the_lists_of_cpus_of_the_kernel():
    assert cpu_list("0-1,3,65535") == [0, 1, 3, 65535] and cpu_list(",,2-2,") == [2] and cpu_list("3-1") == []
    assert cpu_list("1-") == [1]
    for text in ("65536", "0-65536", "x"):
        with pytest.raises(ValueError, match=r".+"):
            cpu_list(text)


@pytest.mark.parametrize(
    ("text", "number"), [("1e299", 1e299), ("-3.5", -3.5), ("1e300", None), ("nan", None), ("inf", None)]
)
def test_a_number_that_would_spoil_a_sum_is_none(tmp_path, text, number):
    file = KernelFile(write(tmp_path, {"x": text}) / "x")
    assert file.number() == number if number else isinstance(file.number(), Failed)
    if text == "-3.5":
        assert file.number(1e3) == -3500.0 and isinstance(file.number(), float)
    file.close()
    file.close()
    assert isinstance(file.read(), Unsupported) and "was closed" in file.read().reason


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOENT, "no /x"),
        (errno.EACCES, "no permission to read /x"),
        (errno.EPERM, "no permission to read /x"),
        (errno.ESRCH, "the process of /x has ended"),
        (errno.EIO, "/x: trouble"),
    ],
)
def test_why_a_file_cannot_be_read_is_told(number, says):
    assert why(OSError(number, "trouble"), Path("/x")) == says


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EIO, Failed), (errno.EOPNOTSUPP, Unsupported), (errno.ESRCH, Failed)]
)
def test_a_file_that_is_there_and_fails_now_is_not_unsupported(tmp_path, monkeypatch, number, kind):
    file = KernelFile(write(tmp_path, {"x": "1"}) / "x", 7)
    asked = []

    def pread(fd, size, at):
        asked.append((size, at))
        raise OSError(number, "trouble")

    monkeypatch.setattr(os, "pread", pread)
    assert isinstance(file.read(), kind) and asked == [(7, 0)]
    monkeypatch.undo()
    assert file.read() == b"1"


def test_a_power_supply_is_told_with_what_it_says(tmp_path):
    assert is_absent(cpu_facts.state(tmp_path)["power_supply"])
    for name, text in (("BAT0/type", "Battery"), ("BAT0/capacity", "80"), ("AC/online", "1")):
        write(tmp_path, {f"sys/class/power_supply/{name}": f"{text}\n"})
    assert cpu_facts.state(tmp_path)["power_supply"] == {
        "AC": {"online": "1"},
        "BAT0": {"type": "Battery", "capacity": "80"},
    }
