"""Sources for the sampler's tests; imported by the watcher's process through PYTHONPATH."""

from __future__ import annotations

import os
import time
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Failed


class Counting:
    """1, 2, 3 ... at each read."""

    def __init__(self, name="count"):
        self.name, self.n = name, 0

    def channels(self):
        return [ChannelSpec(self.name, "1", "system", "gauge", "test")]

    def read(self):
        self.n += 1
        return [(self.name, time.monotonic_ns(), float(self.n))]


class Vanishing(Counting):
    """Raises once `file` is gone, as a driver does when its device is unplugged."""

    def __init__(self, file):
        super().__init__("vanishing")
        self.file = Path(file)

    def read(self):
        if not self.file.exists():
            raise OSError(19, "No such device")
        return super().read()


class Flapping(Counting):
    """Fails every other time."""

    def read(self):
        rows = super().read()
        return rows if self.n % 2 else [(self.name, rows[0][1], Failed("bus busy"))]


class Pid(Counting):
    def read(self):
        return [(self.name, time.monotonic_ns(), float(os.getpid()))]


class Dear(Counting):
    """Burns 4 ms of CPU a read, as NVML's energy counter does on some machines."""

    def read(self):
        end = time.process_time() + 0.004
        while time.process_time() < end:
            pass
        return super().read()


class Stepping(Counting):
    """A counter that moves every 0.12 s."""

    def read(self):
        super().read()
        return [(self.name, time.monotonic_ns(), float(time.monotonic() // 0.12))]


class Cached(Counting):
    """As `Dear`, but an answer at once after another comes from a cache, as NVML's GPM metrics do."""

    last = 0.0

    def read(self):
        fresh, end = time.monotonic() - self.last > 0.005, time.process_time() + 0.004
        while fresh and time.process_time() < end:
            pass
        self.last = time.monotonic()
        return super().read()


class Refusing:
    def __init__(self):
        raise RuntimeError("no driver")
