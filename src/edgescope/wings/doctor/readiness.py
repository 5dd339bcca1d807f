"""Checks whether this machine is ready for a measurement; each finding has a code, a diagnosis and a fix.

It covers the load and the clocks of any Linux machine, a board's heat, modes, cores, fan and supply, and other running
programs. Nothing is changed. Every threshold is our own judgement; only the 5 % of a 5 V supply comes from a
specification (USB 2.0 and the boards' own 4.75 V).
"""

from __future__ import annotations

import glob
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope import cores
from edgescope.analysis.run.slowdowns import APART_FROM_S, apart
from edgescope.devices.base import Mode
from edgescope.devices.clocks import HELD, Trip, is_fixed, pair
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import KernelFile, cpu_list, fact, is_absent
from edgescope.devices.manifest import power_mode
from edgescope.records import Machine


@dataclass(frozen=True)
class Finding:
    """One diagnosis: code, what is wrong, the command that helps ('' if none does), and the evidence."""

    code: str
    text: str
    fix: str = ""
    evidence: str = ""


OURS = "edgescope"
_WATCHERS = ("tegrastats", "jtop", "nvidia-smi", "dcgm", "nsys", "ncu")
"""Programs that poll the same sensors or measure at the same time."""
_DESKTOPS = (
    *("Xorg", "Xwayland", "gnome-shell", "kwin_x11", "kwin_wayland", "plasmashell", "weston", "lxsession"),
    *("lxqt-session", "xfce4-session", "sway", "compiz", "mutter"),
)
BUSY_SHARE = 0.10
STEAL_SHARE = 0.02
FREE_SHARE = 0.15
SWAP_SHARE = 0.80
NEAR_TRIP_C = 5.0
WARM_C = 60.0
"""A fan that stands still above this temperature is a finding."""
FIVE_VOLTS = (3.5, 4.75)
"""A voltage between these two is that of a 5 V supply that sags."""
_INPUTS = ("vdd_in", "pom_5v_in", "vin", "vin_sys_5v0")


def disturbances(
    values: Mapping[str, float], cpu: Mapping[str, Any], root: Path = Path("/")
) -> tuple[Finding, ...]:
    """Return a finding for whatever would disturb a measurement now, from metric values and the CPU's facts."""
    return (*_load(values, cpu), *_memory(values, cpu), *_settings(cpu), *onlookers(root))


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
    evidence = f"those of one socket are less than {1e9 * APART_FROM_S:.0f} ns apart"
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


# -- a board: heat, throttling, modes, cores, fan, supply ----------------------------------------------------


def board(
    values: Mapping[str, float],
    trips: Mapping[str, Trip],
    modes: Mapping[str, Mode],
    state: Mapping[str, Any],
    root: Path = Path("/"),
) -> tuple[Finding, ...]:
    """Return a finding for whatever would disturb a measurement; `trips` is by channel, `state` as in Machine."""
    return (
        *_heat(values, trips),
        *_throttled(values, root),
        *_mode(modes, state),
        *_conf(state),
        *_cores(root),
        *_fan(values),
        *_supply(values),
    )


def _heat(values: Mapping[str, float], trips: Mapping[str, Trip]) -> list[Finding]:
    near = {n: trips[n].celsius - values[n] for n in trips if n in values and not is_fixed(n, values[n])}
    out = []
    for name, left in sorted(near.items(), key=lambda item: item[1]):
        if left < NEAR_TRIP_C:
            zone, trip = name.removeprefix("temperature_").removesuffix("_c"), trips[name]
            where = "at or above" if left <= 0 else f"{left:.1f} C below"
            text = f"{zone} is {where} its {trip.kind} trip: clocks are cut there"
            evidence = f"{values[name]:.1f} C, trip {trip.celsius:.1f} C"
            out.append(Finding("W-THR-3", text, "let it cool, or cool it better", evidence))
    return out


