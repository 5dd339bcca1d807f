"""One worker process as its leader sees it: started, told, listened to, and known to be dead or stuck."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from edgescope import registry
from edgescope.devices.cpu.limits import control_groups
from edgescope.errors import message
from edgescope.isolate.fresh import signal_name
from edgescope.records import Json, Status

TAIL_BYTES, TAIL_CHARACTERS = 8192, 600


class CrewError(Exception):
    """A worker died, hung or failed; the trial ends with this status and reason."""

    def __init__(self, status: Status, reason: str) -> None:
        self.status, self.reason = status, reason
        super().__init__(reason)


@dataclass(frozen=True)
class Seat:
    """Where a worker runs: its environment's additions, the words before its program, the CPUs it has to itself."""

    env: Mapping[str, str] = field(default_factory=dict)
    prefix: Sequence[str] = ()
    cpus: tuple[int, ...] = ()


class Member:
    """One worker process."""

    def __init__(self, number: int, seat: Seat, folder: Path) -> None:
        self.number, self.seat, self.used, self.loaded = number, seat, False, False
        """Whether it has answered a trial before, and whether its engine is loaded."""
        self.kills = oom_kills()
        """What the kernel's OOM killer had ended when this worker's trial began."""
        self.inbox: deque[dict[str, Json]] = deque()
        """What it has said and nobody has read yet."""
        self._words = folder / f"stderr-{number}"
        argv = [*seat.prefix, sys.executable, "-m", registry.WORKER_PROGRAM, str(os.getpid())]
        with self._words.open("wb") as err:
            self.process = subprocess.Popen(
                argv,
                env={**os.environ, **seat.env},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        self._in, self._out = self.process.stdin, self.process.stdout
        os.set_blocking(self._out.fileno(), False)
        self._unread = b""

    @property
    def pid(self) -> int:
        """Its process id: launchers become the program they start."""
        return self.process.pid

    def fileno(self) -> int:
        """Return what tells that there is something to hear."""
        return self._out.fileno()

    def say(self, do: str, **what: Json) -> None:
        """Give an order; a worker that is gone is found out when it is listened to."""
        with contextlib.suppress(OSError):
            self._in.write(json.dumps({"do": do, **what}).encode() + b"\n")
            self._in.flush()

    def listen(self) -> None:
        """Put what it has said since into the inbox; CrewError where it has ended."""
        try:
            data = os.read(self.fileno(), 1 << 20)
        except BlockingIOError:
            return
        if not data:
            raise self.lost()
        *lines, self._unread = (self._unread + data).split(b"\n")
        self.inbox.extend(json.loads(line) for line in lines)

    def lost(self) -> CrewError:
        """Return what happened to a worker whose pipe is closed."""
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            code = 0
        how = f"died of {signal_name(-code)}" if code < 0 else f"ended with {code}"
        killed = oom_kills() - self.kills if code == -signal.SIGKILL else 0
        hint = " (often the kernel's OOM killer: see dmesg)" if code == -signal.SIGKILL else ""
        if killed > 0:
            hint = f" (out of memory: the kernel's OOM killer ended {killed} of this group's processes meanwhile)"
        return CrewError(
            Status.OOM if killed > 0 else Status.CRASHED,
            message(
                "E-CREW-2",
                f"worker {self.number} {how}{hint}",
                evidence=self.words() or "it wrote nothing to stderr",
                effect="The other workers then shared the device with nobody, so there is no number for this cell",
            ),
        )

    def silent(self, what: str, seconds: float) -> CrewError:
        """Return that it did not say `what` within so many seconds."""
        return CrewError(
            Status.TIMEOUT,
            message(
                "E-CREW-3",
                f"worker {self.number} hangs: it was not {what} after {seconds:.2g} s",
                evidence="; ".join(filter(None, (f"process {self.pid} is {self._state()}", self.words()))),
                effect="There is no number for this cell",
                fix="--timeout SECONDS if it only needs longer",
            ),
        )

    def _state(self) -> str:
        """Return the kernel's word for what the process does: R (running), T (stopped) ..."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            return next(line.split("\t", 1)[1] for line in lines if line.startswith("State:"))
        except (OSError, StopIteration, IndexError):
            return "gone"

    def words(self) -> str:
        """Return the end of what it wrote to stderr, as one line."""
        try:
            with self._words.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        shown = ("".join(c if c.isprintable() else " " for c in line).strip() for line in text.splitlines())
        return " | ".join(line for line in shown if line)[-TAIL_CHARACTERS:]

    def end(self) -> None:
        """Kill it; harmless when it is gone."""
        self.process.kill()
        self.process.wait()
        for pipe in (self._in, self._out):
            with contextlib.suppress(OSError):
                pipe.close()


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the kernel has ended for want of memory: in this control group, else on this machine.

    0 where neither tells; only differences mean something.
    """
    files = [folder / "memory.events" for folder in control_groups(root, "")][:1]
    for path in (*files, root / "proc/vmstat"):
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split() for line in path.read_text().splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return 0
