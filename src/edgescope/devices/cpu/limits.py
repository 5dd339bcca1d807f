"""How much CPU and memory the control groups (v1 or v2) above this process allow: the least limit counts.

A container that may use two CPUs of 64 is another machine to a benchmark, and nothing in /proc/cpuinfo says
so. See Documentation/admin-guide/cgroup-v2.rst (cpu.max, memory.max) and cgroup-v1 (cpu.cfs_quota_us,
memory.limit_in_bytes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from edgescope.devices.kernel_files import Fact, absent, fact, is_absent

_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes a number near 2^63 where there is no limit."""


def cpu_limit(root: Path) -> Fact:
    """Return the CPUs that the quota allows (1.5 is one and a half), or absent where none is set."""
    found = [_quota_v2(f) for f in control_groups(root, "")] + [
        _quota_v1(f) for f in control_groups(root, "cpu")
    ]
    return _least(found, "no CPU quota is set")


def memory_limit(root: Path) -> Fact:
    """Return the memory limit in bytes, or absent where none is set."""
    found = [_number(f / "memory.max") for f in control_groups(root, "")]
    found += [_number(f / "memory.limit_in_bytes") for f in control_groups(root, "memory")]
    limits = [int(x) if x is not None and x < _UNLIMITED_BYTES else None for x in found]
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
