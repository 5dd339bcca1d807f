"""A process that runs one trial or pair after another, within the same limits as a fresh process for each.

Keeping the workers of trials and their engines saves starting them; in return, a trial no longer begins in a process
in which nothing has happened yet. The workers of a pair are fresh; what is kept for them has imported their modules.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from edgescope import registry
from edgescope.isolate.fresh import (
    PAIR,
    GuardedProcess,
    Limits,
    Stopped,
    crash,
    environment,
    not_started,
    outcome,
    until_readable,
)
from edgescope.isolate.notes import Imported
from edgescope.process import Launch, ScratchFolder, scratch_folder
from edgescope.records import Json, Result, Status, Trial

#: Seconds that a process has to end by itself once its input is closed.
ENDING_S = 1.0


class PersistentChild:
    """A process that runs one trial after another, each within its limits; a context manager that ends it.

    It is started, as `launch` says, for the first trial, and again after one that had to be stopped or that crashed it.
    """

    def __init__(self, launch: Launch = Launch()) -> None:
        self.launch = launch
        self._child: GuardedProcess | None = None
        self._folder: ScratchFolder | None = None
        self._theirs: ScratchFolder | None = None
        """Holds the process's temporary files; it is removed when the process ends."""
        self._owes = False
        """Whether the process has yet to answer `expect`."""

    def __enter__(self) -> PersistentChild:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._child is not None and self._child.code is None

    def close(self) -> None:
        """Let the process end by itself, so that it cleans up; the next trial starts another."""
        if self._child is not None:
            self._child.pipe.hang_up()
            self._child.wait(ENDING_S)
        self.stop()
        if self._folder is not None:
            self._folder.cleanup()
        self._folder = None

    def stop(self) -> None:
        """End the process at once; the next trial starts another."""
        if self._child is not None:
            self._child.end()
        if self._theirs is not None:
            self._theirs.cleanup()
        self._child = self._theirs = None
        self._owes = False

    def expect(self, imported: Sequence[Imported], limits: Limits = Limits()) -> None:
        """Have the process get ready to fork workers for pairs of these trials; return at once.

        It imports meanwhile: `settle` before something is measured.
        """
        self.settle(limits)
        with contextlib.suppress(OSError):  # no memory for another process, or it has ended: a pair finds out
            self._send({"verb": "expect", "workers": _told(imported)}, limits)
            self._owes = True

    def settle(self, limits: Limits = Limits()) -> None:
        """Wait until the process does nothing any more; end it if that takes too long."""
        if self._owes and self._child is not None:
            self._answered(self._child, limits)

    def answer(
        self, verb: str, trial: Trial, limits: Limits, env: Mapping[str, str] | None = None, prestart: int = 0
    ) -> Result:
        """Return the Result of `run` or `prepare`, whatever happened to the process.

        `env` is added to the workers' environment; `prestart` is the number of workers that later trials need.
        """
        started = datetime.now(timezone.utc)
        with self._temporary() as folder:
            (folder / "trial.json").write_text(json.dumps(trial.to_json()))
            asked = {"env": dict(env or {}), "prestart": prestart}
            stopped, lines = self._run(verb, folder, limits, asked, folder)
            return outcome(trial, stopped, started, folder, lines)

    def pair(
        self,
        trials: tuple[Trial, Trial],
        purpose: str,
        limits: Limits = Limits(),
        imported: Sequence[Imported] = (),
    ) -> tuple[Result, Result]:
        """Run two trials in turns, each in a fresh process below this one; return their Results.

        `imported` tells of those whose program ran alone already: they may be forked from the first pair on.
        """
        started = datetime.now(timezone.utc)
        with self._temporary() as folder:
            (folder / "purpose").write_text(purpose)
            sides = [(trial, folder / side) for trial, side in zip(trials, PAIR, strict=True)]
            for trial, place in sides:
                place.mkdir()
                (place / "trial.json").write_text(json.dumps(trial.to_json()))
            stopped, lines = self._run("pair", folder, limits, {"workers": _told(imported)}, sides[0][1])
            first, second = (outcome(trial, stopped, started, place, lines) for trial, place in sides)
            return first, second

    @contextlib.contextmanager
    def _temporary(self) -> Iterator[Path]:
        self._folder = self._folder or scratch_folder("persistent")
        with tempfile.TemporaryDirectory(dir=self._folder.name, ignore_cleanup_errors=True) as name:
            yield Path(name)

    def _run(
        self, verb: str, folder: Path, limits: Limits, asked: Mapping[str, Json], first: Path
    ) -> tuple[Stopped | None, list[str]]:
        """Have the process run what is in `folder`; ask again if it died before the trial in `first` had begun."""
        order = {"verb": verb, "folder": str(folder), **asked}
        self.settle(limits)
        try:
            child, stopped = self._ask(order, limits)
        except OSError as error:  # no such program, no memory for another process
            return not_started(error), []
        if stopped and stopped.status is Status.CRASHED and not (first / "begun").exists():
            child, stopped = self._ask(order, limits)
        return stopped, child.tail()

    def _ask(self, order: Mapping[str, Json], limits: Limits) -> tuple[GuardedProcess, Stopped | None]:
        child = self._send(order, limits)
        return child, self._answered(child, limits)

    def _send(self, order: Mapping[str, Json], limits: Limits) -> GuardedProcess:
        """Send an order to the process, started if there is none; OSError if it cannot be."""
        if self._child is not None and self._child.code is not None:
            self.stop()
        child = self._child or self._start(limits)
        child.mark()  # its output so far belongs to earlier trials
        with contextlib.suppress(OSError):  # if it has ended, reading its pipe reports that
            child.pipe.send(**order, timeout_s=limits.timeout_s, floor_bytes=limits.floor_bytes)
        return child

    def _answered(self, child: GuardedProcess, limits: Limits) -> Stopped | None:
        """Wait for an answer; return None, or what stopped the process, which is ended then."""
        self._owes = False
        try:
            stopped = until_readable(child.pipe.fileno(), limits)
        except BaseException:  # nobody waits for its answer, which must not be taken for the next one's
            self.stop()
            raise
        if stopped is None:
            try:
                child.pipe.receive()
                return None
            except EOFError:
                stopped = crash(child.wait() or 0, child.tail(), self.launch)
        self.stop()
        return stopped

    def _start(self, limits: Limits) -> GuardedProcess:
        self._folder = self._folder or scratch_folder("persistent")
        folder = self._folder.name
        self._theirs = ScratchFolder(dir=folder, ignore_cleanup_errors=True)
        program = [sys.executable, "-m", registry.TRIAL_PROGRAM, "serve", folder, str(os.getpid())]
        launch = environment(limits, self._theirs.name) + self.launch
        self._child = GuardedProcess(program, Path(folder), launch, talks=True)
        return self._child


def _told(imported: Sequence[Imported]) -> list[Json]:
    """Return what is known of coming workers as an order holds it."""
    return [{"trial": trial.to_json(), "imports": found.to_json()} for trial, found in imported]
