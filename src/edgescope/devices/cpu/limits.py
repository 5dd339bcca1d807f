"""The CPU and memory that the control groups (v1 or v2) above this process allow: the smallest limit counts.

A container that may use two CPUs of 64 is another machine to a benchmark, and nothing in /proc/cpuinfo says
so. See Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max) and cgroup-v1 (cpu.cfs_quota_us,
memory.limit_in_bytes).

Memory is the available memory, from the kernel's estimate and the control group's limit. In a container MemAvailable
is the host's, but the group's limit ends the process. The group's use counts page cache; the kernel frees its inactive
part before it kills anything. The files stay open, because this is read many times a second during a measurement.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from edgescope.devices.kernel_files import Fact, absent, fact, is_absent

UNLIMITED = 1 << 60
"""Version 1 writes a number of bytes near 2^63 if there is no limit."""


def cpu_limit(root: Path) -> Fact:
    """Return the CPUs that the quota allows (1.5 is one and a half), or absent if none is set."""
    found = [_quota_v2(f) for f in control_groups(root, "")] + [
        _quota_v1(f) for f in control_groups(root, "cpu")
    ]
    return _least(found, "no CPU quota is set")


def memory_limit(root: Path) -> Fact:
    """Return the memory limit in bytes, or absent if none is set."""
    found = [_number(f / "memory.max") for f in control_groups(root, "")]
    found += [_number(f / "memory.limit_in_bytes") for f in control_groups(root, "memory")]
    limits = [int(x) if x is not None and x < UNLIMITED else None for x in found]
    return _least(limits, "no memory limit is set")


def _least(found: Sequence[float | None], otherwise: str) -> Fact:
    limits = [x for x in found if x is not None]
    return min(limits) if limits else absent(otherwise)


def _quota_v2(folder: Path) -> float | None:
    def share(text: str) -> float:
        quota, period = text.split()
        return int(quota) / int(period)

    return _value(folder / "cpu.max", share)


def _quota_v1(folder: Path) -> float | None:
    quota, period = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    return quota / period if quota and period and quota > 0 else None


def _number(path: Path) -> float | None:
    return _value(path, int)


def _value(path: Path, convert: Callable[[str], float]) -> float | None:
    value = fact(path, lambda text: float(convert(text)))  # `max`, which is no number, means no limit
    return None if is_absent(value) else value


def control_groups(root: Path, controller: str) -> Iterator[Path]:
    """Yield this process's folder in the hierarchy of `controller` ('' is v2) and all above it."""
    lines = fact(root / "proc/self/cgroup", str.splitlines)
    if is_absent(lines):
        return
    base = root / "sys/fs/cgroup"
    for line in lines:
        _, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if not (colon and second) or controller not in controllers.split(","):
            continue
        mount = base / controllers if controller else base
        if controller and not mount.exists():
            mount = base / controller
        folder = mount / path.strip("/")
        yield folder
        while folder != mount:
            folder = folder.parent
            yield folder


#: Limit, use and statistics of a memory control group, version 2 and version 1.
FILES = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


class Memory:
    """The available memory in bytes; a context manager that keeps its files open."""

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
        """Return the bytes available without swapping or being killed."""
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
    """Return both files' descriptors; if one cannot be opened, the other is closed."""
    first = os.open(use, os.O_RDONLY)
    try:
        return first, os.open(stat, os.O_RDONLY)
    except OSError:
        os.close(first)
        raise


def _inactive(stat: int) -> int:
    """Return the bytes of page cache that the kernel would free first.

    Version 1 counts the use of a group with all below it, as only its `total_` figures do.
    """
    fields = dict(line.split(" ", 1) for line in os.pread(stat, 8192, 0).decode().splitlines() if " " in line)
    return int(fields.get("total_inactive_file") or fields.get("inactive_file") or 0)
