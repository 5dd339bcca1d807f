"""A program that nobody wrote for edgescope, watched while it runs: its profile, its scheduling, power and heat."""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgescope.bench.run import SAMPLER_HZ
from edgescope.devices.manifest import present
from edgescope.errors import Message, UsageError
from edgescope.process import scratch
from edgescope.records import Trace
from edgescope.telemetry.sampler import Sampler
from edgescope.wings.trace import program

PERIOD_S = 0.02


@dataclass
class Seen:
    """What /proc said of a program's threads, summed over those that have ended."""

    threads: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)
    """(process, thread) -> nanoseconds on a CPU, nanoseconds ready and waiting for one, times put on one."""
    cpus: dict[tuple[int, int], int] = field(default_factory=dict)
    moved: int = 0
    """Times that a thread was seen on another CPU than at the reading before: fewer than it really moved."""
    proc: Path = Path("/proc")

    def look(self, root: int) -> None:
        """Read every thread of the process and of those that it started."""
        for pid in _tree(root, self.proc):
            with contextlib.suppress(OSError, ValueError):
                for tid in map(int, os.listdir(self.proc / f"{pid}/task")):
                    self._thread(pid, tid)

    def _thread(self, pid: int, tid: int) -> None:
        place = self.proc / f"{pid}/task/{tid}"
        with contextlib.suppress(OSError, ValueError, IndexError):
            on, ready, times = map(int, (place / "schedstat").read_text().split())
            self.threads[pid, tid] = on, ready, times
            cpu = int((place / "stat").read_text().rpartition(")")[2].split()[36])
            self.moved += self.cpus.get((pid, tid), cpu) != cpu
            self.cpus[pid, tid] = cpu

    def facts(self, wall_ns: int) -> dict[str, object]:
        """Return the sums."""
        on, ready, times = (sum(v[i] for v in self.threads.values()) for i in range(3))
        return {
            "threads": len(self.threads),
            "on_cpu_ns": on,
            "ready_ns": ready,
            "switches": times,
            "migrations_seen": self.moved,
            "wall_ns": wall_ns,
            "exit_code": None,
        }


def watched(command: Sequence[str], seconds: float = 0.0) -> Trace:
    """Run the program to its end; return its trace with sensor readings on the same clock and scheduling in its facts.

    Its own output goes where this process's goes. UsageError if it cannot be started.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(scratch.folder("program")))
        specs = [spec for device in present().values() for spec in device.sources(os.getpid())]
        sampler = Sampler(specs, SAMPLER_HZ, Path(stack.enter_context(scratch.folder("readings"))))
        launch = program.launch(folder, os.environ.get("PYTHONPATH", ""), seconds)
        with sampler:
            begin = time.monotonic_ns()
            try:
                child = subprocess.Popen(command, env={**os.environ, **launch.env})
            except OSError as error:
                raise UsageError(
                    "E-PROF-8",
                    f"{command[0]} cannot be started",
                    evidence=str(error),
                    fix="edgescope trace -- PROGRAM",
                ) from error
            with _looking(child.pid) as seen:
                code = child.wait()
            wall = time.monotonic_ns() - begin
        trace = program.collected(folder)
        facts = {**trace.facts, "program": {**seen.facts(wall), "exit_code": code, "command": list(command)}}
        notes = trace.notes
        if code:
            notes += (Message("W-PROF-13", f"the program ended with exit code {code}"),)
        return replace(trace, samples=sampler.readings(), facts=facts, notes=notes)


@contextmanager
def _looking(pid: int) -> Iterator[Seen]:
    """Read /proc from a thread every PERIOD_S while the block runs."""
    seen, ended = Seen(), threading.Event()

    def look() -> None:
        while not ended.wait(PERIOD_S):
            seen.look(pid)

    seen.look(pid)
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _tree(root: int, proc: Path) -> list[int]:
    """Return a process and all that it started, as far as they still run."""
    found, left = [], [root]
    while left:
        pid = left.pop()
        found.append(pid)
        with contextlib.suppress(OSError, ValueError):
            for task in os.listdir(proc / f"{pid}/task"):
                left += map(int, (proc / f"{pid}/task/{task}/children").read_text().split())
    return found
