"""Finds running programs that would disturb a measurement: other measurements, readers of sensors, a desktop.

The advice is to wait for another run of edgescope: ending it would cost somebody a measurement. The owner of any other
program that reads sensors may end it.
"""

from __future__ import annotations

import glob
import os
import pwd
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgescope.wings.doctor.finding import Finding

OURS = "edgescope"
_WATCHERS = ("tegrastats", "jtop", "nvidia-smi", "dcgm", "nsys", "ncu")
"""Programs that poll the same sensors or measure at the same time."""
_DESKTOPS = (
    *("Xorg", "Xwayland", "gnome-shell", "kwin_x11", "kwin_wayland", "plasmashell", "weston", "lxsession"),
    *("lxqt-session", "xfce4-session", "sway", "compiz", "mutter"),
)


@dataclass(frozen=True)
class Process:
    """One process: its id, its parent's id, its owner and its command line."""

    pid: int
    parent: int
    uid: int
    words: Sequence[str]

    @property
    def program(self) -> int:
        """Return the index of the argument that names the program: x in `python -m x` and `python x.py`."""
        if not os.path.basename(self.words[0]).startswith("python"):
            return 0
        if "-m" in self.words[:-1]:
            return self.words.index("-m") + 1
        given = (n for n, word in enumerate(self.words) if n and not word.startswith("-"))
        return next(given, 0)

    @property
    def name(self) -> str:
        """Return the program's name without its folder."""
        return os.path.basename(self.words[self.program])

    @property
    def shown(self) -> str:
        """Return the program's name with its verb; further arguments may be secret."""
        verb = next((w for w in self.words[self.program + 1 :] if w and not w.startswith("-")), "")
        return f"{OURS} {verb}" if verb.isalpha() else OURS


def findings(root: Path) -> list[Finding]:
    """Return a finding for each program that disturbs, from the processes below `root`/proc."""
    others = _others(root)
    return [*_runs(others), *_watchers(others), *_desktop(others)]


def _runs(others: Mapping[int, Process]) -> list[Finding]:
    """Return a finding for each other run of edgescope; a run's child processes are part of it."""
    ours = {pid for pid, p in others.items() if p.name.partition(".")[0] == OURS}
    out = []
    for pid in sorted(ours):
        above = others[pid].parent
        while above in others and above not in ours:
            above = others[above].parent
        if above not in ours:
            text = f"another {OURS} runs (process {pid}, {others[pid].shown}): two at once disturb each other"
            out.append(Finding("W-PROC-2", text, f"wait for it to end: tail --pid={pid} -f /dev/null"))
    return out


def _watchers(others: Mapping[int, Process]) -> list[Finding]:
    found: dict[tuple[str, int], list[int]] = {}
    for pid, process in sorted(others.items()):
        watcher = next((w for w in _WATCHERS if process.name.startswith(w)), "")
        if watcher:
            found.setdefault((watcher, process.uid), []).append(pid)
    out = []
    for (program, uid), pids in found.items():
        which = f"process{'es' if len(pids) > 1 else ''} {', '.join(map(str, pids))}"
        text = f"{program} is running ({which}) and may measure or poll sensors at the same time"
        out.append(Finding("W-PROC-1", text, _stop(program, uid, pids)))
    return out


def _stop(program: str, uid: int, pids: Sequence[int]) -> str:
    if program == "jtop":
        return "sudo systemctl stop jtop"
    if uid == os.getuid():
        return f"kill {' '.join(map(str, pids))}"
    try:
        owner = pwd.getpwuid(uid).pw_name
    except KeyError:
        owner = f"user {uid}"
    return f"wait for it, or ask {owner}, to whom it belongs"


def _desktop(others: Mapping[int, Process]) -> list[Finding]:
    desktop: dict[str, int] = {}
    for pid, process in sorted(others.items()):
        name = os.path.basename(process.words[0])
        if name in _DESKTOPS:
            desktop.setdefault(name, pid)
    if not desktop:
        return []
    text = "a desktop session is running: it draws on the GPU and wakes the CPU"
    seen = ", ".join(f"{name} (process {pid})" for name, pid in desktop.items())
    fix = "sudo systemctl isolate multi-user.target   (back: graphical.target)"
    return [Finding("W-GUI-1", text, fix, seen)]


def _others(root: Path) -> dict[int, Process]:
    """Return every process but this one, its ancestors and its descendants."""
    found: dict[int, Process] = {}
    for entry in glob.glob(str(root / "proc/[0-9]*")):
        try:
            stat = Path(entry, "stat").read_bytes()
            words = Path(entry, "cmdline").read_bytes().decode(errors="replace").split("\0")
            uid = os.stat(entry).st_uid
        except OSError:
            continue
        pid = int(os.path.basename(entry))
        found[pid] = Process(pid, int(stat[stat.rindex(b")") + 2 :].split()[1]), uid, words)
    mine, pid = {os.getpid()}, os.getpid()
    while pid in found and pid > 1:
        pid = found[pid].parent
        mine.add(pid)
    return {pid: p for pid, p in found.items() if pid not in mine and p.parent != os.getpid()}
