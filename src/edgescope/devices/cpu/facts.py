"""The facts of a Linux machine: stable ones, hashed into the machine's id, and its current state.

Stable facts survive a reboot, an update and a new name: processor, memory, board,
operating system release. The kernel, the host name, limits of a container, clocks and load are state: a
container's host name changes with every run, and a security update must not split a machine's history.

The processor's facts are its name, the instruction sets that matter to inference, its cores and the hypervisor.
"""

from __future__ import annotations

import os
import platform
import re
from collections import Counter
from pathlib import Path
from typing import Any

from edgescope.devices.cpu import limits
from edgescope.devices.cpu.sensors import policies, temperature_files
from edgescope.devices.kernel_files import Fact, absent, cpu_list, fact, finite, is_absent

_CPU = "sys/devices/system/cpu"


def stable(root: Path) -> dict[str, Any]:
    """Return the facts that name this machine."""
    cores = topology(root)
    return {
        "cpu": name(root),
        "architecture": platform.machine(),
        "isa": isa(root),
        "logical_cores": cores["logical"],
        "physical_cores": cores["physical"],
        "numa_nodes": fact(root / "sys/devices/system/node/online", lambda t: len(cpu_list(t))),
        # MemTotal moves by some MiB with the kernel version; the module's size does not.
        "memory_gib": fact(root / "proc/meminfo", lambda t: round(_meminfo(t, "MemTotal") / 2**30)),
        "board": _board(root),
        "virtualised": virtualised(root),
        "os": _os_release(root),
    }


def state(root: Path) -> dict[str, Any]:
    """Return the current facts; every unreadable one is {"absent": reason}."""
    meminfo = root / "proc/meminfo"
    return {
        "hostname": fact(root / "proc/sys/kernel/hostname"),
        "kernel": fact(root / "proc/sys/kernel/osrelease"),
        "libc": _libc(),
        "container": _container(root),
        "online_cpus": fact(root / _CPU / "online", cpu_list),
        "affinity": sorted(os.sched_getaffinity(0)),
        "smt": fact(root / _CPU / "smt/active", lambda t: bool(int(t))),
        "memory_total_bytes": fact(meminfo, lambda t: _meminfo(t, "MemTotal")),
        "memory_available_bytes": fact(meminfo, lambda t: _meminfo(t, "MemAvailable")),
        "swap_total_bytes": fact(meminfo, lambda t: _meminfo(t, "SwapTotal")),
        "swap_used_bytes": fact(meminfo, lambda t: _meminfo(t, "SwapTotal") - _meminfo(t, "SwapFree")),
        "cgroup_cpu_limit": limits.cpu_limit(root),
        "cgroup_memory_limit_bytes": limits.memory_limit(root),
        "clocks": _clocks(root),
        "temperatures_c": _temperatures(root),
        "load_average": fact(root / "proc/loadavg", lambda t: [finite(x) for x in t.split()[:3]]),
        "psi_avg10": {
            what: fact(root / "proc/pressure" / what, lambda t: finite(t.split("avg10=")[1].split()[0]) / 100)
            for what in ("cpu", "memory", "io")
        },
        "boot_time_s": fact(root / "proc/stat", lambda t: int(_after(t, "btime"))),
        "uptime_s": fact(root / "proc/uptime", lambda t: finite(t.split()[0])),
        "power_supply": _power_supply(root),
    }


def _meminfo(text: str, key: str) -> int:
    return int(_after(text, f"{key}:")) * 1024


def _after(text: str, key: str) -> str:
    found = re.search(rf"^{re.escape(key)}\s+(\S+)", text, re.MULTILINE)
    if not found:
        raise KeyError(f"no {key}")
    return found[1]


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    except (ValueError, OSError):  # musl has no such name
        return " ".join(platform.libc_ver()).strip() or "not glibc"


def _os_release(root: Path) -> Fact:
    def pretty(text: str) -> str:
        found = re.search(r'^PRETTY_NAME="?([^"\n]*)', text, re.MULTILINE)
        if not found:
            raise KeyError("no PRETTY_NAME")
        return found[1]

    value = fact(root / "etc/os-release", pretty)
    return fact(root / "usr/lib/os-release", pretty) if is_absent(value) else value


def _board(root: Path) -> Fact:
    """Name the board; two identical Jetsons differ by the device tree's serial number."""
    tree = root / "proc/device-tree"
    model = fact(tree / "model", lambda t: t.strip("\0 \n"))
    if not is_absent(model):
        serial = fact(tree / "serial-number", lambda t: t.strip("\0 \n"))
        return model if is_absent(serial) else f"{model} #{serial[-4:]}"
    dmi = root / "sys/class/dmi/id"
    parts = [fact(dmi / name) for name in ("sys_vendor", "product_name")]
    known = [p for p in parts if not is_absent(p) and p]
    return " ".join(known) or absent(f"neither {tree / 'model'} nor {dmi}")


def _container(root: Path) -> str:
    if (root / ".dockerenv").exists():
        return "docker"
    return "podman" if (root / "run/.containerenv").exists() else "none seen"


