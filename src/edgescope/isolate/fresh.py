"""Runs a trial in its own process: whatever the model does, a Result is recorded.

The parent writes the trial to a file, starts `python -m` of registry.TRIAL_PROGRAM, and watches three things while it
waits: the clock (time-out), the machine's free memory (the trial is stopped at a floor, before the kernel's OOM killer
picks a victim), and the child itself (a crash becomes a Result with the signal and the last lines it wrote).
A result that the child had finished writing counts, whatever stopped it afterwards.
A warden process (warden.py) stands between parent and child; it ends everything the child started, however it ends.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import shlex
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from edgescope import registry
from edgescope.devices.cpu.limits import Memory
from edgescope.errors import Message, StoreError
from edgescope.isolate import notes, placement, warden
from edgescope.process import (
    TAIL_BYTES,
    Launch,
    Process,
    give_back,
    how_ended,
    scratch_folder,
    scratch_within,
)
from edgescope.records import Machine, Result, Status, Trial
from edgescope.store import files, handed_rows, results

POLL_MS = 100
#: The file that a parent holds while the trial's process may not measure.
HOLD = "hold"
#: The folders of a pair's two sides.
PAIR = ("baseline", "candidate")
#: Passes the command the user typed to the trial's process, whose own command line says nothing of it.
COMMAND = "EDGESCOPE_COMMAND"
#: Tells the child when it will be stopped, so that it can first report which of its workers was late.
TIMEOUT = "EDGESCOPE_TIMEOUT"
#: Default memory floor: 8 % of the machine, at least 400 MB; a unified-memory board needs this to stay up.
FLOOR_SHARE, FLOOR_BYTES = 0.08, 400_000_000
#: What a process takes that runs a small network in the lightest engine (published/weight.json).
LEAST_BYTES = 100_000_000
#: Bytes of freed memory that a process that builds keeps for what it allocates next.
KEPT_BYTES = 512 * 2**20
#: The environment of a process that builds. Its OpenMP threads sleep while they wait: on a busy machine, one that spins
#: takes the core that the one it waits for needs (benchmarks/preparing.py busy). Its C library keeps freed memory: it
#: would give every large array back, and the system would clear the next one page by page
#: (benchmarks/preparing.py memory). What is measured waits and allocates as its engine does.
BUILDING = {
    "OMP_WAIT_POLICY": "passive",
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(KEPT_BYTES),
}
#: Seconds that a warden has to end its processes; longer than it gives them.
PATIENCE_S = warden.PATIENCE_S + 2.0
#: How much of the end of the child's stderr goes into a Result.
TAIL_CHARACTERS = 4000
#: Statuses that the process's last lines help to explain; the others' reasons are complete.
_TRACED = frozenset({Status.FAILED, Status.CRASHED, Status.TIMEOUT, Status.OOM})


@dataclass(frozen=True)
class Limits:
    """The limits that stop a trial: seconds, and the bytes of memory that must stay free (None: the default)."""

    timeout_s: float = 900.0
    floor_bytes: int | None = None
    cancelled: Callable[[], bool] = lambda: False
    """Whether nobody waits for the trial any more: its process is ended then."""
    store: Path | None = None
    """Where the machine's ceilings are kept; None: in the usual folder."""
    threads: int | None = None
    """OpenMP threads of a process that builds beside others; None: as many as it likes."""


@dataclass(frozen=True)
class Stopped:
    """The reason why a trial's process ended before it had written a Result."""

    status: Status
    reason: Message


def run(
    trial: Trial,
    limits: Limits = Limits(),
    launch: Launch = Launch(),
    *,
    noted: notes.Noted = notes.unnoted,
) -> Result:
    """Run the trial in a fresh process and return its Result, whatever happened to the process.

    `noted` takes note of what the process imported. Raises StoreError if the temporary folder that both processes
    share cannot be used.
    """
    return _in_child("run", trial, limits, launch, noted=noted)


def look(
    trial: Trial,
    limits: Limits = Limits(),
    launch: Launch = Launch(),
    *,
    noted: notes.Noted = notes.unnoted,
    meanwhile: Callable[[], object] = lambda: None,
) -> Result:
    """Run the trial in a fresh process that does not judge its outputs: no reference need be there yet.

    `meanwhile` runs while the process loads, and has ended before it measures.
    """
    return _in_child("look", trial, limits, launch, noted=noted, meanwhile=meanwhile)


def prepare(trial: Trial, limits: Limits = Limits()) -> Result | None:
    """Build the trial's artifact and reference outputs in a fresh process; return None, or the failed Result.

    Exporting and calibrating need engines and memory that the measured process must not hold. Where all of it is there
    already, no process is started.
    """
    if notes.is_prepared(trial):
        return None
    threads = {} if limits.threads is None else {"OMP_NUM_THREADS": str(limits.threads)}
    result = _in_child("prepare", trial, limits, Launch(env=BUILDING | threads))
    return None if result.status is Status.OK else result


