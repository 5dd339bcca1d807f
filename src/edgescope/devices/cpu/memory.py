"""How much memory can still be had: by the kernel's estimate, and by the control group where one sets a limit.

In a container MemAvailable is the host's; what ends the process is the group's limit. Its use counts page cache,
of which the inactive part is given back before anything is killed. The files stay open: this is read many times a
second beside a measurement.
"""

from __future__ import annotations

import os
from pathlib import Path

from edgescope.devices.cpu.limits import control_groups

#: Limit, use and statistics of a memory control group, version 2 and version 1.
FILES = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
#: Version 1 writes a number near 2^63 where there is no limit.
UNLIMITED = 1 << 60


class Memory:
    """Memory that can still be had, in bytes; a context manager that keeps its files open."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.meminfo = os.open(root / "proc/meminfo", os.O_RDONLY)
        self.groups = list(_limited(root))
        self.total = min([self._field("MemTotal"), *(limit for limit, _, _ in self.groups)])

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, *exc: object) -> None:
        for fd in (self.meminfo, *(fd for _, use, stat in self.groups for fd in (use, stat))):
            os.close(fd)

    def _field(self, name: str) -> int:
        text = os.pread(self.meminfo, 4096, 0).decode()
        start = text.index(f"{name}:") + len(name) + 1
        return int(text[start : text.index("kB", start)]) * 1024

    def available(self) -> int:
        """Return bytes that can still be had without swapping or being killed."""
        rooms = [limit - int(os.pread(use, 64, 0)) + _inactive(stat) for limit, use, stat in self.groups]
        return min([self._field("MemAvailable"), *rooms])


def _limited(root: Path) -> list[tuple[int, int, int]]:
    """Return (limit, fd of use, fd of statistics) of each control group above this process that has a limit."""
    found = []
    for controller, (limit_name, use_name) in FILES.items():
        for folder in control_groups(root, controller):
            try:
                limit = int((folder / limit_name).read_text())
                if limit < UNLIMITED:
                    found.append((limit, *_open_both(folder / use_name, folder / "memory.stat")))
            except (OSError, ValueError):  # no such file, or `max`: this group sets no limit
                continue
    return found


def _open_both(use: Path, stat: Path) -> tuple[int, int]:
    """Return both files' descriptors; where one cannot be opened neither stays open."""
    first = os.open(use, os.O_RDONLY)
    try:
        return first, os.open(stat, os.O_RDONLY)
    except OSError:
        os.close(first)
        raise


def _inactive(stat: int) -> int:
    """Return the bytes of page cache that the kernel would give back first.

    Version 1 counts the use of a group with all below it, as only its `total_` figures do.
    """
    fields = dict(line.split(" ", 1) for line in os.pread(stat, 8192, 0).decode().splitlines() if " " in line)
    return int(fields.get("total_inactive_file") or fields.get("inactive_file") or 0)
