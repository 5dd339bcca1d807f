"""Checks whether this machine is ready for a measurement; each finding has a code, a diagnosis and a fix.

This file covers any Linux machine: load and the settings that make clocks move. Other running programs are in
onlookers.py, a board's heat, modes, offline cores, fan and supply in readiness_board.py; metrics that cannot be
measured, and what would unlock them, are in unlock.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgescope import cores
from edgescope.analysis.run.apart import LIMIT_S, apart
from edgescope.devices.kernel_files import is_absent
from edgescope.records import Machine
from edgescope.wings.doctor import onlookers
from edgescope.wings.doctor.finding import Finding

BUSY_SHARE = 0.10
STEAL_SHARE = 0.02
FREE_SHARE = 0.15
SWAP_SHARE = 0.80


def disturbances(
    values: Mapping[str, float], cpu: Mapping[str, Any], root: Path = Path("/")
) -> tuple[Finding, ...]:
    """Return a finding for whatever would disturb a measurement now, from metric values and the CPU's facts."""
    return (*_load(values, cpu), *_memory(values, cpu), *_settings(cpu), *onlookers.findings(root))


def _load(values: Mapping[str, float], cpu: Mapping[str, Any]) -> list[Finding]:
    out = []
    mine = cores.judged(values)
    busy, steal = values.get(f"{mine}_others", 0.0), values.get(f"{mine}_steal", 0.0)
    if busy > BUSY_SHARE:
        text = f"other processes use {busy:.0%} of {cores.WORDS[mine]}"
        out.append(Finding("W-CPU-1", text, "find them with: top -b -n1 | head -15"))
    if steal > STEAL_SHARE:
        text = f"the hypervisor takes {steal:.1%} of the time of {cores.WORDS[mine]}"
        out.append(Finding("W-CPU-2", text, "use a host of your own"))
    online = cpu.get("online_cpus")
    load = values.get("load1", 0.0)
    if isinstance(online, list) and load > len(online):
        text = f"the load average is {load:.1f} on {len(online)} cores"
        out.append(Finding("W-CPU-3", text, "wait for it to fall: uptime"))
    for name, value in values.items():
        if name.startswith("gpu") and name.endswith("_busy") and value > BUSY_SHARE:
            users = "nvidia-smi" if name != "gpu_busy" else "sudo fuser -v /dev/nvhost-gpu /dev/nvmap"
            text = f"the GPU is {value:.0%} busy before anything is measured"
            out.append(Finding("W-GPU-1", text, f"find the users with: {users}", f"{name} = {value:.0%}"))
    return out


def distance(machine: Machine, core_to_core_s: float | None) -> list[Finding]:
    """Return a finding if a hypervisor has the machine's CPUs apart now."""
    if core_to_core_s is None or not apart(machine, core_to_core_s):
        return []
    text = f"the hypervisor has the CPUs {1e9 * core_to_core_s:.0f} ns apart, so threads wait longer for each other"
    evidence = f"those of one socket are less than {1e9 * LIMIT_S:.0f} ns apart"
    return [
        Finding(
            "W-CPU-7", text, "measure later, when it may have moved them, or on a host of your own", evidence
        )
    ]


def _memory(values: Mapping[str, float], cpu: Mapping[str, Any]) -> list[Finding]:
    out = []
    total, free = cpu.get("memory_total_bytes"), values.get("mem_available_bytes")
    if isinstance(total, int) and free is not None and free < FREE_SHARE * total:
        text = f"only {free / 1e9:.1f} of {total / 1e9:.1f} GB memory is available"
        out.append(Finding("W-MEM-1", text, "find the users with: ps aux --sort=-rss | head"))
    swap, used = cpu.get("swap_total_bytes"), cpu.get("swap_used_bytes")
    if isinstance(swap, int) and isinstance(used, int) and swap > 0 and used >= SWAP_SHARE * swap:
        text = f"swap is {used / swap:.0%} full: what is paged in and out is timed as work"
        evidence = f"{used / 1e9:.2f} of {swap / 1e9:.2f} GB"
        out.append(Finding("W-MEM-2", text, "close what holds it, then: sudo swapoff -a", evidence))
    return out


def _settings(cpu: Mapping[str, Any]) -> list[Finding]:
    out = []
    clocks = cpu.get("clocks", {})
    if isinstance(clocks, dict) and not is_absent(clocks):
        others = sorted({str(p["governor"]) for p in clocks.values() if isinstance(p.get("governor"), str)})
        others = [name for name in others if name != "performance"]
        if others:
            text = f"the CPU frequency governor is {', '.join(others)}, so clocks follow the load"
            fix = "echo performance | sudo tee /sys/devices/system/cpu/cpufreq/policy*/scaling_governor"
            out.append(Finding("W-CLK-3", text, fix))
    online, affinity = cpu.get("online_cpus"), cpu.get("affinity")
    if isinstance(online, list) and isinstance(affinity, list) and len(affinity) < len(online):
        text = f"this process may use {len(affinity)} of {len(online)} online cores"
        out.append(Finding("W-CPU-4", text, f"taskset -c 0-{len(online) - 1} edgescope ..."))
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
