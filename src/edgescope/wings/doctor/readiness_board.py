"""Checks whether a board is ready for a measurement: heat, throttling, modes, cores, fan, supply.

Every threshold is our own judgement and is named here; only the 5 % of a 5 V supply comes from a specification (USB 2.0
and the boards' own 4.75 V). Findings come from the kernel's present values; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgescope.devices.about import power_mode
from edgescope.devices.base import Mode
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import KernelFile, cpu_list, fact, is_absent
from edgescope.devices.throttle import HELD, Trip, is_fixed, pair
from edgescope.wings.doctor.finding import Finding

NEAR_TRIP_C = 5.0
WARM_C = 60.0
"""A fan that stands still above this temperature is a finding."""
FIVE_VOLTS = (3.5, 4.75)
"""A voltage between these two is that of a 5 V supply that sags."""
_INPUTS = ("vdd_in", "pom_5v_in", "vin", "vin_sys_5v0")


def findings(
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
