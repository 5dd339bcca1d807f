"""Finds what a container hides from a measurement, and the flags that make it visible again.

A container has its own /etc, /dev and process list, and Docker masks some kernel files: /sys/firmware, which holds the
device tree, and, since the PLATYPUS attack (CVE-2020-8694), /sys/devices/virtual/powercap. `--security-opt
systempaths=unconfined` lifts the masks (docker run reference). On a Jetson the GPU's device nodes come through
NVIDIA's runtime, not through --gpus.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgescope.devices.kernel_files import fact, is_absent

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
