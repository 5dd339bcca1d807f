"""Wait between cells until the machine is as cool as it was before the sweep.

A fixed pause is too long after a small cell and too short after a large one, so the temperature decides if it can be
read. The sensors are the same as in every run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

Read = Callable[[], Mapping[str, float]]
"""Returns sensor -> degrees Celsius; empty if no temperature can be read."""
STEP_S = 0.5
#: Default of the longest wait, in seconds.
LIMIT_S = 120.0


class Cooling:
    """Waits until each sensor is at most `margin_c` degrees above its value at construction."""

    def __init__(
        self,
        read: Read,
        margin_c: float,
        *,
        least_s: float = 0.0,
        limit_s: float = LIMIT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.read, self.sleep = read, sleep
        self.least_s, self.limit_s = least_s, max(least_s, limit_s)
        self.target = {name: degrees + margin_c for name, degrees in read().items()}

    def wait(self) -> float:
        """Pause, then wait until the machine is cool; return the seconds spent (the limit if it stayed hot)."""
        self.sleep(self.least_s)
        waited = self.least_s
        while waited < self.limit_s and self._hot():
            self.sleep(STEP_S)
            waited += STEP_S
        return waited

    def _hot(self) -> bool:
        now = self.read()
        return any(now[name] > limit for name, limit in self.target.items() if name in now)
