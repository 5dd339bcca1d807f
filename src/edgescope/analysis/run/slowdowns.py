"""What slowed a machine down: guards that held the clocks in a window, and a hypervisor that put the CPUs apart.

Every device reports into channels named `throttled_<what>_<cause>`, which read 1 while a guard is active. A
power cap and a clock below its request come and go on a healthy machine, so they count from a certain share on; heat,
over-current and under-voltage count from the first reading.

CPUs are apart if they are on two sockets. On a machine of one's own their latency is a fact of the board; a virtual
machine's CPUs are moved, so there it says what the machine is like now. The limit is above what the CPUs of one socket
need (up to 0.17 us of an Intel Xeon's 16) and below what those of two sockets do (0.2 us and more of an AMD EPYC's):
benchmarks/probes.py distance. Those of two groups of an EPYC's socket need as long as a Xeon's of one, so they pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgescope.records import Machine, Measured, Readings, Result

PREFIX = "throttled_"
POWER_CAP_LIMIT = 0.05
"""Share of the window in which a power cap may hold the clocks down; a thermal slowdown may never."""
CLOCK_LIMIT = 0.20
"""Share of the readings in which a clock may lag behind, because a governor needs some time to raise it."""
CAUSES = (
    ("_thermal", "thermal", 0.0),
    ("_power", "power cap", POWER_CAP_LIMIT),
    ("_over_current", "over-current", 0.0),
    ("_under_voltage", "under-voltage", 0.0),
    ("_clock", "clock below its request", CLOCK_LIMIT),
)
"""End of the channel's name, the cause in words, and the share of readings up to which it is not throttling."""
INPUTS = ("pom_5v_in", "vdd_in")
"""Rails that measure a module's input; fed with 5 V on some boards, with more on others."""
LOW_INPUT_V = 4.5
"""A 5-V module throttles below this (NVIDIA staff on Xavier NX and Nano: forum t/276251, t/307919)."""
_FIVE_VOLT_BOARD = 6.0
"""An input that never reads more than this is fed with 5 V."""
STRETCH_S = 10.0
"""A cause that may come and go counts once it is active for more than its share of this time."""
SILENCE = 0.2
"""A guard counts as lost if it is silent for more than this share of the window, at its end."""


@dataclass(frozen=True)
class Hold:
    """One guard in one window."""

    channel: str
    cause: str
    share: float
    """Share of the readings inside the window in which it was active."""
    n: int
    """Readings inside the window."""
    first_s: float | None
    """Seconds from the window's start to the first active reading, or (for a cause that may come and go) to the first
    stretch above its share; None if it was never active."""
    limit: float

    @property
    def throttled(self) -> bool:
        """Whether it held the clocks down more than on a healthy machine; some causes need two readings for that."""
        return self.share > self.limit and (self.limit == 0 or round(self.share * self.n) > 1)

    def __str__(self) -> str:
        text = f"{self.channel} in {self.share:.0%} of {self.n} readings"
        if self.first_s is None:
            return text
        return f"{self.cause} from second {self.first_s:.1f}: {text}"


def holds(readings: Readings, start_ns: int, stop_ns: int) -> list[Hold]:
    """Return every guard that was read inside the window."""
    out = []
    for channel in readings.channels:
        if not channel.name.startswith(PREFIX):
            continue
        t_ns, value = readings.series(channel.name)
        inside = (t_ns >= start_ns) & (t_ns <= stop_ns)
        if inside.any():
            at_s = (t_ns[inside] - start_ns) * 1e-9
            out.append(_hold(channel.name, at_s, value[inside] > 0))
    return out


def _hold(name: str, at_s: NDArray[np.floating[Any]], active: NDArray[np.bool_]) -> Hold:
    _, cause, limit = next((c for c in CAUSES if name.endswith(c[0])), ("", "some guard", 0.0))
    first = _first(at_s, active, limit) if active.any() else None
    return Hold(name, cause, float(active.mean()), len(active), first, limit)


