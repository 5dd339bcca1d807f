"""A Jetson's own settings: the power modes of its nvpmodel.conf, and jetson_clocks.

A mode is set, read back and probed under load. `nvpmodel -m` exits with 0 when a mode waits for a reboot, and
`nvpmodel -q` may then go on naming the old mode, which looks like success. So a mode that is known to need a reboot is
not tried, no question is ever answered with yes, and every setting is checked in the kernel's files and under load.
"""

from __future__ import annotations

import functools
import subprocess
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from edgescope.devices import clocks
from edgescope.devices.base import Journal, Mode, Row, Undo
from edgescope.devices.kernel_files import Fact, absent, cpu_list, fact, is_absent
from edgescope.errors import SettingError, UnsupportedError
from edgescope.modes import helper
from edgescope.modes.privileged import act, perform
from edgescope.units import ranges
from edgescope.wings.jetson import nvpmodel
from edgescope.wings.jetson.nvpmodel import Conf, PowerMode

CLOCKS = "jetson_clocks"
_CAPPED = ("CPU_", "GPU")


def modes(root: Path = Path("/")) -> Mapping[str, Mode]:
    """Return the board's power modes by name, and jetson_clocks if it has the program; {} on other machines.

    Two modes with the same name, which users can make, are called NAME(ID). jetson_clocks needs no file of modes.
    """
    conf = nvpmodel.load(root)
    found: dict[str, Mode] = {}
    if isinstance(conf, Conf):
        times = Counter(mode.name for mode in conf.modes)
        seen = functools.cache(lambda: mode_now(root))
        for mode in conf.modes:
            word = mode.name if times[mode.name] == 1 else f"{mode.name}({mode.id})"
            found[word] = NvpMode(mode, conf, root, word, seen)
    if (root / helper.PROGRAMS[CLOCKS]).is_file():
        found[CLOCKS] = JetsonClocks(root)
    return found


class NvpMode(Mode):
    """One power mode of this board."""

    def __init__(
        self,
        mode: PowerMode,
        conf: Conf,
        root: Path = Path("/"),
        name: str = "",
        seen: Callable[[], PowerMode | Fact] | None = None,
    ) -> None:
        """`seen` returns the present mode for a row of a list, where nvpmodel is asked once for all rows."""
        self.mode, self.conf, self.root, self.number = mode, conf, root, mode.id
        self._name, self._seen = name or mode.name, seen
        self._probed = ""

    @property
    def name(self) -> str:
        """Return the mode's name, as after --mode."""
        return self._name

    def now(self) -> PowerMode | Fact:
        """Return the board's present power mode, or {"absent": reason}."""
        return mode_now(self.root)

    def change(self) -> tuple[str, str]:
        """Return how to change to this mode from the present one: `live`, `needs a reboot` or `not known`; and why."""
        now = self.now()
        return nvpmodel.reboot(now if isinstance(now, PowerMode) else None, self.mode)

    def enter(self, journal: Journal) -> None:
        """Set the mode and check it; SettingError E-MODE-2 if it needs a reboot or is not in effect."""
        now = self.now()
        if not isinstance(now, PowerMode):
            raise UnsupportedError(
                "E-MODE-9",
                "the present power mode is not known, so it could not be put back",
                evidence=now["absent"],
            )
        needs, why = nvpmodel.reboot(now, self.mode)
        if needs == "needs a reboot":
            raise self._not_in_effect(f"the board is in {_label(now)}; {why} needs a reboot", reboot=True)
        if now.id != self.mode.id:
            journal.note(self.name, Undo(f"nvpmodel {_label(now)}", self._words(now), str(self.root)))
            act(self._words(self.mode), self.root)
        problem = self.problem()
        if not problem:
            problem, self._probed = clocks.probe(self.root)
        if problem:
            raise self._not_in_effect(problem)

    def problem(self) -> str:
        """Return '' if nvpmodel names this mode and the kernel's files hold its cores and limits."""
        now = self.now()
        if not isinstance(now, PowerMode):
            return str(now["absent"])
        if now.id != self.mode.id:
            return f"requested {_label(self.mode)}, nvpmodel says {_label(now)}"
        return "; ".join(differences(self.conf, self.mode, self.root))

    def evidence(self) -> str:
        """Return mode, cores, clocks and the clocks under load; probe them now if `enter` was not called."""
        online = fact(self.root / "sys/devices/system/cpu/online", cpu_list)
        cores = "unknown" if is_absent(online) else ranges(online)
        self._probed = self._probed or clocks.probe(self.root)[1]
        return f"nvpmodel {_label(self.mode)}; CPUs online {cores}; {_floats(self.root)}; {self._probed}"

    def features(self) -> Mapping[str, float]:
        """Return the cores and the highest clocks that the mode sets; clocks without a cap are left out."""
        mode = self.mode
        found = {
            "cpu_cores": len(mode.cores) or None,
            "cpu_hz": max((hz for hz in mode.cpu_max_hz.values() if hz), default=None),
            "gpu_hz": mode.gpu_max_hz,
            "memory_hz": mode.emc_max_hz,
        }
        return {name: float(value) for name, value in found.items() if value is not None}

    def row(self) -> Row:
        """Return the cores and clocks of the mode, and whether a change to it needs a reboot."""
        m, now = self.mode, (self._seen or self.now)()
        known = now if isinstance(now, PowerMode) else None
        caps = list(m.cpu_max_hz.values())
        highest = None if None in caps else max((hz for hz in caps if hz), default=None)
        here = known is not None and known.id == m.id
        rest = (m.default, here, *nvpmodel.reboot(known, m))
        return Row(self.name, m.id, m.cores, highest, m.gpu_max_hz, m.emc_max_hz, *rest)

    def _words(self, mode: PowerMode) -> tuple[str, ...]:
        return ("nvpmodel", "-m", str(mode.id))

    def _not_in_effect(self, evidence: str, *, reboot: bool = False) -> SettingError:
        fix = f"sudo nvpmodel -m {self.mode.id} and reboot, then the same command again" if reboot else ""
        what = f"mode change not in effect: requested {_label(self.mode)}"
        return SettingError("E-MODE-2", what, evidence=evidence, effect="Stopped before measuring", fix=fix)


