"""Builds the artifacts of trials, never while something is measured, and estimates how long the rest takes.

An export or a calibration keeps one core busy for seconds. Where the first of some trials has to be built, those that
come next are built beside it, as many as cores and memory allow; the search goes on once all of them are there.

A cell with eight processes of a large network takes many times as long as a small one, so the mean of the cells so far
would depend on the shuffle. Each kind of cell has its own median. A kind that was not timed yet takes the median of the
closest timed kind; if no kind with its window was timed, it takes its own window plus the median of the rest.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from itertools import islice
from typing import Protocol, runtime_checkable

from edgescope import registry
from edgescope.isolate.fresh import Limits
from edgescope.records import Result, Role, Trial

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
        return needed(trial) in self.pace.builds or _asked(trial) in self._failed

    def _untried(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Yield the first trial of each artifact that nobody has tried to build."""
        seen = set()
        for trial in trials:
            if not self._tried(trial) and needed(trial) not in seen:
                seen.add(needed(trial))
                yield trial

    def _note(self, trial: Trial, failed: Result | None) -> None:
        if failed is not None:
            self._failed[_asked(trial)] = failed


def _share(builds: int) -> int | None:
    """Return the threads of each of so many builds; None for one alone, which takes what it likes."""
    return max(1, len(os.sched_getaffinity(0)) // builds) if builds > 1 else None


def _asked(trial: Trial) -> str:
    """Return a key of everything that a build is told."""
    return trial.key(BUILT, but=("sharing",))


def _words(trial: Trial) -> str:
    return f"building the artifact of {trial.model} {trial.backend} {trial.precision}"


# -- how long the remaining runs and builds take --------------------------------------------------------------

Kind = tuple[object, ...]
BUILT = Role.ARTIFACT | Role.BATCH | Role.SHARING
"""The fields that a build depends on; of sharing, what runs beside."""


def kinds(trial: Trial) -> tuple[Kind, ...]:
    """Return the kinds that a trial belongs to, narrowest first."""
    cold = trial.replicate > 0
    return (
        (trial.model, trial.backend, trial.processes, trial.max_s, cold),
        (trial.model, trial.processes, trial.max_s),
        (trial.model, trial.max_s),
        (trial.max_s,),
    )


def needed(trial: Trial) -> str:
    """Return a key of the artifact that a trial needs; trials with the same key need it built once."""
    about = registry.about(trial.backend)
    built = {name: value for name, value in trial.options.items() if name not in about.RUNNING}
    but = ("sharing",) if about.BUILDS else ("sharing", "precision", "options")
    return replace(trial, options=built).key(BUILT, but=but)


def window(trial: Trial) -> float:
    """Return the seconds that a run takes in any case: its window, its idle phases and its warm-up."""
    return trial.max_s + 2 * trial.idle_s + (trial.warmup or 0.0)


class Ahead:
    """Trials that have yet to run, counted by what their time depends on: not all are looked at before each."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self.runs = Counter[tuple[tuple[Kind, ...], float]]()
        """(kinds, seconds of the window) -> the number of trials."""
        self.artifacts = Counter[str]()
        for trial in trials:
            self.runs[kinds(trial), window(trial)] += 1
            self.artifacts[needed(trial)] += 1

    def drop(self, trial: Trial) -> None:
        """Take away a trial that has run."""
        self.runs -= Counter([(kinds(trial), window(trial))])
        artifact = needed(trial)
        self.artifacts[artifact] -= 1
        if not self.artifacts[artifact]:
            del self.artifacts[artifact]


RECENT = 200
"""So many of the last times are kept of each kind: a long sweep takes no more memory."""


class Pace:
    """The seconds that runs and builds took so far."""

    def __init__(self) -> None:
        self.seconds: dict[Kind, deque[float]] = {}
        self.overheads = deque[float](maxlen=RECENT)
        """The seconds that each run took beyond its window."""
        self.builds: dict[str, float] = {}
        """The seconds of each artifact that is there, by what `needed` calls it."""

    def add(self, trial: Trial, seconds: float) -> None:
        """Record the time of one run."""
        for kind in kinds(trial):
            self.seconds.setdefault(kind, deque(maxlen=RECENT)).append(seconds)
        self.overheads.append(max(0.0, seconds - window(trial)))

    def built(self, trial: Trial, seconds: float) -> None:
        """Record the time of building a trial's artifact."""
        self.builds.setdefault(needed(trial), seconds)

    def of(self, trial: Trial) -> float | None:
        """Return the estimated seconds of a run, or None before the first run was timed."""
        return self._of(kinds(trial), window(trial))

    def _of(self, known_as: Iterable[Kind], window_s: float) -> float | None:
        times = next((self.seconds[kind] for kind in known_as if kind in self.seconds), None)
        if times:
            return statistics.median(times)
        return statistics.median(self.overheads) + window_s if self.overheads else None

    def left(self, trials: Iterable[Trial] | Ahead, between_s: float = 0.0) -> float | None:
        """Return the estimated seconds of all trials, with pauses of `between_s`; None while too few were timed."""
        ahead = trials if isinstance(trials, Ahead) else Ahead(trials)
        if not self.overheads:
            return None
        runs = sum(n * (self._of(*key) or 0.0) for key, n in ahead.runs.items())
        building = self._building(ahead.artifacts.keys() - self.builds.keys(), runs)
        return None if building is None else building + runs + between_s * ahead.runs.total()

    def _building(self, missing: set[str], runs: float) -> float | None:
        """Return the estimated seconds of building the missing artifacts; None if the only build so far may mislead.

        The first build also exports the network; later ones find it in the cache.
        """
        times = list(self.builds.values())
        if not missing or not times:
            return 0.0
        if len(times) == 1 and times[0] * len(missing) > runs:
            return None
        return statistics.median(times[1:] or times) * len(missing)