def _throttled(values: Mapping[str, float], root: Path) -> list[Finding]:
    out = []
    held = [n.removeprefix("throttled_") for n, v in values.items() if n.startswith("throttled_") and v > 0]
    held = [
        name for name in held if not name.startswith("cpu_policy")
    ]  # W-CLK-1 reports them with the clocks
    if held:
        out.append(Finding("W-THR-4", "clocks are held down now", "", ", ".join(held)))
    counts = {n.removesuffix("_events"): v for n, v in values.items() if n.endswith("_events") and v > 0}
    events = ", ".join(f"{name} {value:.0f}" for name, value in counts.items())
    slow = _slow_clocks(root)
    if slow:
        text = f"the CPU runs below the requested clock: {slow}"
        fix = "a stronger supply, then a power cycle: the over-current latch outlives a reboot request"
        out.append(Finding("W-CLK-1", text, fix if counts else "", events and f"events since boot: {events}"))
    elif counts:
        text = "over-current events since boot: a heavy load may trip them again"
        out.append(Finding("W-OC-1", text, "a stronger supply, or a lower power mode", events))
    return out


def _slow_clocks(root: Path) -> str:
    """Return the CPU clock policies that run well below the requested clock, as text."""
    out = []
    for policy in policies(root):
        both = pair(KernelFile(policy / "scaling_cur_freq"), KernelFile(policy / "cpuinfo_cur_freq"))
        if isinstance(both, tuple) and both[1] < HELD * both[0]:
            requested, runs = (clock / 1e6 for clock in both)
            out.append(f"{policy.name} asked for {requested:.0f} MHz, runs at {runs:.0f} MHz")
    return "; ".join(out)


def _mode(modes: Mapping[str, Mode], state: Mapping[str, Any]) -> list[Finding]:
    """Return a finding if the board's noted power mode is not in effect; a choice may wait for a reboot."""
    name, ident = power_mode(state)
    mode = modes.get(name) or modes.get(f"{name}({ident})")  # users may give two modes the same name
    problem = mode.problem() if mode else ""
    if not problem:
        return []
    text = f"the board's power mode is noted as {name}, and it is not in effect"
    return [Finding("E-MODE-2", text, f"reboot, or set it again: sudo nvpmodel -m {ident}", problem)]


def _conf(state: Mapping[str, Any]) -> list[Finding]:
    """Return a finding for lines of nvpmodel.conf that were not understood: a mode is missing or incomplete."""
    jetson = state.get("jetson", {})
    lines = jetson.get("nvpmodel_problems", []) if isinstance(jetson, Mapping) else []
    if not lines:
        return []
    text = "not all of /etc/nvpmodel.conf is understood; power modes are listed without the rest"
    return [Finding("W-NVP-1", text, "edgescope modes", "; ".join(lines[:3]))]


def _cores(root: Path) -> list[Finding]:
    folder = root / "sys/devices/system/cpu"
    present, online = (fact(folder / name, cpu_list) for name in ("present", "online"))
    if is_absent(present) or is_absent(online):
        return []
    off = sorted(set(present) - set(online))
    if not off:
        return []
    text = f"{len(off)} of {len(present)} cores are offline; results will not compare with a whole board's"
    fix = f"a power mode with all cores, or: echo 1 | sudo tee /sys/devices/system/cpu/cpu{off[0]}/online"
    return [Finding("W-CPU-6", text, fix, f"offline: {', '.join(map(str, off))}")]


def _fan(values: Mapping[str, float]) -> list[Finding]:
    zones = {n: v for n, v in values.items() if n.startswith("temperature_")}
    hottest = max((v for n, v in zones.items() if not is_fixed(n, v)), default=0.0)
    out = []
    for name, share in values.items():
        if not (name.startswith("fan") and name.endswith("_share")):
            continue
        fan = name.removesuffix("_share")
        rpm = values.get(f"{fan}_rpm")
        if rpm == 0 and share > 0.2:
            text, fix = (
                f"{fan} is told to turn at {share:.0%} and stands still",
                "check its plug and its blades",
            )
            out.append(Finding("W-FAN-1", text, fix, f"{rpm:.0f} rpm"))
        elif share == 0 and hottest >= WARM_C:
            text, fix = f"{fan} is off at {hottest:.0f} C", "sudo jetson_clocks --fan"
            out.append(Finding("W-FAN-1", text, fix, f"{name} = 0"))
    return out


def _supply(values: Mapping[str, float]) -> list[Finding]:
    out = []
    for rail in _INPUTS:
        volts = values.get(f"{rail}_voltage_v")
        if volts is not None and FIVE_VOLTS[0] < volts < FIVE_VOLTS[1]:
            text = f"the supply sags: {rail} is at {volts:.2f} V before any load, 5 V less 5 % is 4.75 V"
            fix = "a stronger supply or a shorter, thicker cable"
            out.append(Finding("W-VOLT-1", text, fix, f"{rail}_voltage_v = {volts:.2f}"))
    return out


