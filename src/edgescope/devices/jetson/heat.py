"""The guards that keep a Jetson within its limits: cooling devices that slow it, over-current guards, fans.

A raised cooling device costs speed, unless it is a fan or only warns of a hot surface. Names differ by release:
`cpu-throttle-alert` and `gpu-throttle-alert` report the chip's own thermal throttling, `cpufreq-cpu0`
and `devfreq-17000000.gpu` are caps set by the kernel; unknown ones count, because a new board has new names.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Unsupported, Value
from edgescope.devices.jetson.fans import Fans
from edgescope.devices.jetson.files import found
from edgescope.devices.jetson.overcurrent import OverCurrent
from edgescope.devices.kernel_files import Each, KernelFile, fact, is_absent, word
from edgescope.devices.throttle import next_trip

__all__ = ["Cooling", "Fans", "OverCurrent"]

_POWERED_OFF = -200_000.0
"""Millidegrees; a zone that is switched off reads -256000."""
_HARMLESS = ("fan", "surface", "shutdown", "backlight", "battery", "charger")
"""Words in the types of cooling devices that cost no speed."""


def cooling_devices(root: Path) -> dict[str, tuple[str, Path]]:
    """Return channel word -> (type, folder) of the cooling devices that cost speed."""
    out: dict[str, tuple[str, Path]] = {}
    for folder in found(root, ("sys/class/thermal/cooling_device*",)):
        kind = fact(folder / "type")
        if is_absent(kind) or any(part in kind.lower() for part in _HARMLESS):
            continue
        name = word(kind)
        out[name if name not in out else f"{name}_{folder.name[len('cooling_device') :]}"] = (kind, folder)
    return out


def slows(kind: str) -> str:
    """Return the part that a cooling device of this type slows, from the words in its type."""
    name = kind.lower()
    for mark, what in (
        ("gpu", "the GPU"),
        ("gpc", "the GPU"),
        ("cpu", "the CPU"),
        ("cv", "the vision engines"),
    ):
        if mark in name:
            return what
    return "memory and fabric" if "soc" in name or "emc" in name else "some clock"


def passive_zones(root: Path) -> dict[str, tuple[Path, float]]:
    """Return zone -> (its temperature's file, passive trip in degrees Celsius); zones without one are left out."""
    out: dict[str, tuple[Path, float]] = {}
    for zone in found(root, ("sys/class/thermal/thermal_zone*",)):
        trip, kind = next_trip(zone), fact(zone / "type")
        if trip is not None and trip.kind == "passive":
            name = zone.name if is_absent(kind) else kind
            out[name if name not in out else f"{name}_{zone.name[12:]}"] = (zone / "temp", trip.celsius)
    return out


class Cooling(Each):
    """Flags of the cooling devices that cost speed; without any, of the zones with a passive trip.

    Each flag is 1 while the device is raised or the zone is past its trip, else 0; a powered-off sensor (-256 C) has
    no value.
    """

    def __init__(self, root: str) -> None:
        guards: dict[str, tuple[KernelFile, float, str]] = {}
        for name, (kind, folder) in cooling_devices(Path(root)).items():
            file = KernelFile(folder / "cur_state")
            guards[name] = (file, 0.5, f"{file.path}: slows {slows(kind)}")
        for name, (path, trip) in {} if guards else passive_zones(Path(root)).items():
            text = f"{path}: at or above its passive trip of {trip:.1f} C"
            guards[word(name)] = (KernelFile(path), trip * 1000, text)
        super().__init__(
            (
                ChannelSpec(f"throttled_{name}_thermal", "flag", "thermal", "gauge", text),
                partial(_at_work, file, limit),
            )
            for name, (file, limit, text) in guards.items()
        )


def _at_work(file: KernelFile, limit: float) -> Value:
    value = file.number()
    if not isinstance(value, float):
        return value
    if value < _POWERED_OFF:
        return Unsupported(f"the sensor is powered off (reads {value / 1000:.0f} C)")
    return float(value >= limit)
