"""Sources that read a Linux CPU during a run: time, pressure, memory and load; of the watched process, its whole tree.

Each Source here is one or a few kernel files, opened once. They import neither numpy nor an engine, because
they are rebuilt inside the sampler's process. Shares are of all online cores, 1.0 is every core busy; a channel with
`allowed` in its name is for the cores that the watched process may use. An
`interval` value holds for the time since the previous reading; a share can dip below 0 by one accounting tick
(10 ms), and clamping it would bias the sums.

A finished child's time is in its parent's cutime and cstime once the parent has waited for it, so a tree's total is the
sum of utime, stime, cutime and cstime over its living members. The kernel counts in ticks of 10 ms: one reading is
coarse, sums over a window are not. See proc_pid_stat(5).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from edgescope import cores
from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.kernel_files import Each, KernelFile, cpu_list, fact, finite, is_absent

Row = tuple[str, int, Value]
Tree: TypeAlias = "tuple[Usage, float] | Unsupported | Failed"
_MAX_TICKS = 1 << 62
CPU_LINE = re.compile(rb"^cpu(\d+) ", re.MULTILINE)


class CpuTime:
    """Busy, stolen and foreign CPU time, and the CPU time of the watched process.

    A process that may use only some cores (`cpus`: an affinity mask, a cpuset) is disturbed by other work on these
    cores, so stolen and foreign time are then reported for them, too.
    """

    def __init__(self, root: str, pid: int, cpus: Sequence[int] = ()) -> None:
        self._stat = KernelFile(Path(root) / "proc/stat", 1 << 16)
        self._tree = ProcessTree(Path(root) / "proc", pid)
        allowed = _fewer(Path(root), self._stat, cpus)
        self._all, self._allowed = Shares(cores.ALL), Shares(cores.ALLOWED)
        self._names = frozenset(b"cpu%d" % n for n in allowed)
        self.read()

    def channels(self) -> Sequence[ChannelSpec]:
        """Return shares of all cores, of the allowed ones if those are fewer, and the time of the process."""
        stat, process = str(self._stat.path), "/proc/<pid>/stat"
        cpus = ", ".join(sorted(name.decode() for name in self._names))
        return (
            *self._all.channels(stat),
            *(self._allowed.channels(f"{stat} {cpus}") if cpus else ()),
            ChannelSpec("ctx_switches", "1", "system", "counter", stat),
            ChannelSpec("proc_cpu_s", "s", "process", "counter", process),
            ChannelSpec("proc_rss_bytes", "byte", "process", "gauge", process),
            ChannelSpec("proc_major_faults", "1", "process", "counter", process),
        )

    def read(self) -> Sequence[Row]:
        """Return one row per channel; the shares are left out if no accounting tick has passed."""
        system, tree, now = self._system(), self._tree.read(), time.monotonic_ns()
        if not isinstance(system, System):
            names = [c.name for c in self.channels() if c.scope == "system"]
            return [(name, now, system) for name in names] + _process_rows(tree, now)
        rows = self._all.rows(system.all, tree, now)
        rows += self._allowed.rows(system.allowed, tree, now) if self._names else []
        return [*rows, ("ctx_switches", now, system.switches), *_process_rows(tree, now)]

    def _system(self) -> System | Unsupported | Failed:
        """Return the seconds since boot of all cores and of the allowed ones, and the context switches."""
        data = self._stat.read()
        if not isinstance(data, bytes):
            return data
        try:
            everywhere = _time_of(data[: data.index(b"\n")])
            own = (line for line in data.splitlines() if line.split(b" ", 1)[0] in self._names)
            allowed = sum(map(_time_of, own), Time()) if self._names else Time()
        except (ValueError, IndexError):
            return Failed(f"{self._stat.path} does not begin with cpu lines of ticks that time has had")
        at = data.find(b"\nctxt ")
        end = data.find(b"\n", at + 1)
        switches: Value = Unsupported(f"no ctxt line in {self._stat.path}")
        if at >= 0:
            switches = _number(data[at + 6 : end], f"{self._stat.path}: ctxt")
        return System(everywhere, allowed, switches)


@dataclass(frozen=True)
class Time:
    """CPU seconds of some cores, idle ones in the total."""

    busy_s: float = 0.0
    steal_s: float = 0.0
    total_s: float = 0.0

    def __add__(self, other: Time) -> Time:
        return Time(self.busy_s + other.busy_s, self.steal_s + other.steal_s, self.total_s + other.total_s)

    def __sub__(self, other: Time) -> Time:
        return Time(self.busy_s - other.busy_s, self.steal_s - other.steal_s, self.total_s - other.total_s)


@dataclass(frozen=True)
class System:
    """One reading of /proc/stat."""

    all: Time
    allowed: Time
    switches: Value


class Shares:
    """How some cores spent their time since the last accounting tick, as shares."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._last: tuple[Time, Tree] | None = None

    def channels(self, source: str) -> tuple[ChannelSpec, ...]:
        """Return the shares: busy, stolen by a hypervisor, and used outside of the watched process tree."""
        less = f"{source} less the watched process tree"
        return (
            ChannelSpec(f"{self.prefix}_busy", "share", "system", "interval", source),
            ChannelSpec(f"{self.prefix}_steal", "share", "system", "interval", source),
            ChannelSpec(f"{self.prefix}_others", "share", "system", "interval", less),
        )

    def rows(self, spent: Time, tree: Tree, now: int) -> list[Row]:
        """Return the shares; none if these cores have not ticked, and the interval goes on."""
        if self._last is None:
            self._last = (spent, tree)
        last, passed = self._last[1], spent - self._last[0]
        if passed.total_s <= 0:
            return []
        self._last, used = (spent, tree), _used_s(tree, last)
        others = (passed.busy_s - used) / passed.total_s if isinstance(used, float) else used
        return [
            (f"{self.prefix}_busy", now, passed.busy_s / passed.total_s),
            (f"{self.prefix}_steal", now, passed.steal_s / passed.total_s),
            (f"{self.prefix}_others", now, others),
        ]


