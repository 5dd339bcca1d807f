"""The monitor's loop: read the sensors that are due, find the trial that runs, draw, wait for the next tick or a key.

Without a terminal it prints one line for each tick: `name=value` words that a pipe can split, of the main figures
unless all are requested: loads, the clocks that they are shares of, total power, the zone nearest to its trip, free
memory.

The trial is found by reading /proc, so that nothing is added to the measured process: `python -m edgescope.bench.child
run FOLDER PARENT` (isolate/fresh.py), with the trial in FOLDER/trial.json. Listing /proc costs about 0.1 ms; the
command line is read only for new processes.
"""

from __future__ import annotations

import gc
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgescope.commandline.screen import ASCII, BLOCKS, QUIT, Screen
from edgescope.devices.base import ChannelSpec, Device, SourceSpec
from edgescope.devices.clocks import Trip, next_trip
from edgescope.devices.manifest import title, totals
from edgescope.errors import StoreError
from edgescope.records import plain_json
from edgescope.store import files
from edgescope.telemetry.latest import SPAN_S, Sensors
from edgescope.units import short
from edgescope.wings.monitor.frame import TOTALS, View, nearest, rows, temperatures

Print = Callable[[str], None]
_LOOK_S = 1.0
"""Seconds between two searches of /proc for a trial."""
_PROBLEMS = 3
"""The largest number of failing sensors named in a frame."""


@dataclass(frozen=True)
class Pace:
    """How fast the view runs, and for how long (0: until it is stopped)."""

    hz: float = 2.0
    seconds: float = 0.0


class Monitor:
    """One view of `devices`; `screen` and `paper` run it."""

    def __init__(
        self,
        devices: Mapping[str, Device],
        pace: Pace,
        *,
        root: Path = Path("/"),
        proc: Path = Path("/proc"),
    ) -> None:
        here = {name: device for name, device in devices.items() if not device.present()}
        machines = {name: device.machine() for name, device in here.items()}
        self._title, self._facts = title(machines), totals(machines)
        self._devices, self._pace = list(here.values()), pace
        self._finder = Finder(proc)
        self._marks = Marks(max(2, round(SPAN_S * pace.hz)))
        self._trial: Running | None = self._finder.look()
        self._sensors = Sensors(self._specs(), pace.hz)
        self._trips = _trips(self._sensors.channels, root)
        self._began = self._cpu_s = 0.0
        self._look_every = max(1, round(_LOOK_S * pace.hz))

    def _specs(self) -> Sequence[SourceSpec]:
        pid = os.getpid()
        return [spec for device in self._devices for spec in device.sources(pid)]

    def screen(self, environ: Mapping[str, str] = os.environ, encoding: str = "utf-8") -> None:
        """Draw on the terminal until a key, the time or a signal ends it; the terminal is restored."""
        blocks = BLOCKS if encoding.lower().replace("-", "") == "utf8" else ASCII
        with Screen(environ) as screen:

            def show() -> None:
                screen.draw(rows(self._view(blocks), *screen.size()))

            self._run(show, lambda seconds: screen.key(seconds) in QUIT)

    def paper(self, out: Print, *, everything: bool = False) -> None:
        """Print one line for each tick: the main figures, or every channel."""
        tenths = self._pace.hz > 1

        def show() -> None:
            out(line(self._view(ASCII), time.time(), everything=everything, tenths=tenths))

        def wait(seconds: float) -> bool:
            time.sleep(max(0.0, seconds))
            return False

        self._run(show, wait)

    def _run(self, show: Callable[[], None], wait: Callable[[float], bool]) -> None:
        gc.collect()
        gc.freeze()  # what was imported stays; a frame leaves no cycles, so a collection would only cost
        self._began, self._cpu_s = time.monotonic(), time.process_time()
        period, tick = 1 / self._pace.hz, 0
        while True:
            self._tick(tick)
            show()
            tick = max(tick + 1, int((time.monotonic() - self._began) / period))  # late: skip, never bunch
            due = self._began + tick * period
            if self._pace.seconds and due - self._began > self._pace.seconds:
                return
            while (left := due - time.monotonic()) > 0:
                if wait(left):
                    return

    def _tick(self, tick: int) -> None:
        if tick % self._look_every == 0:
            self._trial = self._finder.look()
        self._marks.tick(self._trial)
        self._sensors.tick(tick)

    def _view(self, blocks: str) -> View:
        sensors = self._sensors
        return View(
            title=self._title,
            channels=sensors.channels,
            values=sensors.values,
            last_minute=sensors.last_minute,
            facts=self._facts,
            trips=self._trips,
            trial=self._trial,
            marks=self._marks.last_minute,
            cost=self._cost(),
            problems=[f"{name} failed: {why}" for name, why in list(sensors.failed.items())[:_PROBLEMS]],
            blocks=blocks,
        )

    def _cost(self) -> str:
        """Return the cost of this view, and the sensors that it reads less often to save cost."""
        wall = time.monotonic() - self._began
        if wall < 2.0:
            return "measuring what this view costs ..."
        share = (time.process_time() - self._cpu_s) / wall
        text = f"this view costs {share:.2%} of one core at {self._pace.hz:g} Hz"
        slow = [f"{name} every {seconds:.0f} s" for name, seconds in self._sensors.slow()]
        return text + (f"; read less often: {', '.join(slow)}" if slow else "")


