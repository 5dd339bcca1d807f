"""A program that nobody wrote for edgescope, watched while it runs: its profile, its scheduling, power and heat.

It runs with inject/ on its path and needs nothing in it; what it left is one trace: functions, operators, calls,
kernels. on_board.py does the same with a program of a board.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.bench import SAMPLER_HZ
from edgescope.devices.manifest import present
from edgescope.errors import Message, UsageError
from edgescope.process import Launch, scratch_folder
from edgescope.records import SPAN_KINDS, Spans, Trace
from edgescope.telemetry.sampler import Sampler
from edgescope.wings.trace import tracers
from edgescope.wings.trace.importers import kineto

INJECT = Path(__file__).parent / "inject"
FOLDER, SECONDS = "EDGESCOPE_PROGRAM", "EDGESCOPE_PROGRAM_SECONDS"
#: Two samples further apart than this do not make one span: the program did not run in between.
APART_NS = 50_000_000


def launch(folder: Path, path: str, seconds: float = 0.0) -> Launch:
    """Return the launch of a program whose files go to `folder`; `path` is the PYTHONPATH that it would have."""
    paths = ":".join(filter(None, (str(INJECT), path)))
    return Launch(env={"PYTHONPATH": paths, FOLDER: str(folder), SECONDS: str(seconds)})


def collected(folder: Path) -> Trace:
    """Return what the program and the Python processes that it started left in the folder."""
    parts: list[Spans] = []
    notes: list[Message] = []
    for path in sorted(folder.glob("functions-*.json")):
        left = json.loads(path.read_text(encoding="utf-8"))
        parts.append(_functions(left))
        if left["torch_error"]:
            notes.append(
                Message("W-PROF-11", "torch.profiler could not record", evidence=left["torch_error"])
            )
    for path in sorted(folder.glob("kineto-*.json")):
        trace = tracers.aligned(kineto.read(path))
        parts.append(trace.spans)
        notes.extend(trace.notes)
    if not parts:
        notes.append(
            Message(
                "W-PROF-12",
                "the program left no profile",
                evidence="it is not Python, ended by os._exit or a signal, or runs with -I, -E or -S",
                effect="Only what the kernel knows of it is shown: CPU time, waiting, switches",
                fix="nsys profile -t cuda,nvtx,osrt PROGRAM, then edgescope trace of its export",
            )
        )
    return Trace(
        Spans.joined(parts) if parts else Spans.none(), "a program", clock="monotonic", notes=tuple(notes)
    )


def _functions(left: dict[str, Any]) -> Spans:
    """Return the sampled stacks of the main thread as nested `call` spans: runs of samples within one function."""
    open_: list[tuple[str, int]] = []
    rows: list[tuple[str, int, int]] = []
    last = left["begin_ns"]
    for t, index in [*left["samples"], (left["end_ns"], -1)]:
        stack = left["stacks"][index] if index >= 0 else []
        same = 0
        while same < min(len(stack), len(open_)) and open_[same][0] == stack[same] and t - last < APART_NS:
            same += 1
        edge = (t + last) // 2 if t - last < APART_NS else last
        rows += [(name, since, edge) for name, since in open_[same:]]
        open_ = [*open_[:same], *((name, edge if t - last < APART_NS else t) for name in stack[same:])]
        last = t
    names = list(dict.fromkeys(name for name, *_ in rows))
    index_of = {name: i for i, name in enumerate(names)}
    columns = {
        "name": np.array([index_of[name] for name, *_ in rows], "int32"),
        "start_ns": np.array([start for _, start, _ in rows], "int64"),
        "end_ns": np.array([end for *_, end in rows], "int64"),
    }
    fixed = {"kind": SPAN_KINDS.index("call"), "process": int(left["pid"]), "thread": int(left["pid"])}
    return Spans.from_columns(names, {**columns, **fixed})


# -- on this machine -----------------------------------------------------------------------------------------


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
        folder = Path(stack.enter_context(scratch_folder("program")))
        specs = [spec for device in present().values() for spec in device.sources(os.getpid())]
        sampler = Sampler(specs, SAMPLER_HZ, Path(stack.enter_context(scratch_folder("readings"))))
        started = launch(folder, os.environ.get("PYTHONPATH", ""), seconds)
        with sampler:
            begin = time.monotonic_ns()
            try:
                child = subprocess.Popen(command, env={**os.environ, **started.env})
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
        trace = collected(folder)
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
