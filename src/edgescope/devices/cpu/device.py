"""Any Linux CPU: the embedded default, and the machine around every other device.

Everything is read from /proc and sysfs under an injected root, so that a whole board is a folder of files in
a test.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgescope import registry
from edgescope.devices.base import Mode, SourceSpec
from edgescope.devices.cpu import facts
from edgescope.devices.cpu.throttle import CpuThrottleWatch

_SOURCES = "edgescope.devices.cpu.sources"
_SENSORS = "edgescope.devices.cpu.sensors"


class CpuDevice:
    """The processor, memory and operating system that this process runs on."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._cpus = sorted(os.sched_getaffinity(0)) if root == Path("/") else []
        """Taken now: an engine may bind the thread that loads it to one core and use the others all the same."""

    def present(self) -> str:
        """Return '' on Linux with /proc mounted, otherwise the reason."""
        stat = self._root / "proc/stat"
        return "" if stat.is_file() else f"no {stat}: Linux with /proc mounted is needed"

    def machine(self) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return (stable facts, facts of the moment) of the processor, memory and operating system."""
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
        """Return the first CPU, the first two, four ... by their --mode name; others can be named as freely."""
        some = registry.need(registry.SETTINGS["cpu"], "CPU affinity", "")
        found: Mapping[str, Mode] = some(sorted(os.sched_getaffinity(0)))
        return found

    def throttle_watch(self) -> CpuThrottleWatch:
        """Return a context that, once left, holds what the throttling counters did."""
        return CpuThrottleWatch(self._root)
