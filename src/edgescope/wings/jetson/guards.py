"""The guards that keep a Jetson within its limits, cooling devices, over-current counters and fans, and what they did.

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

JetsonThrottleWatch compares counters, cooling devices and trip points before and after. A low clock alone is no
evidence: idle parts clock down. Evidence is a counter that moved, a raised cooling device, a zone past its passive
trip, or a clock below the *requested* one: once a guard has latched, the firmware ignores requests without an error,
and scaling_cur_freq goes on reporting success (forum t/361188: 2601 MHz requested, 649 MHz running after an OC3 event
at boot).

HeldClocks reports clocks that are held down now: the GPU's below its policy while busy, a CPU's below its request. A
busy GPU whose governor could raise the clock and does not is held. A CPU whose hardware does not follow the request
is held whether it is busy or not.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Failed, Throttle, Unsupported, Value
from edgescope.devices.clocks import HELD, Looks, next_trip, pair
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import Each, Fact, KernelFile, fact, is_absent, word
from edgescope.errors import Message
from edgescope.wings.jetson.boards import soc
from edgescope.wings.jetson.files import command_names, found, gpu_devfreq, number
from edgescope.wings.jetson.soc import Gpu

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


# -- did a Jetson hold its clocks?


@dataclass(frozen=True)
class _Look:
    events: Mapping[str, float]
    """Over-current counter -> events since boot."""
    causes: Mapping[str, str]
    """Over-current counter -> the condition that it counts."""
    alarms: frozenset[str]
    """Rails whose power monitor reports that the current exceeded the critical limit."""
    cooling: Mapping[str, tuple[str, int]]
    """Cooling device -> (the part that it slows, state)."""
    zones: Mapping[str, tuple[float, float]]
    """Zone with a passive trip -> (temperature, trip), degrees Celsius."""
    clocks: Mapping[str, tuple[float, float]]
    """CPU policy -> (requested, effective) clock in hertz."""


class JetsonThrottleWatch(Looks[_Look]):
    """Reads the guards on entry and on exit; `evidence()` compares the two readings."""

    def __init__(self, root: Path = Path("/")) -> None:
        super().__init__(lambda: _look(root), _compare, "the Jetson's guards were not watched to the end")


def _compare(before: _Look, after: _Look) -> Throttle:
    """Return the evidence of two readings."""
    rose, notes = _counted(before.events, after.events, before.causes)
    events = [*rose, *_alarmed(before, after), *_cooled(before, after), *_hot(before, after)]
    events += map(str, _not_followed(before, after))
    looked, absent = [], []
    for count, what, missing in (
        (len(after.events), "over-current counters", "no oc*_event_cnt"),
        (len(after.cooling), "cooling devices that slow", "no cooling device that slows"),
        (len(after.zones), "zones with a passive trip", "no passive trip point"),
        (len(after.clocks), "effective CPU clocks", "no readable cpuinfo_cur_freq (root only)"),
    ):
        looked += [f"{count} {what}"] if count else []
        absent += [] if count else [missing]
    blind = [] if after.events or after.zones or after.cooling else [str(_unknown())]
    return Throttle(tuple(events), tuple(looked + notes), tuple(absent), tuple(blind + _gone(before, after)))


def _gone(before: _Look, after: _Look) -> list[str]:
    """Return the guards that could be read before the run and not after it; a zone may be powered off."""
    names = [f"{key}_event_cnt" for key in before.events if key not in after.events]
    names += [f"the state of {name}" for name in before.cooling if name not in after.cooling]
    return [f"{name} could be read before the run and not after it: what it did is unknown" for name in names]


def _unknown() -> Message:
    text = "whether the board throttled is unknown: no over-current counter, cooling device or trip point is readable"
    return Message(
        "W-THR-2", text, effect="The verdict cannot be CLEAN", fix="docker run -v /sys:/sys:ro ..."
    )


def _counted(
    before: Mapping[str, float], after: Mapping[str, float], causes: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Return (events during the run, events latched before it)."""
    rose, notes = [], []
    for key, now in after.items():
        was = before.get(key)
        cause = causes.get(key, "over_current").replace("_", "-")
        if was is not None and now > was:
            rose.append(f"{cause}: {key}_event_cnt rose by {now - was:.0f} to {now:.0f} during the run")
        elif was is not None and now < was:
            notes.append(
                f"{key}_event_cnt, which went backwards from {was:.0f} to {now:.0f} and says nothing"
            )
        elif now:
            notes.append(f"{key}_event_cnt ({now:.0f} {cause} since boot, none during the run)")
    return rose, notes


def _alarmed(before: _Look, after: _Look) -> list[str]:
    new = sorted(after.alarms - before.alarms)
    return [f"over-current: the power monitor of {rail} passed its critical current" for rail in new]


