"""A machine's settings by name: --mode read into a setting (15W, cpus=0-1, MAXN+jetson_clocks), and their list.

The list tells of a power mode its cores and clocks, and whether a change to it needs a reboot.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from edgescope.devices import nvpmodel, replay
from edgescope.devices.base import FEATURES, Device, Journal, Mode
from edgescope.devices.kernel_files import cpu_list
from edgescope.devices.manifest import settings
from edgescope.devices.nvpmodel import PowerMode
from edgescope.errors import EdgescopeError, UsageError, closest_name
from edgescope.modes.cpu import Affinity, Governor, Quota
from edgescope.modes.gpu_power import GpuPower
from edgescope.modes.jetson import CLOCKS, NvpMode
from edgescope.modes.mps import CONTROL, Mps
from edgescope.process import Launch
from edgescope.registry import REPLAYED
from edgescope.units import ranges

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
        raise replay.refusal(name)
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


class Together:
    """Several modes, entered in order and left in reverse order; without any mode it is `as_is`."""

    def __init__(self, *modes: Mode) -> None:
        self.modes = modes

    @property
    def name(self) -> str:
        """Return the combined name, as after --mode: MAXN+jetson_clocks."""
        return "+".join(mode.name for mode in self.modes) or "as_is"

    def launch(self) -> Launch:
        """Return all launches, the first outermost."""
        return sum((mode.launch() for mode in self.modes), Launch())

    def enter(self, journal: Journal) -> None:
        """Enter each; if one cannot be entered, the caller leaves them all."""
        for mode in self.modes:
            mode.enter(journal)

    def leave(self, journal: Journal) -> None:
        """Leave each, the last first, whatever happens to the others."""
        with ExitStack() as stack:
            for mode in self.modes:
                stack.callback(mode.leave, journal)

    def problem(self) -> str:
        """Return the problems of all modes, or '' if there are none."""
        return "; ".join(text for mode in self.modes if (text := mode.problem()))

    def evidence(self) -> str:
        """Return the evidence of all modes."""
        return "; ".join(mode.evidence() for mode in self.modes)

    def features(self) -> Mapping[str, float]:
        """Return the features of all modes; if two set the same limit, the lower one."""
        found = [mode.features() for mode in self.modes]
        return {
            name: min(f[name] for f in found if name in f)
            for name in FEATURES
            if any(name in f for f in found)
        }


@dataclass(frozen=True)
class Row:
    """One setting of the machine."""

    name: str
    id: int | None = None
    """nvpmodel's number for it, on this board only."""
    cores: tuple[int, ...] = ()
    """CPUs online, or () if the setting does not change them."""
    cpu_max_hz: int | None = None
    """Highest CPU clock of any cluster; None: uncapped, or not set."""
    gpu_max_hz: int | None = None
    emc_max_hz: int | None = None
    default: bool = False
    now: bool = False
    """Whether the board is in this mode."""
    change: str = "live"
    """live, needs a reboot, or not known; '' for a setting that takes a value."""
    why: str = ""


def listing(devices: Mapping[str, Device]) -> tuple[Row, ...]:
    """Return one row for each setting, the board's power modes first."""
    have = {name: getattr(mode, "recorded", mode) for name, mode in settings(devices)[0].items()}
    power = next((m for m in have.values() if isinstance(m, NvpMode)), None)
    now = power.now() if power else None
    rows = [_listed(name, mode, now if isinstance(now, PowerMode) else None) for name, mode in have.items()]
    valued = [Row(f"{key}=...", change="", why=VALUED[key][1]) for key in offered(devices)]
    return tuple(sorted(rows, key=lambda row: row.id is None)) + tuple(valued)


def without(devices: Mapping[str, Device], root: Path = Path("/")) -> str:
    """Return why no power mode is listed; `root` holds the files of this machine or of a recording."""
    jetson = devices.get("jetson")
    if jetson is None or jetson.present():
        return "no power modes: this is no Jetson"
    conf = nvpmodel.load(root)
    why = conf.get("absent") if isinstance(conf, Mapping) else f"none in /{nvpmodel.CONF}"
    reason = str(why).replace(f"{root}/", "/")
    return f"no power modes: {reason} (the file that lists them)"


def problems(devices: Mapping[str, Device], root: Path = Path("/")) -> tuple[str, ...]:
    """Return why settings are missing from the list: nvpmodel.conf lines not understood, devices that failed."""
    jetson = devices.get("jetson")
    lines = [] if jetson is None or jetson.present() else nvpmodel.problems(root)
    unread = [
        f"/{nvpmodel.CONF}, {line}" for line in lines if line.startswith("line ")
    ]  # `without` reports the rest
    return (*unread, *map(str, settings(devices)[1]))


def _listed(name: str, mode: Mode, now: PowerMode | None) -> Row:
    if isinstance(mode, Affinity):
        return Row(name, why=f"the trial runs on CPU {ranges(mode.cpus)} only")
    if not isinstance(mode, NvpMode):
        return Row(
            name, why="every clock at the highest that the power mode allows" if name == CLOCKS else ""
        )
    m = mode.mode
    caps = list(m.cpu_max_hz.values())
    highest = None if None in caps else max((hz for hz in caps if hz), default=None)
    change, why = nvpmodel.reboot(now, m)
    here = now is not None and now.id == m.id
    return Row(name, m.id, m.cores, highest, m.gpu_max_hz, m.emc_max_hz, m.default, here, change, why)


def install(user: str, source: str, target: str) -> str:
    """Return the commands that install the helper, to be read and then run as root."""
    rule = f"{user} ALL=(root) NOPASSWD: {target}"
    return f"""# the helper is one short file; read it first:  less {source}
sudo install -o root -g root -m 0755 {source} {target}
echo '{rule}' | sudo tee /etc/sudoers.d/edgescope >/dev/null
sudo chmod 0440 /etc/sudoers.d/edgescope && sudo visudo -c -f /etc/sudoers.d/edgescope
# to undo:  sudo rm {target} /etc/sudoers.d/edgescope"""
