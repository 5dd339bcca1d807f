"""Trip points: the temperatures at which a thermal zone slows the machine down or cuts it off.

Documentation/driver-api/thermal/sysfs-api.rst: `passive` slows clocks, `hot` notifies user space, `critical` shuts
down; `active` starts a fan, which does not matter to a measurement. A trip at or below 0 C is a disabled slot.

This file also compares two reads of a device's own counters, one before and one after a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from edgescope.devices.base import Throttle, Value
from edgescope.devices.kernel_files import KernelFile, fact, is_absent

FIXED_C = (50.0, 100.0)
"""The constant values of a Tegra's PMIC-Die zone: 100 on most boards up to the TX2, 50 on a Xavier."""
HELD = 0.9
"""Share of the requested clock below which the hardware is held; readback varies by some per cent."""
_HARMFUL = ("passive", "hot", "critical")


@dataclass(frozen=True)
class Trip:
    """The lowest harmful trip of a zone: its kind and its temperature in degrees Celsius."""

    kind: str
    celsius: float


def next_trip(zone: Path) -> Trip | None:
    """Return the lowest passive, hot or critical trip of a thermal zone's folder, or None if none is readable."""
    found = []
    for file in zone.glob("trip_point_*_temp"):
        kind = fact(file.with_name(file.name[: -len("temp")] + "type"))
        celsius = fact(file, lambda text: float(text) / 1000)
        if kind in _HARMFUL and not is_absent(celsius) and celsius > 0:
            found.append(Trip(kind, celsius))
    return min(found, key=lambda trip: trip.celsius, default=None)


def is_fixed(name: str, celsius: float) -> bool:
    """Return whether a temperature channel's value is a constant of its driver, not a temperature."""
    return "pmic" in name and celsius in FIXED_C


def pair(requested: KernelFile, effective: KernelFile) -> tuple[float, float] | Value:
    """Return the (requested, effective) clock in hertz; requested is 0 if the request changed between the reads."""
    first, clock, last = requested.number(1e3), effective.number(1e3), requested.number(1e3)
    for value in (clock, first, last):
        if not isinstance(value, float):
            return value
    assert isinstance(first, float) and isinstance(clock, float)
    return (first if first == last else 0.0), clock


Look = TypeVar("Look")


class Looks(Generic[Look]):
    """Reads on entering and on leaving; `evidence()` compares both, or returns `missed` if one is missing."""

    def __init__(
        self, look: Callable[[], Look], compare: Callable[[Look, Look], Throttle], missed: str
    ) -> None:
        self._look, self._compare, self._missed = look, compare, missed
        self._taken: list[Look] = []

    def __enter__(self) -> Looks[Look]:
        self._taken = [self._look()]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._taken.append(self._look())

    def evidence(self) -> Throttle:
        """Return the events between entering and leaving, and the counters that could not be read."""
        if len(self._taken) < 2:
            return Throttle(absent=(self._missed,))
        before, after = self._taken
        return self._compare(before, after)
