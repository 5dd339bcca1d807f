"""Memory that CPU and GPU share on a Jetson: the GPU's part, swap, and the largest free block.

NvMap hands out the GPU's memory up to Orin; Thor's driver bypasses it, so /proc/meminfo has no NvMapMemUsed
there and the client list shows 0K for every process (jetson_stats PR 849). /sys/kernel/debug/nvmap/iovmm/clients
names a process in its third column and its size, with a K, M or G, in the last; it is for root. What cannot be
attributed to the process stays unattributed: the device's total belongs to no process.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.cpu.sources import PAGE_BYTES
from edgescope.devices.kernel_files import KernelFile
from edgescope.wings.jetson.files import unlocked

Row = tuple[str, int, Value]
_CLIENTS = "sys/kernel/debug/nvmap/iovmm/clients"
_MAX_ORDER = 32
"""Blocks are 2^order pages. Kernels have eleven orders; a damaged file could have any number."""
_UNITS = {"": 1, "B": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class JetsonMemory:
    """NvMap's total, the watched process's share of it, swap in use, and the largest free block."""

    def __init__(self, root: str, pid: int) -> None:
        base = Path(root)
        self._pid = pid
        self._meminfo = KernelFile(base / "proc/meminfo", 8192)
        self._clients = KernelFile(base / _CLIENTS, 1 << 16)
        self._blocks = KernelFile(base / "proc/buddyinfo", 1 << 14)

    def channels(self) -> Sequence[ChannelSpec]:
        """Return four amounts in bytes."""
        meminfo = str(self._meminfo.path)
        return (
            ChannelSpec("nvmap_used_bytes", "byte", "system", "gauge", f"{meminfo}: NvMapMemUsed"),
            ChannelSpec("swap_used_bytes", "byte", "system", "gauge", f"{meminfo}: SwapTotal - SwapFree"),
            ChannelSpec("process_gpu_bytes", "byte", "process", "gauge", str(self._clients.path)),
            ChannelSpec("largest_free_block_bytes", "byte", "system", "gauge", str(self._blocks.path)),
        )

    def read(self) -> Sequence[Row]:
        """Return the four amounts."""
        data = self._meminfo.read()
        text = data.decode(errors="replace") if isinstance(data, bytes) else data
        rows = [("nvmap_used_bytes", nvmap_used(text)), ("swap_used_bytes", swap_used(text))]
        rows += [("process_gpu_bytes", self._process()), ("largest_free_block_bytes", self._largest())]
        now = time.monotonic_ns()
        return [(name, now, value) for name, value in rows]

    def _process(self) -> Value:
        data = self._clients.read()
        if not isinstance(data, bytes):
            return unlocked(Unsupported(f"not attributable to a process: {data.reason}"))
        return process_bytes(data.decode(errors="replace"), self._pid)

    def _largest(self) -> Value:
        data = self._blocks.read()
        return largest_block(data.decode(errors="replace")) if isinstance(data, bytes) else data


def _kilobytes(text: str, key: str) -> float | None:
    found = re.search(rf"^{key}:\s+([0-9]{{1,15}}) kB", text, re.MULTILINE)
    return None if found is None else float(found[1]) * 1024


def nvmap_used(meminfo: str | Unsupported | Failed) -> Value:
    """Return the bytes that NvMap has allocated; unsupported if the kernel has no such line."""
    if not isinstance(meminfo, str):
        return meminfo
    used = _kilobytes(meminfo, "NvMapMemUsed")
    return (
        Unsupported("no NvMapMemUsed in /proc/meminfo (the driver of Thor bypasses NvMap)")
        if used is None
        else used
    )


def swap_used(meminfo: str | Unsupported | Failed) -> Value:
    """Return the bytes of swap in use."""
    if not isinstance(meminfo, str):
        return meminfo
    total, free = _kilobytes(meminfo, "SwapTotal"), _kilobytes(meminfo, "SwapFree")
    return (
        Failed("no SwapTotal and SwapFree in /proc/meminfo")
        if total is None or free is None
        else total - free
    )


def process_bytes(clients: str, pid: int) -> Value:
    """Return the bytes of `pid` in the client list; unsupported if the list has no entries."""
    sizes: dict[int, float] = {}
    for line in clients.splitlines():
        found = re.fullmatch(r"\s*\S+\s+\S.*?\s+([0-9]{1,10})\s+([0-9]{1,15})([BKMG]?)\s*", line)
        if found:
            pid_here = int(found[1])
            sizes[pid_here] = sizes.get(pid_here, 0.0) + float(found[2]) * _UNITS[found[3]]
    if not any(sizes.values()):
        return Unsupported("not attributable to a process: NvMap's client list books nothing to anyone")
    if pid not in sizes:
        return Unsupported(f"not attributable: process {pid} is not among NvMap's {len(sizes)} clients")
    return sizes[pid]


def largest_block(buddyinfo: str) -> Value:
    """Return the size in bytes of the largest free block of pages (what tegrastats calls lfb)."""
    largest = -1
    for line in buddyinfo.splitlines():
        _, _, counts = line.partition("zone")
        free = [order for order, n in enumerate(counts.split()[1:]) if n.isdecimal() and n.strip("0")]
        largest = max([largest, *free])
    return (
        Failed("/proc/buddyinfo lists no free block")
        if not 0 <= largest < _MAX_ORDER
        else float(PAGE_BYTES << largest)
    )
