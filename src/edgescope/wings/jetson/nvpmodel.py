"""Reads Jetson power modes from /etc/nvpmodel.conf; each board has its own file, and users edit it.

The file has three kinds of sections (the format is described in the comment that opens every such file):

    < PARAM TYPE=CLOCK NAME=GPU >          what can be set, and the kernel file of each argument
    MAX_FREQ /sys/.../max_freq
    < POWER_MODEL ID=1 NAME=25W >          one mode: PARAM ARGUMENT VALUE a line
    GPU MAX_FREQ 918000000
    < PM_CONFIG DEFAULT=1 >                the mode after flashing

A line that is not understood is skipped: users edit these files, and releases add sections and types of PARAM.

A clock of -1 is uncapped; EMC 0 is uncapped too. Wattage names are clock caps, not power caps. Ids are not portable:
MAXN_SUPER is 0 on an Orin NX and 2 on an Orin Nano, so edgescope uses names, never ids.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgescope.devices.kernel_files import Fact, absent, why
from edgescope.errors import DeviceError

CONF, STATUS = "etc/nvpmodel.conf", "var/lib/nvpmodel/status"
_SECTION = re.compile(r"<\s*[A-Z_]{2}")
"""The start of a section, damaged or not; any other line with a < is one line."""
_HEADER = re.compile(r"<\s*([A-Z_]+)((?:\s+[A-Z_]+=[^\s=<>]+)*)\s*>")
_PAIR = re.compile(r"([A-Z_]+)=([^\s=<>]+)")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_CORE = re.compile(r"CORE_([0-9]{1,4})")
_IDENT = re.compile(r"[0-9]{1,6}")
_TYPES = ("FILE", "CLOCK")
"""Types of PARAM whose lines are `ARGUMENT FILE`. Others (HWMON, on a Xavier NX with JetPack 5) have
another form; they hold no limit that is checked."""
_LARGEST = 4 << 20
_HOPS = 8


@dataclass(frozen=True)
class PowerMode:
    """One POWER_MODEL section."""

    id: int
    name: str
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """PARAM -> argument -> value, as in the file."""
    default: bool = False

    @property
    def cores(self) -> tuple[int, ...]:
        """The CPUs that are online in this mode, () if it lists none; CPU 0 cannot be taken offline."""
        listed = {
            m[1]: v for k, v in self.settings.get("CPU_ONLINE", {}).items() if (m := _CORE.fullmatch(k))
        }
        return tuple(sorted({0} | {int(n) for n, v in listed.items() if v == "1"})) if listed else ()

    @property
    def cpu_max_hz(self) -> Mapping[str, int | None]:
        """Cluster (CPU_A78_0 ...) -> highest clock in Hz; None if it is uncapped."""
        clusters = (p for p in self.settings if p.startswith("CPU_") and p != "CPU_ONLINE")
        found = {p: self._number(p, "MAX_FREQ") for p in clusters if "MAX_FREQ" in self.settings[p]}
        return {p: _hz(n, 1000) for p, n in found.items()}  # cpufreq counts in kHz

    @property
    def gpu_max_hz(self) -> int | None:
        """Highest GPU clock in Hz; None if it is uncapped or not set by this mode."""
        return _hz(self._number("GPU", "MAX_FREQ"))

    @property
    def emc_max_hz(self) -> int | None:
        """Highest memory clock in Hz; None if it is uncapped or not set by this mode."""
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
    unread: tuple[str, ...] = ()
    """Each line that was not understood, with its number and the reason; it is in no mode."""


def _hz(value: int | None, scale: int = 1) -> int | None:
    return value * scale if value is not None and value > 0 else None


def read(text: str) -> Conf:
    """Return modes and parameter definitions; a line that is not understood is listed in `unread` instead.

    DeviceError E-NVP-1 if the text has no mode.
    """
    reading = _Reading()
    for number, raw in enumerate(text.split("\n"), 1):
        line = raw.split("#", 1)[0].strip()
        if line and (problem := reading.line(line)):
            reading.unread.append(f"line {number}: {problem}")
    return reading.conf()


class _Reading:
    """The modes and definitions so far, and the section of the next line."""

    def __init__(self) -> None:
        self.modes: dict[int, PowerMode] = {}
        self.params: dict[str, dict[str, str]] = {}
        self.unread: list[str] = []
        self.default: int | None = None
        self._take: Callable[[list[str]], str] = _skip

    def line(self, line: str) -> str:
        """Read one line; return '', or the reason why it is not understood."""
        return self._header(line) if _SECTION.match(line) else self._take(line.split())

    def _header(self, line: str) -> str:
        """Start a section. Lines below a header that is not understood belong to no section."""
        self._take = _skip
        match = _HEADER.fullmatch(line)
        if not match:
            return f"{line[:60]!r} is no section; the lines under it are left out"
        keys = dict(_PAIR.findall(match[2]))
        begin = {"POWER_MODEL": self._mode, "PARAM": self._param, "PM_CONFIG": self._config}.get(match[1])
        try:
            return begin(keys) if begin else ""  # FAN_CONFIG and the like set nothing that a mode is made of
        except KeyError as error:
            return f"a section without {error.args[0]}=; the lines under it are left out"

    def _mode(self, keys: Mapping[str, str]) -> str:
        name, ident = keys["NAME"], _ident(keys["ID"])
        if ident is None:
            return f"ID={keys['ID'][:40]!r} is no mode id; the lines under it are left out"
        if ident in self.modes:
            return f"mode id {ident} is defined twice; this one is left out"
        rows: dict[str, dict[str, str]] = {}
        self.modes[ident] = PowerMode(ident, name, rows)

        def take(words: list[str]) -> str:
            if len(words) != 3:
                return f"{len(words)} words where 3 are due"
            rows.setdefault(words[0], {})[words[1]] = words[2]
            return ""

        self._take = take
        return ""

    def _param(self, keys: Mapping[str, str]) -> str:
        name = keys["NAME"]
        if keys.get("TYPE", "FILE") not in _TYPES:
            return ""
        paths = self.params.setdefault(name, {})

        def take(words: list[str]) -> str:
            if len(words) != 2:
                return f"{len(words)} words where 2 are due"
            paths[words[0]] = words[1]
            return ""

        self._take = take
        return ""

    def _config(self, keys: Mapping[str, str]) -> str:
        self.default = _ident(keys["DEFAULT"])
        return "" if self.default is not None else f"DEFAULT={keys['DEFAULT'][:40]!r} is no mode id"

    def conf(self) -> Conf:
        """Return the whole file; DeviceError E-NVP-1 if it holds no mode."""
        if not self.modes:
            raise _broken("; ".join(["it has no POWER_MODEL section that can be read", *self.unread[:3]]))
        if self.default is not None and self.default not in self.modes:
            self.unread.append(f"its default is mode {self.default}, which it does not define")
        modes = tuple(replace(m, default=m.id == self.default) for m in self.modes.values())
        return Conf(modes, self.params, tuple(self.unread))


def _skip(words: list[str]) -> str:
    """Skip a line of a section that defines no mode."""
    return ""


def _ident(text: str) -> int | None:
    return int(text) if _IDENT.fullmatch(text) else None


def _broken(what: str) -> DeviceError:
    return DeviceError(
        "E-NVP-1",
        "this is not an nvpmodel.conf",
        evidence=what,
        effect="The power modes of this board are not known",
    )


def load(root: Path = Path("/")) -> Conf | Fact:
    """Return the board's own file, or {"absent": reason} if there is none or it has no mode."""
    path = within(root, root / CONF)
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return read(file.read(_LARGEST))
    except OSError as error:
        return absent(why(error, path))
    except DeviceError as error:
        return absent(str(error))