def _fewer(root: Path, stat: KernelFile, cpus: Sequence[int]) -> list[int]:
    """Return the online CPUs among `cpus`, or nothing if `cpus` contains all online CPUs.

    Return nothing, too, if /proc/stat numbers the CPUs differently from /sys, as in some containers.
    """
    listed, data = fact(root / "sys/devices/system/cpu/online", cpu_list), stat.read()
    if is_absent(listed) or not isinstance(data, bytes):
        return []
    online, shown = set(listed), {int(n) for n in CPU_LINE.findall(data)}
    return sorted(online & set(cpus)) if shown == online and online - set(cpus) else []


def _time_of(line: bytes) -> Time:
    """Return the counts since boot in one cpu line of /proc/stat; ValueError if it is not such a line."""
    user, nice, system, idle, iowait, irq, soft, steal = map(int, line.split()[1:9])
    busy = user + nice + system + irq + soft
    if busy + idle + iowait + steal >= _MAX_TICKS:
        raise ValueError("more ticks than time has had")
    return Time(busy * TICK_S, steal * TICK_S, (busy + idle + iowait + steal) * TICK_S)


def _used_s(tree: Tree, last: Tree) -> Value:
    """Return the CPU seconds of the watched tree between two readings."""
    if not isinstance(tree, tuple):
        return tree
    return tree[1] - last[1] if isinstance(last, tuple) else last


def _number(text: bytes, where: str) -> Value:
    try:
        return finite(text)
    except ValueError:
        return Failed(f"{where} is {text[:40]!r}, not a number")


def _process_rows(tree: object, now: int) -> list[Row]:
    if isinstance(tree, tuple):
        usage = tree[0]
        values: tuple[Value, ...] = (usage.own_s, usage.rss_bytes, usage.major_faults)
    else:
        assert isinstance(tree, Unsupported | Failed)
        values = (tree,) * 3
    return [
        (n, now, v)
        for n, v in zip(("proc_cpu_s", "proc_rss_bytes", "proc_major_faults"), values, strict=True)
    ]


class Pressure:
    """Pressure-stall information: the share of time in which some task waited for a resource (PSI)."""

    def __init__(self, root: str) -> None:
        self._files = {
            f"psi_{what}_some": KernelFile(Path(root) / "proc/pressure" / what) for what in ("cpu", "memory")
        }
        self._last = {name: (time.monotonic_ns(), _stalled_us(file)) for name, file in self._files.items()}

    def channels(self) -> Sequence[ChannelSpec]:
        """Return one share per resource."""
        return tuple(
            ChannelSpec(n, "share", "system", "interval", str(f.path)) for n, f in self._files.items()
        )

    def read(self) -> Sequence[Row]:
        """Return the stalled share of the time since the previous reading."""
        rows: list[Row] = []
        for name, file in self._files.items():
            value, now = _stalled_us(file), time.monotonic_ns()
            then, before = self._last[name]
            self._last[name] = (now, value)
            if isinstance(value, float) and isinstance(before, float):
                value = (value - before) * 1e3 / max(now - then, 1)
            rows.append((name, now, value))
        return rows


def _stalled_us(file: KernelFile) -> Value:
    data = file.read()
    if not isinstance(data, bytes):
        return data
    at = data.find(b"total=")
    try:
        return finite(data[at + 6 : data.index(b"\n", at)])
    except ValueError:
        return Failed(f"{file.path} has no total")


class MemoryAndLoad(Each):
    """The available memory in bytes and the one-minute load average."""

    def __init__(self, root: str) -> None:
        self._meminfo = KernelFile(Path(root) / "proc/meminfo")
        self._loadavg = KernelFile(Path(root) / "proc/loadavg")
        memory, load = str(self._meminfo.path), str(self._loadavg.path)
        super().__init__(
            [
                (ChannelSpec("mem_available_bytes", "byte", "system", "gauge", memory), self._available),
                (ChannelSpec("load1", "1", "system", "average", load), self._load1),
            ]
        )

    def _load1(self) -> Value:
        load = self._loadavg.read()
        return _number(load.split(b" ")[0], str(self._loadavg.path)) if isinstance(load, bytes) else load

    def _available(self) -> Value:
        data = self._meminfo.read()
        if not isinstance(data, bytes):
            return data
        at = data.find(b"MemAvailable:")
        if at < 0:
            return Unsupported(f"no MemAvailable in {self._meminfo.path}")
        value = _number(data[at + 13 :].split(b"kB")[0], f"{self._meminfo.path}: MemAvailable")
        return value * 1024 if isinstance(value, float) else value


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
