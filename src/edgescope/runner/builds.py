"""Builds the artifacts of trials, several at once, and never while something is measured.

An export or a calibration keeps one core busy for seconds. Where the first of some trials has to be built, those that
come next are built beside it, as many as cores and memory allow; the search goes on once all of them are there.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Protocol, runtime_checkable

from edgescope.isolate.fresh import Limits
from edgescope.records import Result, Trial
from edgescope.runner.eta import BUILT, Pace, needed

Waiting = Callable[[str], AbstractContextManager[None]]
"""Makes a context that shows a text while its block runs."""
BUILD_BYTES = 2_000_000_000
"""What one build may need: an exporter with its PyTorch, and the network several times."""


class Prepares(Protocol):
    """Builds the artifact of one trial."""

    def prepare(self, trial: Trial, limits: Limits) -> Result | None:
        """Build it; return the Result of a failure, else None."""


@runtime_checkable
class OneByOne(Protocol):
    """Optional for Prepares: it builds in one process, one artifact after the other."""

    one_by_one: bool


def at_once() -> int:
    """Return how many builds this machine can do at once, by its cores and the memory that is available now."""
    import psutil  # it takes as long as a tenth of this program, and most builds are one

    room = int(psutil.virtual_memory().available) // BUILD_BYTES
    return max(1, min(len(os.sched_getaffinity(0)), room))


class Builds:
    """The artifacts that were built, or the Results that say why not; each is tried once.

    What was built serves every trial that shares it. What could not be built says nothing of the others: it may be a
    precision or an option that the engine refuses.
    """

    def __init__(
        self,
        runner: Prepares,
        limits: Limits,
        pace: Pace,
        *,
        waiting: Waiting = lambda what: nullcontext(),
        clock: Callable[[], float] = time.monotonic,
        at_once: Callable[[], int] = at_once,
    ) -> None:
        self.runner, self.limits, self.pace = runner, limits, pace
        self._waiting, self._clock, self._at_once = waiting, clock, at_once
        self._built: set[str] = set()
        self._failed: dict[str, Result] = {}

    def failure(self, trial: Trial) -> Result | None:
        """Return the Result that says why the trial's artifact cannot be built, or None once it is built."""
        self.build([trial])
        return self._failed.get(_asked(trial))

    def build(self, trials: Sequence[Trial]) -> None:
        """Build what the first trial needs, and beside it what the next ones need; nothing if the first has it.

        They share the cores out. A thread that waits for a core would hold up the others of its build.
        """
        if not trials or self._tried(trials[0]):
            return
        alone = isinstance(self.runner, OneByOne) or len(trials) == 1
        count = 1 if alone else self._at_once()
        todo = list(islice(self._untried(trials), count))
        cancelled, start = threading.Event(), self._clock()
        limits = replace(self.limits, cancelled=cancelled.is_set, threads=_share(len(todo)))
        jobs: list[tuple[Trial, Future[Result | None]]] = []
        with ExitStack() as shown, ThreadPoolExecutor(count) as pool:
            try:
                for trial in todo:
                    shown.enter_context(self._waiting(_words(trial)))
                    jobs.append((trial, pool.submit(self.runner.prepare, trial, limits)))
                for trial, job in jobs:
                    self._note(trial, job.result())
            except BaseException:  # Ctrl-C too: the pool waits for its threads, and they for their processes
                cancelled.set()
                raise
        for trial, _ in jobs:
            if _asked(trial) not in self._failed:
                self.pace.built(trial, (self._clock() - start) / len(jobs))

    def _tried(self, trial: Trial) -> bool:
        return needed(trial) in self._built or _asked(trial) in self._failed

    def _untried(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Yield the first trial of each artifact that nobody has tried to build."""
        seen = set()
        for trial in trials:
            if not self._tried(trial) and needed(trial) not in seen:
                seen.add(needed(trial))
                yield trial

    def _note(self, trial: Trial, failed: Result | None) -> None:
        if failed is None:
            self._built.add(needed(trial))
        else:
            self._failed[_asked(trial)] = failed


def _share(builds: int) -> int | None:
    """Return the threads of each of so many builds; None for one alone, which takes what it likes."""
    return max(1, len(os.sched_getaffinity(0)) // builds) if builds > 1 else None


def _asked(trial: Trial) -> str:
    """Return a key of everything that a build is told."""
    return trial.key(BUILT, but=("sharing",))


def _words(trial: Trial) -> str:
    return f"building the artifact of {trial.model} {trial.backend} {trial.precision}"
