"""Parses the value of --mode into a setting: 15W, cpus=0-1, quota=0.5, MAXN+jetson_clocks."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence

from edgescope.devices.base import Device, Mode
from edgescope.devices.kernel_files import cpu_list
from edgescope.devices.manifest import settings
from edgescope.errors import EdgescopeError, SettingError, UsageError, closest_name
from edgescope.modes.affinity import Affinity
from edgescope.modes.combined import Together
from edgescope.modes.governor import Governor
from edgescope.modes.gpu_power import GpuPower
from edgescope.modes.jetson import CLOCKS, NvpMode
from edgescope.modes.mps import CONTROL, Mps
from edgescope.modes.quota import Quota
from edgescope.registry import REPLAYED

AS_IS = "as_is"
_MOST_CPUS = 4096


def _cpus(text: str) -> Mode:
    if not re.fullmatch(r"[0-9]{1,4}(-[0-9]{1,4})?(,[0-9]{1,4}(-[0-9]{1,4})?)*", text, re.ASCII):
        raise ValueError("write cpus=0-1 or cpus=0,2")
    cpus = cpu_list(text)
    if not cpus or max(cpus) >= _MOST_CPUS:
        raise ValueError(f"write CPUs from 0 to {_MOST_CPUS - 1}, the lower first")
    return Affinity(cpus)


def _number(make: Callable[[float], Mode], lowest: float, highest: float) -> Callable[[str], Mode]:
    def read(text: str) -> Mode:
        value = float(text) if re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text, re.ASCII) else -1.0
        if not lowest <= value <= highest:
            raise ValueError(f"write a number from {lowest:g} to {highest:g}")
        return make(value)

    return read


def _governor(text: str) -> Mode:
    if not re.fullmatch(r"[a-z_]{1,32}", text, re.ASCII):
        raise ValueError("write governor=performance")
    return Governor(text)


#: Key -> (parser of its value, description); a setting exists on every machine that meets its needs.
VALUED: Mapping[str, tuple[Callable[[str], Mode], str]] = {
    "cpus": (_cpus, "the trial runs on these CPUs only: cpus=0-1"),
    "quota": (_number(Quota, 0.01, 1024), "CPU time in CPUs, through a control group: quota=0.5"),
    "governor": (_governor, "the CPU frequency governor: governor=performance"),
    "mps": (_number(Mps, 1, 100), "per cent of the GPU's threads, through MPS: mps=50"),
    "gpu_power": (_number(GpuPower, 1, 5000), "watts, with --allow-power-limit: gpu_power=200"),
}


def offered(devices: Mapping[str, Device]) -> list[str]:
    """Return the keys of VALUED that this board has; of a recording nobody knows whether MPS runs."""
    gpu = _is_there("nvidia", devices) and not _is_there("jetson", devices)
    lacking = {"mps": REPLAYED in devices or shutil.which(CONTROL) is None, "gpu_power": not gpu}
    return [key for key in VALUED if not lacking.get(key)]


def _is_there(name: str, devices: Mapping[str, Device]) -> bool:
    return name in devices and not devices[name].present()


def find(name: str, devices: Mapping[str, Device]) -> Mode:
    """Return the setting called `name`; UsageError E-MODE-1, with the available ones, if there is none.

    Raises SettingError E-REC-7 if the devices are a recording: cpus=, quota= and the like would change this machine.
    """
    if name == AS_IS:
        return Together()
    mode = _named(name, devices)
    if REPLAYED in devices:
        raise SettingError(
            "E-REC-7",
            f"mode {name} cannot be entered: the board is a recording",
            effect="Nothing was changed and nothing was measured",
            fix="--mode as_is, or measure on the board itself",
        )
    return mode


def _named(name: str, devices: Mapping[str, Device]) -> Mode:
    have, problems = settings(devices)
    if name in have:
        return have[name]
    # jetson_clocks holds clocks at the maximum of the mode it finds, so it comes last
    parts = [_part(word, have, problems, devices) for word in sorted(name.split("+"), key=CLOCKS.__eq__)]
    if len({type(part) for part in parts}) < len(parts):
        raise UsageError(
            "E-MODE-10", f"mode {name!r} names two settings of one kind", fix="one of each, joined by +"
        )
    return parts[0] if len(parts) == 1 else Together(*parts)


def _part(
    word: str, have: Mapping[str, Mode], problems: Sequence[EdgescopeError], devices: Mapping[str, Device]
) -> Mode:
    if word in have:
        return have[word]
    key, equals, value = word.partition("=")
    if equals and key in VALUED:
        try:
            return VALUED[key][0](value)
        except ValueError as error:
            raise UsageError("E-MODE-1", f"{word!r} is no mode", fix=str(error)) from error
    board = [f"{n}({m.mode.id})" if isinstance(m, NvpMode) else n for n, m in have.items()]
    value = word.partition("=")[2]
    close = closest_name(word, [*have, *(f"{key}={value}" for key in VALUED if value)])
    available = f"available: {', '.join([*board, *(f'{k}=...' for k in offered(devices))])}"
    raise UsageError(
        "E-MODE-1",
        f'mode "{word}" unknown on this board',
        evidence="; ".join([available, *map(str, problems)]),
        fix=f"--mode {close}" if close else "edgescope modes",
    )
