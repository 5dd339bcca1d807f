"""Load, clocks and memory of a Jetson's chip: GPU, memory controller (EMC), fixed-function engines, CPU clusters.

    GPU load    per mille of the time, at the *current* clock: 100 % at 306 MHz is a third of 100 % at 918 MHz
    EMC         the clock is in debugfs (root only) or, on Thor, devfreq; its load is the activity monitor's
                kHz of active cycles over the clock's
    engines     (DLA, NVENC, NVDEC, NVJPG, VIC, PVA, OFA, APE) from JetPack 6 on each has a devfreq folder that everyone
                may read; before, only root reads its clock, in debugfs. Its device's runtime status on the host1x bus
                says whether it runs. None publishes a load to the user
    CPU         scaling_cur_freq is the requested clock; cpuinfo_cur_freq (root only) is the actual one
    memory      CPU and GPU share it. NvMap hands out the GPU's part up to Orin; Thor's driver bypasses it, so
                /proc/meminfo has no NvMapMemUsed there and the client list shows 0K for every process (jetson_stats
                PR 849). /sys/kernel/debug/nvmap/iovmm/clients names a process in its third column and its size, with a
                K, M or G, in the last; it is for root. What cannot be attributed to the process stays unattributed:
                the device's total belongs to no process

The kernel publishes these under different paths in every release; no path is chosen by a board's name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.cpu.sources import PAGE_BYTES
from edgescope.devices.kernel_files import Each, Fact, KernelFile, absent, cpu_list, fact
from edgescope.wings.jetson.boards import soc
from edgescope.wings.jetson.files import (
    bounds,
    devfreqs,
    first_readable,
    gpu_devfreq,
    number,
    rate_files,
    unlocked,
)

_LOADS = (
    "sys/devices/gpu.0/load",
    "sys/devices/platform/gpu.0/load",
    "sys/devices/[0-9]*.g*/load",
    "sys/devices/platform/[0-9]*.g*/load",
    "sys/devices/platform/bus@0/[0-9]*.g*/load",
)


class Gpu(Each):
    """Load of the integrated GPU as a share of its current clock, and that clock in hertz."""

    def __init__(self, root: str) -> None:
        base = Path(root)
        self._folder = gpu_devfreq(base)
        own = () if self._folder is None else (f"{self._folder.relative_to(base)}/device/load",)
        self._load = first_readable(base, (*own, *_LOADS))
        clock: KernelFile | Unsupported = Unsupported(
            f"no GPU among {base / 'sys/class/devfreq'}: neither gm20b, gp10b, gv11b, ga10b, gpu nor gpu-gpc"
        )
        if self._folder is not None:
            clock = KernelFile(self._folder / "cur_freq")
        load = f"{getattr(self._load, 'path', 'load')}: of the current clock"
        at = str(getattr(clock, "path", "devfreq"))
        super().__init__(
            [
                (ChannelSpec("gpu_busy", "share", "gpu", "average", load), self._busy),
                (ChannelSpec("gpu_clock_hz", "Hz", "gpu", "gauge", at), partial(number, clock)),
            ]
        )

    def _busy(self) -> Value:
        """Return the load; Thor has no load file, its driver answers NVML instead."""
        load = number(self._load, 1e-3)
        if isinstance(load, float) and not 0 <= load <= 1:
            return Failed(f"a load of {load * 1000:.0f} per mille is none")
        if isinstance(load, Unsupported) and self._folder is not None and "gpc" in self._folder.name:
            return Unsupported(f"{load.reason}; the unified driver of Thor answers NVML instead (gpu0_busy)")
        return load

    @staticmethod
    def facts(root: Path) -> Fact:
        """Return name, clocks (least, now, most, available), governor, rail gating, 3D scaling, disabled TPCs."""
        folder = gpu_devfreq(root)
        if folder is None:
            return absent("no GPU in devfreq")
        device = folder / "device"
        return {
            "name": folder.name,
            **bounds(folder),
            "available_hz": fact(folder / "available_frequencies", lambda t: [int(x) for x in t.split()]),
            "governor": fact(folder / "governor"),
            "railgate": fact(device / "railgate_enable", _flag),
            "scaling_3d": fact(device / "enable_3d_scaling", _flag),
            "tpc_pg_mask": fact(device / "tpc_pg_mask"),
        }


def _flag(text: str) -> bool:
    return bool(int(text))


_EMC = re.compile(r"(?:^|\.)emc$|^bwmgr$")
_EMC_CLOCKS = (*rate_files("emc"), "sys/kernel/debug/clk/override.emc/clk_rate")
_EMC_LOADS = ("sys/kernel/actmon_avg_activity/mc_all", "sys/kernel/debug/cactmon/mc_all")
_FULL = 1.02
"""The clock may change between the two reads: a share up to this value still counts as 1."""
_BPMP_LOAD = "sys/kernel/debug/bpmp/debug/actmon/mc_all_avg_activity"


class Emc:
    """Clock and load of the external memory controller."""

    def __init__(self, root: str) -> None:
        base = Path(root)
        own = [f"{f.relative_to(base)}/cur_freq" for f in devfreqs(base, _EMC)]
        self._clock = first_readable(base, (*own, *_EMC_CLOCKS))
        self._load = first_readable(base, _EMC_LOADS)
        self._bpmp = isinstance(first_readable(base, (_BPMP_LOAD,)), KernelFile)

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the share of memory cycles in use, and the clock in hertz."""
        clock, load = (str(getattr(f, "path", "debugfs")) for f in (self._clock, self._load))
        return (
            ChannelSpec("emc_busy", "share", "memory", "average", f"{load} (kHz of active cycles) / {clock}"),
            ChannelSpec("emc_clock_hz", "Hz", "memory", "gauge", clock),
        )

    def read(self) -> Sequence[Row]:
        """Return load and clock, or the way to unlock them."""
        clock, active = unlocked(number(self._clock)), number(self._load, 1e3)
        return [
            ("emc_busy", time.monotonic_ns(), self._busy(clock, active)),
            ("emc_clock_hz", time.monotonic_ns(), clock),
        ]

    def _busy(self, clock: Value, active: Value) -> Value:
        if not isinstance(active, float):
            if self._bpmp:
                return Unsupported(
                    "the unit of BPMP's mc_all_avg_activity is not published; tegrastats knows"
                )
            return unlocked(active)
        if not isinstance(clock, float):
            return clock
        if clock <= 0:
            return Failed("the memory clock reads 0 Hz")
        share = active / clock
        if not 0 <= share <= _FULL:
            return Failed(
                f"{active / 1e6:.0f} MHz of active cycles at a clock of {clock / 1e6:.0f} MHz: no share"
            )
        return min(share, 1.0)

    @staticmethod
    def facts(root: Path) -> Fact:
        """Return the memory clock's bounds, its cap by the power mode, and whether it is locked."""
        clk = root / "sys/kernel/debug/bpmp/debug/clk/emc"
        cap = first_readable(
            root, ("sys/kernel/nvpmodel_clk_cap/emc", "sys/kernel/nvpmodel_emc_cap/emc_iso_cap")
        )
        own = devfreqs(root, _EMC)
        clocks = {
            f"{k}_hz": fact(clk / f"{n}rate", int) for k, n in (("min", "min_"), ("cur", ""), ("max", "max_"))
        }
        return {
            **(bounds(own[0]) if own else clocks),
            "cap_hz": fact(cap.path, int) if isinstance(cap, KernelFile) else absent(cap.reason),
            "locked": fact(clk / "mrq_rate_locked", _flag),
        }


