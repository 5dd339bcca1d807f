"""Lists the settings of this machine: power modes with cores and clocks, and whether a change needs a reboot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgescope.devices import nvpmodel
from edgescope.devices.base import Device, Mode
from edgescope.devices.manifest import settings
from edgescope.devices.nvpmodel import PowerMode
from edgescope.modes import catalog
from edgescope.modes.affinity import Affinity
from edgescope.modes.jetson import CLOCKS, NvpMode
from edgescope.units import ranges


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
    rows = [_row(name, mode, now if isinstance(now, PowerMode) else None) for name, mode in have.items()]
    valued = [Row(f"{key}=...", change="", why=catalog.VALUED[key][1]) for key in catalog.offered(devices)]
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


def _row(name: str, mode: Mode, now: PowerMode | None) -> Row:
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
