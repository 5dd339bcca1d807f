"""A process that answers one trial after another, watched for each as isolate watches a process for one.

What is kept between trials (workers, their engines) saves starting them; what is lost is that every trial begins with
a process in which nothing has happened yet.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path

from edgescope import registry, scratch
from edgescope.isolate.fresh import (
    TAIL_BYTES,
    Launch,
    Limits,
    Stopped,
    crash,
    end,
    environment,
    guarded,
    last_lines,
    outcome,
    until_readable,
)
from edgescope.records import Json, Result, Status, Trial

#: Seconds that a process has to end by itself, once it hears that nothing more comes.
ENDING_S = 1.0


class Served:
    """A process that answers one trial after another, each within its limits; a context manager that ends it.

    It is started when the first trial comes, and anew after one that had to be stopped or that ended it.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._folder = scratch.folder("served")
        self._theirs: scratch.Folder | None = None
        """For the temporary files of the process, which go when it goes."""
        self._words, self._said = Path(self._folder.name) / "stderr", 0
        """What the process writes to stderr, and how much of it is of earlier trials."""

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and everything it started."""
        self.let_go()
        self._folder.cleanup()

    def let_go(self) -> None:
        """Let the process end by itself, which clears up after it; the next trial starts another."""
        if self._child is not None and self._child.stdin is not None:
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                self._child.stdin.close()
                self._child.wait(ENDING_S)
        self.stop()

    def stop(self) -> None:
        """End the process at once; the next trial starts another."""
        if self._child is not None:
            end(self._child)
            for pipe in (self._child.stdin, self._child.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._theirs is not None:
            self._theirs.cleanup()
        self._child = self._theirs = None

    def answer(
        self, verb: str, trial: Trial, limits: Limits, env: Mapping[str, str] | None = None, staff: int = 0
    ) -> Result:
        """Return the Result of `run` or `prepare`, whatever happened to the process.

        `env` is added to the workers' environment, `staff` are the workers that later trials will need of this crew.
        """
        started = datetime.now(timezone.utc)
        with tempfile.TemporaryDirectory(dir=self._folder.name, ignore_cleanup_errors=True) as name:
            folder = Path(name)
            (folder / "trial.json").write_text(json.dumps(trial.to_json()))
            order = {"verb": verb, "folder": name, "env": dict(env or {}), "staff": staff}
            order |= {"timeout_s": limits.timeout_s, "floor_bytes": limits.floor_bytes}
            stopped = self._ask(order, limits)
            if stopped and stopped.status is Status.CRASHED and not (folder / "begun").exists():
                stopped = self._ask(order, limits)  # it died of something before this trial
            with self._words.open("rb") as log:
                log.seek(self._said)
                (folder / "stderr").write_bytes(log.read()[-TAIL_BYTES:])
            if stopped is not None and self._child is None and stopped.status is Status.CRASHED:
                stopped = Stopped(*crash(self._code, last_lines(folder)))
            return outcome(trial, stopped, started, folder)

    def _ask(self, order: Mapping[str, Json], limits: Limits) -> Stopped | None:
        if self._child is not None and self._child.poll() is not None:
            self.stop()
        self._said = self._words.stat().st_size if self._child else 0
        child = self._child or self._start(limits)
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(OSError):  # where it has ended its pipe says so below
            child.stdin.write(json.dumps(order).encode() + b"\n")
            child.stdin.flush()
        stopped = until_readable(child.stdout.fileno(), limits)
        if stopped is None and not child.stdout.readline():
            self._code = child.wait()
            stopped = Stopped(Status.CRASHED, "")
        if stopped is not None:
            self.stop()
        return stopped

    def _start(self, limits: Limits) -> subprocess.Popen[bytes]:
        argv = [
            sys.executable,
            "-m",
            registry.TRIAL_PROGRAM,
            "serve",
            self._folder.name,
            str(os.getpid()),
        ]
        self._theirs = scratch.Folder(dir=self._folder.name, ignore_cleanup_errors=True)
        env = environment(limits, Launch(), self._theirs.name)
        with self._words.open("wb") as err:
            self._child = subprocess.Popen(
                guarded(argv, Path(self._folder.name), env),
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=err,
                start_new_session=True,
            )
        return self._child