class JetsonClocks(Mode):
    """Clocks held at the present mode's maximum (DVFS off), as NVIDIA's script jetson_clocks does it."""

    name = CLOCKS
    comes_last = True  # it holds clocks at the maximum of the mode that it finds

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self._probed = ""

    def enter(self, journal: Journal) -> None:
        """Store the clocks, hold them at their maximum, and check that they are held."""
        undo = Undo(f"clocks as before ({_floats(self.root)})", (CLOCKS, "--restore"), str(self.root))
        if not journal.holds(undo):  # otherwise the clocks that would be stored are held ones
            act((CLOCKS, "--store"), self.root)
            journal.note(self.name, undo)
        act((CLOCKS,), self.root)
        problem = self.problem()
        if not problem:
            problem, self._probed = clocks.probe(self.root)
        if problem:
            raise SettingError(
                "E-MODE-2", "jetson_clocks not in effect", evidence=problem, effect="Stopped before measuring"
            )

    def problem(self) -> str:
        """Return '' if the lowest and highest clock of every CPU cluster are the same."""
        floats = clocks.dvfs(self.root)
        if is_absent(floats):
            return f"whether the clocks are held is not known: {floats['absent']}"
        return "CPU clocks still float: the lowest is below the highest" if floats else ""

    def evidence(self) -> str:
        """Return whether the clocks float, and the clocks under load; probe them now if `enter` was not called."""
        self._probed = self._probed or clocks.probe(self.root)[1]
        return f"{_floats(self.root)}; {self._probed}"

    def row(self) -> Row:
        """Return its line in the list of settings."""
        return Row(CLOCKS, why="every clock at the highest that the power mode allows")


def mode_now(root: Path) -> PowerMode | Fact:
    """Return the board's present power mode, or {"absent": reason}."""
    return nvpmodel.current(root, output(root))


