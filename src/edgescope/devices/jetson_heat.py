"""What keeps a Jetson within its limits: cooling devices that slow it, over-current guards, fans.

A raised cooling device costs speed, unless it is a fan or only warns of a hot surface. Names differ by release:
`cpu-throttle-alert` and `gpu-throttle-alert` say that the chip's own thermal throttling has begun, `cpufreq-cpu0`
and `devfreq-17000000.gpu` are caps set by the kernel; unknown ones count, because a new board has new names.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Value
from edgescope.devices.jetson_fans import Fans
from edgescope.devices.jetson_files import found, word
from edgescope.devices.jetson_overcurrent import OverCurrent
from edgescope.devices.kernel_files import KernelFile, fact, is_absent

__all__ = ["Cooling", "Fans", "OverCurrent"]

Row = tuple[str, int, Value]
_HARMLESS = ("fan", "surface", "shutdown", "backlight", "battery", "charger")
"""Parts of the types of cooling devices that cost no speed."""


def cooling_devices(root: Path) -> dict[str, tuple[str, Path]]:
    """Return channel word -> (type, folder) of the cooling devices that cost speed."""
    out: dict[str, tuple[str, Path]] = {}
    for folder in found(root, ("sys/class/thermal/cooling_device*",)):
        kind = fact(folder / "type")
        if is_absent(kind) or any(part in kind.lower() for part in _HARMLESS):
            continue
        name = word(kind)
        out[name if name not in out else f"{name}_{folder.name[len('cooling_device'):]}"] = (kind, folder)
    return out


def slows(kind: str) -> str:
    """Say what a cooling device of this type slows, by the words in its name."""
    name = kind.lower()
    for mark, what in (("gpu", "the GPU"), ("gpc", "the GPU"), ("cpu", "the CPU"), ("cv", "the vision engines")):
        if mark in name:
            return what
    return "memory and fabric" if "soc" in name or "emc" in name else "some clock"


class Cooling:
    """Whether each cooling device that costs speed is raised."""

    def __init__(self, root: str) -> None:
        self._devices = {
            name: (kind, KernelFile(folder / "cur_state", 32))
            for name, (kind, folder) in cooling_devices(Path(root)).items()
        }

    def channels(self) -> Sequence[ChannelSpec]:
        """Return one flag a device, `throttled_<type>_thermal`; none where the kernel has none."""
        return [
            ChannelSpec(f"throttled_{name}_thermal", "flag", "thermal", "gauge", f"{f.path}: slows {slows(kind)}")
            for name, (kind, f) in self._devices.items()
        ]

    def read(self) -> Sequence[Row]:
        """Return 1 for each raised device, 0 for each at rest."""
        return [(f"throttled_{n}_thermal", time.monotonic_ns(), _raised(f)) for n, (_, f) in self._devices.items()]


def _raised(state: KernelFile) -> Value:
    level = state.number()
    return float(level > 0) if isinstance(level, float) else level