_ENGINES: dict[str, tuple[str, ...]] = {
    "dla": ("nafll_dla{0}_core", "nafll_dla", "nvdla{0}"),
    "nvenc": ("nvenc{0}", "nvenc", "nafll_nvenc"),
    "nvdec": ("nvdec{0}", "nvdec", "nafll_nvdec"),
    "nvjpg": ("nvjpg{0}", "nvjpg", "nafll_nvjpg"),
    "vic": ("vic", "vic03", "nafll_vic"),
    "pva": ("pva{0}_vps", "nafll_pva{0}_vps", "nafll_pva_vps"),
    "ofa": ("ofa", "nafll_ofa"),
    "ape": ("ape",),
}
"""Engine -> its clock's names in debugfs, `{0}` being the instance."""
_WITHOUT = {
    "tegra210": ("dla", "pva", "ofa"),
    "tegra186": ("dla", "pva", "ofa"),
    "tegra194": ("ofa",),
    "tegra264": ("dla",),
}
"""Chip -> engines that it lacks, by the data sheets of NVIDIA's modules; all others are looked for."""
_HOST1X = (
    "sys/devices/*.host1x",
    "sys/devices/platform/host1x",
    "sys/devices/platform/*.host1x",
    "sys/devices/platform/bus@0/*.host1x",
)


class Engines(Each):
    """Clocks of the fixed-function engines in hertz; 0 while the kernel reports an engine as suspended.

    There is one clock for the first engine of each kind, and one for each further engine that is present.
    """

    def __init__(self, root: str) -> None:
        found = {name: _Engine(Path(root), *place) for name, place in engines(Path(root)).items()}
        super().__init__(
            (ChannelSpec(f"{name}_clock_hz", "Hz", "engine", "gauge", engine.source), engine.read)
            for name, engine in found.items()
        )

    @staticmethod
    def facts(root: Path) -> Fact:
        """Return runtime status, clock and bounds of each engine that the kernel shows."""
        out: dict[str, Any] = {}
        for name, (kind, index) in engines(root).items():
            folder = _folder(root, kind, index)
            status = _status(root, kind, index)
            if folder is not None or status is not None:
                out[name] = {"status": absent("not shown") if status is None else fact(status)}
                out[name] |= {} if folder is None else bounds(folder)
        return out or absent("no engine is shown in devfreq or on host1x")


