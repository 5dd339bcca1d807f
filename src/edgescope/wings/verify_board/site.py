"""Where a check runs: this machine, a recorded board, or a board over ssh. A check is written once for all of them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from edgescope import registry
from edgescope.bench import SAMPLER_HZ
from edgescope.bench.watch import Watch
from edgescope.devices import manifest, replay
from edgescope.devices.base import Device
from edgescope.errors import UnsupportedError
from edgescope.process import scratch_folder
from edgescope.records import Machine, Result, Trial
from edgescope.wings.record.lends import WHERE, Names
from edgescope.wings.remote.lends import Board, BoardWatch, Line, Lines, opened, parse

#: Environment variable: a folder that stands for /, as the agent takes it (tests).
ROOT = "EDGESCOPE_ROOT"
#: Devices that read files below a root.
_IN_FILES = ("cpu", "jetson")
#: Seconds beyond a program's own limit until its last lines are given up.
_REST_S = 2.0


@dataclass(frozen=True)
class Said:
    """A program that has ended: exit code, lines with the time of each (ns, the sensors' clock), why it was stopped."""

    code: int
    lines: Sequence[tuple[int, str]]
    seconds: float
    stopped: str = ""

    @property
    def text(self) -> str:
        """Return all that it printed."""
        return "\n".join(line for _, line in self.lines)

    @property
    def last(self) -> str:
        """Return its last words, in one line."""
        return " | ".join(line.strip() for _, line in self.lines[-3:] if line.strip())[-300:]


class Site(Protocol):
    """The board that is verified."""

    reached: str
    """here, ssh or recording."""
    root: Path
    """The folder that stands for / where its settings are changed."""
    devices: Mapping[str, Device]

    def machine(self) -> Machine:
        """Return the board as a Result describes it."""

    def names(self) -> Names:
        """Return the words that name the board, its owner or its network."""

    def has_gpu(self) -> bool:
        """Return whether the board has an NVIDIA GPU, its own or on a card."""

    def watch(self) -> Watch:
        """Return what samples the board's sensors and reads its throttling counters."""

    def find(self, program: str) -> str:
        """Return the path of a program there, or ''."""

    def run(self, argv: Sequence[str], limit_s: float, sent: Sequence[Path] = ()) -> Said:
        """Run a program there to its end, at most so long; `sent` are files that lie in its folder."""

    def trial(self, trial: Trial) -> Result:
        """Run a trial there."""


class Here:
    """The machine that this process runs on, or the recording that it plays."""

    def __init__(self, root: Path | None = None) -> None:
        """`root`: a folder that stands for / (tests); None: this machine's own, or that of the recording."""
        self.reached = "recording" if replay.played() else "here"
        self.root = root or Path("/")
        self.devices: Mapping[str, Device] = manifest.present() if root is None else _below(root)

    def machine(self) -> Machine:
        """Return this machine."""
        return manifest.machine(self.devices)

    def names(self) -> Names:
        """Return the words that name this machine."""
        return Names.here(self.root) | Names.here()

    def has_gpu(self) -> bool:
        """Return whether it has an NVIDIA GPU."""
        return _has_gpu(self.devices)

    def watch(self) -> Watch:
        """Return a watch of this machine's sensors."""
        return Watch(self.devices, SAMPLER_HZ)

    def find(self, program: str) -> str:
        """Return the path of a program, or '': a recording has none."""
        return "" if self.reached == "recording" else shutil.which(program) or ""

    def run(self, argv: Sequence[str], limit_s: float, sent: Sequence[Path] = ()) -> Said:
        """Run a program in a folder of its own; it is ended with all that it started."""
        self._real()
        begun, lines = time.monotonic(), list[tuple[int, str]]()
        with scratch_folder("check") as folder:
            for path in sent:
                shutil.copy(path, folder)
            child = subprocess.Popen(
                argv,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            reader = threading.Thread(target=_read, args=(child, lines), daemon=True)
            reader.start()
            stopped = ""
            try:
                child.wait(limit_s)
            except subprocess.TimeoutExpired:
                stopped = f"still running after {limit_s:g} s"
            finally:
                _end(child)
            reader.join(_REST_S)
        return Said(child.returncode, tuple(lines), time.monotonic() - begun, stopped)

    def trial(self, trial: Trial) -> Result:
        """Run a trial in a process of its own."""
        from edgescope.runner.setup import run

        self._real()
        return run(trial)

    def _real(self) -> None:
        if self.reached == "recording":
            raise UnsupportedError(
                "E-BOARD-4", "a recording runs no program", fix="the kit on the board itself"
            )


class OnBoard:
    """A board over ssh, through the agent."""

    reached, root = "ssh", Path("/")

    def __init__(self, board: Board, url: str) -> None:
        self.board, self.url = board, url
        self.devices: Mapping[str, Device] = board.tree.devices()

    def machine(self) -> Machine:
        """Return the board."""
        return self.board.machine()

    def names(self) -> Names:
        """Return the words that name the board and how it was reached; those of this machine, too."""
        patterns = " ".join(f"/{pattern}" for patterns in WHERE.values() for pattern in patterns)
        said = self.run(["sh", "-c", f"grep -aHs '' {patterns}; echo $HOME $USER $SSH_CONNECTION"], 30.0)
        files = {name: str(text) for name, text in mapping(self.board.tree.reported.get("files")).items()}
        files |= dict.fromkeys((line.partition(":")[0].lstrip("/") for _, line in said.lines[:-1]), "")
        for _, line in said.lines[:-1]:
            name, _, text = line.partition(":")
            files[name.lstrip("/")] += text + "\n"
        home, *rest = said.lines[-1][1].split() or [""] if said.lines else [""]
        words = [("user", home.rpartition("/")[2]), *(("user", w) for w in rest[:1])]
        words += [("address", w) for w in rest if "." in w or ":" in w]
        where = self.board.wire.address
        return Names.here() | Names.of(files, [*words, ("user", where.user), ("host", where.host)])

    def has_gpu(self) -> bool:
        """Return whether it has an NVIDIA GPU."""
        return _has_gpu(self.devices)

    def watch(self) -> Watch:
        """Return a watch through the agent."""
        return BoardWatch(self.board)

    def find(self, program: str) -> str:
        """Return the path of a program on the board, or ''."""
        said = self.run(["sh", "-c", 'command -v "$1"', "sh", program], 10.0)
        return said.text.strip() if said.code == 0 else ""

    def run(self, argv: Sequence[str], limit_s: float, sent: Sequence[Path] = ()) -> Said:
        """Run a program on the board in the agent's folder."""
        lines = Lines("")
        line = Line(list(argv), sent={path.name: path for path in sent})
        ended = self.board.perform(line, lines, limit_s, f"run {Path(argv[0]).name}")
        return Said(
            int(ended["code"]), tuple(lines.found), float(ended["seconds"]), str(ended["stopped"] or "")
        )

    def trial(self, trial: Trial) -> Result:
        """Run a trial on the board, over a connection of its own."""
        from edgescope.runner.setup import run

        manifest.drive(self.machine(), self.url)
        return run(trial)


@contextmanager
def at(url: str) -> Iterator[Site]:
    """Yield the board at an ssh address, or this machine for ''."""
    if not url:
        root = os.environ.get(ROOT)
        yield Here(Path(root) if root else None)
        return
    os.environ.pop(registry.ON, None)
    with opened(parse(url)) as board:
        yield OnBoard(board, url)


def watched(site: Site, seconds: float) -> Watch:
    """Watch the board for so long; over ssh it waits on the board's side: a silent host is one that has gone."""
    watch = site.watch()
    with watch.watching():
        if site.reached == "ssh":
            site.run(["sleep", f"{seconds:g}"], seconds + 10)
        else:
            time.sleep(seconds)
    return watch


def mapping(value: object) -> Mapping[str, Any]:
    """Return a fact that is an object; {} for any other."""
    return value if isinstance(value, Mapping) else {}


def _below(root: Path) -> dict[str, Device]:
    """Return the devices that read the files below a folder."""
    names = [name for name in _IN_FILES if name in registry.DEVICES]
    return {name: registry.load(registry.DEVICES, name, "device")(root) for name in names}


def _has_gpu(devices: Mapping[str, Device]) -> bool:
    return any(name in devices and not devices[name].present() for name in ("jetson", "nvidia"))


def _read(child: subprocess.Popen[bytes], lines: list[tuple[int, str]]) -> None:
    assert child.stdout
    with child.stdout as pipe:
        for line in pipe:
            lines.append((time.monotonic_ns(), line.decode(errors="replace").rstrip("\n")))


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a program and its process group; harmless if it has ended."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