def output(root: Path = Path("/")) -> str:
    """Return the output of `nvpmodel -q`, or '' if it cannot be run."""
    if not (root / helper.PROGRAMS["nvpmodel"]).is_file():
        return ""
    try:
        return helper.perform(("nvpmodel", "-q"), str(root))
    except (helper.Refused, OSError, subprocess.SubprocessError):
        pass
    try:
        return perform(("nvpmodel", "-q"), root)
    except (helper.Refused, OSError, subprocess.SubprocessError):
        return ""


def is_so(request: Sequence[str], root: Path) -> bool:
    """Return whether the board is in the requested mode, and stays in it (modes.privileged.Check)."""
    if request[1] != "-m":
        return False
    reported, noted = nvpmodel.answered(output(root)), nvpmodel.status(root)
    known = [ident for ident in (reported[1] if reported else None, noted) if isinstance(ident, int)]
    # a choice that waits for a reboot is noted on disk but not reported
    return bool(known) and set(known) == {int(request[2])}


def read_back(request: Sequence[str], printed: str, root: Path) -> None:
    """Raise SettingError E-MODE-2 unless nvpmodel, which `printed` this, now names the requested mode.

    It exits with 0 when its question about a reboot was not answered (modes.privileged.Check).
    """
    if request[1] != "-m":
        return
    ident, reported = int(request[2]), nvpmodel.answered(output(root))
    now = reported[1] if reported else nvpmodel.status(root)
    if now == ident and "reboot" not in printed.lower():
        return
    waits = "needs a reboot" if "reboot" in printed.lower() else " ".join(printed.split())[-200:]
    where = f"nvpmodel -q says {reported[0]} ({reported[1]})" if reported else f"{nvpmodel.STATUS} says {now}"
    raise SettingError(
        "E-MODE-2",
        "mode change not in effect",
        evidence=f"requested mode {ident}, {where}: {waits}",
        effect="Stopped before measuring",
        fix=f"sudo nvpmodel -m {ident}, reboot, and the same command again" if "reboot" in waits else "",
    )


def _floats(root: Path) -> str:
    floats = clocks.dvfs(root)
    if is_absent(floats):
        return f"DVFS not known ({floats['absent']})"
    return "DVFS on" if floats else "DVFS off"


def _label(mode: PowerMode) -> str:
    return f"{mode.name} ({mode.id})"


def differences(conf: Conf, mode: PowerMode, root: Path) -> list[str]:
    """Return the differences of the kernel's files from the mode: cores online, CPU and GPU clock limits.

    A limit that is not in the clock's table may have been rounded to a neighbour; missing files (a cluster that is
    off, debugfs without root) are not compared.
    """
    found = []
    online = fact(root / "sys/devices/system/cpu/online", cpu_list)
    if mode.cores and not is_absent(online) and tuple(online) != mode.cores:
        found.append(f"CPUs {ranges(online)} are online, the mode has {ranges(mode.cores)}")
    for param, row in mode.settings.items():
        requested, paths = row.get("MAX_FREQ", "-1"), conf.params.get(param, {})
        if not param.startswith(_CAPPED) or not requested.isascii() or not requested.isdigit():
            continue
        now = _first(root, paths, "MAX_FREQ")
        if not is_absent(now) and int(requested) and now not in _near(root, paths, int(requested)):
            found.append(f"the limit of {param} is {now}, the mode has {requested}")
    return found


def _first(root: Path, paths: Mapping[str, str], argument: str) -> Fact:
    """Return the number in the argument's file; its path differs by kernel (KNEXT: the upstream kernel's)."""
    for key in (argument, f"{argument}_KNEXT"):
        if key in paths and not is_absent(now := fact(root / paths[key].lstrip("/"), int)):
            return now
    return absent(f"no file of {argument} can be read")


def _near(root: Path, paths: Mapping[str, str], value: int) -> set[int]:
    """Return the value and its neighbours in the clock's table."""
    for key in ("FREQ_TABLE", "FREQ_TABLE_KNEXT"):
        table = (
            fact(root / paths[key].lstrip("/"), lambda t: sorted(map(int, t.split())))
            if key in paths
            else None
        )
        if table and not is_absent(table):
            below, above = [n for n in table if n <= value], [n for n in table if n >= value]
            return {value, *below[-1:], *above[:1]}
    return {value}
