"""Clocks held down at this moment: the GPU's below its policy while busy, a CPU's below what was asked for.

A low clock alone is no evidence, since idle parts clock down. A busy GPU whose governor could raise the clock and
does not is held; so is a CPU whose hardware does not follow the request, busy or not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Unsupported, Value
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.jetson.files import gpu_devfreq
from edgescope.devices.jetson.soc import Gpu
from edgescope.devices.kernel_files import KernelFile

HELD = 0.9
"""Share of the clock asked for below which the hardware does not follow; readback moves by some per cent."""
BUSY = 0.95
"""GPU load from which its governor would raise the clock if it could."""


def pair(asked: KernelFile, effective: KernelFile) -> tuple[float, float] | Value:
    """Return (asked for, effective) in hertz, read while the request stood still; 0 asked for where it moved."""
    first, clock, last = asked.number(1e3), effective.number(1e3), asked.number(1e3)
    for value in (clock, first, last):
        if not isinstance(value, float):
            return value
    assert isinstance(first, float) and isinstance(clock, float)
    return (first if first == last else 0.0), clock


class HeldClocks:
    """Whether clocks are held down while busy: the GPU's below its policy, a CPU's below what was asked for."""

    def __init__(self, root: str) -> None:
        base = Path(root)
        self._gpu = Gpu(root)
        folder = gpu_devfreq(base)
        self._limit = None if folder is None else KernelFile(folder / "max_freq", 32)
        self._cpus = {
            f"throttled_cpu_{p.name}_clock": (
                KernelFile(p / "scaling_cur_freq", 32),
                KernelFile(p / "cpuinfo_cur_freq", 32),
            )
            for p in policies(base)
        }

    def channels(self) -> Sequence[ChannelSpec]:
        """Return one flag for the GPU and one for each CPU policy."""
        gpu = f"gpu_busy >= {BUSY:.0%} and gpu_clock_hz < {HELD:.0%} of max_freq"
        cpu = f"cpuinfo_cur_freq < {HELD:.0%} of scaling_cur_freq"
        return [
            ChannelSpec("throttled_gpu_clock", "flag", "gpu", "gauge", gpu),
            *(ChannelSpec(name, "flag", "cpu_cluster", "gauge", cpu) for name in self._cpus),
        ]

    def read(self) -> Sequence[tuple[str, int, Value]]:
        """Return 1 where a clock is held down at this moment, 0 where it is not."""
        rows = [("throttled_gpu_clock", time.monotonic_ns(), self._gpu_held())]
        for name, files in self._cpus.items():
            both = pair(*files)
            held = float(both[1] < HELD * both[0]) if isinstance(both, tuple) else both
            rows.append((name, time.monotonic_ns(), held))
        return rows

    def _gpu_held(self) -> Value:
        (_, _, busy), (_, _, clock) = self._gpu.read()
        limit: Value = Unsupported("no GPU in devfreq") if self._limit is None else self._limit.number()
        for value in (busy, clock, limit):
            if not isinstance(value, float):
                return value
        assert isinstance(busy, float) and isinstance(clock, float) and isinstance(limit, float)
        return float(busy >= BUSY and clock < HELD * limit)
