"""Is this machine ready for a measurement? Findings diagnose, then prescribe; each carries a code."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope.devices.kernel_files import is_absent

BUSY_SHARE = 0.10
STEAL_SHARE = 0.02
FREE_SHARE = 0.15
_WATCHERS = ("tegrastats", "jtop", "nvidia-smi", "dcgm", "nsys", "ncu", "edgescope")
"""Programs that poll the same sensors or measure at the same time."""


@dataclass(frozen=True)
class Finding:
    """One diagnosis: code, what and its evidence, and the command that helps ('' where none does)."""

    code: str
    text: str
    fix: str = ""


def disturbances(
    values: Mapping[str, float], cpu: Mapping[str, Any], root: Path = Path("/")
) -> tuple[Finding, ...]:
    """Return what would disturb a measurement now, from metric values and the CPU's state facts."""
    return tuple(_load(values, cpu)) + tuple(_settings(cpu)) + tuple(_programs(root))


def _load(values: Mapping[str, float], cpu: Mapping[str, Any]) -> list[Finding]:
    out = []
    busy, steal = values.get("cpu_others", 0.0), values.get("cpu_steal", 0.0)
    if busy > BUSY_SHARE:
        text = f"other processes use {busy:.0%} of all cores"
        out.append(Finding("W-CPU-1", text, "find them with: top -b -n1 | head -15"))
    if steal > STEAL_SHARE:
        out.append(
            Finding("W-CPU-2", f"the hypervisor takes {steal:.1%} of CPU time", "use a host of your own")
        )
    cores = cpu.get("online_cpus")
    load = values.get("load1", 0.0)
    if isinstance(cores, list) and load > len(cores):
        text = f"the load average is {load:.1f} on {len(cores)} cores"
        out.append(Finding("W-CPU-3", text, "wait for it to fall: uptime"))
    total, free = cpu.get("memory_total_bytes"), values.get("mem_available_bytes")
    if isinstance(total, int) and free is not None and free < FREE_SHARE * total:
        text = f"only {free / 2**30:.1f} of {total / 2**30:.1f} GiB memory is available"
        out.append(Finding("W-MEM-1", text, "find the users with: ps aux --sort=-rss | head"))
    return out


def _settings(cpu: Mapping[str, Any]) -> list[Finding]:
    out = []
    clocks = cpu.get("clocks", {})
    if isinstance(clocks, dict) and not is_absent(clocks):
        others = sorted({str(p["governor"]) for p in clocks.values()} - {"performance"})
        if others:
            text = f"the CPU frequency governor is {', '.join(others)}, so clocks follow the load"
            fix = "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
            out.append(Finding("W-CLK-1", text, fix))
    cores, affinity = cpu.get("online_cpus"), cpu.get("affinity")
    if isinstance(cores, list) and isinstance(affinity, list) and len(affinity) < len(cores):
        text = f"this process may use {len(affinity)} of {len(cores)} online cores"
        out.append(Finding("W-CPU-4", text, f"taskset -c 0-{len(cores) - 1} edgescope ..."))
    quota = cpu.get("cgroup_cpu_limit")
    if isinstance(quota, float):
        text = f"a control group limits this process to {quota:g} CPUs; bursts are cut off mid-query"
        out.append(Finding("W-CPU-5", text, "start the container without --cpus; use --cpuset-cpus"))
    supplies = cpu.get("power_supply", {})
    if isinstance(supplies, dict) and any(
        isinstance(s, dict) and s.get("status") == "Discharging" for s in supplies.values()
    ):
        out.append(
            Finding("W-PWR-1", "running on battery: firmware may lower the clocks", "plug in the charger")
        )
    return out


def _programs(root: Path) -> list[Finding]:
    out = []
    for pid, words in _others(root):
        name = next((w for w in _WATCHERS for word in words[:3] if os.path.basename(word).startswith(w)), "")
        if name:
            text = f"{name} is running (process {pid}) and may measure or poll sensors at the same time"
            out.append(Finding("W-PROC-1", text, f"kill {pid}"))
    return out


def _others(root: Path) -> list[tuple[int, list[str]]]:
    """Return (pid, argv) of every process that is not this one, above it or below it."""
    found: dict[int, tuple[int, list[str]]] = {}
    for entry in glob.glob(str(root / "proc/[0-9]*")):
        try:
            stat = Path(entry, "stat").read_bytes()
            words = Path(entry, "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        found[int(os.path.basename(entry))] = (int(stat[stat.rindex(b")") + 2 :].split()[1]), words)
    mine, pid = {os.getpid()}, os.getpid()
    while pid in found and pid > 1:
        pid = found[pid][0]
        mine.add(pid)
    return sorted(
        (p, words) for p, (parent, words) in found.items() if p not in mine and parent != os.getpid()
    )


def missing(
    reasons: Mapping[str, str], names: Collection[str], root: Path = Path("/")
) -> tuple[Finding, ...]:
    """Return what the unread metrics (name -> reason) mean and the one command that would unlock each."""
    out = []
    rapl = reasons.get("cpu_package_energy_j")
    if rapl and "permission" in rapl:
        files = " ".join(sorted(glob.glob(str(root / "sys/class/powercap/intel-rapl:*/energy_uj"))))
        text = f"CPU energy cannot be read: {rapl}"
        out.append(Finding("E-PWR-1", text, f"sudo chmod a+r {files}"))
    elif rapl:
        text = f"CPU energy is not measured: {rapl} (virtual machines and most Arm boards have no RAPL)"
        out.append(Finding("E-PWR-2", text, "on a host that has it: docker run -v /sys:/sys:ro ..."))
    power = {
        n: r for n, r in reasons.items() if n.startswith("gpu") and n.endswith(("_power_w", "_energy_j"))
    }
    if power and not any(n.startswith("gpu") and n not in reasons for n in names if n.endswith("_power_w")):
        reason = next(iter(power.values()))
        fix = "docker run --gpus all ... (in a container); nvidia-smi (on a host)" if "NVML" in reason else ""
        out.append(Finding("E-PWR-3", f"GPU power is not measured: {reason}", fix))
    if "cpu_freq_hz" in reasons:
        text = f"clocks cannot be read: {reasons['cpu_freq_hz']}; the spin probe stands in for them"
        out.append(Finding("W-CLK-2", text))
    if any(n.startswith("temperature") for n in reasons):
        name = next(n for n in reasons if n.startswith("temperature"))
        fix = "sudo modprobe -a coretemp k10temp" if (root / "sys/class/hwmon").is_dir() else ""
        out.append(Finding("W-THR-1", f"{name} cannot be read: {reasons[name]}", fix))
    if "psi_cpu_some" in reasons:
        out.append(
            Finding("W-PSI-1", f"no pressure information: {reasons['psi_cpu_some']}", "boot with psi=1")
        )
    return tuple(out)