def engines(root: Path) -> dict[str, tuple[str, int]]:
    """Return channel prefix -> (kind, instance): instance 0 of every kind, and others that are present."""
    out: dict[str, tuple[str, int]] = {}
    for kind in _ENGINES:
        count = max(1, len(_folders(root, kind)), len(_devices(root, kind)))
        for index in range(count):
            out["ape" if kind == "ape" else f"{kind}{index}"] = (kind, index)
    return out


def _marker(kind: str) -> re.Pattern[str]:
    return re.compile(rf"\.(?:nv)?{kind}\d?$")


def _folders(root: Path, kind: str) -> list[Path]:
    return devfreqs(root, _marker(kind))


def _folder(root: Path, kind: str, index: int) -> Path | None:
    return dict(enumerate(_folders(root, kind))).get(index)


def _devices(root: Path, kind: str) -> list[Path]:
    """Return the engine's devices on the host1x bus, ordered by address."""
    marker = _marker(kind)
    return sorted(
        (d for pattern in _HOST1X for d in root.glob(f"{pattern}/*.*") if marker.search(d.name)),
        key=lambda d: d.name,
    )


def _status(root: Path, kind: str, index: int) -> Path | None:
    device = dict(enumerate(_devices(root, kind))).get(index)
    return None if device is None else device / "power/runtime_status"


class _Engine:
    """One engine's clock file and runtime status."""

    def __init__(self, root: Path, kind: str, index: int) -> None:
        self._kind = kind
        folder, status = _folder(root, kind, index), _status(root, kind, index)
        own = [] if folder is None else [f"{folder.relative_to(root)}/cur_freq"]
        names = [n.format(index) for n in _ENGINES[kind] if index == 0 or "{0}" in n]
        chip = soc(root)
        self._without = "" if own or status or kind not in _WITHOUT.get(str(chip), ()) else f"a {chip} has no"
        self._clock = first_readable(root, (*own, *rate_files(*names)))
        self._status = None if status is None else KernelFile(status)
        self.source = f"{getattr(self._clock, 'path', 'devfreq or debugfs')}; 0 while suspended"

    def read(self) -> Value:
        """Return the clock in hertz, 0 for a suspended engine."""
        if self._status is not None and self._status.read() == b"suspended\n":
            return 0.0
        if self._without and not isinstance(self._clock, KernelFile):
            return Unsupported(f"{self._without} {self._kind.upper()}")
        return unlocked(number(self._clock))


__all__ = ["CpuClusters", "Emc", "Engines", "Gpu"]

Row = tuple[str, int, Value]


class CpuClusters(Each):
    """Clock of each cpufreq policy: the actual one if it can be read, else the requested one; the source says which."""

    def __init__(self, root: str) -> None:
        metrics: list[tuple[ChannelSpec, Callable[[], Value]]] = []
        for policy in policies(Path(root)):
            file, what = KernelFile(policy / "cpuinfo_cur_freq"), "what the hardware runs at"
            if not isinstance(file.number(), float):
                file, what = (
                    KernelFile(policy / "scaling_cur_freq"),
                    "the clock that the governor requested",
                )
            name, source = f"cpu_{policy.name}_clock_hz", f"{file.path}: {what}"
            metrics.append(
                (ChannelSpec(name, "Hz", "cpu_cluster", "gauge", source), partial(file.number, 1e3))
            )
        none = ChannelSpec("cpu_policy0_clock_hz", "Hz", "cpu_cluster", "gauge", "cpufreq")
        super().__init__(metrics or [(none, lambda: Unsupported("no cpufreq policy"))])

    @staticmethod
    def facts(root: Path) -> Fact:
        """Return online and offline cores, and each policy's cores, governor and clocks."""
        cpu = root / "sys/devices/system/cpu"
        names = {"min_hz": "scaling_min_freq", "max_hz": "scaling_max_freq", "asked_hz": "scaling_cur_freq"}
        names |= {"effective_hz": "cpuinfo_cur_freq", "hardware_max_hz": "cpuinfo_max_freq"}
        return {
            "online": fact(cpu / "online", cpu_list),
            "offline": fact(cpu / "offline", cpu_list),
            "policies": {
                policy.name: {
                    "cpus": fact(policy / "related_cpus", lambda t: [int(x) for x in t.split()]),
                    "governor": fact(policy / "scaling_governor"),
                    **{key: fact(policy / file, lambda t: int(t) * 1000) for key, file in names.items()},
                }
                for policy in policies(root)
            },
        }


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
