"""What a Linux CPU can be asked while something runs: time, pressure, memory, clocks, heat, energy.

Each Source here is one or a few kernel files, opened once. They import neither numpy nor an engine, because
they are rebuilt inside the sampler's process. Shares are of all online cores: 1.0 is every core busy. An
`interval` value holds for the time since the previous reading; a share can dip below 0 by one accounting tick
(10 ms), and clamping it would bias the sums.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.kernel_files import KernelFile, finite
from edgescope.devices.process_tree import TICK_S, ProcessTree

Row = tuple[str, int, Value]
_MAX_TICKS = 1 << 62


class CpuTime:
    """Busy, stolen and foreign CPU time, and what the watched process uses."""

    def __init__(self, root: str, pid: int) -> None:
        self._stat = KernelFile(Path(root) / "proc/stat", 1 << 16)
        self._tree = ProcessTree(Path(root) / "proc", pid)
        self._last = (self._system(), self._tree.read())

    def channels(self) -> Sequence[ChannelSpec]:
        """Return shares of all cores, the watched process's CPU seconds and memory, and context switches."""
        stat, process = str(self._stat.path), "/proc/<pid>/stat"
        return (
            ChannelSpec("cpu_busy", "share", "system", "interval", stat),
            ChannelSpec("cpu_steal", "share", "system", "interval", stat),
            ChannelSpec("cpu_others", "share", "system", "interval", f"{stat} less the watched process tree"),
            ChannelSpec("ctx_switches", "1", "system", "counter", stat),
            ChannelSpec("proc_cpu_s", "s", "process", "counter", process),
            ChannelSpec("proc_rss_bytes", "byte", "process", "gauge", process),
            ChannelSpec("proc_major_faults", "1", "process", "counter", process),
        )

    def read(self) -> Sequence[Row]:
        """Return one row a channel; the shares are left out when no accounting tick has passed."""
        (system, tree), (last_system, last_tree) = (self._system(), self._tree.read()), self._last
        now, rows = time.monotonic_ns(), []
        if isinstance(system, tuple) and isinstance(last_system, tuple):
            busy, steal, total, switches = system
            ticks = total - last_system[2]
            if ticks > 0:
                self._last = (system, tree)
                rows += [
                    ("cpu_busy", now, (busy - last_system[0]) / ticks),
                    ("cpu_steal", now, (steal - last_system[1]) / ticks),
                    ("cpu_others", now, _others(busy - last_system[0], ticks, tree, last_tree)),
                ]
            rows.append(("ctx_switches", now, switches))
        else:
            self._last = (system, tree)
            problem = (
                system if not isinstance(system, tuple) else Failed("no earlier reading to compare with")
            )
            rows += [(name, now, problem) for name in ("cpu_busy", "cpu_steal", "cpu_others", "ctx_switches")]
        return rows + _process_rows(tree, now)

    def _system(self) -> tuple[float, float, float, Value] | Unsupported | Failed:
        """Return (busy s, stolen s, total s, context switches) summed over the cores since boot."""
        data = self._stat.read()
        if not isinstance(data, bytes):
            return data
        try:
            user, nice, system, idle, iowait, irq, soft, steal = map(
                int, data[: data.index(b"\n")].split()[1:9]
            )
        except ValueError:
            return Failed(f"{self._stat.path} does not begin with a cpu line")
        busy = user + nice + system + irq + soft
        if busy + idle + iowait + steal >= _MAX_TICKS:
            return Failed(f"{self._stat.path} counts more ticks than time has had")
        at = data.find(b"\nctxt ")
        end = data.find(b"\n", at + 1)
        switches: Value = Unsupported(f"no ctxt line in {self._stat.path}")
        if at >= 0:
            switches = _number(data[at + 6 : end], f"{self._stat.path}: ctxt")
        return busy * TICK_S, steal * TICK_S, (busy + idle + iowait + steal) * TICK_S, switches


def _number(text: bytes, where: str) -> Value:
    try:
        return finite(text)
    except ValueError:
        return Failed(f"{where} is {text[:40]!r}, not a number")


def _others(busy_s: float, total_s: float, tree: object, last: object) -> Value:
    if isinstance(tree, tuple) and isinstance(last, tuple):
        return float((busy_s - (tree[1] - last[1])) / total_s)
    return next(x for x in (tree, last) if isinstance(x, Unsupported | Failed))


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
            f"psi_{what}_some": KernelFile(Path(root) / "proc/pressure" / what, 256)
            for what in ("cpu", "memory")
        }
        self._last = {name: (time.monotonic_ns(), _stalled_us(file)) for name, file in self._files.items()}

    def channels(self) -> Sequence[ChannelSpec]:
        """Return one share a resource."""
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


class MemoryAndLoad:
    """Memory the system could still give, and the load average."""

    def __init__(self, root: str) -> None:
        self._meminfo = KernelFile(Path(root) / "proc/meminfo")
        self._loadavg = KernelFile(Path(root) / "proc/loadavg", 128)

    def channels(self) -> Sequence[ChannelSpec]:
        """Return available memory in bytes and the one-minute load average."""
        return (
            ChannelSpec("mem_available_bytes", "byte", "system", "gauge", str(self._meminfo.path)),
            ChannelSpec("load1", "1", "system", "average", str(self._loadavg.path)),
        )

    def read(self) -> Sequence[Row]:
        """Return both values."""
        available, load = self._available(), self._loadavg.read()
        now = time.monotonic_ns()
        load1: Value = (
            _number(load.split(b" ")[0], str(self._loadavg.path)) if isinstance(load, bytes) else load
        )
        return [("mem_available_bytes", now, available), ("load1", now, load1)]

    def _available(self) -> Value:
        data = self._meminfo.read()
        if not isinstance(data, bytes):
            return data
        at = data.find(b"MemAvailable:")
        if at < 0:
            return Unsupported(f"no MemAvailable in {self._meminfo.path}")
        value = _number(data[at + 13 :].split(b"kB")[0], f"{self._meminfo.path}: MemAvailable")
        return value * 1024 if isinstance(value, float) else value