def _trips(channels: Mapping[str, ChannelSpec], root: Path) -> dict[str, Trip]:
    """Return the next harmful trip of each zone; trips lie in the same folder as the temperature's file."""
    files = {n: c.source for n, c in channels.items() if c.unit == "degC" and c.source.startswith("/")}
    zones = {name: (root / file.lstrip("/")).parent for name, file in files.items()}
    return {name: trip for name, zone in zones.items() if (trip := next_trip(zone))}


_UNITS = ("share", "Hz", "W", "degC", "byte")


def line(view: View, now: float, *, everything: bool = False, tenths: bool = False) -> str:
    """Return one line for the moment `now` (Unix seconds): the time, the values, throttling, the trial."""
    words = [time.strftime("%H:%M:%S", time.localtime(now)) + (f".{int(now * 10) % 10}" if tenths else "")]
    shown = view.channels if everything else _main(view)
    for name, spec in shown.items():  # always in this order, so that columns line up
        if name in view.values and spec.unit in _UNITS:
            words.append(f"{_label(name)}={short(view.values[name], spec.unit).replace(' ', '')}")
    held = [n.removeprefix("throttled_") for n, v in view.values.items() if n.startswith("throttled_") and v]
    flags = any(n.startswith("throttled_") for n in view.values)
    words.append(f"throttle={','.join(held) or ('none' if flags else 'unknown')}")
    words.append(f"trial={view.trial.what.replace(' ', '/')}" if view.trial else "trial=none")
    return " ".join(words)


def _main(view: View) -> dict[str, ChannelSpec]:
    """Return the channels of the main figures; every rail if no total is known."""
    watts = {n for n, c in view.channels.items() if c.unit == "W" and not n.endswith("_average_w")}
    totals = {n for n in watts if view.channels[n].scope in TOTALS} or watts
    zones = temperatures(view)
    heat = {nearest(view, zones)} if zones else set()
    return {n: c for n, c in view.channels.items() if n in totals | heat or _is_main(n)}


def _is_main(name: str) -> bool:
    if name in ("cpu_freq_hz", "mem_available_bytes"):
        return True
    own = name.startswith(("cpu_busy", "gpu"))
    return own and name.endswith(("_busy", "_clock_hz")) and "_memory_" not in name


def _label(name: str) -> str:
    for ending in ("_hz", "_w", "_c", "_bytes"):
        name = name.removesuffix(ending)
    return name


# -- the trial that runs now ----------------------------------------------------------------------------------

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
        trial: Mapping[str, Any] = plain_json.parsed(files.read(Path(folder, "trial.json"), _MOST_BYTES))
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
