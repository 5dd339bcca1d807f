"""Workers that later trials will need: worth starting at once, all together, where memory has room for them."""

from __future__ import annotations

from dataclasses import dataclass

from edgescope.devices.cpu.limits import Memory
from edgescope.isolate.fresh import floor_of


@dataclass(frozen=True)
class Staff:
    """So many workers in all, and the bytes of memory that must remain (None: the default floor)."""

    workers: int = 0
    floor_bytes: int | None = None

    def fits(self, more: int, each_bytes: float) -> bool:
        """Return whether so many more workers leave the floor alone, each taking what one was seen to take."""
        with Memory() as memory:
            return more * each_bytes <= memory.available() - floor_of(self.floor_bytes, memory)


def available() -> int:
    """Return bytes of memory that can be had now."""
    with Memory() as memory:
        return memory.available()
