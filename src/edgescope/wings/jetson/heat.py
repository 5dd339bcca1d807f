"""The guards that keep a Jetson within its limits: cooling devices that slow it, over-current guards, fans.

A raised cooling device costs speed, unless it is a fan or only warns of a hot surface. Names differ by release:
`cpu-throttle-alert` and `gpu-throttle-alert` report the chip's own thermal throttling, `cpufreq-cpu0`
and `devfreq-17000000.gpu` are caps set by the kernel; unknown ones count, because a new board has new names.

The kernel's governor, NVIDIA's nvfancontrol daemon and jtop's saved profile fight for one fan; a different owner is
a different temperature and, in a long run, a different throughput. JetPack 4 has /sys/devices/pwm-fan, later
releases hwmon's `pwmfan` and a tachometer chip of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Unsupported, Value
from edgescope.devices.kernel_files import Each, Fact, KernelFile, fact, is_absent, word
from edgescope.devices.throttle import next_trip
from edgescope.wings.jetson.files import command_names, found, number
from edgescope.wings.jetson.overcurrent import OverCurrent

__all__ = ["Cooling", "Fans", "OverCurrent"]

_POWERED_OFF = -200_000.0
"""Millidegrees; a zone that is switched off reads -256000."""
_HARMLESS = ("fan", "surface", "shutdown", "backlight", "battery", "charger")
"""Words in the types of cooling devices that cost no speed."""

_DUTIES = ("sys/class/hwmon/hwmon*/pwm[1-9]", "sys/class/hwmon/hwmon*/cur_pwm", "sys/devices/pwm-fan/cur_pwm")
_SPEEDS = (
    "sys/class/hwmon/hwmon*/fan[1-9]_input",
    "sys/class/hwmon/hwmon*/rpm",
    "sys/devices/generic_pwm_tachometer/hwmon/hwmon*/rpm",
    "sys/devices/pwm-fan/rpm_measured",
)
_DAEMONS = ("nvfancontrol", "jtop")


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


def _first(root: Path, patterns: Sequence[str]) -> list[KernelFile]:
    """Return the files of the first pattern that matches: the other patterns show the same fans."""
    matches = (found(root, (pattern,)) for pattern in patterns)
    return [KernelFile(path) for path in next((m for m in matches if m), [])]


class Fans(Each):
    """`fan<N>_share` of full duty and `fan<N>_rpm`, from 1; a fan without a tachometer has no speed, never 0."""

    def __init__(self, root: str) -> None:
        none = {"share": "no PWM fan: cooled passively, or not shown", "rpm": "no tachometer"}
        units, patterns = {"share": "share", "rpm": "1/min"}, {"share": _DUTIES, "rpm": _SPEEDS}
        scales, metrics = {"share": 1 / 255, "rpm": 1.0}, []
        for what, unit in units.items():
            files: list[KernelFile | Unsupported] = [*_first(Path(root), patterns[what])]
            for i, file in enumerate(files or [Unsupported(none[what])], 1):
                source = str(file.path) if isinstance(file, KernelFile) else "hwmon"
                spec = ChannelSpec(f"fan{i}_{what}", unit, "fan", "gauge", source)
                metrics.append((spec, partial(number, file, scales[what])))
        super().__init__(metrics)

    @staticmethod
    def facts(root: Path) -> Fact:
        """Return the owner of the fan (`kernel`, `nvfancontrol`, `jtop`) and the evidence for it."""
        running = set(command_names(root).values())
        control = fact(root / "sys/devices/pwm-fan/temp_control", int)
        policies = {
            str(fact(policy.with_name("type"))): fact(policy)
            for policy in found(root, ("sys/class/thermal/thermal_zone*/policy",))
        }
        owners = [name for name in _DAEMONS if name in running]
        by_kernel = control == 1 or (is_absent(control) and set(policies.values()) - {"user_space"})
        if by_kernel and "nvfancontrol" not in owners:
            owners.append("kernel")
        return {
            "owners": owners,
            "temp_control": control,
            "pwm_enable": {
                p.parent.name: fact(p, int) for p in found(root, ("sys/class/hwmon/hwmon*/pwm1_enable",))
            },
            "thermal_governors": policies,
        }
