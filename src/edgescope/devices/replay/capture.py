"""Capture: turn this machine's files into a recording, reading only.

Only the files in the list below are read: those that edgescope's devices read. Whatever names a machine
or a person is not on it: serial numbers, host name, addresses, environment, command lines of processes, and the
control group (which names a container). Lines of a listed file that carry such a thing are left out.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from edgescope.devices.kernel_files import why
from edgescope.devices.replay.format import MAX_ENTRIES, Entry, Frame, Recording

LISTED: Mapping[str, Sequence[str]] = {
    "identity": (
        "etc/nv_tegra_release",
        "etc/os-release",
        "usr/lib/os-release",
        "proc/device-tree/model",
        "proc/device-tree/compatible",
        "proc/device-tree/nvidia,dtsfilename",
        "proc/device-tree/nvidia,boardids",
        "proc/device-tree/chosen/plugin-manager/ids/*",
        "proc/sys/kernel/osrelease",
        "sys/class/dmi/id/sys_vendor",
        "sys/class/dmi/id/product_name",
        "sys/hypervisor/type",
    ),
    "processor": (
        "proc/cpuinfo",
        "proc/stat",
        "proc/loadavg",
        "proc/uptime",
        "proc/pressure/*",
        "proc/interrupts",
        "sys/devices/system/cpu/online",
        "sys/devices/system/cpu/offline",
        "sys/devices/system/cpu/possible",
        "sys/devices/system/cpu/present",
        "sys/devices/system/cpu/smt/active",
        "sys/devices/system/cpu/cpu[0-9]*/online",
        "sys/devices/system/cpu/cpu[0-9]*/topology/physical_package_id",
        "sys/devices/system/cpu/cpu[0-9]*/topology/cluster_id",
        "sys/devices/system/cpu/cpu[0-9]*/topology/core_id",
        "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_count",
        "sys/devices/system/cpu/cpufreq/policy[0-9]*/[a-z]*",
        "sys/devices/system/node/online",
        "sys/class/powercap/intel-rapl*/name",
        "sys/class/powercap/intel-rapl*/energy_uj",
        "sys/class/powercap/intel-rapl*/max_energy_range_uj",
    ),
    "memory": (
        "proc/meminfo",
        "proc/buddyinfo",
        "sys/kernel/debug/nvmap/iovmm/clients",
        "sys/class/devfreq/bwmgr/*_freq",
    ),
    "heat": (
        "sys/class/thermal/thermal_zone[0-9]*/type",
        "sys/class/thermal/thermal_zone[0-9]*/temp",
        "sys/class/thermal/thermal_zone[0-9]*/mode",
        "sys/class/thermal/thermal_zone[0-9]*/policy",
        "sys/class/thermal/thermal_zone[0-9]*/trip_point_[0-9]*_*",
        "sys/class/thermal/thermal_zone[0-9]*/cdev[0-9]*_trip_point",
        "sys/class/thermal/cooling_device[0-9]*/type",
        "sys/class/thermal/cooling_device[0-9]*/cur_state",
        "sys/class/thermal/cooling_device[0-9]*/max_state",
        "sys/class/hwmon/hwmon[0-9]*/name",
        "sys/class/hwmon/hwmon[0-9]*/temp[0-9]*_input",
        "sys/class/hwmon/hwmon[0-9]*/temp[0-9]*_label",
        "sys/class/hwmon/hwmon[0-9]*/pwm[0-9]*",
        "sys/class/hwmon/hwmon[0-9]*/fan[0-9]*_input",
        "sys/class/hwmon/hwmon[0-9]*/cur_pwm",
        "sys/class/hwmon/hwmon[0-9]*/rpm",
        "sys/class/hwmon/hwmon[0-9]*/oc[0-9]*_*",
        "sys/devices/pwm-fan/target_pwm",
        "sys/devices/pwm-fan/temp_control",
        "sys/devices/pwm-fan/cur_pwm",
        "sys/devices/pwm-fan/rpm_measured",
        "sys/devices/generic_pwm_tachometer/hwmon/hwmon*/rpm",
    ),
    "power": (
        "sys/bus/i2c/drivers/ina3221x/[0-9]*/iio:device[0-9]*/[a-z]*",
        "sys/bus/i2c/drivers/ina*/[0-9]*/hwmon/hwmon[0-9]*/[a-z]*",
        "sys/class/hwmon/hwmon[0-9]*/in[0-9]*_*",
        "sys/class/hwmon/hwmon[0-9]*/curr[0-9]*_*",
        "sys/class/hwmon/hwmon[0-9]*/power[0-9]*_*",
        "sys/class/hwmon/hwmon[0-9]*/label",
        "sys/class/hwmon/hwmon[0-9]*/shunt[0-9]*_resistor",
        "sys/class/hwmon/hwmon[0-9]*/samples",
        "sys/class/hwmon/hwmon[0-9]*/update_interval",
        "sys/class/power_supply/*/type",
        "sys/class/power_supply/*/status",
        "sys/class/power_supply/*/online",
        "sys/class/power_supply/*/capacity",
        "etc/nvpmodel.conf",
        "var/lib/nvpmodel/status",
        "sys/kernel/nvpmodel_*/*",
    ),
    "soc": (
        "sys/devices/gpu.0/load",
        "sys/devices/platform/gpu.0/load",
        "sys/devices/[0-9]*.g*/load",
        "sys/devices/platform/[0-9]*.g*/load",
        "sys/devices/platform/bus@0/[0-9]*.g*/load",
        "sys/class/devfreq/*/name",
        "sys/class/devfreq/*/cur_freq",
        "sys/class/devfreq/*/min_freq",
        "sys/class/devfreq/*/max_freq",
        "sys/class/devfreq/*/available_frequencies",
        "sys/class/devfreq/*/governor",
        "sys/class/devfreq/*/device/load",
        "sys/class/devfreq/*/device/railgate_enable",
        "sys/class/devfreq/*/device/enable_3d_scaling",
        "sys/class/devfreq/*/device/tpc_pg_mask",
        "sys/class/devfreq/*/device/of_node/name",
        "sys/devices/*.host1x/*.*/power/runtime_status",
        "sys/devices/platform/host1x/*.*/power/runtime_status",
        "sys/devices/platform/*.host1x/*.*/power/runtime_status",
        "sys/devices/platform/bus@0/*.host1x/*.*/power/runtime_status",
        "sys/kernel/debug/bpmp/debug/clk/*/rate",
        "sys/kernel/debug/bpmp/debug/clk/*/m*_rate",
        "sys/kernel/debug/bpmp/debug/clk/*/mrq_rate_locked",
        "sys/kernel/debug/bpmp/debug/actmon/mc_all_avg_activity",
        "sys/kernel/debug/clk/*/clk_rate",
        "sys/kernel/debug/cactmon/mc_all",
        "sys/kernel/actmon_avg_activity/mc_all",
    ),
}
"""Subject -> patterns of the paths that are read, below the root."""

_CLOSED = ("sys/kernel/debug",)
"""Folders that may be closed to this user; then one entry stands for everything below."""
_LEFT_OUT = ("proc/sys/kernel/hostname", "proc/device-tree/serial-number", "proc/self/cgroup")
"""Read by the devices, never recorded: they name the machine, its owner or a container."""
_SECRET_LINES = {"proc/cpuinfo": ("Serial",), "proc/stat": ("intr", "softirq")}
"""Starts of lines that are left out: a Raspberry Pi prints its serial number; interrupts are only long."""
_KEPT_LINES = {"proc/interrupts": "soctherm_edp"}
"""A line without one of these words is left out: only one of a thousand interrupts counts over-currents."""
_CLIENTS = "sys/kernel/debug/nvmap/iovmm/clients"
_CLIENT = re.compile(r"\s*(\S+)\s+\S.*?\s+[0-9]{1,10}\s+([0-9]{1,15}[BKMG]?)\s*")
_NO_CLIENT = re.compile(r"\s*(CLIENT\s+PROCESS\s+PID\s+SIZE|total\s+[0-9]+[BKMG]?)\s*")
"""Lines of NvMap's client list: a client with its process, PID and size; the heading and the sum."""
_MAX_TEXT = 1 << 19
_MOVING = ("proc/stat", "proc/loadavg", "proc/uptime", "proc/meminfo", "proc/pressure/*", "sys/*")
"""Subjects that are read again for every frame."""