def _first(at_s: NDArray[np.floating[Any]], active: NDArray[np.bool_], limit: float) -> float:
    """Return the first active second; with a limit, the first from which its share of a stretch exceeds the limit."""
    moments = at_s[active]
    if limit:
        before, until = (
            np.searchsorted(at_s, moments),
            np.searchsorted(at_s, moments + STRETCH_S, side="right"),
        )
        total = np.concatenate(([0], np.cumsum(active)))
        held = total[until] - total[before]
        lasting = (held > limit * (until - before)) & (held > 1)
        moments = moments[lasting] if lasting.any() else moments
    return float(moments[0])


def low_input(readings: Readings, start_ns: int, stop_ns: int) -> list[tuple[bool, str]]:
    """Return (too low, sentence) for each 5-V input whose voltage was read inside the window.

    A monitor averages over its conversion time, so the real minimum may be lower, never higher.
    """
    out = []
    for rail in INPUTS:
        t_ns, volts = readings.series(f"{rail}_voltage_v")
        inside = (t_ns >= start_ns) & (t_ns <= stop_ns)
        if not inside.any() or volts[inside].max() > _FIVE_VOLT_BOARD:
            continue
        low, least = volts[inside] < LOW_INPUT_V, float(volts[inside].min())
        text = f"{rail} was at least {least:.2f} V (a 5-V input is low below {LOW_INPUT_V:.2f} V)"
        if low.any():
            first = float(t_ns[inside][low][0] - start_ns) * 1e-9
            share = f"below {LOW_INPUT_V:.2f} V in {low.mean():.0%} of {len(low)} readings"
            text = f"under-voltage from second {first:.1f}: {rail} fell to {least:.2f} V, {share}"
        out.append((bool(low.any()), text))
    return out


def lost(readings: Readings, start_ns: int, stop_ns: int) -> list[str]:
    """Return the guards whose readings stopped before the window's end (unplugged, or their driver removed).

    A sampler that is stopped normally reads everything once more, so a working sensor has a reading after the window.
    """
    out = []
    for channel in readings.channels:
        t_ns, value = readings.series(channel.name)
        if not len(t_ns) or t_ns[-1] >= stop_ns - SILENCE * (stop_ns - start_ns):
            continue
        if channel.name.startswith(PREFIX) or _is_low_voltage_guard(channel.name, value):
            last = (int(t_ns[-1]) - start_ns) * 1e-9
            when = f"after second {last:.1f}" if last >= 0 else f"{-last:.1f} s before the window"
            out.append(f"{channel.name} fell silent {when} ({channel.reason or 'no reason'})")
    return out


def _is_low_voltage_guard(name: str, volts: NDArray[np.floating[Any]]) -> bool:
    """Return whether this is the voltage of an input that was fed with 5 V and never with more."""
    return name.removesuffix("_voltage_v") in INPUTS and bool(volts.max() <= _FIVE_VOLT_BOARD)


CORE_TO_CORE = "core_to_core_s"
APART_FROM_S = 180e-9


def virtual(machine: Machine) -> bool:
    """Return whether the machine says that it is a virtual one."""
    facts = machine.stable.get("cpu")
    kind = facts.get("virtualised") if isinstance(facts, Mapping) else None
    return isinstance(kind, str) and kind != "no"


def apart(machine: Machine, core_to_core_s: float | None) -> bool:
    """Return whether a virtual machine's CPUs are further apart than those of one socket."""
    return core_to_core_s is not None and core_to_core_s > APART_FROM_S and virtual(machine)


def apart_s(result: Result) -> float | None:
    """Return the latency of a run on the CPU whose CPUs were apart at its beginning and its end, else None."""
    found = result.metrics.get(CORE_TO_CORE)
    if not result.trial.place.is_host or not isinstance(found, Measured):
        return None
    return found.value if apart(result.machine, found.value) else None
