"""Over-current and under-voltage events of a Jetson: their number since boot, and the readings with new ones.

soctherm counts them: `oc<N>_event_cnt` of a hwmon chip, or on Tegra210 the interrupt `soctherm_edp`. An event may have
latched before user space started, so the absolute value matters as much as the rise.

What an event means differs by chip. Tegra234 (Orin): OC1 under-voltage, OC2 average and OC3 instantaneous
over-current (Jetson Linux Developer Guide r36, Platform Power and Performance). Tegra194 (Xavier): OC2 is the
input below 4.5 V (NVIDIA staff, forum t/276251 and t/307919). Tegra210 (Nano) does not distinguish the two.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.kernel_files import KernelFile
from edgescope.wings.jetson.files import found, soc

Row = tuple[str, int, Value]
UNDER_VOLTAGE = {"tegra234": (1,), "tegra194": (2,)}
"""Chip -> number of the OC event that means under-voltage."""


def event_files(root: Path) -> dict[str, tuple[int, KernelFile]]:
    """Return counter key -> (event number, file); a second chip has its own keys: `oc1`, `oc1_hwmon4`."""
    out: dict[str, tuple[int, KernelFile]] = {}
    for path in found(root, ("sys/class/hwmon/hwmon*/oc[0-9]*_event_cnt",)):
        event = path.name[2 : -len("_event_cnt")]
        if event.isdecimal():
            key = f"oc{event}" if f"oc{event}" not in out else f"oc{event}_{path.parent.name}"
            out[key] = (int(event), KernelFile(path))
    return out


def fired(interrupts: str) -> Value:
    """Return how often soctherm_edp fired on all cores, from the text of /proc/interrupts."""
    line = next((x for x in interrupts.splitlines() if "soctherm_edp" in x), None)
    if line is None:
        return Unsupported("no soctherm_edp in /proc/interrupts")
    counts = []
    for text in line.partition(":")[2].split():
        if not (text.isdecimal() and len(text) < 19):
            break
        counts.append(int(text))
    return float(sum(counts)) if counts else Failed(f"/proc/interrupts holds no count in {line[:60]!r}")


class Counters:
    """All counters of over-current and under-voltage events, by key."""

    def __init__(self, root: Path) -> None:
        self._files = event_files(root)
        self._interrupts = KernelFile(root / "proc/interrupts", 1 << 16)
        low = UNDER_VOLTAGE.get(soc(root), ())
        self.causes = {
            k: "under_voltage" if n in low else "over_current" for k, (n, _) in self._files.items()
        }
        self.sources = {key: str(file.path) for key, (_, file) in self._files.items()}
        if not self._files and isinstance(self._edp(), float):
            self.causes = {"oc1": "over_current"}
            self.sources = {"oc1": f"{self._interrupts.path}: soctherm_edp, over-current or under-voltage"}

    def _edp(self) -> Value:
        data = self._interrupts.read()
        return fired(data.decode(errors="replace")) if isinstance(data, bytes) else data

    def read(self) -> Mapping[str, Value]:
        """Return key -> events since boot; {} if this kernel has no such counter."""
        if self._files:
            return {key: file.number() for key, (_, file) in self._files.items()}
        return {"oc1": self._edp()} if self.causes else {}


class OverCurrent:
    """The events of each counter since boot, and whether it rose since the previous reading."""

    def __init__(self, root: str) -> None:
        self._counters = Counters(Path(root))
        self._last = {k: v for k, v in self._counters.read().items() if isinstance(v, float)}

    def channels(self) -> Sequence[ChannelSpec]:
        """Return `oc<N>_events` (absolute) and `throttled_oc<N>_over_current` or `_under_voltage` flags."""
        out = []
        for key, cause in self._counters.causes.items():
            source = self._counters.sources[key]
            out.append(ChannelSpec(f"{key}_events", "1", "module", "counter", f"{source}, since boot"))
            out.append(
                ChannelSpec(f"throttled_{key}_{cause}", "flag", "module", "interval", f"{source} rose")
            )
        return out or [ChannelSpec("oc1_events", "1", "module", "counter", "hwmon oc*_event_cnt")]

    def read(self) -> Sequence[Row]:
        """Return counts and flags; a counter that fell was reset, so it gives no flag this time."""
        now = time.monotonic_ns()
        rows: list[Row] = []
        for key, value in self._counters.read().items():
            rows.append((f"{key}_events", now, value))
            rows.append((f"throttled_{key}_{self._counters.causes[key]}", now, self._rose(key, value)))
        missing = Unsupported("no over-current counter in hwmon or /proc/interrupts")
        return rows or [("oc1_events", now, missing)]

    def _rose(self, key: str, value: Value) -> Value:
        if not isinstance(value, float):
            return value
        before, self._last[key] = self._last.get(key), value
        if before is None:
            return Failed("this is the first reading")
        if value < before:
            return Failed(f"{key} went backwards from {before:.0f} to {value:.0f}: it was reset")
        return float(value > before)