def _in_child(
    verb: str,
    trial: Trial,
    limits: Limits,
    launch: Launch,
    *,
    noted: notes.Noted = notes.unnoted,
    meanwhile: Callable[[], object] | None = None,
) -> Result:
    started = datetime.now(timezone.utc)
    try:
        # A file that cannot be removed must not cost a finished result.
        with scratch_folder("trial") as name:
            folder = Path(name)
            (folder / "trial.json").write_text(json.dumps(trial.to_json()))
            launch = environment(limits, name) + launch
            if verb == "run":
                launch += placement.traced_launch(trial, folder / "trace")
            program = [sys.executable, "-m", registry.TRIAL_PROGRAM, verb, name, str(os.getpid())]
            with held(folder, meanwhile) if meanwhile else contextlib.nullcontext():
                stopped, lines = _watch(program, folder, limits, launch)
            result = outcome(trial, stopped, started, folder, lines)
            if (found := notes.told(folder)) is not None:
                noted(trial, found)
            return placement.with_spans(result, folder / "trace") if verb == "run" else result
    except OSError as error:
        raise StoreError(
            "E-RUN-4",
            "the temporary folder of the trial's process cannot be used",
            evidence=str(error),
            effect="This trial was not measured; results finished earlier are untouched",
            fix="TMPDIR=/another/folder edgescope ..., or free some space",
        ) from error


