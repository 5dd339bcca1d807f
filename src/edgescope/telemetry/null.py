"""The null telemetry: used for `hz = 0`, and as the control when the sampler's own cost is measured."""

from __future__ import annotations

from types import TracebackType

import numpy as np

from edgescope.records import Json, Readings


class NullSampler:
    """Watches nothing and costs nothing; the verdict on its readings is UNKNOWN."""

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
