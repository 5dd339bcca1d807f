"""A trial in a process of its own: whatever the model does, what comes back is a recorded Result.

The parent writes the trial to a file, starts `python -m edgescope.child`, and watches three things while it waits:
the clock (time-out), the machine's free memory (the trial is stopped at a floor, before the kernel's OOM killer
picks a victim), and the child itself (a crash becomes a Result with the signal and the last lines it wrote).
The child leads a session of its own, so stopping it stops everything it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

from edgescope import store
from edgescope.errors import StoreError, message
from edgescope.memory import Memory
from edgescope.records import Machine, Result, Status, Trial, digest

POLL_MS = 50
#: Carries the command the user typed to the trial's process, whose own says nothing.
COMMAND = "EDGESCOPE_COMMAND"
#: Default memory floor: 8 % of the machine, at least 400 MB; a unified-memory board needs this to stay up.
FLOOR_SHARE, FLOOR_BYTES = 0.08, 400_000_000


@dataclass(frozen=True)
class Limits:
    """What stops a trial: seconds, and the bytes of free memory that must remain (None: the default floor)."""

    timeout_s: float = 900.0
    floor_bytes: int | None = None


@dataclass(frozen=True)
class Launch:
    """How the child starts; modes and tracers wrap argv and add to env."""

    prefix: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _Stopped:
    status: Status
    reason: str


def run(trial: Trial, limits: Limits = Limits(), launch: Launch = Launch()) -> Result:
    """Run the trial in a fresh process and return its Result, whatever happened."""
    return _in_child("run", trial, limits, launch)


def prepare(trial: Trial, limits: Limits = Limits()) -> Result | None:
    """Build the trial's artifact and reference outputs in a process of their own; None when that went well.

    Exporting and calibrating need engines and memory that the measured process must not hold.
    """
    result = _in_child("prepare", trial, limits, Launch())
    return None if result.status is Status.OK else result


def _in_child(verb: str, trial: Trial, limits: Limits, launch: Launch) -> Result:
    started = datetime.now(timezone.utc)
    with tempfile.TemporaryDirectory(prefix="edgescope-trial-") as name:
        folder = Path(name)
        (folder / "trial.json").write_text(json.dumps(trial.to_json()))
        argv = [*launch.prefix, sys.executable, "-m", "edgescope.child", verb, str(folder), str(os.getpid())]
        env = {COMMAND: shlex.join(sys.orig_argv), **os.environ, **launch.env}
        stopped = _watch(argv, env, folder, limits)
        if stopped is None:
            try:
                return store.read(folder / "result")
            except StoreError as error:
                stopped = _Stopped(Status.CRASHED, str(error))
        return _cut_short(trial, stopped, started, folder)


def _cut_short(trial: Trial, stopped: _Stopped, started: datetime, folder: Path) -> Result:
    """Return the Result of a trial whose process did not live to write one."""
    try:
        begun = store.read(folder / "begun")
    except StoreError:
        where = Machine({"absent": "the trial's process ended before it had described the machine"}, {})
        begun = Result(id=new_id(trial, started), trial=trial, machine=where, status=Status.FAILED)
    stamp = begun.started_at or started.isoformat(timespec="milliseconds")
    return replace(begun, status=stopped.status, reason=stopped.reason, started_at=stamp)


def new_id(trial: Trial, started: datetime) -> str:
    """Return a result id: the trial's id, the moment, and a few random digits."""
    return f"{trial.id}-{started:%Y%m%dT%H%M%S}-{digest(os.urandom(8).hex())[:6]}"


def _watch(argv: Sequence[str], env: Mapping[str, str], folder: Path, limits: Limits) -> _Stopped | None:
    """Start `argv`, wait for it within the limits; None when it ended well."""
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        child = subprocess.Popen(
            argv, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        try:
            stopped = _wait(child, limits)
        finally:
            _kill(child)
    if stopped is not None:
        return stopped
    if child.returncode != 0:
        return _Stopped(*_crash(child.returncode, (folder / "stderr").read_bytes()))
    return None


def _wait(child: subprocess.Popen[bytes], limits: Limits) -> _Stopped | None:
    deadline = time.monotonic() + limits.timeout_s
    pidfd = os.pidfd_open(child.pid)
    ended = select.poll()
    ended.register(pidfd, select.POLLIN)
    try:
        with Memory() as memory:
            floor = limits.floor_bytes
            if floor is None:
                floor = max(FLOOR_BYTES, int(FLOOR_SHARE * memory.total))
            while not ended.poll(POLL_MS):
                free = memory.available()
                if free < floor:
                    return _Stopped(Status.OOM, _floor_message(free, floor))
                if time.monotonic() > deadline:
                    return _Stopped(Status.TIMEOUT, _timeout_message(limits.timeout_s))
    finally:
        os.close(pidfd)
    child.wait()
    return None


def _kill(child: subprocess.Popen[bytes]) -> None:
    """Kill the child's whole session; harmless when it is gone."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _crash(code: int, stderr: bytes) -> tuple[Status, str]:
    lines = [line for line in stderr.decode(errors="replace").splitlines() if line.strip()]
    last = " | ".join(lines[-3:])[-400:] or "it wrote nothing to stderr"
    if code < 0:
        name = signal.Signals(-code).name
        hint = " (often the kernel's OOM killer: see dmesg)" if name == "SIGKILL" else ""
        return Status.CRASHED, message("E-RUN-2", f"the trial's process died of {name}{hint}", evidence=last)
    return Status.CRASHED, message("E-RUN-2", f"the trial's process exited with {code}", evidence=last)


def _floor_message(free: int, floor: int) -> str:
    return message(
        "E-MEM-1",
        "the trial was stopped before memory ran out",
        evidence=f"MemAvailable {free / 1e6:.0f} MB < floor {floor / 1e6:.0f} MB",
        effect="There is no number for this cell",
        fix="a smaller --batch, or --memory-floor MB if the machine can spare more",
    )


def _timeout_message(seconds: float) -> str:
    return message(
        "E-TIME-1",
        "the trial was stopped by its time-out",
        evidence=f"still running after {seconds:g} s",
        effect="There is no number for this cell",
        fix="--timeout SECONDS if it only needs longer",
    )


def inherited(failed: Result, trial: Trial) -> Result:
    """Return the failure of one trial as that of another that needs the same artifact."""
    now = datetime.now(timezone.utc)
    return replace(
        failed, id=new_id(trial, now), trial=trial, started_at=now.isoformat(timespec="milliseconds")
    )
