"""A whole board as a folder of files: /proc and /sys of a four-core Arm machine under `root`."""

from __future__ import annotations

from pathlib import Path

STAT = "{pid} (my (odd) name) S {ppid} 1 1 0 -1 0 5 0 3 0 {u} 0 0 0 20 0 1 0 100 1000000 {rss} 0\n"
CPUINFO = "".join(
    f"processor\t: {i}\nFeatures\t: fp asimd asimdhp asimddp crc32\nCPU implementer\t: 0x41\n"
    f"CPU architecture: 8\nCPU part\t: 0xd42\n\n"
    for i in range(4)
)


def write(root: Path, files: dict[str, object]) -> Path:
    """Write {path under root: content}."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(str(content))
    return root


def stat_line(user: int, idle: int, steal: int = 0, ctxt: int = 1000) -> str:
    return (
        f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 0 0 0 0 0 0 0 0 0 0\nintr 5 0 0\n"
        f"ctxt {ctxt}\nbtime 1700000000\n"
    )


def process(
    root: Path, pid: int, *, cpu_ticks: int = 0, children: str = "", ppid: int = 1, rss: int = 100
) -> None:
    stat = STAT.format(pid=pid, ppid=ppid, u=cpu_ticks, rss=rss)
    write(root, {f"proc/{pid}/stat": stat, f"proc/{pid}/task/{pid}/children": children})


def board(root: Path) -> Path:
    """Write a board: clocks, two thermal zones (one powered off), a RAPL package, a cgroup v2 quota."""
    files: dict[str, object] = {
        "proc/stat": stat_line(1000, 9000),
        "proc/cpuinfo": CPUINFO,
        "proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\nSwapTotal: 1024 kB\nSwapFree: 24 kB",
        "proc/loadavg": "0.50 0.25 0.10 1/100 4242\n",
        "proc/uptime": "1234.5 4000.0\n",
        "proc/pressure/cpu": "some avg10=1.50 avg60=0.00 avg300=0.00 total=1000\nfull avg10=0 total=0\n",
        "proc/self/cgroup": "0::/box/inner\n",
        "proc/sys/kernel/osrelease": "6.1.0-edge\n",
        "proc/sys/kernel/hostname": "edge-7\n",
        "proc/device-tree/model": "NVIDIA Jetson Orin Nano\0",
        "proc/device-tree/serial-number": "1422823012345\0",
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 22.04.4 LTS"\n',
        "sys/fs/cgroup/box/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/box/inner/cpu.max": "max 100000\n",
        "sys/fs/cgroup/box/inner/memory.max": "1073741824\n",
        "sys/devices/system/cpu/online": "0-2\n",
        "sys/devices/system/node/online": "0\n",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
        "sys/class/thermal/thermal_zone0/temp": "45500\n",
        "sys/class/thermal/thermal_zone1/type": "gpu-thermal\n",
        "sys/class/thermal/thermal_zone1/temp": "-256000\n",
        "sys/class/thermal/cooling_device0/type": "pwm-fan\n",
        "sys/class/thermal/cooling_device0/cur_state": "3\n",
        "sys/class/thermal/cooling_device1/type": "cpufreq-cpu0\n",
        "sys/class/thermal/cooling_device1/cur_state": "0\n",
        "sys/class/powercap/intel-rapl:0/name": "package-0\n",
        "sys/class/powercap/intel-rapl:0/energy_uj": "9000000\n",
        "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "10000000\n",
    }
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}"
        files |= {
            f"{base}/topology/physical_package_id": "0\n",
            f"{base}/topology/core_id": f"{cpu}\n",
            f"{base}/thermal_throttle/core_throttle_count": "2\n",
        }
    for policy, clock in ((0, 1_500_000), (2, 500_000)):
        base = f"sys/devices/system/cpu/cpufreq/policy{policy}"
        files |= {
            f"{base}/scaling_cur_freq": f"{clock}\n",
            f"{base}/cpuinfo_cur_freq": f"{clock}\n",
            f"{base}/scaling_min_freq": "115200\n",
            f"{base}/scaling_max_freq": "1510400\n",
            f"{base}/cpuinfo_max_freq": "1510400\n",
            f"{base}/scaling_governor": "schedutil\n",
            f"{base}/scaling_driver": "tegra194\n",
            f"{base}/related_cpus": f"{policy} {policy + 1}\n",
        }
    return write(root, files)
