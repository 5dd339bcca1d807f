"""A CPU's clocks, temperatures and energy counters: what cpufreq, thermal zones, hwmon and powercap publish.

A virtual machine usually has none of the three. RAPL energy counters (Intel and AMD alike, under
/sys/class/powercap/intel-rapl*) are readable by root only on most systems since CVE-2020-8694; they wrap
around at max_energy_range_uj, and the channel here is unwrapped.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Unsupported, Value
from edgescope.devices.kernel_files import KernelFile, fact, finite, is_absent

Row = tuple[str, int, Value]

_MAX_POLICIES = 8
"""Clocks read in one go, spread evenly over the policies: all of 128 would cost more than the sampler may."""
_CPU_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_POWERED_OFF_C = -200.0
"""A powered-off thermal sensor reads -256 C on Tegra; nothing real is this cold."""


def policies(root: Path) -> list[Path]:
    """Return the cpufreq policy folders, in the order of their numbers."""
    return numbered(root / "sys/devices/system/cpu/cpufreq", "policy")


def numbered(folder: Path, name: str) -> list[Path]:
    """Return name0, name1 ... in the folder, in the order of their numbers, and nothing that only looks alike."""
    found = [(p.name[len(name) :], p) for p in folder.glob(f"{name}[0-9]*")]
    return [p for _, p in sorted((int(n), p) for n, p in found if n.isascii() and n.isdigit())]


class Clocks:
    """Mean current clock of the cpufreq policies."""

    def __init__(self, root: str) -> None:
        found = policies(Path(root))
        step = -(-len(found) // _MAX_POLICIES) or 1
        self._files = [KernelFile(p / "scaling_cur_freq", 32) for p in found[::step]]

    def channels(self) -> Sequence[ChannelSpec]:
        """Return the mean clock in hertz."""
        source = f"scaling_cur_freq of {len(self._files)} cpufreq policies"
        return (ChannelSpec("cpu_freq_hz", "Hz", "system", "gauge", source),)

    def read(self) -> Sequence[Row]:
        """Return the mean clock; never the nominal one that a virtual machine prints in /proc/cpuinfo."""
        value: Value = Unsupported("no cpufreq: a virtual machine, or no frequency driver is loaded")
        clocks = [f.number(1e3) for f in self._files]
        if clocks:
            numbers = [c for c in clocks if isinstance(c, float)]
            value = sum(numbers) / len(numbers) if len(numbers) == len(clocks) else _first_problem(clocks)
        return [("cpu_freq_hz", time.monotonic_ns(), value)]


def _first_problem(values: Sequence[Value]) -> Value:
    return next(v for v in values if not isinstance(v, float))


class Temperatures:
    """Every thermal zone, and the CPU's own hwmon sensor where no zone shows it."""

    def __init__(self, root: str) -> None:
        self._files: dict[str, KernelFile] = {}
        for name, path in temperature_files(Path(root)):
            self._files[name] = KernelFile(path, 32)

    def channels(self) -> Sequence[ChannelSpec]:
        """Return one temperature in degrees Celsius a zone."""
        if not self._files:
            return (ChannelSpec("temperature_c", "degC", "system", "gauge", "thermal zones and hwmon"),)
        return tuple(
            ChannelSpec(n, "degC", "thermal_zone", "gauge", str(f.path)) for n, f in self._files.items()
        )

    def read(self) -> Sequence[Row]:
        """Return the temperatures; a powered-off sensor is Unsupported."""
        if not self._files:
            return [
                ("temperature_c", time.monotonic_ns(), Unsupported("no thermal zone and no CPU hwmon sensor"))
            ]
        return [(n, time.monotonic_ns(), _powered(f.number(1e-3))) for n, f in self._files.items()]


def _powered(value: Value) -> Value:
    if isinstance(value, float) and value < _POWERED_OFF_C:
        return Unsupported(f"the sensor is powered off (reads {value:.0f} C)")
    return value


def temperature_files(root: Path) -> list[tuple[str, Path]]:
    """Return (channel name, file in millidegrees) of each thermal zone, else of the CPU's hwmon chip."""
    out: dict[str, Path] = {}
    for zone in numbered(root / "sys/class/thermal", "thermal_zone"):
        kind = fact(zone / "type")
        name = f"temperature_{zone.name[12:] if is_absent(kind) else _word(kind)}_c"
        out[name if name not in out else f"{name[:-2]}_{zone.name[12:]}_c"] = zone / "temp"
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        if fact(chip / "name") in _CPU_CHIPS and (chip / "temp1_input").exists():
            out.setdefault(f"temperature_{_word(fact(chip / 'name'))}_c", chip / "temp1_input")
    return list(out.items())


def _word(text: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in text).strip("_").lower()


class Rapl:
    """Energy that the processor packages (and their memory) have used, from powercap."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)
        zones = rapl_zones(self._root)
        self._counters = {
            "cpu_package_energy_j": [_Counter(z) for name, z in zones if name.startswith("package")],
            "cpu_dram_energy_j": [_Counter(z) for name, z in zones if name == "dram"],
        }
        if not self._counters["cpu_dram_energy_j"]:  # most processors have none: no news
            del self._counters["cpu_dram_energy_j"]

    def channels(self) -> Sequence[ChannelSpec]:
        """Return joules summed over the packages, unwrapped."""
        scopes = {"cpu_package_energy_j": "cpu_package", "cpu_dram_energy_j": "rail"}
        return tuple(
            ChannelSpec(
                name, "J", scopes[name], "counter", f"RAPL energy_uj of {len(zones) or 'no'} powercap zones"
            )
            for name, zones in self._counters.items()
        )

    def read(self) -> Sequence[Row]:
        """Return the sum of the zones' counters; one unreadable zone makes the sum unreadable."""
        rows: list[Row] = []
        for name, zones in self._counters.items():
            values = [zone.read() for zone in zones]
            value: Value = Unsupported(f"RAPL: no package zone under {self._root / 'sys/class/powercap'}")
            if values:
                numbers = [v for v in values if isinstance(v, float)]
                value = sum(numbers) if len(numbers) == len(values) else _first_problem(values)
            rows.append((name, time.monotonic_ns(), value))
        return rows


def rapl_zones(root: Path) -> list[tuple[str, Path]]:
    """Return (name, folder) of every RAPL zone; the MMIO twin of the same counters is left out."""
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    return [(str(fact(z / "name")), z) for z in zones]


class _Counter:
    """One zone's energy_uj, unwrapped over its range."""

    def __init__(self, zone: Path) -> None:
        self._file = KernelFile(zone / "energy_uj", 32)
        span = fact(zone / "max_energy_range_uj", finite)
        self._span_j = None if is_absent(span) else span * 1e-6
        self._turns, self._last = 0, 0.0

    def read(self) -> Value:
        value = self._file.number(1e-6)
        if not isinstance(value, float):
            return value
        if value < self._last:
            if self._span_j is None:
                return Unsupported(f"{self._file.path} went backwards and its range is not readable")
            self._turns += 1
        self._last = value
        return value + self._turns * (self._span_j or 0.0)
