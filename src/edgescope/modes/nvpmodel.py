"""Jetson power modes as their file describes them: /etc/nvpmodel.conf, one per board, edited by users.

The file has three kinds of sections (the format is described in the comment that opens every such file):

    < PARAM TYPE=CLOCK NAME=GPU >          what can be set, and the kernel file of each argument
    MAX_FREQ /sys/.../max_freq
    < POWER_MODEL ID=1 NAME=25W >          one mode: PARAM ARGUMENT VALUE a line
    GPU MAX_FREQ 918000000
    < PM_CONFIG DEFAULT=1 >                the mode after flashing

A clock of -1 is uncapped; EMC 0 is uncapped too. Wattage names are clock caps, not power caps. Ids are not portable:
MAXN_SUPER is 0 on an Orin NX and 2 on an Orin Nano, so modes are named, never numbered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgescope.devices.kernel_files import Fact, absent, why
from edgescope.errors import DeviceError

CONF, STATUS = "etc/nvpmodel.conf", "var/lib/nvpmodel/status"
_HEADER = re.compile(r"<\s*([A-Z_]+)((?:\s+[A-Z_]+=[^\s=<>]+)*)\s*>")
_PAIR = re.compile(r"([A-Z_]+)=([^\s=<>]+)")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_CORE = re.compile(r"CORE_([0-9]{1,4})")
_LARGEST = 4 << 20
_HOPS = 8


@dataclass(frozen=True)
class PowerMode:
    """One POWER_MODEL section."""

    id: int
    name: str
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """PARAM -> argument -> value, as written."""
    default: bool = False

    @property
    def cores(self) -> tuple[int, ...]:
        """The CPUs that are online in this mode, () where it lists none; CPU 0 cannot be taken offline."""
        listed = {
            m[1]: v for k, v in self.settings.get("CPU_ONLINE", {}).items() if (m := _CORE.fullmatch(k))
        }
        return tuple(sorted({0} | {int(n) for n, v in listed.items() if v == "1"})) if listed else ()

    @property
    def cpu_max_hz(self) -> Mapping[str, int | None]:
        """Cluster (CPU_A78_0 ...) -> highest clock in Hz, None where it is uncapped."""
        clusters = (p for p in self.settings if p.startswith("CPU_") and p != "CPU_ONLINE")
        found = {p: self._number(p, "MAX_FREQ") for p in clusters if "MAX_FREQ" in self.settings[p]}
        return {p: _hz(n, 1000) for p, n in found.items()}  # cpufreq counts in kHz

    @property
    def gpu_max_hz(self) -> int | None:
        """Highest GPU clock in Hz; None where it is uncapped or not set by this mode."""
        return _hz(self._number("GPU", "MAX_FREQ"))

    @property
    def emc_max_hz(self) -> int | None:
        """Highest memory clock in Hz; None where it is uncapped or not set by this mode."""
        return _hz(self._number("EMC", "MAX_FREQ"))

    @property
    def masks(self) -> Mapping[str, str]:
        """The power-gating masks of the GPU (TPC_PG_MASK, FBP_PG_MASK, GPU_PG_MASK): a set bit switches a part off."""
        rows = (row for row in self.settings.values())
        return {k: v for row in rows for k, v in row.items() if k.endswith("_PG_MASK")}

    def _number(self, param: str, argument: str) -> int | None:
        text = self.settings.get(param, {}).get(argument, "")
        return int(text) if _NUMBER.fullmatch(text) else None


@dataclass(frozen=True)
class Conf:
    """A whole nvpmodel.conf."""

    modes: tuple[PowerMode, ...]
    params: Mapping[str, Mapping[str, str]]
    """PARAM -> argument -> the kernel file that holds it."""


def _hz(value: int | None, scale: int = 1) -> int | None:
    return value * scale if value is not None and value > 0 else None


def parse(text: str) -> tuple[PowerMode, ...]:
    """Return the modes of an nvpmodel.conf, in its order; DeviceError for text that is not one."""
    return read(text).modes


def read(text: str) -> Conf:
    """Return modes and parameter definitions; DeviceError E-NVP-1 with the line for text that is no nvpmodel.conf."""
    modes: dict[int, tuple[str, dict[str, dict[str, str]]]] = {}
    params: dict[str, dict[str, str]] = {}
    default: int | None = None
    rows: dict[str, dict[str, str]] | None = None
    paths: dict[str, str] | None = None
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("<"):
            kind, keys = _header(line, number)
            rows, paths = None, None
            if kind == "POWER_MODEL":
                ident = _whole(keys, "ID", number)
                if ident in modes:
                    raise _broken(f"mode id {ident} is defined twice", number)
                rows = {}
                modes[ident] = (_key(keys, "NAME", number), rows)
            elif kind == "PARAM":
                paths = params.setdefault(_key(keys, "NAME", number), {})
            elif kind == "PM_CONFIG":
                default = _whole(keys, "DEFAULT", number)
            continue  # other sections (FAN_CONFIG ...) set nothing that a mode is made of
        _setting(line.split(), number, rows, paths)
    if not modes:
        raise _broken("it has no POWER_MODEL section", 0)
    if default is not None and default not in modes:
        raise _broken(f"its default is mode {default}, which it does not define", 0)
    return Conf(tuple(PowerMode(i, name, s, i == default) for i, (name, s) in modes.items()), params)


def _setting(
    words: list[str], number: int, rows: dict[str, dict[str, str]] | None, paths: dict[str, str] | None
) -> None:
    if rows is not None and len(words) == 3:
        rows.setdefault(words[0], {})[words[1]] = words[2]
    elif paths is not None and len(words) == 2:
        paths[words[0]] = words[1]
    elif rows is not None or paths is not None:
        raise _broken(f"{len(words)} words where {'3' if rows is not None else '2'} are due", number)


def _header(line: str, number: int) -> tuple[str, dict[str, str]]:
    match = _HEADER.fullmatch(line)
    if not match:
        raise _broken(f"{line[:60]!r} is no section", number)
    return match[1], dict(_PAIR.findall(match[2]))


def _key(keys: Mapping[str, str], name: str, number: int) -> str:
    if name not in keys:
        raise _broken(f"a section without {name}=", number)
    return keys[name]


def _whole(keys: Mapping[str, str], name: str, number: int) -> int:
    text = _key(keys, name, number)
    if not re.fullmatch("[0-9]{1,6}", text):
        raise _broken(f"{name}={text[:40]!r} is no mode id", number)
    return int(text)


def _broken(what: str, number: int) -> DeviceError:
    where = f"line {number}: " if number else ""
    return DeviceError(
        "E-NVP-1",
        "this is not an nvpmodel.conf",
        evidence=where + what,
        effect="The power modes of this board are not known",
    )


def load(root: Path = Path("/")) -> Conf | Fact:
    """Return the board's own file, or {"absent": reason}; DeviceError for one that is not in order."""
    path = within(root, root / CONF)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return read(file.read(_LARGEST))
    except OSError as error:
        return absent(why(error, path))


