"""Load and clocks of a Jetson's chip: GPU, memory controller (EMC), fixed-function engines, CPU clusters.

    GPU load    per mille of the time, at the *current* clock: 100 % at 306 MHz is a third of 100 % at 918 MHz
    EMC         the clock is in debugfs (root only) or, on Thor, devfreq; its load is the activity monitor's
                kHz of active cycles over the clock's
    engines     see engines
    CPU         scaling_cur_freq is the requested clock; cpuinfo_cur_freq (root only) is the actual one

The kernel publishes these under different paths in every release; no path is chosen by a board's name.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Failed, Unsupported, Value
from edgescope.devices.cpu.sensors import policies
from edgescope.devices.kernel_files import Each, Fact, KernelFile, absent, cpu_list, fact
from edgescope.wings.jetson.engines import Engines
from edgescope.wings.jetson.files import (
    bounds,
    devfreqs,
    first_readable,
    gpu_devfreq,
    number,
    rate_files,
    unlocked,
)

__all__ = ["CpuClusters", "Emc", "Engines", "Gpu"]

Row = tuple[str, int, Value]
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
