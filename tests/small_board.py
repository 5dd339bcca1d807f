"""A constructed board for the agent: a few sysfs files of an Orin Nano (JetPack 6) and of a Nano (JetPack 4).

Paths and labels are those of public documents (Documentation/hwmon/ina3221.rst; energymon's JetsonPowerRails.md), the
values are made up. /proc/stat and /proc/meminfo are this machine's own, so that CPU time moves.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

FAKE_TRTEXEC = Path(__file__).parent / "wings/tensorrt/trtexec"
ORIN = {
    "etc/nv_tegra_release": "# R36 (release), REVISION: 4.4, GCID: 1, BOARD: generic, EABI: aarch64, DATE: x\n",
    "etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\n',
    "proc/device-tree/model": "NVIDIA Jetson Orin Nano Developer Kit\0",
    "proc/device-tree/compatible": "nvidia,p3768-0000+p3767-0005\0nvidia,p3767-0005\0nvidia,tegra234\0",
    "proc/device-tree/serial-number": "1420000001234\0",
    "sys/devices/platform/bus@0/17000000.gpu/load": "420\n",
    "sys/class/devfreq/17000000.gpu/cur_freq": "612000000\n",
    "sys/class/devfreq/17000000.gpu/max_freq": "624750000\n",
    "sys/devices/system/cpu/online": "0-5\n",
    "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "1510400\n",
    "sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq": "729600\n",
    "sys/class/thermal/thermal_zone0/type": "cpu-thermal\n",
    "sys/class/thermal/thermal_zone0/temp": "45875\n",
    "sys/class/thermal/thermal_zone1/type": "cv0-thermal\n",
    "sys/class/thermal/thermal_zone1/temp": "-256000\n",
    "sys/class/thermal/cooling_device0/type": "pwm-fan\n",
    "sys/class/thermal/cooling_device0/cur_state": "3\n",
    "sys/class/thermal/cooling_device1/type": "gpu-throttle-alert\n",
    "sys/class/thermal/cooling_device1/cur_state": "0\n",
    "sys/class/hwmon/hwmon2/name": "soctherm_oc\n",
    "sys/class/hwmon/hwmon2/oc3_event_cnt": "1\n",
    "sys/class/hwmon/hwmon4/name": "pwmfan\n",
    "sys/class/hwmon/hwmon4/pwm1": "51\n",
}
RAILS = {1: ("VDD_IN", 4920, 1010), 2: ("VDD_CPU_GPU_CV", 4912, 88), 3: ("VDD_SOC", 4904, 347)}
"""Channel -> (label, mV, mA)."""
MARK = "EDGESCOPE_TEST_BOARD"


def orin(root: Path) -> Path:
    """Write an Orin Nano under `root`; return it."""
    chip = "sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1"
    files = {**ORIN, f"{chip}/name": "ina3221\n", f"{chip}/in7_label": "sum of shunt voltages\n"}
    for channel, (label, volts, amperes) in RAILS.items():
        files |= {
            f"{chip}/in{channel}_label": f"{label}\n",
            f"{chip}/in{channel}_input": f"{volts}\n",
            f"{chip}/curr{channel}_input": f"{amperes}\n",
        }
    return _write(root, files)


def nano(root: Path) -> Path:
    """Write a Nano with JetPack 4 under `root`; return it."""
    chip = "sys/bus/i2c/drivers/ina3221x/6-0040/iio:device0"
    files = {
        "proc/device-tree/model": "NVIDIA Jetson Nano Developer Kit\0",
        "proc/device-tree/compatible": "nvidia,p3450-0000\0nvidia,jetson-nano\0nvidia,tegra210\0",
        "sys/devices/gpu.0/load": "991\n",
        "sys/class/devfreq/57000000.gpu/cur_freq": "921600000\n",
    }
    for channel, label in enumerate(("POM_5V_IN", "POM_5V_GPU", "POM_5V_CPU")):
        files |= {
            f"{chip}/rail_name_{channel}": f"{label}\n",
            f"{chip}/in_power{channel}_input": f"{2500 - 1000 * channel}\n",
            f"{chip}/in_voltage{channel}_input": "5000\n",
            f"{chip}/in_current{channel}_input": f"{500 - 200 * channel}\n",
        }
    return _write(root, files)


def _write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("stat", "meminfo", "cpuinfo"):
        (root / "proc" / name).symlink_to(f"/proc/{name}")
    return root


def trtexec(folder: Path, version: str = "8201", fault: str = "") -> Path:
    """Write an executable stand-in for trtexec (tests/wings/tensorrt/trtexec/fake_trtexec.py); return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "trtexec"
    path.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(FAKE_TRTEXEC)!r})\n"
        f"from fake_trtexec import Fake\nsys.exit(Fake({version!r}, {fault!r}, '8.7').main(sys.argv[1:]))\n"
    )
    path.chmod(0o755)
    return path


def environment(root: Path, home: Path, mark: str, program: Path | None = None) -> dict[str, str]:
    """Return the environment that processes on the board start with; `mark` finds them again."""
    found = {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        "EDGESCOPE_ROOT": str(root),
        MARK: mark,
    }
    return found | ({} if program is None else {"EDGESCOPE_TRTEXEC": str(program)})


def alive(mark: str) -> list[str]:
    """Return the command lines of the processes that were started on the board and still run."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            marked = f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            zombie = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if marked and not zombie and int(pid) != os.getpid():
            found.append(f"{pid} {words}")
    return found
