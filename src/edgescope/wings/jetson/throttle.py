"""Did a Jetson hold its clocks? Counters, cooling devices and trip points before and after; clocks while busy.

A low clock alone is no evidence: idle parts clock down. Evidence is an over-current or under-voltage counter that
moved, a raised cooling device, a zone past its passive trip, or a clock below the *requested* one: once a guard has
latched, the firmware ignores requests without an error, and scaling_cur_freq goes on reporting success (forum
t/361188: 2601 MHz requested, 649 MHz running after an OC3 event at boot).

HeldClocks reports clocks that are held down now: the GPU's below its policy while busy, a CPU's below its request. A
busy GPU whose governor could raise the clock and does not is held. A CPU whose hardware does not follow the request
is held whether it is busy or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Throttle, Unsupported, Value
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import Each, KernelFile, fact, is_absent
from edgescope.devices.throttle import HELD, Looks, pair
from edgescope.errors import Message
from edgescope.wings.jetson.files import found, gpu_devfreq
from edgescope.wings.jetson.guards import Counters, cooling_devices, passive_zones, slows
from edgescope.wings.jetson.soc import Gpu

_POWERED_OFF_C = -200.0


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
        if not is_absent(celsius) and celsius > _POWERED_OFF_C:
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
