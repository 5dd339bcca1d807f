"""A machine's settings by name: --mode read into a setting (15W, cpus=0-1, MAXN+jetson_clocks), and their list.

The list tells of a power mode its cores and clocks, and whether a change to it needs a reboot.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from edgescope.devices.base import FEATURES, Device, Journal, Mode, Row, TellsOfModes
from edgescope.devices.kernel_files import cpu_list
from edgescope.devices.manifest import settings
from edgescope.errors import EdgescopeError, UsageError, closest_name
from edgescope.modes.cpu import Affinity, Governor, Quota
from edgescope.modes.gpu import CONTROL, GpuPower, Mps
from edgescope.process import Launch
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
        from edgescope.devices import replay

        raise replay.refusal(name)
    return mode


def _named(name: str, devices: Mapping[str, Device]) -> Mode:
    have, problems = settings(devices)
    if name in have:
        return have[name]
    words = sorted(name.split("+"), key=lambda word: word in have and have[word].comes_last)
    parts = [_part(word, have, problems, devices) for word in words]
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
    board = [n if m.number is None else f"{n}({m.number})" for n, m in have.items()]
    value = word.partition("=")[2]
    close = closest_name(word, [*have, *(f"{key}={value}" for key in VALUED if value)])
    available = f"available: {', '.join([*board, *(f'{k}=...' for k in offered(devices))])}"
    raise UsageError(
        "E-MODE-1",
        f'mode "{word}" unknown on this board',
        evidence="; ".join([available, *map(str, problems)]),
        fix=f"--mode {close}" if close else "edgescope modes",
    )


class Together(Mode):
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


def listing(devices: Mapping[str, Device]) -> tuple[Row, ...]:
    """Return one row for each setting, the board's power modes first."""
    rows = [mode.row() for mode in settings(devices)[0].values()]
    valued = [Row(f"{key}=...", change="", why=VALUED[key][1]) for key in offered(devices)]
    return tuple(sorted(rows, key=lambda row: row.id is None)) + tuple(valued)


def without(devices: Mapping[str, Device]) -> str:
    """Return why no power mode is listed."""
    return next((why for why, _ in _unlisted(devices) if why), "no power modes: this is no Jetson")


def problems(devices: Mapping[str, Device]) -> tuple[str, ...]:
    """Return why settings are missing from the list: what a device did not understand, devices that failed."""
    left_out = [text for _, texts in _unlisted(devices) for text in texts]
    return (*left_out, *map(str, settings(devices)[1]))


def _unlisted(devices: Mapping[str, Device]) -> list[tuple[str, Sequence[str]]]:
    return [d.unlisted() for d in devices.values() if isinstance(d, TellsOfModes) and not d.present()]


def install(user: str, source: str, target: str) -> str:
    """Return the commands that install the helper, to be read and then run as root."""
    rule = f"{user} ALL=(root) NOPASSWD: {target}"
    return f"""# the helper is one short file; read it first:  less {source}
sudo install -o root -g root -m 0755 {source} {target}
echo '{rule}' | sudo tee /etc/sudoers.d/edgescope >/dev/null
sudo chmod 0440 /etc/sudoers.d/edgescope && sudo visudo -c -f /etc/sudoers.d/edgescope
# to undo:  sudo rm {target} /etc/sudoers.d/edgescope"""
