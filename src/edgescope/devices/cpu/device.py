"""Any Linux CPU: the embedded default, and the machine around every other device.

Everything is read from /proc and sysfs under an injected root, so that a whole board is a folder of files in
a test.

Evidence of throttling comes from counters that only move if something held the clocks down:
thermal_throttle/*_count (x86) counts thermal events; a raised cooling device of a processor or cpufreq kind means that
the kernel slows the CPU; a hardware clock below the policy's minimum comes from firmware or an over-current guard. A
low clock alone is no evidence, because idle cores clock down.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope import registry
from edgescope.devices.base import Mode, SourceSpec, Throttle
from edgescope.devices.clocks import Looks
from edgescope.devices.cpu import facts
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import fact, finite, is_absent

_SOURCES = "edgescope.devices.cpu.sources"
_SENSORS = "edgescope.devices.cpu.sensors"


class CpuDevice:
    """The processor, memory and operating system that this process runs on."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = sorted(os.sched_getaffinity(0)) if root == Path("/") else []
        """Read now, because an engine may later bind the loading thread to one core and still use the others."""

    def present(self) -> str:
        """Return '' on Linux with /proc mounted, otherwise the reason."""
        stat = self._root / "proc/stat"
        return "" if stat.is_file() else f"no {stat}: Linux with /proc mounted is needed"

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return (stable facts, current facts) of the processor, memory and operating system."""
        return facts.stable(self._root), facts.state(self._root)

    def sources(self, pid: int) -> Sequence[SourceSpec]:
        """Return time, energy, pressure, memory, clocks and temperatures.

        Only energy is read on every tick: a reading with cold caches costs some 0.1 ms, and CPU time is
        counted by the kernel, so reading it less often loses no accuracy.
        """
        root = {"root": str(self._root)}
        return (
            SourceSpec(f"{_SOURCES}:CpuTime", root | {"pid": pid, "cpus": self._cpus}, every=2),
            SourceSpec(f"{_SENSORS}:Rapl", root),
            SourceSpec(f"{_SOURCES}:Pressure", root, every=5),
            SourceSpec(f"{_SOURCES}:MemoryAndLoad", root, every=5),
            SourceSpec(f"{_SENSORS}:Clocks", root, every=5),
            SourceSpec(f"{_SENSORS}:Temperatures", root, every=10),
        )

    def modes(self) -> Mapping[str, Mode]:
        """Return the modes for the first CPU, the first two, four ... by --mode name; any other set can be named."""
        some = registry.need(registry.SOME_CPUS, "CPU affinity", "")
        found: Mapping[str, Mode] = some(sorted(os.sched_getaffinity(0)))
        return found

    def throttle_watch(self) -> CpuThrottleWatch:
        """Return a context that holds, once it has ended, the changes of the throttling counters."""
        return CpuThrottleWatch(self._root)


_SLOWING = ("processor", "cpufreq", "cpu-", "devfreq", "intel_powerclamp", "tcc offset")
"""Beginnings of the types of cooling device that cost speed; fans and backlights do not."""


@dataclass(frozen=True)
class _Look:
    counts: dict[str, int]
    """Thermal event counters by name."""
    cooling: dict[str, int]
    """State of the cooling devices that cost speed."""
    below_floor: dict[str, tuple[float, float]]
    """Policy -> (hardware clock, policy minimum), hertz."""


class CpuThrottleWatch(Looks[_Look]):
    """Reads the counters on entry and on exit; `evidence()` compares the two readings."""

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__(lambda: _look(root), compare, "CPU throttling was not watched to the end")


def compare(before: _Look, after: _Look) -> Throttle:
    """Return the evidence of two readings."""
    events = [
        f"{name} rose by {after.counts[name] - was}"
        for name, was in before.counts.items()
        if after.counts.get(name, was) > was
    ]
    for name, level in after.cooling.items():
        highest = max(level, before.cooling.get(name, 0))
        if highest > 0:
            events.append(f"cooling device {name} is slowing the processor (state {highest})")
    for name, (clock, floor) in after.below_floor.items():
        if 0 < clock < 0.95 * floor:
            events.append(
                f"{name} runs at {clock / 1e6:.0f} MHz, below its own minimum of {floor / 1e6:.0f} MHz"
            )
    looked, absent = [], []
    for count, what, missing in (
        (len(after.counts), "thermal throttle counters", "no thermal_throttle counters"),
        (len(after.cooling), "cooling devices", "no cooling device of a processor"),
        (len(after.below_floor), "hardware clocks", "no cpuinfo_cur_freq"),
    ):
        if count:
            looked.append(f"{count} {what}")
        else:
            absent.append(missing)
    return Throttle(tuple(events), tuple(looked), tuple(absent))


def _look(root: Path) -> _Look:
    return _Look(_counts(root), _cooling(root), _clocks(root))


def _counts(root: Path) -> dict[str, int]:
    out: dict[str, int] = {}
    for path in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_count")):
        value = fact(path, int)
        if not is_absent(value):
            out[f"{path.parent.parent.name} {path.name}"] = value
    return out


def _cooling(root: Path) -> dict[str, int]:
    out: dict[str, int] = {}
    for device in sorted((root / "sys/class/thermal").glob("cooling_device*")):
        kind, level = fact(device / "type"), fact(device / "cur_state", int)
        if not is_absent(kind) and not is_absent(level) and kind.lower().startswith(_SLOWING):
            out[f"{device.name} ({kind})"] = level
    return out


def _clocks(root: Path) -> dict[str, tuple[float, float]]:
    out: dict[str, tuple[float, float]] = {}
    for policy in policies(root):
        clock, floor = fact(policy / "cpuinfo_cur_freq", finite), fact(policy / "scaling_min_freq", finite)
        if not is_absent(clock) and not is_absent(floor):
            out[policy.name] = (clock * 1e3, floor * 1e3)
    return out
