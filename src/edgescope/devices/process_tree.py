"""CPU time and memory of a process and its descendants, from /proc/<pid>/stat.

A finished child's time is in its parent's cutime and cstime once the parent has waited for it, so the tree's
total is the sum of utime, stime, cutime and cstime over its living members. The kernel counts in ticks of 10
ms: one reading is coarse, sums over a window are not. See proc_pid_stat(5).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from edgescope.devices.base import Failed, Unsupported
from edgescope.devices.kernel_files import KernelFile

TICK_S = 1.0 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_LONGEST = 20
"""Length of the longest number that the kernel prints here, with its sign."""
_REFRESH = 10
"""Readings between two searches for children; a child that lives less long counts when its parent waits for it."""


@dataclass(frozen=True)
class Usage:
    """CPU time and memory of one process, from /proc/<pid>/stat."""

    own_s: float
    """CPU seconds of its threads."""
    waited_s: float
    """CPU seconds of its finished children."""
    rss_bytes: float
    major_faults: float


def parse_stat(data: bytes) -> Usage:
    """Return the usage in one stat line; ValueError or IndexError if it is no stat line."""
    f = data[data.rindex(b")") + 2 :].split()  # the name may hold spaces and brackets
    if max(map(len, f)) > _LONGEST:
        raise ValueError("a number of more than 64 bits")
    return Usage(
        (int(f[11]) + int(f[12])) * TICK_S,
        (int(f[13]) + int(f[14])) * TICK_S,
        int(f[21]) * PAGE_BYTES,
        int(f[9]),
    )


class ProcessTree:
    """A process and its descendants, which are searched again every `_REFRESH` readings."""

    def __init__(self, proc: Path, pid: int) -> None:
        self._proc, self._pid, self._count = proc, pid, 0
        self._files = {pid: KernelFile(proc / str(pid) / "stat")}

    def read(self) -> tuple[Usage, float] | Unsupported | Failed:
        """Return (usage of the process itself, CPU seconds of the whole tree)."""
        root = self._usage(self._pid)
        if not isinstance(root, Usage):
            return root
        if self._count % _REFRESH == 0:
            self._refresh()
        self._count += 1
        total = root.own_s + root.waited_s
        for pid in [p for p in self._files if p != self._pid]:
            usage = self._usage(pid)
            if isinstance(usage, Usage):
                total += usage.own_s + usage.waited_s
            else:
                del self._files[pid]
        return root, total

    def _usage(self, pid: int) -> Usage | Unsupported | Failed:
        data = self._files[pid].read()
        if not isinstance(data, bytes):
            return data
        try:
            return parse_stat(data)
        except (ValueError, IndexError):
            return Failed(f"{self._files[pid].path} is not a stat line")

    def _refresh(self) -> None:
        for pid in self._descendants():
            if pid not in self._files:
                self._files[pid] = KernelFile(self._proc / str(pid) / "stat")

    def _descendants(self) -> list[int]:
        found, queue = [], [self._pid]
        try:
            while queue:
                children = [p for p in _children(self._proc / str(queue.pop()) / "task") if p not in found]
                found += children
                queue += children
        except (
            OSError,
            ValueError,
        ):  # a kernel without CONFIG_PROC_CHILDREN, or a process that has just ended
            return _scan(self._proc, self._pid)
        return found


def _children(task: Path) -> list[int]:
    out: list[int] = []
    for thread in os.listdir(task):
        try:
            out += [int(p) for p in (task / thread / "children").read_bytes().split()]
        except ProcessLookupError:  # the thread ended between the two calls
            continue
    return out


def _scan(proc: Path, pid: int) -> list[int]:
    """Return the descendants found through every process's parent: slower, but it works on any kernel."""
    parents: dict[int, int] = {}
    for name in filter(str.isdigit, os.listdir(proc) if proc.is_dir() else ()):
        try:
            data = (proc / name / "stat").read_bytes()
            parents[int(name)] = int(data[data.rindex(b")") + 2 :].split()[1])
        except (OSError, ValueError, IndexError):
            continue
    found, grown = {pid}, True
    while grown:
        new = {p for p, parent in parents.items() if parent in found} - found
        grown = bool(new)
        found |= new
    return sorted(found - {pid})