@dataclass(frozen=True)
class Process:
    """One process: its id, its parent's id, its owner and its command line."""

    pid: int
    parent: int
    uid: int
    words: Sequence[str]

    @property
    def program(self) -> int:
        """Return the index of the argument that names the program: x in `python -m x` and `python x.py`."""
        if not os.path.basename(self.words[0]).startswith("python"):
            return 0
        if "-m" in self.words[:-1]:
            return self.words.index("-m") + 1
        given = (n for n, word in enumerate(self.words) if n and not word.startswith("-"))
        return next(given, 0)

    @property
    def name(self) -> str:
        """Return the program's name without its folder."""
        return os.path.basename(self.words[self.program])

    @property
    def shown(self) -> str:
        """Return the program's name with its verb; further arguments may be secret."""
        verb = next((w for w in self.words[self.program + 1 :] if w and not w.startswith("-")), "")
        return f"{OURS} {verb}" if verb.isalpha() else OURS


# -- other programs -------------------------------------------------------------------------------------------


def onlookers(root: Path) -> list[Finding]:
    """Return a finding for each program that disturbs, from the processes below `root`/proc."""
    others = _others(root)
    return [*_runs(others), *_watchers(others), *_desktop(others)]


def _runs(others: Mapping[int, Process]) -> list[Finding]:
    """Return a finding for each other run of edgescope; a run's child processes are part of it."""
    ours = {pid for pid, p in others.items() if p.name.partition(".")[0] == OURS}
    out = []
    for pid in sorted(ours):
        above = others[pid].parent
        while above in others and above not in ours:
            above = others[above].parent
        if above not in ours:
            text = f"another {OURS} runs (process {pid}, {others[pid].shown}): two at once disturb each other"
            out.append(Finding("W-PROC-2", text, f"wait for it to end: tail --pid={pid} -f /dev/null"))
    return out


def _watchers(others: Mapping[int, Process]) -> list[Finding]:
    found: dict[tuple[str, int], list[int]] = {}
    for pid, process in sorted(others.items()):
        watcher = next((w for w in _WATCHERS if process.name.startswith(w)), "")
        if watcher:
            found.setdefault((watcher, process.uid), []).append(pid)
    out = []
    for (program, uid), pids in found.items():
        which = f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"
        text = f"{program} is running ({which}) and may measure or poll sensors at the same time"
        out.append(Finding("W-PROC-1", text, _stop(program, uid, pids)))
    return out


def _stop(program: str, uid: int, pids: Sequence[int]) -> str:
    if program == "jtop":
        return "sudo systemctl stop jtop"
    if uid == os.getuid():
        return f"kill {' '.join(map(str, pids))}"
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = f"user {uid}"
    return f"wait for it, or ask {owner}, to whom it belongs"


def _desktop(others: Mapping[int, Process]) -> list[Finding]:
    desktop: dict[str, int] = {}
    for pid, process in sorted(others.items()):
        name = os.path.basename(process.words[0])
        if name in _DESKTOPS:
            desktop.setdefault(name, pid)
    if not desktop:
        return []
    text = "a desktop session is running: it draws on the GPU and wakes the CPU"
    seen = ", ".join(f"{name} (process {pid})" for name, pid in desktop.items())
    fix = "sudo systemctl isolate multi-user.target   (back: graphical.target)"
    return [Finding("W-GUI-1", text, fix, seen)]


def _others(root: Path) -> dict[int, Process]:
    """Return every process but this one, its ancestors and its descendants."""
    found: dict[int, Process] = {}
    for entry in glob.glob(str(root / "proc/[0-9]*")):
        try:
            stat = Path(entry, "stat").read_bytes()
            words = Path(entry, "cmdline").read_bytes().decode(errors="replace").split("\0")
            uid = os.stat(entry).st_uid
        except OSError:
            continue
        pid = int(os.path.basename(entry))
        found[pid] = Process(pid, int(stat[stat.rindex(b")") + 2 :].split()[1]), uid, words)
    mine, pid = {os.getpid()}, os.getpid()
    while pid in found and pid > 1:
        pid = found[pid].parent
        mine.add(pid)
    return {pid: p for pid, p in found.items() if pid not in mine and p.parent != os.getpid()}