def problems(root: Path = Path("/")) -> list[str]:
    """Return the problems of the board's file: lines not understood, or why it has no mode; [] without a file."""
    conf = load(root)
    if isinstance(conf, Conf):
        return list(conf.unread)
    return [conf["absent"]] if conf["absent"].startswith("E-NVP-1") else []


def within(root: Path, path: Path) -> Path:
    """Return the target of `path` with absolute links starting at `root`, as on the board itself.

    /etc/nvpmodel.conf is a link to /etc/nvpmodel/nvpmodel_<module>.conf, which nvpower.sh makes at boot.
    """
    for _ in range(_HOPS):
        if not path.is_symlink():
            break
        target = path.readlink()
        path = root / str(target).lstrip("/") if target.is_absolute() else path.parent / target
    return path


def status(root: Path = Path("/")) -> int | Fact:
    """Return the id in nvpmodel's status file (`pmode:0002`), perhaps for the next boot, or {"absent": reason}."""
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

    `answer` is the output of `nvpmodel -q`, or '' if it could not run. It has priority over the status file, which may
    hold a choice that waits for a reboot.
    """
    conf = load(root)
    if not isinstance(conf, Conf):
        return conf
    reported = answered(answer)
    ident = reported[1] if reported else status(root)
    if not isinstance(ident, int):
        return ident
    found = next((m for m in conf.modes if m.id == ident), None)
    if found is None:
        return absent(f"the board is in mode {ident}, which {root / CONF} does not define")
    return replace(found, name=reported[0]) if reported and reported[0] != found.name else found


def reboot(now: PowerMode | None, then: PowerMode) -> tuple[str, str]:
    """Return (`live`, `needs a reboot` or `not known`; the reason) for a change from one mode to another.

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