def _clocks(root: Path) -> Fact:
    """Return governor, driver and clocks of each cpufreq policy."""
    found = policies(root)
    if not found:
        return absent("no cpufreq: a virtual machine, or no frequency driver is loaded")
    names = {"cur_hz": "scaling_cur_freq", "min_hz": "scaling_min_freq", "max_hz": "scaling_max_freq"}
    names["hardware_max_hz"] = "cpuinfo_max_freq"
    out: dict[str, Any] = {}
    for policy in found:
        clocks = {key: fact(policy / name, lambda t: int(t) * 1000) for key, name in names.items()}
        out[policy.name] = {
            "governor": fact(policy / "scaling_governor"),
            "driver": fact(policy / "scaling_driver"),
            "cpus": fact(policy / "related_cpus", lambda t: [int(x) for x in t.split()]),
            **clocks,
        }
    return out


def _temperatures(root: Path) -> Fact:
    files = temperature_files(root)
    if not files:
        return absent("no thermal zone and no CPU hwmon sensor")

    def celsius(text: str) -> float:
        value = finite(text) / 1000
        if value < -200:
            raise ValueError("the sensor is powered off")
        return value

    return {name.removeprefix("temperature_").removesuffix("_c"): fact(path, celsius) for name, path in files}


def _power_supply(root: Path) -> Fact:
    supplies = sorted((root / "sys/class/power_supply").glob("*"))
    if not supplies:
        return absent("no power supply is listed: mains, or not visible")
    out: dict[str, Any] = {}
    for supply in supplies:
        keys = ("type", "status", "online", "capacity")
        values = {key: fact(supply / key) for key in keys}
        out[supply.name] = {key: value for key, value in values.items() if not is_absent(value)}
    return out


_ISA = """
    sse4_2 avx avx2 fma f16c avx_vnni avx_vnni_int8 avx512f avx512bw avx512vl avx512_vnni
    avx512_bf16 avx512_fp16 amx_tile amx_int8 amx_bf16 amx_fp16 asimd asimdhp asimddp fphp bf16 i8mm
    sve sve2 svebf16 svei8mm sme neon vfpv4
""".split()  # noqa: SIM905
"""CPU flags by which an inference engine chooses its kernels, x86 then Arm, in a fixed order."""

_ARM_PARTS = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD04): "Cortex-A35",
    (0x41, 0xD05): "Cortex-A55",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD09): "Cortex-A73",
    (0x41, 0xD0A): "Cortex-A75",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD0D): "Cortex-A77",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD41): "Cortex-A78",
    (0x41, 0xD42): "Cortex-A78AE",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x41, 0xD83): "Neoverse-V3AE",
    (0x4E, 0x003): "NVIDIA Denver 2",
    (0x4E, 0x004): "NVIDIA Carmel",
}
"""(implementer, part) of MIDR_EL1 as in Linux arch/arm64/include/asm/cputype.h; Arm prints no model name."""


def name(root: Path) -> Fact:
    """Return the processor's name; if cores differ, each kind with its count."""
    return fact(root / "proc/cpuinfo", _name)


def _name(text: str) -> str:
    found = re.search(r"^(?:model name|cpu model|uarch)\s*:\s*(.+)$", text, re.MULTILINE)
    if found:
        return " ".join(found[1].split())
    makers = re.findall(r"^CPU implementer\s*:\s*(\S+)", text, re.MULTILINE)
    parts = re.findall(r"^CPU part\s*:\s*(\S+)", text, re.MULTILINE)
    if not parts:
        raise KeyError("neither a model name nor a CPU part")
    kinds = Counter(
        _ARM_PARTS.get((int(m, 16), int(p, 16)), f"implementer {m} part {p}")
        for m, p in zip(makers, parts, strict=True)
    )
    return (
        kinds.most_common()[0][0]
        if len(kinds) == 1
        else " + ".join(f"{n} x {k}" for k, n in kinds.most_common())
    )


def isa(root: Path) -> Fact:
    """Return the instruction sets that matter, in a fixed order."""

    def flags(text: str) -> list[str]:
        found = re.search(r"^(?:flags|Features|isa)\s*:\s*(.*)$", text, re.MULTILINE)
        if not found:
            raise KeyError("no flags line")
        have = set(found[1].split())
        return [f for f in _ISA if f in have]

    return fact(root / "proc/cpuinfo", flags)


def topology(root: Path) -> dict[str, Any]:
    """Return {"logical", "physical"}: cores that are present, offline ones included if the kernel lists them."""
    folders = [p for p in (root / "sys/devices/system/cpu").glob("cpu[0-9]*") if p.name[3:].isdigit()]
    if not folders:
        return {"logical": os.cpu_count(), "physical": absent("no core topology in sysfs")}
    cores = set()
    for folder in folders:
        package = fact(folder / "topology/physical_package_id")
        core = fact(folder / "topology/core_id")
        if is_absent(package) or is_absent(core):  # an offline core has no topology
            return {"logical": len(folders), "physical": absent(f"no topology of {folder.name}")}
        cluster = fact(folder / "topology/cluster_id")
        cores.add((package, str(cluster), core))
    return {"logical": len(folders), "physical": len(cores)}


def virtualised(root: Path) -> Any:
    """Return the hypervisor's kind, `yes` if it hides its name, or `no`."""
    kind = fact(root / "sys/hypervisor/type")
    if not is_absent(kind):
        return kind
    cpuinfo = fact(
        root / "proc/cpuinfo", lambda t: bool(re.search(r"^flags\s*:.*\bhypervisor\b", t, re.MULTILINE))
    )
    if cpuinfo is True or (root / "proc/device-tree/hypervisor").exists():
        product = fact(root / "sys/class/dmi/id/sys_vendor")
        return "yes" if is_absent(product) else f"yes ({product})"
    return "no" if cpuinfo is False else cpuinfo
