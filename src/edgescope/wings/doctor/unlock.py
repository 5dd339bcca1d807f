"""Finds the metrics that cannot be measured here, and the one command that would unlock each group.

Findings group metrics by their obstacle: a container without flags hides thirty metrics, and thirty messages would
hide the one command.

A container has its own /etc, /dev and process list, and Docker masks some kernel files: /sys/firmware, which holds the
device tree, and, since the PLATYPUS attack (CVE-2020-8694), /sys/devices/virtual/powercap. `--security-opt
systempaths=unconfined` lifts the masks (docker run reference). On a Jetson the GPU's device nodes come through
NVIDIA's runtime, not through --gpus.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgescope.devices.kernel_files import fact, is_absent
from edgescope.wings.doctor.readiness import Finding

if TYPE_CHECKING:
    from edgescope.wings.doctor.report import Metric


_FILE = re.compile(r"no permission to read (\S+?)(?=[;,)]|$|\s)")
_PRESSURE = (4, 20)
"""The first Linux version with /proc/pressure."""
_ALL_DENIED = 3
"""From this many metrics on, an NVML that supports none of them is reported once."""


def missing(metrics: Sequence[Metric], root: Path = Path("/")) -> tuple[Finding, ...]:
    """Return findings for the metrics that are not measured, each with what would unlock it."""
    lost = [m for m in metrics if m.status != "measured"]
    box = _container(root)
    silent = _silent_nvml(metrics)
    rest = [m for m in lost if not (silent and m.device == "nvidia")]
    return (
        *box,
        *silent,
        *_power(metrics, rest, root, boxed=box),
        *_forbidden(rest),
        *_clocks(rest),
        *_heat(metrics, rest, root),
        *_pressure(rest, root),
    )


def _container(root: Path) -> tuple[Finding, ...]:
    box = kind(root)
    lacking = flags(root) if box else ()
    if not lacking:
        return ()
    text = (
        f"this is a {'' if box == 'container' else box + ' '}container, and what measuring needs is outside"
    )
    hidden = ", ".join(dict.fromkeys(f.brings for f in lacking))
    return (Finding("W-BOX-1", text, command(lacking), hidden),)


def _silent_nvml(metrics: Sequence[Metric]) -> tuple[Finding, ...]:
    nvml = [m for m in metrics if m.device == "nvidia"]
    if len(nvml) < _ALL_DENIED or not all("NotSupported" in m.reason for m in nvml):
        return ()
    text = f"NVML starts, lists a GPU and answers NotSupported to all {len(nvml)} metrics"
    return (Finding("I-NVML-1", f"{text}, as on every Orin: sysfs is read instead"),)


def _power(
    metrics: Sequence[Metric], lost: Sequence[Metric], root: Path, *, boxed: Sequence[Finding]
) -> list[Finding]:
    reasons = {m.name: m.reason for m in lost if m.unit in ("W", "J")}
    have = any(m.status == "measured" for m in metrics if m.unit in ("W", "J"))
    rapl = reasons.get("cpu_package_energy_j", "")
    unlock = _readable(glob.glob(str(root / "sys/class/powercap/intel-rapl:*/energy_uj")), rapl)
    if not have and reasons:
        fix = unlock or (boxed[0].fix if boxed else "") or _rails_driver(root)
        why = "; ".join(dict.fromkeys(reasons.values()))
        return [Finding("E-PWR-1", "nothing here measures power: every energy will be absent", fix, why)]
    out = []
    if unlock:
        out.append(Finding("E-PWR-2", "CPU energy cannot be read", unlock, rapl))
    gpu = [reason for name, reason in reasons.items() if name.startswith("gpu")]
    if gpu and not any(
        m.name.startswith("gpu") and m.status == "measured" for m in metrics if m.unit in ("W", "J")
    ):
        out.append(Finding("E-PWR-3", "GPU power is not measured", "", gpu[0]))
    return out


def _readable(files: Iterable[str], reason: str) -> str:
    return f"sudo chmod a+r {' '.join(sorted(files))}" if "no permission" in reason else ""


def _rails_driver(root: Path) -> str:
    return "sudo modprobe ina3221" if is_tegra(root) else ""


def _forbidden(lost: Sequence[Metric]) -> list[Finding]:
    """Return findings for files that only root may read, except RAPL, which has its own finding."""
    files = {m.name: found[1] for m in lost if (found := _FILE.search(m.reason))}
    debug = [n for n, f in files.items() if "/sys/kernel/debug" in f]
    plain = {n: f for n, f in files.items() if n not in debug and n != "cpu_package_energy_j"}
    out = []
    if debug:
        text = f"{_count(debug, 'metric')} in debugfs, which is for root"
        fix = "sudo chmod a+rx /sys/kernel/debug   (until the next boot), or run as root"
        out.append(Finding("W-PERM-1", text, fix, ", ".join(debug)))
    if plain:
        text = f"{_count(plain, 'metric')} readable by root only"
        fix = f"sudo chmod a+r {' '.join(_folded(set(plain.values())))}"
        out.append(Finding("W-PERM-2", text, fix, ", ".join(plain)))
    return out


def _folded(files: Collection[str]) -> list[str]:
    """Return the files, with one shell pattern for files that differ only in their numbers."""
    alike: dict[str, list[str]] = {}
    for file in sorted(files):
        alike.setdefault(re.sub(r"\d+", "*", file), []).append(file)
    return [pattern if len(found) > 1 else found[0] for pattern, found in alike.items()]


def _count(names: Iterable[str], word: str) -> str:
    n = len(list(names))
    return f"{n} {word} is" if n == 1 else f"{n} {word}s are"


def _clocks(lost: Sequence[Metric]) -> list[Finding]:
    found = [m for m in lost if m.name == "cpu_freq_hz" and "no permission" not in m.reason]
    text = "CPU clocks cannot be read; the spin probe stands in for them"
    return [Finding("W-CLK-2", text, "", m.reason) for m in found]


def _heat(metrics: Sequence[Metric], lost: Sequence[Metric], root: Path) -> list[Finding]:
    known = [m for m in metrics if m.unit == "degC" and m.status == "measured"]
    gone = [m for m in lost if m.unit == "degC" and "powered off" not in m.reason]
    out = []
    if gone and not known:
        fix = "sudo modprobe -a coretemp k10temp" if os.path.isdir(root / "sys/class/hwmon") else ""
        out.append(Finding("W-TEMP-1", "no temperature can be read", fix, gone[0].reason))
    flags = any(m.name.startswith("throttled_") and m.status == "measured" for m in metrics)
    patterns = (
        "sys/devices/system/cpu/cpu*/thermal_throttle/*_count",
        "sys/class/thermal/cooling_device*/cur_state",
    )
    if not flags and not any(glob.glob(str(root / p)) for p in patterns):
        text = "throttling cannot be seen: no counter, no flag and no cooling device is readable"
        out.append(Finding("W-THR-2", text, "", "a verdict rests on the spin probe alone"))
    return out


def _pressure(lost: Sequence[Metric], root: Path) -> list[Finding]:
    found = [m for m in lost if m.name == "psi_cpu_some"]
    old = _before_pressure(root)
    text = "no pressure information" + (f": {old}, and the kernel has it from 4.20 on" if old else "")
    return [
        Finding("W-PSI-1", text, "" if old else "boot with psi=1 (Linux 4.20 or newer)", m.reason)
        for m in found
    ]


def _before_pressure(root: Path) -> str:
    """Return the kernel if it is too old to report pressure, else ''. All of L4T 32 has Linux 4.9."""
    release = fact(root / "proc/sys/kernel/osrelease")
    match = re.match(r"(\d{1,4})\.(\d{1,4})", release) if isinstance(release, str) else None
    if match:
        return f"this is Linux {match[0]}" if (int(match[1]), int(match[2])) < _PRESSURE else ""
    l4t = fact(root / "etc/nv_tegra_release")
    return "L4T 32 has Linux 4.9" if isinstance(l4t, str) and l4t.startswith("# R32 ") else ""


_CGROUPS = {"docker": "docker", "kubepods": "kubernetes", "libpod": "podman", "lxc": "lxc"}


@dataclass(frozen=True)
class Flag:
    """One argument of `docker run`, and what it makes visible in the container."""

    flag: str
    brings: str


def kind(root: Path = Path("/")) -> str:
    """Return docker, podman, kubernetes, lxc or container; '' if there is no sign of a container."""
    if (root / ".dockerenv").exists():
        return "docker"
    if (root / "run/.containerenv").exists():
        return "podman"
    groups = fact(root / "proc/1/cgroup")
    if not is_absent(groups):
        found = next((name for word, name in _CGROUPS.items() if word in groups), "")
        if found:
            return found
    mounts = fact(root / "proc/1/mountinfo")
    on_overlay = not is_absent(mounts) and any(
        line.split()[4:5] == ["/"] and " - overlay " in line for line in mounts.splitlines()
    )
    return "container" if on_overlay else ""


def is_tegra(root: Path = Path("/")) -> bool:
    """Return whether the chip is a Tegra, even if a container hides the device tree."""
    names = fact(root / "proc/device-tree/compatible"), fact(root / "sys/devices/soc0/family")
    if any(not is_absent(name) and "tegra" in name.lower() for name in names):
        return True
    return (root / "etc/nv_tegra_release").exists() or any(root.glob("sys/class/devfreq/*.g[mpva]*[0-9]b"))


def flags(root: Path = Path("/")) -> tuple[Flag, ...]:
    """Return the flags that `docker run` needs here; inside a container, only those that are missing."""
    inside = bool(kind(root))
    wanted = [*_everywhere(root, inside=inside), *(_tegra(root, inside=inside) if is_tegra(root) else ())]
    wanted += [] if is_tegra(root) else _discrete(root, inside=inside)
    brings: dict[str, list[str]] = {}
    for one in wanted:
        brings.setdefault(one.flag, []).append(one.brings)
    return tuple(Flag(flag, ", ".join(what)) for flag, what in brings.items())


def command(found: tuple[Flag, ...]) -> str:
    """Return the command line that these flags make."""
    return " ".join(["docker run", *(f.flag for f in found), "..."])


def _everywhere(root: Path, *, inside: bool) -> list[Flag]:
    out = []
    if inside and not (root / "sys/devices").is_dir():
        out.append(Flag("-v /sys:/sys:ro", "every sensor: clocks, temperatures, rails"))
    powercap, zones = root / "sys/class/powercap", list(root.glob("sys/class/powercap/intel-rapl:*"))
    if powercap.is_dir() and bool(zones) != inside:
        out.append(_unmasked("CPU energy (powercap)"))
    if not inside or fact(root / "proc/2/comm") != "kthreadd":  # the kernel's own thread on a real machine
        out.append(Flag("--pid=host", "the other processes, so that a busy one can be named"))
    return [*out, *_cameras(root, inside=inside)]


def _cameras(root: Path, *, inside: bool) -> list[Flag]:
    """Return the flags for cameras: a container sees them in /sys, but not their nodes in /dev.

    A camera on USB has a second node, of index 1, for what is known of its frames. One on a Jetson's CSI port, called
    vi-output, is also reached through the socket of NVIDIA's camera daemon.
    """
    out = []
    for folder in sorted(root.glob("sys/class/video4linux/video*")):
        node, socket = f"dev/{folder.name}", "tmp/argus_socket"
        name = fact(folder / "name")
        if fact(folder / "index") == "0" and (root / node).exists() != inside:
            out.append(
                Flag(f"--device /{node}", f"the camera {name}" if isinstance(name, str) else "a camera")
            )
        if isinstance(name, str) and name.startswith("vi-output") and (root / socket).exists() != inside:
            out.append(Flag(f"-v /{socket}:/{socket}", "cameras on the CSI port (nvarguscamerasrc)"))
    return out


def _unmasked(what: str) -> Flag:
    return Flag("--security-opt systempaths=unconfined", what)


def _tegra(root: Path, *, inside: bool) -> list[Flag]:
    out = []

    def need(path: str, flag: Flag) -> None:
        if (root / path).exists() != inside:
            out.append(flag)

    devices = any((root / "dev" / name).exists() for name in ("nvhost-gpu", "nvgpu", "nvmap", "nvidiactl"))
    if not inside or not devices:
        out.append(Flag("--runtime nvidia", "the GPU's device nodes and driver libraries"))
    need("proc/device-tree/model", _unmasked("the board's name (device tree)"))
    for path, brings in (
        ("etc/nv_tegra_release", "the L4T release"),
        ("etc/nvpmodel.conf", "the power modes"),
        ("var/lib/nvpmodel", "the power mode in use"),
    ):
        need(path, Flag(f"-v /{path}:/{path}:ro", brings))
    if not inside or not any(root.glob("sys/kernel/debug/*")):
        out.append(
            Flag(
                "-v /sys/kernel/debug:/sys/kernel/debug:ro", "memory clock, NvMap, for root in the container"
            )
        )
    return out


def _discrete(root: Path, *, inside: bool) -> list[Flag]:
    cards = any(fact(p) == "0x10de" for p in root.glob("sys/bus/pci/devices/*/vendor"))
    if cards and (not inside or not (root / "dev/nvidiactl").exists()):
        return [Flag("--gpus all", "the NVIDIA GPU: power, energy, clocks, load")]
    return []
