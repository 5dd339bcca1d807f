"""A program that nobody wrote for edgescope, watched while it runs: its profile, its scheduling, power and heat.

It runs with tracing/inject on its path; what it left is one trace: functions, operators, calls, kernels.

A program on a board is profiled there: by nsys if the board has it, else by the sampler that is sent with it.

The program needs nothing in it, and edgescope need not be installed on the board. What the profiler leaves comes back
as one archive. The sampler's spans and the board's sensors have one clock, the board's.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import tarfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgescope.bench.run import SAMPLER_HZ
from edgescope.devices.manifest import present
from edgescope.errors import DeviceError, Message, UsageError
from edgescope.process import Launch, scratch
from edgescope.records import SPAN_KINDS, Json, Spans, Trace
from edgescope.remote import address
from edgescope.remote.board import Board, Line, Lines, opened
from edgescope.telemetry.sampler import Sampler
from edgescope.tracing.read import read
from edgescope.wings.trace import clock_marks
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
        trace = clock_marks.aligned(kineto.read(path))
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
        folder = Path(stack.enter_context(scratch.folder("program")))
        specs = [spec for device in present().values() for spec in device.sources(os.getpid())]
        sampler = Sampler(specs, SAMPLER_HZ, Path(stack.enter_context(scratch.folder("readings"))))
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


# -- on a board ----------------------------------------------------------------------------------------------


#: Runs in the agent's folder; the program runs in the user's home, as it would over ssh.
SCRIPT = """\
D=$PWD; cd
N=$(command -v nsys)
if [ -n "$N" ]; then
"$N" profile -t cuda,nvtx,osrt -s none --cpuctxsw=none {window} --export=sqlite --force-overwrite=true \
-o "$D/report" {program}
else
PYTHONPATH="$D${{PYTHONPATH:+:$PYTHONPATH}}" {folder}="$D" {name}={seconds} {program}
fi
echo $? > "$D/code"
cd "$D" && tar cf left.tar code $(ls | grep -E '^(report[.]sqlite|(functions|kineto)-.*[.]json)$')
exit 0
"""
LEFT, LONGEST_S = "left.tar", 86_400.0
NOT_STARTED = (126, 127)
"""Exit codes of a shell that could not start a program."""


def traced(url: str, command: Sequence[str], seconds: float = 0.0) -> Trace:
    """Run a program of the board at `url` to its end and return its trace; its output goes to this process's."""
    with opened(address.parse(url)) as board:
        return on(board, command, seconds)


def on(board: Board, command: Sequence[str], seconds: float = 0.0) -> Trace:
    """Run a program on a connected board and return its trace; what it does after `seconds` is not recorded."""
    window = f"--duration={seconds:g} --kill=none" if seconds else ""
    script = SCRIPT.format(
        window=window,
        program=shlex.join(command),
        folder=FOLDER,
        name=SECONDS,
        seconds=seconds,
    )
    with scratch.folder("program") as made:
        folder = Path(made)
        sampler = {"sitecustomize.py": INJECT / "sitecustomize.py"}
        line = Line(["sh", "-c", script], sent=sampler, fetched={LEFT: folder / LEFT})
        with board.sampling(SAMPLER_HZ) as rows:
            ended = board.perform(line, _Printed(""), LONGEST_S, f"run {command[0]}")
        if ended["stopped"]:
            what = f"{command[0]} was stopped on {board.wire.address}"
            raise DeviceError(
                "E-PROF-11", what, evidence=f"{ended['stopped']} after {ended['seconds']:.0f} s"
            )
        _unpack(folder)
        code = int((folder / "code").read_text())
        if code in NOT_STARTED:
            what = f"{command[0]} cannot be started on {board.wire.address}"
            raise UsageError(
                "E-PROF-8", what, evidence=f"exit code {code}", fix="name it as in a login over ssh"
            )
        trace = _left(folder)
        if trace.samples is None and trace.clock == "monotonic":
            trace = replace(trace, samples=rows.readings(board.machine().state.get("jetson", {})))
    notes = (Message("W-PROF-13", f"the program ended with exit code {code}"),) if code else ()
    return replace(trace, source=f"{trace.source} on {board.wire.address}", notes=(*trace.notes, *notes))


class _Printed(Lines):
    """Prints a program's lines as they come."""

    def take(self, event: Mapping[str, Json]) -> None:
        """Take one event."""
        for text in event["lines"]:
            print(text, flush=True)


def _unpack(folder: Path) -> None:
    """Write the plain files of the archive into the folder."""
    with tarfile.open(folder / LEFT) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() and "/" not in member.name else None
            if content is not None:
                (folder / member.name).write_bytes(content.read())


def _left(folder: Path) -> Trace:
    """Return nsys's trace if there is one, else what the sampler left."""
    report = folder / "report.sqlite"
    if not report.is_file():
        return collected(folder)
    note = Message(
        "I-PROF-6",
        "nsys has a clock of its own",
        effect="Power and heat are not beside its spans",
        fix="edgescope bench --on ... for them",
    )
    found = read(report)
    return replace(found, notes=(*found.notes, note))
