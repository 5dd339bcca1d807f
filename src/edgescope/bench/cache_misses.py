"""Misses of the CPU's caches within the window: counters of the processor for this process's own threads.

Each thread that runs when the window begins gets a counter for each event, which threads that it starts inherit. It
counts in user mode alone, which the kernel lets everybody do up to perf_event_paranoid 2. Where a processor has fewer
counters than events, the kernel takes turns and says for how long each one counted; the count is scaled by that. The
events are those of Linux (perf_event_open(2)); level 2 has none there, and on Arm it is the architecture's own 0x17.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from edgescope.records import Absent, Field, Measured

CALL: Mapping[str, int] = MappingProxyType({"x86_64": 298, "aarch64": 241})
"""The number of perf_event_open by the machine."""
CACHED, RAW = 3, 4
READ_MISS = 1 << 16
"""A cache event: level | operation << 8 | result << 16; reading is 0, a miss is 1."""
L1D, LAST = 0, 2
ARM_L2_REFILL = 0x17
INHERIT, USER_ONLY = 1 << 1, 1 << 5 | 1 << 6
"""Flags of the attribute: threads to come count too; neither the kernel nor a hypervisor does."""
TIMES = 1 | 2
"""Beside the count, for how long it was wanted and for how long it counted."""
ATTRIBUTE = struct.Struct("<IIQQQQQIIQ")
"""type, size, event, period, what to sample, what to read, flags, wake-up, breakpoint, its address: 64 bytes."""
CLOSE_ON_EXEC, ANY_CPU, NO_GROUP = 8, -1, -1
PARANOID = "proc/sys/kernel/perf_event_paranoid"
Event = tuple[int, int]
"""Type and number."""
EVENTS: Mapping[str, Mapping[str, Event]] = MappingProxyType(
    {
        "l1_misses_per_s": dict.fromkeys(CALL, (CACHED, L1D | READ_MISS)),
        "l2_misses_per_s": {"aarch64": (RAW, ARM_L2_REFILL)},
        "llc_misses_per_s": dict.fromkeys(CALL, (CACHED, LAST | READ_MISS)),
    }
)
"""Metric -> the event that counts it, by the machine."""


@dataclass
class CacheMisses:
    """Counters that are opened at the first look and read at the second."""

    events: Mapping[str, Mapping[str, Event]] = field(default_factory=lambda: EVENTS)
    machine: str = field(default_factory=platform.machine)
    root: Path = Path("/")
    opened: dict[str, list[int] | Absent] = field(default_factory=dict)
    counts: dict[str, float | Absent] = field(default_factory=dict)

    def mark(self) -> None:
        """Begin to count, or read what was counted and close the counters."""
        if not self.opened:
            self.opened = {name: self._open(name) for name in self.events}
            return
        for name, files in self.opened.items():
            self.counts[name] = files if isinstance(files, Absent) else _read(files)
        self.opened = {name: Absent("the window is over") for name in self.opened}

    def metrics(self, seconds: float) -> dict[str, Field]:
        """Return the misses per second of each level, or why they were not counted."""
        found = {name: self.counts.get(name, Absent("the window had no two ends")) for name in self.events}
        return {
            name: count if isinstance(count, Absent) else Measured(count / seconds, "1/s")
            for name, count in found.items()
        }

    def _open(self, name: str) -> list[int] | Absent:
        event = self.events[name].get(self.machine)
        if event is None:
            return Absent(f"unsupported: Linux names no such event on {self.machine}")
        files: list[int] = []
        for thread in os.listdir(self.root / "proc/self/task"):
            file = _opened(event, int(thread), CALL[self.machine])
            if file < 0:
                why = ctypes.get_errno()
                if why == errno.ESRCH:
                    continue  # the thread has ended meanwhile
                for other in files:
                    os.close(other)
                return Absent(self._why(why))
            files.append(file)
        return files

    def _why(self, error: int) -> str:
        if error in (errno.EACCES, errno.EPERM):
            try:
                level = (self.root / PARANOID).read_text().strip()
            except OSError:
                level = "unknown"
            return f"unsupported: perf_event_paranoid is {level}; sudo sysctl kernel.perf_event_paranoid=2 allows it"
        if error in (errno.ENOENT, errno.EOPNOTSUPP, errno.ENODEV):
            return "unsupported: this processor, or the virtual machine around it, has no such counter"
        return f"unsupported: perf_event_open: {os.strerror(error)}"


def _opened(event: Event, thread: int, call: int) -> int:
    """Return the file of a counter of a thread; below 0 where there is none, and errno says why."""
    kind, number = event
    made = ATTRIBUTE.pack(kind, ATTRIBUTE.size, number, 0, 0, TIMES, INHERIT | USER_ONLY, 0, 0, 0)
    attribute = ctypes.create_string_buffer(made, ATTRIBUTE.size)
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    given = (ctypes.c_long(n) for n in (thread, ANY_CPU, NO_GROUP, CLOSE_ON_EXEC))
    return int(library.syscall(ctypes.c_long(call), attribute, *given))


def _read(files: list[int]) -> float | Absent:
    """Return what all counters counted, scaled to the time for which they were wanted, and close them."""
    total, ran = 0.0, False
    for file in files:
        try:
            count, wanted, counted = struct.unpack("<QQQ", os.read(file, 24))
        finally:
            os.close(file)
        total += count * wanted / counted if counted else 0
        ran |= counted > 0
    return total if ran else Absent("the processor's counters were in another's use")
