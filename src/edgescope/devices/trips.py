"""Trip points: the temperatures at which a thermal zone slows the machine down or cuts it off.

Documentation/driver-api/thermal/sysfs-api.rst: `passive` slows clocks, `hot` tells user space, `critical` shuts
down; `active` starts a fan and is none of a measurement's business. A trip at or below 0 C is a disabled slot.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgescope.devices.kernel_files import fact, is_absent

_HARMFUL = ("passive", "hot", "critical")


@dataclass(frozen=True)
class Trip:
    """The lowest harmful trip of a zone: its kind and its temperature in degrees Celsius."""

    kind: str
    celsius: float


def next_trip(zone: Path) -> Trip | None:
    """Return the lowest passive, hot or critical trip of a thermal zone's folder; None where none is readable."""
    found = []
    for file in zone.glob("trip_point_*_temp"):
        kind = fact(file.with_name(file.name[: -len("temp")] + "type"))
        celsius = fact(file, lambda text: float(text) / 1000)
        if kind in _HARMFUL and not is_absent(celsius) and celsius > 0:
            found.append(Trip(kind, celsius))
    return min(found, key=lambda trip: trip.celsius, default=None)
