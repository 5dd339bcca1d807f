"""What would disturb a measurement, on machines and boards made of files."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from edgescope.devices.clocks import Trip, next_trip
from edgescope.records import Machine
from edgescope.wings.doctor import readiness, unlock
from fake_board import board, process, write

STATE = {"online_cpus": [0, 1], "affinity": [0, 1], "memory_total_bytes": 10**9}


def codes(findings):
    return [f.code for f in findings]


@pytest.mark.parametrize(
    ("values", "state", "code"),
    [
        ({"cpu_others": 0.3}, {}, "W-CPU-1"),
        ({"cpu_others": 0.02, "cpu_allowed_others": 0.3}, {}, "W-CPU-1"),
        ({"cpu_others": 0.3, "cpu_allowed_others": 0.0, "cpu_allowed_steal": 0.1}, {}, "W-CPU-2"),
        ({"cpu_steal": 0.05}, {}, "W-CPU-2"),
        ({"load1": 2.5}, {}, "W-CPU-3"),
        ({"gpu_busy": 0.43}, {}, "W-GPU-1"),
        ({"gpu0_busy": 0.43}, {}, "W-GPU-1"),
        ({"mem_available_bytes": 1e8}, {}, "W-MEM-1"),
        ({}, {"swap_total_bytes": 1000, "swap_used_bytes": 990}, "W-MEM-2"),
        ({}, {"affinity": [1]}, "W-CPU-4"),
        ({}, {"cgroup_cpu_limit": 1.5}, "W-CPU-5"),
        ({}, {"clocks": {"policy0": {"governor": "schedutil"}}}, "W-CLK-3"),
        ({}, {"power_supply": {"BAT0": {"status": "Discharging"}}}, "W-PWR-1"),
    ],
)
def test_each_disturbance_is_found_and_has_a_remedy(tmp_path, values, state, code):
    found = readiness.disturbances(values, STATE | state, tmp_path)
    assert codes(found) == [code]
    assert found[0].fix


def test_cpus_that_a_hypervisor_has_apart_are_told():
    virtual, own = (Machine({"cpu": {"virtualised": kind}}, {}) for kind in ("yes", "no"))
    (found,) = readiness.distance(virtual, 207e-9)
    assert found.code == "W-CPU-7" and "207 ns apart" in found.text and " 180 ns" in found.evidence
    assert readiness.distance(virtual, 25e-9) == readiness.distance(virtual, None) == []
    assert readiness.distance(own, 207e-9) == []


def test_a_quiet_machine_has_no_findings(tmp_path):
    values = {
        "cpu_others": 0.01,
        "cpu_steal": 0.0,
        "load1": 0.5,
        "mem_available_bytes": 9e8,
        "gpu_busy": 0.02,
    }
    state = STATE | {
        "clocks": {"policy0": {"governor": "performance"}},
        "cgroup_cpu_limit": {"absent": "no CPU quota is set"},
        "power_supply": {"absent": "mains"},
        "swap_total_bytes": 0,
        "swap_used_bytes": 0,
    }
    assert readiness.disturbances(values, state, tmp_path) == ()


def test_a_governor_that_cannot_be_read_is_not_called_one(tmp_path):
    clocks = {"clocks": {"policy0": {"governor": {"absent": "no permission"}}}}
    assert readiness.disturbances({}, STATE | clocks, tmp_path) == ()


@pytest.mark.process
def test_another_watcher_is_named(tmp_path):
    program = shutil.copy("/bin/sleep", tmp_path / "tegrastats")
    # A grandchild: children of this process are its own sampler and workers.
    shell = subprocess.Popen(["sh", "-c", f"{program} 30 & echo $!; wait"], stdout=-1, text=True)
    try:
        pid = int(shell.stdout.readline())
        while Path(f"/proc/{pid}/comm").read_text() != "tegrastats\n":  # the shell's copy until it has exec'd
            time.sleep(0.01)
        found = readiness.disturbances({}, {})
        assert any(f.code == "W-PROC-1" and f.fix == f"kill {pid}" for f in found)
    finally:
        os.kill(pid, 9)
        shell.communicate()


def running(root, pid, *argv):
    process(root, pid)
    write(root, {f"proc/{pid}/cmdline": "\0".join(argv) + "\0"})


def test_jtop_and_a_desktop_on_a_board(tmp_path):
    running(tmp_path, 700, "/usr/bin/python3", "/usr/local/bin/jtop", "--force")
    running(tmp_path, 701, "tegrastats", "--interval", "100")
    running(tmp_path, 702, "tegrastats")
    running(tmp_path, 900, "/usr/lib/xorg/Xorg", "-core", ":0")
    running(tmp_path, 901, "/usr/bin/gnome-shell")
    running(tmp_path, 902, "/usr/bin/gnome-shell")
    jtop, stats, desktop = readiness.disturbances({}, {}, tmp_path)
    assert (jtop.code, jtop.fix) == ("W-PROC-1", "sudo systemctl stop jtop")
    assert (stats.code, stats.fix) == ("W-PROC-1", "kill 701 702")
    assert desktop.code == "W-GUI-1"
    assert desktop.evidence == "Xorg (process 900), gnome-shell (process 901)"
    assert "isolate multi-user.target" in desktop.fix


def test_a_constant_is_never_near_a_trip(tmp_path):
    trips = {"temperature_pmic_die_c": Trip("critical", 100.0)}
    assert readiness.board({"temperature_pmic_die_c": 100.0}, trips, {}, {}, tmp_path) == ()


def test_heat_is_judged_against_the_trip_of_its_own_zone(tmp_path):
    values = {"temperature_gpu_c": 95.0, "temperature_cpu_c": 95.0, "temperature_tj_c": 99.5}
    trips = {
        "temperature_gpu_c": Trip("passive", 99.0),
        "temperature_cpu_c": Trip("critical", 105.0),
        "temperature_tj_c": Trip("passive", 99.0),
    }
    first, second = readiness.board(values, trips, {}, {}, tmp_path)
    assert first.code == second.code == "W-THR-3"
    assert "tj is at or above its passive trip" in first.text
    assert "gpu is 4.0 C below" in second.text


def test_the_lowest_harmful_trip_counts_and_disabled_slots_do_not(tmp_path):
    zone = "sys/class/thermal/thermal_zone0"
    files = {"0": ("active", 40000), "1": ("critical", 105000), "2": ("passive", 97000), "3": ("passive", 0)}
    for n, (kind, value) in files.items():
        write(tmp_path, {f"{zone}/trip_point_{n}_type": kind, f"{zone}/trip_point_{n}_temp": value})
    assert next_trip(tmp_path / zone) == Trip("passive", 97.0)
    write(tmp_path, {f"{zone}/trip_point_2_temp": "soon"})
    assert next_trip(tmp_path / zone) == Trip("critical", 105.0)
    assert next_trip(tmp_path / "sys/class/thermal/thermal_zone9") is None


@pytest.mark.parametrize(
    ("values", "code", "word"),
    [
        ({"throttled_gpu_thermal": 1.0}, "W-THR-4", "gpu_thermal"),
        ({"oc3_events": 2.0}, "W-OC-1", "oc3 2"),
        ({"fan1_share": 0.6, "fan1_rpm": 0.0}, "W-FAN-1", "stands still"),
        ({"fan1_share": 0.0, "temperature_cpu_c": 71.0}, "W-FAN-1", "off at 71 C"),
        ({"pom_5v_in_voltage_v": 4.70}, "W-VOLT-1", "4.70 V"),
    ],
)
def test_what_a_board_tells_of_itself(tmp_path, values, code, word):
    (found,) = readiness.board(values, {}, {}, {}, tmp_path)
    assert found.code == code
    assert word in found.text + found.evidence


@pytest.mark.parametrize(
    "values",
    [
        {"fan1_share": 0.0, "temperature_cpu_c": 41.0},  # quiet because cool
        {"fan1_share": 0.0, "temperature_cpu_c": 41.0, "temperature_pmic_die_c": 100.0},
        {"fan1_share": 0.5, "fan1_rpm": 2900.0},
        {"vdd_in_voltage_v": 19.1},  # not a 5 V supply
        {"pom_5v_in_voltage_v": 5.02},
        {"vdd_cpu_voltage_v": 0.9},  # not an input
        {"oc1_events": 0.0, "throttled_gpu_thermal": 0.0},
    ],
)
def test_a_board_in_order_has_no_findings(tmp_path, values):
    assert readiness.board(values, {}, {}, {}, tmp_path) == ()


def test_a_clock_that_the_hardware_does_not_follow_is_told_with_its_latch(tmp_path):
    """Forum t/361188: asked for 2601 MHz, running at 649 MHz after an OC3 event at boot."""
    policy = "sys/devices/system/cpu/cpufreq/policy0"
    write(tmp_path, {f"{policy}/scaling_cur_freq": "2601000", f"{policy}/cpuinfo_cur_freq": "649000"})
    (found,) = readiness.board({"oc3_events": 1.0}, {}, {}, {}, tmp_path)
    assert found.code == "W-CLK-1"
    assert "asked for 2601 MHz, runs at 649 MHz" in found.text
    assert found.evidence == "events since boot: oc3 1"


def test_offline_cores_are_counted_and_a_two_core_board_is_whole(tmp_path):
    cpu = "sys/devices/system/cpu"
    write(tmp_path, {f"{cpu}/present": "0-5\n", f"{cpu}/online": "0-3\n"})
    (found,) = readiness.board({}, {}, {}, {}, tmp_path)
    assert found.code == "W-CPU-6"
    assert found.evidence == "offline: 4, 5"
    write(tmp_path, {f"{cpu}/present": "0-1\n", f"{cpu}/online": "0-1\n"})
    assert readiness.board({}, {}, {}, {}, tmp_path) == ()


class Fixed:
    """A mode with a given problem."""

    def __init__(self, problem):
        self.said = problem

    def problem(self):
        return self.said


def test_a_mode_that_waits_for_a_reboot_is_an_error(tmp_path):
    state = {"jetson": {"power_mode": {"name": "15W", "id": 2}}}
    modes = {"15W": Fixed("asked 15W (2), nvpmodel says MAXN_SUPER (0)"), "MAXN_SUPER": Fixed("")}
    (found,) = readiness.board({}, {}, modes, state, tmp_path)
    assert found.code == "E-MODE-2"
    assert "nvpmodel says MAXN_SUPER" in found.evidence
    assert "nvpmodel -m 2" in found.fix
    state["jetson"]["power_mode"] = {"name": "MAXN_SUPER", "id": 0}
    assert readiness.board({}, {}, modes, state, tmp_path) == ()


def test_two_custom_modes_of_one_name_are_told_apart_by_id(tmp_path):
    state = {"jetson": {"power_mode": {"name": "MINE", "id": 9}}}
    modes = {"MINE(8)": Fixed("another"), "MINE(9)": Fixed("")}
    assert readiness.board({}, {}, modes, state, tmp_path) == ()


@pytest.mark.parametrize("mode", [None, {"absent": "no conf"}, "25W", {"name": "GONE", "id": 77}])
def test_an_unknown_mode_is_no_finding(tmp_path, mode):
    assert readiness.board({}, {}, {}, {"jetson": {"power_mode": mode}}, tmp_path) == ()


def tegra(root):
    return write(board(root), {"proc/device-tree/compatible": "nvidia,p3767\0nvidia,tegra234\0"})


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({".dockerenv": ""}, "docker"),
        ({"run/.containerenv": ""}, "podman"),
        ({"proc/1/cgroup": "11:cpu:/kubepods/burstable/pod1\n"}, "kubernetes"),
        (
            {"proc/1/mountinfo": "520 420 0:60 / / rw,relatime - overlay overlay rw,lowerdir=/a\n"},
            "container",
        ),
        ({"proc/1/mountinfo": "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"}, ""),
        ({}, ""),
    ],
)
def test_a_container_is_recognised(tmp_path, files, kind):
    assert unlock.kind(write(tmp_path, files)) == kind


def test_a_container_without_sys_gets_its_flags(tmp_path):
    write(tmp_path, {".dockerenv": "", "proc/stat": "cpu 1 1 1 1 1 1 1 1\n", "etc/nv_tegra_release": "# R36"})
    words = unlock.command(unlock.flags(tmp_path))
    assert "-v /sys:/sys:ro" in words
    assert "--runtime nvidia" in words
    assert "-v /etc/nvpmodel.conf:/etc/nvpmodel.conf:ro" in words
    assert "-v /etc/nv_tegra_release" not in words  # it is there


def test_on_a_jetson_itself_the_flags_are_what_a_container_would_lack(tmp_path):
    root = tegra(tmp_path)
    write(root, {"etc/nvpmodel.conf": "x", "proc/device-tree/model": "Orin", "proc/2/comm": "kthreadd\n"})
    found = [f.flag for f in unlock.flags(root)]
    assert unlock.kind(root) == ""
    assert "-v /sys:/sys:ro" not in found  # Docker shows /sys by itself
    assert {"--runtime nvidia", "--pid=host", "--security-opt systempaths=unconfined"} <= set(found)
    assert len(found) == len(set(found))


def test_a_discrete_gpu_needs_gpus_all(tmp_path):
    write(
        tmp_path,
        {".dockerenv": "", "sys/devices/x": "", "sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n"},
    )
    assert "--gpus all" in unlock.command(unlock.flags(tmp_path))
    write(tmp_path, {"dev/nvidiactl": ""})
    assert "--gpus all" not in unlock.command(unlock.flags(tmp_path))


def camera(number, index, name):
    folder = f"sys/class/video4linux/video{number}"
    return {f"{folder}/index": f"{index}\n", f"{folder}/name": f"{name}\n"}


def test_a_container_that_does_not_see_a_camera_says_so(tmp_path):
    usb = camera(0, 0, "HD Pro Webcam C920") | camera(1, 1, "HD Pro Webcam C920")
    write(tmp_path, {".dockerenv": "", **usb})
    (found,) = [f for f in unlock.flags(tmp_path) if "video" in f.flag]
    assert (found.flag, found.brings) == ("--device /dev/video0", "the camera HD Pro Webcam C920")
    write(tmp_path, {"dev/video0": ""})
    assert not [f for f in unlock.flags(tmp_path) if "video" in f.flag]


def test_a_camera_on_a_csi_port_needs_the_socket_of_its_daemon_too(tmp_path):
    root = write(board(tmp_path), camera(0, 0, "vi-output, imx219 9-0010"))
    assert not [
        f for f in unlock.flags(root) if "video" in f.flag or "argus" in f.flag
    ]  # its node is not there
    write(root, {"dev/video0": "", "tmp/argus_socket": ""})
    assert [f.flag for f in unlock.flags(root) if "video" in f.flag or "argus" in f.flag] == [
        "--device /dev/video0",
        "-v /tmp/argus_socket:/tmp/argus_socket",
    ]
    write(tmp_path / "in", {".dockerenv": "", **camera(0, 0, "vi-output, imx219 9-0010")})
    assert "argus_socket" in unlock.command(unlock.flags(tmp_path / "in"))


def test_lines_of_nvpmodel_conf_that_are_not_understood_are_told_and_a_whole_file_is_not(tmp_path):
    lines = [f"line {n}: 4 words where 3 are due" for n in (7, 8, 9, 10)]
    (found,) = readiness.board({}, {}, {}, {"jetson": {"nvpmodel_problems": lines}}, tmp_path)
    assert found.code == "W-NVP-1" and found.evidence == "; ".join(lines[:3])
    assert readiness.board({}, {}, {}, {"jetson": {}}, tmp_path) == ()


# -- other programs: another measurement is waited for, a reader of sensors is ended by whom it belongs to ------


def started(root: Path, pid: int, parent: int, *argv: str) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    (folder / "stat").write_text(f"{pid} (x) S {parent} {pid} {pid} 0 -1 0")
    (folder / "cmdline").write_text("\0".join(argv) + "\0")


def test_another_run_is_told_once_and_is_to_be_waited_for(tmp_path):
    started(tmp_path, 700, 1, "/v/bin/python", "/v/bin/edgescope", "sweep", "study.toml", "--api-key=hunter2")
    started(
        tmp_path,
        701,
        700,
        "/v/bin/python",
        "-I",
        "-S",
        "/v/lib/edgescope/warden.py",
        "700",
        "/tmp/x",
        "python",
    )
    started(tmp_path, 702, 701, "/v/bin/python", "-m", "edgescope.bench.child", "run", "/tmp/x", "700")
    started(tmp_path, 703, 702, "/v/bin/python", "-m", "edgescope.telemetry.watcher")
    started(tmp_path, 800, 1, "python3.12", "-m", "edgescope.cli.main", "--board", "optimize", "resnet50")
    first, second = readiness.onlookers(tmp_path)
    assert first.code == second.code == "W-PROC-2"
    assert "process 700, edgescope sweep" in first.text
    assert "disturb each other" in first.text
    assert first.fix == "wait for it to end: tail --pid=700 -f /dev/null"
    assert "process 800" in second.text
    assert not any("kill" in f.fix or "hunter2" in f.text for f in (first, second))


def test_who_only_reads_about_edgescope_is_no_run(tmp_path):
    started(tmp_path, 700, 1, "vim", "edgescope-results/notes.txt")
    started(tmp_path, 701, 1, "less", "edgescope.md")
    started(tmp_path, 702, 1, "grep", "nsys", "x")
    started(tmp_path, 703, 1, "")
    assert readiness.onlookers(tmp_path) == []


def test_what_belongs_to_another_user_is_not_to_be_killed(tmp_path, monkeypatch):
    started(tmp_path, 700, 1, "tegrastats")
    assert [f.fix for f in readiness.onlookers(tmp_path)] == ["kill 700"]
    owner = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    (found,) = readiness.onlookers(tmp_path)
    assert "kill" not in found.fix and "to whom it belongs" in found.fix
