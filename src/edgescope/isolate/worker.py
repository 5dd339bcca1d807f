"""The leader's side of one worker process: it starts it, sends orders, reads messages, detects death and hangs."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edgescope import registry
from edgescope.devices.cpu.limits import control_groups
from edgescope.errors import Message
from edgescope.process import Launch, Line, Process
from edgescope.records import Json, Status

TAIL_CHARACTERS = 600


class WorkerError(Exception):
    """A worker died, hung or failed; the trial ends with this status and reason."""

    def __init__(self, status: Status, reason: Message) -> None:
        self.status, self.reason = status, reason
        super().__init__(str(reason))


@dataclass(frozen=True)
class Placement:
    """Where a worker runs: how it is started, and the CPUs it has to itself."""

    launch: Launch = Launch()
    cpus: tuple[int, ...] = ()


class WorkerProcess(Process):
    """A process that waits for trials; its messages are {"event": ...}, its orders {"do": ...}."""

    def __init__(self, number: int, placement: Placement) -> None:
        super().__init__([sys.executable, "-m", registry.WORKER_PROGRAM, str(os.getpid())], placement.launch)
        self.number, self.placement, self.used, self.loaded = number, placement, False, False
        """Whether it has answered a trial before, and whether its engine is loaded."""
        self.kills = oom_kills()
        """How many processes the kernel's OOM killer had ended when this worker's trial began."""

    def fileno(self) -> int:
        """Return the file descriptor that becomes readable when the worker sends something."""
        return self.pipe.fileno()

    def order(self, do: str, **what: Json) -> None:
        """Send an order; `listen` finds out if the worker is gone."""
        with contextlib.suppress(OSError, ValueError):
            self.pipe.send(do=do, **what)

    def listen(self) -> None:
        """Read its new messages; raise WorkerError if it has ended."""
        try:
            if self.pipe.ready():
                self.pipe.fill()
        except EOFError:
            raise self.lost() from None

    def events(self) -> Iterator[Line]:
        """Yield its unread messages; note its process id, which only the worker itself knows under a profiler."""
        for event in self.pipe.received():
            if event["event"] == "here":
                self.pid = int(event["pid"])
            yield event

    def lost(self) -> WorkerError:
        """Return the error for a worker whose pipe is closed: how it ended."""
        killed = oom_kills() - self.kills if self.wait(5) == -signal.SIGKILL else 0
        how = self.ending()
        if killed > 0:
            how = f"died of SIGKILL (out of memory: the kernel's OOM killer ended {killed} of this group's processes)"
        return WorkerError(
            Status.OOM if killed > 0 else Status.CRASHED,
            Message(
                "E-WORKER-2",
                f"worker {self.number} {how}",
                evidence=self.stderr_tail() or "it wrote nothing to stderr",
                effect="The other workers then had fewer neighbours, so there is no number for this cell",
            ),
        )

    def silent(self, what: str, seconds: float) -> WorkerError:
        """Return the error for a worker that was not `what` within the time limit."""
        return WorkerError(
            Status.TIMEOUT,
            Message(
                "E-WORKER-3",
                f"worker {self.number} hangs: it was not {what} after {seconds:.2g} s",
                evidence="; ".join(
                    filter(None, (f"process {self.pid} is {self.state()}", self.stderr_tail()))
                ),
                effect="There is no number for this cell",
                fix="--timeout SECONDS if it only needs longer",
            ),
        )

    def state(self) -> str:
        """Return the kernel's state of the process: R (running), T (stopped) ..."""
        try:
            lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
            return next(line.removeprefix("State:").strip() for line in lines if line.startswith("State:"))
        except (OSError, StopIteration):
            return "gone"

    def stderr_tail(self) -> str:
        """Return the end of what it wrote to stderr, as one line."""
        return " | ".join(self.tail())[-TAIL_CHARACTERS:]


def oom_kills(root: Path = Path("/")) -> int:
    """Return how many processes the OOM killer has ended, in this control group or else on this machine.

    Return 0 if neither is known; only differences mean something.
    """
    files = [folder / "memory.events" for folder in control_groups(root, "")][:1]
    for path in (*files, root / "proc/vmstat"):
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split() for line in path.read_text().splitlines())
            if "oom_kill" in counts:
                return int(counts["oom_kill"])
    return 0