@contextlib.contextmanager
def held(folder: Path, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Do `meanwhile` beside the block; a process that calls `wait_for_parent` in it waits until that is done.

    So a trial's process loads, on another core, and does not measure. The parent holds a lock on a file in the trial's
    folder; the kernel frees that of a parent that dies. Where the file system has no locks, the parent is done first.
    An error of `meanwhile` is nobody's here: who needs its answer asks again.
    """

    def work() -> None:
        with contextlib.suppress(Exception):
            meanwhile()
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_UN)

    with open(folder / HOLD, "w") as file:
        thread = threading.Thread(target=work)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            thread.run()
            yield
            return
        thread.start()
        try:
            yield
        finally:
            thread.join()


def wait_for_parent(folder: Path) -> None:
    """Wait until what the parent does beside the trial in the folder is done."""
    with contextlib.suppress(OSError), open(folder / HOLD) as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def environment(limits: Limits, folder: str) -> Launch:
    """Return the child's environment: the user's command, the time-out, the folder for its temporary files."""
    added = {COMMAND: shlex.join(sys.orig_argv), TIMEOUT: str(limits.timeout_s)}
    env = {name: os.environ.get(name, value) for name, value in added.items()} | scratch_within(folder)
    env |= {"EDGESCOPE_STORE": str(limits.store.resolve())} if limits.store else {}
    own = [p for p in sys.path if p and not p.startswith((sys.prefix, sys.base_prefix))]
    return Launch(
        env=env | ({"PYTHONPATH": os.pathsep.join(own)} if own else {})
    )  # so that a script's module:callable is found


def outcome(
    trial: Trial, stopped: Stopped | None, started: datetime, folder: Path, lines: Sequence[str]
) -> Result:
    """Return the Result that the child wrote, or one that says what cut it short; add its last stderr lines."""
    if stopped is None and not (folder / "result" / "result.json").exists():
        stopped = crash(0, lines)  # os._exit(0), by a model or a library
    try:
        result = results.read(folder / "result", handed_rows)
    except StoreError as error:
        result = _cut_short(trial, stopped or Stopped(Status.CRASHED, error.message), started, folder)
    text = " | ".join(lines)[-TAIL_CHARACTERS:] if result.status in _TRACED else ""
    said = [Message("I-TRACE-1", "the trial's process wrote this last", evidence=text)] if text else []
    return result.warned(*_survivors(folder), *said)


def _survivors(folder: Path) -> Iterator[Message]:
    """Yield a warning that names the processes the warden could not end, if there are any."""
    listed: list[str] = []
    with contextlib.suppress(OSError, StoreError):
        listed = files.read(folder / warden.SURVIVORS, TAIL_BYTES).decode(errors="replace").split()
    if pids := [pid for pid in listed if pid.isdigit()]:  # a trial's own code may have written this file
        yield Message(
            "W-RUN-1",
            f"{len(pids)} processes that the trial started could not be ended",
            evidence=f"process {', '.join(pids)}",
            effect="They disturb the next measurement",
            fix=f"ps -fp {','.join(pids)}",
        )


def _cut_short(trial: Trial, stopped: Stopped, started: datetime, folder: Path) -> Result:
    """Return the Result of a trial whose process did not live to write one."""
    try:
        begun = results.read(folder / "begun", handed_rows)
    except StoreError:
        where = Machine({"absent": "the trial's process ended before it had described the machine"}, {})
        begun = Result.begun(trial, where, at=started)
    return begun.ended(stopped.status, stopped.reason)


def _watch(
    program: Sequence[str], folder: Path, limits: Limits, launch: Launch = Launch()
) -> tuple[Stopped | None, list[str]]:
    """Start the program and wait for it within the limits; return what stopped it and its last lines on stderr.

    It is not started where it would be stopped for memory in any case.
    """
    if (short := no_room(limits)) is not None:
        return Stopped(Status.OOM, short), []
    try:
        child = GuardedProcess(program, folder, launch)
    except OSError as error:  # no such program, no memory for another process
        return not_started(error), []
    give_back()
    try:
        stopped = _wait(child, limits)
    finally:
        child.end()
    if stopped is None and child.code:
        stopped = crash(child.code, child.tail(), launch)
    return stopped, child.tail()


class GuardedProcess(Process):
    """A process in its own session, under a warden that removes `folder` if this process ends first.

    Raises FileNotFoundError if there is no such program: starting the warden alone would always succeed.
    """

    def __init__(
        self, program: Sequence[str], folder: Path, launch: Launch = Launch(), *, talks: bool = False
    ) -> None:
        argv = [*launch.prefix, *program]
        if shutil.which(argv[0], path={**os.environ, **launch.env}.get("PATH")) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        guard = (sys.executable, "-I", "-S", warden.__file__, str(os.getpid()), str(folder))
        super().__init__(program, Launch(guard) + launch, talks=talks, session=True)
        self.launch = launch  # the warden exits as the program did

    def end(self, patience_s: float = PATIENCE_S) -> None:
        """Have the warden end everything it guards, and itself; harmless if it has ended."""
        self.terminate()
        if self.wait(patience_s) is None:  # stopped, or starved: then this does the warden's work
            for pid in (self.pid, *warden.below(self.pid)):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        super().end()


def not_started(error: OSError) -> Stopped:
    """Return the status and reason of a process that could not be started."""
    what = "the trial's process could not be started"
    return Stopped(Status.FAILED, Message("E-RUN-5", what, evidence=str(error)))


def _wait(child: GuardedProcess, limits: Limits) -> Stopped | None:
    """Wait for the child to end within the limits; return None, or what stopped it."""
    pidfd = os.pidfd_open(child.pid)
    try:
        stopped = until_readable(pidfd, limits)
    finally:
        os.close(pidfd)
    if stopped is None:
        child.wait()
    return stopped


def until_readable(handle: int, limits: Limits) -> Stopped | None:
    """Wait until `handle` is readable; return None, or the limit that was reached first."""
    deadline = time.monotonic() + limits.timeout_s
    ready = select.poll()
    ready.register(handle, select.POLLIN)
    with Memory() as memory:
        floor = floor_of(limits.floor_bytes, memory)
        while not ready.poll(POLL_MS):
            if limits.cancelled():
                raise KeyboardInterrupt
            free = memory.available()
            if free < floor:
                return Stopped(Status.OOM, _floor_message(free, floor))
            if time.monotonic() > deadline:
                return Stopped(Status.TIMEOUT, _timeout_message(limits.timeout_s))
    return None


def no_room(limits: Limits) -> Message | None:
    """Return why no trial can have the memory that it needs at least, or None where one may."""
    with Memory() as memory:
        free, floor = memory.available(), floor_of(limits.floor_bytes, memory)
    needed, lower = floor + LEAST_BYTES, (free - LEAST_BYTES) // 2
    if free >= needed:
        return None
    return Message(
        "E-MEM-2",
        f"the trial was not started: it needs {needed / 1e6:.0f} MB of free memory or more",
        evidence=f"{free / 1e6:.0f} MB are free; the lightest engine takes {LEAST_BYTES / 1e6:.0f} MB,"
        f" and {floor / 1e6:.0f} MB must stay free",
        effect="There is no number for this cell",
        fix=f"end other programs, or --memory-floor {lower / 1e6:.0f} to measure what fits"
        if lower >= 1e6
        else "end other programs",
    )


def floor_of(requested: int | None, memory: Memory) -> int:
    """Return the bytes of free memory that must remain: `requested`, or this machine's default if None."""
    return max(FLOOR_BYTES, int(FLOOR_SHARE * memory.total)) if requested is None else requested


def crash(code: int, lines: Sequence[str], launch: Launch = Launch()) -> Stopped:
    """Return the status and reason of a process that ended with `code` after writing `lines` to stderr."""
    last = " | ".join(lines[-3:])[-400:] or "it wrote nothing to stderr"
    how = how_ended(code, launch) if code else "ended without an answer: it exited with 0 and wrote no result"
    return Stopped(Status.CRASHED, Message("E-RUN-2", f"the trial's process {how}", evidence=last))


def _floor_message(free: int, floor: int) -> Message:
    return Message(
        "E-MEM-1",
        "the trial was stopped before memory ran out",
        evidence=f"MemAvailable {free / 1e6:.0f} MB < floor {floor / 1e6:.0f} MB",
        effect="There is no number for this cell",
        fix="a smaller --batch, or --memory-floor MB if the machine can spare more",
    )


def _timeout_message(seconds: float) -> Message:
    return Message(
        "E-TIME-1",
        "the trial was stopped by its time-out",
        evidence=f"still running after {seconds:g} s",
        effect="There is no number for this cell",
        fix="--timeout SECONDS if it only needs longer",
    )
