"""The guards that keep a Jetson within its limits: cooling devices that slow it, over-current counters, fans.

A raised cooling device costs speed, unless it is a fan or only warns of a hot surface. Names differ by release:
`cpu-throttle-alert` and `gpu-throttle-alert` report the chip's own thermal throttling, `cpufreq-cpu0`
and `devfreq-17000000.gpu` are caps set by the kernel; unknown ones count, because a new board has new names.

The kernel's governor, NVIDIA's nvfancontrol daemon and jtop's saved profile fight for one fan; a different owner is
a different temperature and, in a long run, a different throughput. JetPack 4 has /sys/devices/pwm-fan, later
releases hwmon's `pwmfan` and a tachometer chip of its own.

soctherm counts over-current and under-voltage events: `oc<N>_event_cnt` of a hwmon chip, or on Tegra210 the interrupt
`soctherm_edp`. An event may have latched before user space started, so the absolute value matters as much as the rise.
What an event means differs by chip. Tegra234 (Orin): OC1 under-voltage, OC2 average and OC3 instantaneous over-current
(Jetson Linux Developer Guide r36, Platform Power and Performance). Tegra194 (Xavier): OC2 is the input below 4.5 V
(NVIDIA staff, forum t/276251 and t/307919). Tegra210 (Nano) does not distinguish the two.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.kernel_files import Each, Fact, KernelFile, fact, is_absent, word
from edgescope.devices.throttle import next_trip
from edgescope.wings.jetson.boards import soc
from edgescope.wings.jetson.files import command_names, found, number

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
        low = UNDER_VOLTAGE.get(str(soc(root)), ())
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