def _cooled(before: _Look, after: _Look) -> list[str]:
    out = []
    for name, (what, level) in after.cooling.items():
        highest = max(level, before.cooling.get(name, (what, 0))[1])
        if highest > 0:
            out.append(f"thermal: cooling device {name} slows {what} (state {highest})")
    return out


def _hot(before: _Look, after: _Look) -> list[str]:
    out = []
    for name, (celsius, trip) in after.zones.items():
        highest = max(celsius, before.zones.get(name, (celsius, trip))[0])
        if highest >= trip:
            out.append(f"thermal: {name} at {highest:.1f} C is past its passive trip of {trip:.1f} C")
    return out


def _not_followed(before: _Look, after: _Look) -> list[Message]:
    """Return a warning per policy whose hardware ran below its request both before and after the run."""
    out = []
    for name, (requested, clock) in after.clocks.items():
        first = before.clocks.get(name)
        if first is None or first[1] >= HELD * first[0] or clock >= HELD * requested:
            continue
        counters = ", ".join(f"{key}_event_cnt={n:.0f}" for key, n in after.events.items() if n)
        evidence = (
            f"{counters} since boot: a guard has latched" if counters else "no over-current event is counted"
        )
        text = f"{name} runs at {clock / 1e6:.0f} MHz, below the requested {requested / 1e6:.0f} MHz"
        effect = (
            f"Work that this clock limits takes about {requested / clock:.1f} times as long" if clock else ""
        )
        out.append(
            Message("W-CLK-1", text, evidence=evidence, effect=effect, fix="a stronger supply, then reboot")
        )
    return out


def _look(root: Path) -> _Look:
    counters = Counters(root)
    events = {k: v for k, v in counters.read().items() if isinstance(v, float)}
    return _Look(
        events, counters.causes, _alarms(root), _cooling(root), _zones(root), _requested_and_effective(root)
    )


def _alarms(root: Path) -> frozenset[str]:
    out = set()
    for alarm in found(root, ("sys/class/hwmon/hwmon*/curr[0-9]*_crit_alarm",)):
        label = fact(alarm.with_name(f"in{alarm.name[4 : -len('_crit_alarm')]}_label"))
        if fact(alarm, int) == 1:
            out.add(str(alarm) if is_absent(label) else label)
    return frozenset(out)


def _cooling(root: Path) -> dict[str, tuple[str, int]]:
    out = {}
    for name, (kind, folder) in cooling_devices(root).items():
        level = fact(folder / "cur_state", int)
        if not is_absent(level):
            out[name] = (slows(kind), level)
    return out


def _zones(root: Path) -> dict[str, tuple[float, float]]:
    out = {}
    for name, (path, trip) in passive_zones(root).items():
        celsius = fact(path, lambda text: float(text) / 1000)
        if not is_absent(celsius) and celsius > _POWERED_OFF / 1000:
            out[name] = (celsius, trip)
    return out


def _requested_and_effective(root: Path) -> dict[str, tuple[float, float]]:
    out = {}
    for policy in policies(root):
        both = pair(KernelFile(policy / "scaling_cur_freq"), KernelFile(policy / "cpuinfo_cur_freq"))
        if isinstance(both, tuple):
            out[policy.name] = both
    return out


BUSY = 0.95
"""GPU load from which its governor would raise the clock if it could."""


class HeldClocks(Each):
    """Reports held clocks: the GPU's below its policy while busy, a CPU's below its request."""

    def __init__(self, root: str) -> None:
        self._gpu = Gpu(root)
        folder = gpu_devfreq(Path(root))
        self._limit = None if folder is None else KernelFile(folder / "max_freq")
        gpu = f"gpu_busy >= {BUSY:.0%} and gpu_clock_hz < {HELD:.0%} of max_freq"
        cpu = f"cpuinfo_cur_freq < {HELD:.0%} of scaling_cur_freq"
        metrics = [(ChannelSpec("throttled_gpu_clock", "flag", "gpu", "gauge", gpu), self._gpu_held)]
        for policy in policies(Path(root)):
            spec = ChannelSpec(f"throttled_cpu_{policy.name}_clock", "flag", "cpu_cluster", "gauge", cpu)
            requested, effective = (KernelFile(policy / f"{of}_cur_freq") for of in ("scaling", "cpuinfo"))
            metrics.append((spec, partial(_cpu_held, requested, effective)))
        super().__init__(metrics)

    def _gpu_held(self) -> Value:
        (_, _, busy), (_, _, clock) = self._gpu.read()
        limit: Value = Unsupported("no GPU in devfreq") if self._limit is None else self._limit.number()
        for value in (busy, clock, limit):
            if not isinstance(value, float):
                return value
        assert isinstance(busy, float) and isinstance(clock, float) and isinstance(limit, float)
        return float(busy >= BUSY and clock < HELD * limit)


def _cpu_held(requested: KernelFile, effective: KernelFile) -> Value:
    both = pair(requested, effective)
    return float(both[1] < HELD * both[0]) if isinstance(both, tuple) else both
