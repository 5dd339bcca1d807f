"""The heading of a view: which machine this is, and the totals that its values are shares of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgescope.devices.kernel_files import is_absent
from edgescope.registry import REPLAYED

Facts = tuple[Mapping[str, Any], Mapping[str, Any]]
"""(stable, state) of one device, as Device.machine() returns them."""


def title(machines: Mapping[str, Facts]) -> str:
    """Return one line: board or processor, release, power mode, GPUs; it marks a recording as such."""
    cpu = machines.get("cpu", ({}, {}))[0]
    jetson, now = machines.get("jetson", ({}, {}))
    played = machines.get(REPLAYED, ({}, {}))[1]
    board = _text(jetson, "product") or _text(cpu, "board") or _text(cpu, "cpu") or "this machine"
    parts = [board]
    if _text(cpu, "cpu") and not jetson and _text(cpu, "cpu") not in parts:
        parts.append(_text(cpu, "cpu"))
    parts += [f"L4T {word}" for word in [_text(now, "l4t")] if word]
    parts += [f"mode {word}" for word in power_mode({"jetson": now})[:1] if word]
    gpus = machines.get("nvidia", ({}, {}))[0].get("gpus", [])
    names = [g["name"] for g in gpus if isinstance(g.get("name"), str)]
    parts += [f"{len(names)} x {names[0]}" if len(names) > 1 else names[0]] if names else []
    if played:
        parts.append(f"RECORDING, {_text(played, 'made')}")
    return " | ".join(parts)


def folded(line: str, width: int) -> list[str]:
    """Return a title as lines of at most `width` columns, unless one of its parts is longer."""
    lines: list[str] = []
    for part in line.split(" | "):
        if lines and len(lines[-1]) + 3 + len(part) <= width:
            lines[-1] += f" | {part}"
        else:
            lines.append(part)
    return lines


def facts(machines: Mapping[str, Facts]) -> dict[str, float]:
    """Return memory_total_bytes, swap_total_bytes, cores and online, as far as they are known."""
    stable, state = machines.get("cpu", ({}, {}))
    online = state.get("online_cpus")
    found = {
        "memory_total_bytes": state.get("memory_total_bytes"),
        "swap_total_bytes": state.get("swap_total_bytes"),
        "cores": stable.get("logical_cores"),
        "online": len(online) if isinstance(online, list) else None,
    }
    return {name: float(value) for name, value in found.items() if isinstance(value, int | float)}


def power_mode(state: Mapping[str, Any]) -> tuple[str, str]:
    """Return (name, id) of the power mode in a machine's state; both are '' if none is known."""
    jetson = state.get("jetson", {})
    found = jetson.get("power_mode") if isinstance(jetson, Mapping) else None
    if not isinstance(found, Mapping) or is_absent(found):
        return "", ""
    return str(found.get("name", "")), str(found.get("id", ""))


def _text(facts: Mapping[str, Any], name: str) -> str:
    value = facts.get(name)
    return value if isinstance(value, str) else ""
