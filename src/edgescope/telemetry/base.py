"""The telemetry seam: something that watches while a trial runs, and reports what watching cost."""

from __future__ import annotations

from types import TracebackType
from typing import Protocol

import numpy as np

from edgescope.records import Json, Readings


class Telemetry(Protocol):
    """Watches between entering and leaving; never raises because a sensor or the watcher failed."""

    def __enter__(self) -> Telemetry:
        """Start watching; returns once the first readings are taken."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop watching."""

    def mark(self) -> None:
        """Note that a window begins or ends now, for sources read at edges only; costs some microseconds."""

    def readings(self) -> Readings:
        """Return every reading taken, and every channel with its status."""

    def cost(self) -> dict[str, Json]:
        """Return hz, ticks, missed_ticks, achieved_hz, cpu_s, wall_s, cpu_share (of one core), alive, end."""


class NullSampler:
    """Watches nothing and costs nothing (`hz = 0`); the verdict on its readings is UNKNOWN."""

    def __enter__(self) -> NullSampler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def mark(self) -> None:
        """Do nothing."""

    def readings(self) -> Readings:
        """Return no channels and no rows."""
        return Readings((), np.empty(0, np.int64), np.empty(0, np.int16), np.empty(0, np.float64))

    def cost(self) -> dict[str, Json]:
        """Return zero ticks; not alive, because nothing watched."""
        return {"hz": 0.0, "ticks": 0, "missed_ticks": 0, "cpu_s": 0.0, "alive": False, "end": "off (hz = 0)"}