def within(root: Path, path: Path) -> Path:
    """Return where `path` leads when absolute links begin at `root`, as they do on the board itself.

    /etc/nvpmodel.conf is a link to /etc/nvpmodel/nvpmodel_<module>.conf, which nvpower.sh makes at boot.
    """
    for _ in range(_HOPS):
        if not path.is_symlink():
            break
        target = path.readlink()
        path = root / str(target).lstrip("/") if target.is_absolute() else path.parent / target
    return path


def status(root: Path = Path("/")) -> int | Fact:
    """Return the id that nvpmodel has noted (`pmode:0002`), perhaps for the next boot; or {"absent": reason}."""
    path = root / STATUS
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except OSError as error:
        return absent(why(error, path))
    match = re.search(r"^pmode:([0-9]{1,6})\b", text, re.ASCII | re.MULTILINE)
    return int(match[1]) if match else absent(f"{path} holds {text[:40]!r}, not pmode:NNNN")


def answered(text: str) -> tuple[str, int] | None:
    """Return (name, id) from what `nvpmodel -q` prints: `NV Power Mode: 25W`, then `1`; None for anything else."""
    match = re.search(r"NV Power Mode:[ \t]*([^\s]+)[ \t\r]*\n[ \t]*([0-9]{1,6})\b", text, re.ASCII)
    return (match[1], int(match[2])) if match else None


def current(root: Path = Path("/"), answer: str = "") -> PowerMode | Fact:
    """Return the mode the board is in, or {"absent": reason}.

    `answer` is what `nvpmodel -q` printed where it could be asked. It counts for more than the status file, which
    may hold a choice that waits for a reboot.
    """
    try:
        conf = load(root)
    except DeviceError as error:
        return absent(str(error))
    if not isinstance(conf, Conf):
        return conf
    told = answered(answer)
    ident = told[1] if told else status(root)
    if not isinstance(ident, int):
        return ident
    found = next((m for m in conf.modes if m.id == ident), None)
    if found is None:
        return absent(f"the board is in mode {ident}, which {root / CONF} does not define")
    return replace(found, name=told[0]) if told and told[0] != found.name else found


def reboot(now: PowerMode | None, then: PowerMode) -> tuple[str, str]:
    """Return (`live`, `needs a reboot` or `not known`; why) of going from one mode to another.

    The GPU's power-gating masks are read when its driver starts, so a change of mask waits for a reboot. Reports in
    public: AGX Orin 30W -> MAXN (mask 240 -> 0), Orin Nano 25W -> 7W (240 -> 252), AGX Thor 120W -> 90W (64 -> 15873),
    AGX Xavier -> MODE_10W (0 -> 5) all ask for one; AGX Xavier 15W, 30W and MAXN, which differ in cores but not in
    mask, and Orin Nano 15W, 25W and MAXN_SUPER switch at once.
    """
    if now is None:
        return "not known", "the present mode is not known"
    if now.id == then.id:
        return "live", "it is the present mode"
    for mask in sorted({*now.masks, *then.masks}):
        before, after = now.masks.get(mask), then.masks.get(mask)
        if before is None or after is None:
            return "not known", f"only one of the modes sets {mask}"
        if before != after:
            return "needs a reboot", f"{mask} {before} -> {after}"
    if now.cores == then.cores or not now.masks or any(p.startswith("CPU_DENVER") for p in then.settings):
        return "live", "the same GPU parts are on"
    return "not known", f"{len(now.cores)} -> {len(then.cores)} cores with the same GPU parts"