@dataclass(frozen=True)
class Plan:
    """How long and how often to read."""

    seconds: float = 30.0
    hz: float = 2.0


def capture(
    board: str,
    plan: Plan,
    root: Path = Path("/"),
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Recording:
    """Return the recording of this machine over `plan.seconds`; frames hold only what changed."""
    start = clock()
    first = tuple(_entries(root))
    held: dict[str, str | None] = {e.path: e.text for e in first if e.text is not None}
    moving = [p for p in held if _matches(p, _MOVING)]
    frames = []
    for tick in range(1, int(plan.seconds * plan.hz) + 1):
        sleep(max(0.0, start + tick / plan.hz - clock()))
        t_s = round(clock() - start, 3)
        changed = {p: text for p in moving if (text := _text(root, p)) != held[p]}
        held |= changed
        if changed:
            frames.append(Frame(t_s, changed, "here"))
    about = f"{len(held)} files over {plan.seconds:g} s at {plan.hz:g} Hz"
    sources = {
        "here": f"read on the board itself by edgescope record, {time.strftime('%Y-%m-%d', time.gmtime())}"
    }
    return Recording(board, "captured", about, sources, first, tuple(frames))


def known(path: str) -> bool:
    """Return whether a recording may hold this path or leaves it out on purpose."""
    return path in _LEFT_OUT or any(_matches(path, patterns) for patterns in LISTED.values())


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _entries(root: Path) -> Iterator[Entry]:
    seen: set[str] = set()
    for path in _CLOSED:
        if (root / path).is_dir() and not os.access(root / path, os.R_OK | os.X_OK):
            yield Entry(path, None, f"no permission to read /{path}", "here")
    for patterns in LISTED.values():
        for pattern in patterns:
            for name in sorted(glob.glob(str(root / pattern), recursive=True)):
                path = os.path.relpath(name, root)
                if path in seen or len(seen) >= MAX_ENTRIES or not os.path.isfile(name):
                    continue
                seen.add(path)
                yield _entry(root, path)


def _entry(root: Path, path: str) -> Entry:
    try:
        return Entry(path, _read(root, path), "", "here")
    except OSError as error:
        return Entry(path, None, why(error, Path("/") / path), "here")


def _text(root: Path, path: str) -> str | None:
    """Return a file's current text, or None if it has become unreadable."""
    try:
        return _read(root, path)
    except OSError:
        return None


def _read(root: Path, path: str) -> str:
    fd = os.open(root / path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    data = b""
    try:
        while len(data) < _MAX_TEXT and (part := os.read(fd, _MAX_TEXT)):  # /proc gives a page at a time
            data += part
    except BlockingIOError as error:
        raise OSError(errno.EAGAIN, "reading would wait") from error
    finally:
        os.close(fd)
    text = data.decode("utf-8", errors="replace")
    hidden = _SECRET_LINES.get(path)
    kept = _KEPT_LINES.get(path)
    if kept:
        text = "".join(line for line in text.splitlines(keepends=True) if kept in line)
    if path == _CLIENTS:
        text = "".join(map(_nameless, text.splitlines()))
    if hidden:
        text = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(hidden))
    return text


def _nameless(line: str) -> str:
    """Return a line of NvMap's client list with the size but without the process; '' if its form is unknown."""
    if found := _CLIENT.fullmatch(line):
        return f"{found[1]} - 0 {found[2]}\n"
    return f"{line}\n" if _NO_CLIENT.fullmatch(line) else ""
