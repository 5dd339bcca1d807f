"""A CPU's clocks, temperatures and energy counters, from cpufreq, thermal zones, hwmon and powercap.

A virtual machine usually has none of the three. RAPL energy counters (Intel and AMD alike, under
/sys/class/powercap/intel-rapl*) are readable by root only on most systems since CVE-2020-8694; they wrap
around at max_energy_range_uj, and the channel here is unwrapped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from edgescope.devices.base import ChannelSpec, Unsupported, Value
from edgescope.devices.kernel_files import Each, KernelFile, fact, finite, is_absent, word

_MAX_POLICIES = 8
"""Clocks read in one go, spread evenly over the policies: all of 128 would cost more than the sampler may."""
_CPU_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_POWERED_OFF_C = -200.0
"""A powered-off thermal sensor reads -256 C on Tegra; no real part is this cold."""


def policies(root: Path) -> list[Path]:
    """Return the cpufreq policy folders, ordered by number."""
    return numbered(root / "sys/devices/system/cpu/cpufreq", "policy")


def numbered(folder: Path, name: str) -> list[Path]:
    """Return exactly name0, name1 ... in the folder, ordered by number."""
    found = [(p.name[len(name) :], p) for p in folder.glob(f"{name}[0-9]*")]
    return [p for _, p in sorted((int(n), p) for n, p in found if n.isascii() and n.isdigit())]


class Clocks(Each):
    """Mean current clock of the cpufreq policies; never the nominal one that a virtual machine prints."""

    def __init__(self, root: str) -> None:
        found = policies(Path(root))
        step = -(-len(found) // _MAX_POLICIES) or 1
        files = [KernelFile(p / "scaling_cur_freq") for p in found[::step]]
        source = f"scaling_cur_freq of {len(files)} cpufreq policies"
        super().__init__(
            [(ChannelSpec("cpu_freq_hz", "Hz", "system", "gauge", source), lambda: _mean(files))]
        )


def _mean(files: Sequence[KernelFile]) -> Value:
    total = _sum(
        [f.number(1e3) for f in files], "no cpufreq: a virtual machine, or no frequency driver is loaded"
    )
    return total / len(files) if isinstance(total, float) else total


def _sum(values: Sequence[Value], none: str) -> Value:
    """Return the sum, or the first value that is not a number; Unsupported(`none`) for no values."""
    numbers = [v for v in values if isinstance(v, float)]
    if len(numbers) == len(values):
        return sum(numbers) if numbers else Unsupported(none)
    return next(v for v in values if not isinstance(v, float))


class Temperatures(Each):
    """Every thermal zone, and the CPU's hwmon sensor if no zone shows it; a powered-off one is Unsupported."""

    def __init__(self, root: str) -> None:
        zones = [
            (
                ChannelSpec(name, "degC", "thermal_zone", "gauge", str(path)),
                partial(_celsius, KernelFile(path)),
            )
            for name, path in temperature_files(Path(root))
        ]
        none = ChannelSpec("temperature_c", "degC", "system", "gauge", "thermal zones and hwmon")
        super().__init__(zones or [(none, lambda: Unsupported("no thermal zone and no CPU hwmon sensor"))])


def _celsius(file: KernelFile) -> Value:
    return _powered(file.number(1e-3))


def _powered(value: Value) -> Value:
    if isinstance(value, float) and value < _POWERED_OFF_C:
        return Unsupported(f"the sensor is powered off (reads {value:.0f} C)")
    return value


def temperature_files(root: Path) -> list[tuple[str, Path]]:
    """Return (channel name, file in millidegrees) of each thermal zone, else of the CPU's hwmon chip."""
    out: dict[str, Path] = {}
    for zone in numbered(root / "sys/class/thermal", "thermal_zone"):
        kind = fact(zone / "type")
        name = f"temperature_{zone.name[12:] if is_absent(kind) else word(kind)}_c"
        out[name if name not in out else f"{name[:-2]}_{zone.name[12:]}_c"] = zone / "temp"
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        if fact(chip / "name") in _CPU_CHIPS and (chip / "temp1_input").exists():
            out.setdefault(f"temperature_{word(fact(chip / 'name'))}_c", chip / "temp1_input")
    return list(out.items())


class Rapl(Each):
    """Energy that the processor packages (and their memory) have used, from powercap: joules, unwrapped."""

    def __init__(self, root: str) -> None:
        zones = rapl_zones(Path(root))
        packages = [_Counter(z) for name, z in zones if name.startswith("package")]
        memory = [_Counter(z) for name, z in zones if name == "dram"]  # most processors have none: no news
        none = f"RAPL: no package zone under {Path(root) / 'sys/class/powercap'}"

        def metric(
            name: str, scope: str, counters: Sequence[_Counter]
        ) -> tuple[ChannelSpec, Callable[[], Value]]:
            source = f"RAPL energy_uj of {len(counters) or 'no'} powercap zones"
            spec = ChannelSpec(name, "J", scope, "counter", source)
            return spec, lambda: _sum([c.read() for c in counters], none)

        found = [metric("cpu_package_energy_j", "cpu_package", packages)]
        super().__init__(found + ([metric("cpu_dram_energy_j", "rail", memory)] if memory else []))


def rapl_zones(root: Path) -> list[tuple[str, Path]]:
    """Return (name, folder) of every RAPL zone; the MMIO twin of the same counters is left out."""
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    return [(str(fact(z / "name")), z) for z in zones]


class _Counter:
    """One zone's energy_uj, unwrapped over its range."""

    def __init__(self, zone: Path) -> None:
        self._file = KernelFile(zone / "energy_uj")
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
