"""Finds the trial that runs here now by reading /proc, so that nothing is added to the measured process.

A trial's process is `python -m edgescope.bench.child run FOLDER PARENT` (isolate/fresh.py), and the trial is in
FOLDER/trial.json. Listing /proc costs about 0.1 ms; the command line is read only for new processes.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope.errors import StoreError
from edgescope.records import plain_json
from edgescope.store import plain_files

WARDEN = "/warden.py"
"""The argument of a process that only starts the trial's process, with the same arguments."""
#: Largest number of bytes read of a trial.json: any user may run a process with such arguments.
_MOST_BYTES = 1_000_000
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Running:
    """One trial's process: its id, the trial in a few words, and when it began (CLOCK_BOOTTIME, s)."""

    pid: int
    what: str
    began_s: float

    @property
    def elapsed_s(self) -> float:
        """Return the seconds since the process began."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.began_s


class Finder:
    """Finds the trial that runs now; `look` is cheap enough for every second."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = str(proc)
        self._seen: set[str] = set()
        self._fresh: set[str] = set()
        self._now: Running | None = None

    def look(self) -> Running | None:
        """Return the trial that runs now, the newest if there are several, or None if there is none."""
        if self._now and not self._argv(str(self._now.pid)):  # gone, or a zombie
            self._now = None
        here = set(filter(str.isdigit, _listing(self._proc)))
        # A process between fork and exec still shows its parent's command, so a new process is read twice.
        for pid in sorted((here - self._seen) | (here & self._fresh), key=int):
            self._now = self._trial(pid) or self._now
        self._fresh, self._seen = here - self._seen, here
        return self._now

    def _trial(self, pid: str) -> Running | None:
        argv = self._argv(pid)
        if "edgescope.bench.child" not in argv or len(argv) < argv.index("edgescope.bench.child") + 3:
            return None
        if any(word.endswith(WARDEN) for word in argv[: argv.index("edgescope.bench.child")]):
            return None
        verb, folder = argv[argv.index("edgescope.bench.child") + 1 :][:2]
        try:
            stat = Path(self._proc, pid, "stat").read_bytes()
        except OSError:
            return None
        began_s = int(stat[stat.rindex(b")") + 2 :].split()[19]) * _TICK_S
        return Running(int(pid), ("preparing " if verb == "prepare" else "") + _question(folder), began_s)

    def _argv(self, pid: str) -> list[str]:
        try:
            return Path(self._proc, pid, "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
        except OSError:
            return []


def _listing(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _question(folder: str) -> str:
    try:
        trial: Mapping[str, Any] = plain_json.parsed(
            plain_files.read(Path(folder, "trial.json"), _MOST_BYTES)
        )
        words = [str(trial[k]).partition("#")[0] for k in ("model", "backend", "precision", "device")]
    except (OSError, ValueError, LookupError, TypeError, StoreError) as error:
        return f"a trial whose trial.json cannot be read ({type(error).__name__})"
    extra = [f"batch {trial.get('batch', 1)}"]
    if trial.get("mode", "as_is") != "as_is":
        extra.append(f"mode {trial['mode']}")
    if trial.get("replicate"):
        extra.append(f"replicate {trial['replicate']}")
    return " ".join(words + extra)


class Marks:
    """The trials of the last minute: one letter for each tick, a new letter for each process."""

    def __init__(self, span: int) -> None:
        self._ticks: deque[str] = deque(maxlen=span)
        self._letters: dict[int, str] = {}

    def tick(self, running: Running | None) -> str:
        """Note one tick; return the letter of the running trial, or '' if there is none."""
        letter = ""
        if running:
            letter = self._letters.setdefault(running.pid, chr(ord("A") + len(self._letters) % 26))
        self._ticks.append(letter)
        return letter

    def last_minute(self, columns: int) -> str:
        """Return `columns` characters, oldest first: a trial's letter, or a dot if none ran."""
        span = self._ticks.maxlen or 1
        out = ["\u00b7"] * columns
        for i, letter in enumerate(self._ticks, span - len(self._ticks)):
            if letter:
                out[i * columns // span] = letter
        return "".join(out)
