"""Power modes: each entered, read back, probed under load and left; one whose process is killed, put back."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping

from edgescope.devices.base import Mode
from edgescope.devices.manifest import power_mode, settings
from edgescope.errors import EdgescopeError
from edgescope.modes import catalog, enter
from edgescope.records import Json
from edgescope.wings.verify_board.check import Outcome, judged, unsupported
from edgescope.wings.verify_board.site import Site

HOLD = """
import sys, time
from edgescope.modes.catalog import find
from edgescope.modes.enter import entered
from edgescope.wings.verify_board.site import at
with at("") as site, entered(find(sys.argv[1], site.devices)):
    print("held", flush=True)
    time.sleep(600)
"""
"""A process that holds a mode until it is killed."""
CLOCKS = "jetson_clocks"


def modes(site: Site) -> Outcome:
    """Enter every mode that needs no reboot, read it back, leave it, and look whether the board is as it was."""
    found = _settable(site)
    if isinstance(found, str):
        return unsupported(found)
    before = _state(site)
    evidence: dict[str, Json] = {"before": before}
    wrong, entered = [], []
    for name, mode in found.items():
        change, why = mode.change()
        if change != "live":
            evidence[name] = {"not_entered": f"{change}: {why}"}
            continue
        try:
            with enter.entered(mode):
                problem = mode.problem()
                evidence[name] = {"evidence": mode.evidence(), "problem": problem}
            entered.append(name)
        except EdgescopeError as error:
            problem = str(error.message)
            evidence[name] = {"problem": problem}
        if problem:
            wrong.append(f"{name}: {problem}")
        if (after := _state(site)) != before:
            wrong.append(f"after {name} the board is in {after}, before it was in {before}")
    evidence["after"] = _state(site)
    if not entered and not wrong:
        return unsupported("no mode can be changed without a reboot", evidence)
    return judged(
        wrong, f"{', '.join(entered)}: entered, read back and left; the board is as it was", evidence
    )


def killed(site: Site) -> Outcome:
    """Kill a process that holds a mode with SIGKILL, and restore what it left."""
    found = _settable(site)
    if isinstance(found, str):
        return unsupported(found)
    before = _state(site)
    other = next((n for n, m in found.items() if m.change()[0] == "live" and n != _now(site)), "")
    if not other:
        return unsupported("no other mode can be entered without a reboot")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, other], stdout=subprocess.PIPE, text=True)
    assert holder.stdout
    with holder.stdout as said:
        held = said.readline().strip() == "held"
        during = _state(site)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    behind = enter.left_behind()
    restored = enter.journal().recover()
    after = _state(site)
    evidence: dict[str, Json] = {
        "mode": other,
        "before": before,
        "during": during,
        "left": behind,
        "after": after,
    }
    wrong = [] if held else [f"{other} was not entered"]
    wrong += [] if not held or (behind and restored) else ["the killed process left no journal"]
    wrong += [] if after == before else [f"the board is in {after}, before it was in {before}"]
    return judged(wrong, f"{other} was left behind by SIGKILL and put back", evidence)


def _settable(site: Site) -> Mapping[str, Mode] | str:
    """Return the board's power modes and jetson_clocks, or the governor's; or why there are none."""
    have = settings(site.devices)[0]
    mine = {name: mode for name, mode in have.items() if mode.number is not None or name == CLOCKS}
    if mine:
        return mine
    governors = site.root / "sys/devices/system/cpu/cpufreq/policy0/scaling_available_governors"
    names = governors.read_text().split() if governors.is_file() else []
    found = {f"governor={name}": catalog.find(f"governor={name}", site.devices) for name in names}
    return found or f"{catalog.without(site.devices)}, and no governor of the CPU's clocks can be set"


def _state(site: Site) -> dict[str, Json]:
    """Return what a mode changes: the power mode's name and id, CPUs online, governors and clock limits."""
    name, number = power_mode(site.machine().state)
    found: dict[str, Json] = {"mode": name, "id": number}
    root = site.root / "sys/devices/system/cpu"
    for path in (root / "online", *sorted(root.glob("cpufreq/policy*/scaling_m??_freq"))):
        found[str(path.relative_to(root))] = path.read_text().strip() if path.is_file() else ""
    for path in sorted(root.glob("cpufreq/policy*/scaling_governor")):
        found[str(path.relative_to(root))] = path.read_text().strip()
    return found


def _now(site: Site) -> str:
    return power_mode(site.machine().state)[0]
