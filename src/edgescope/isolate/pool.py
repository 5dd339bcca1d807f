"""Worker processes that stay alive between trials, so that a sweep does not restart its engines for every cell.

Starting an engine's process takes seconds on a GPU; a cell measures for two. One pool is kept for each way of sharing.
Its workers are replaced when the next trial needs another model, engine, precision or setting, because a process keeps
state of those beyond its session (allocators, chosen kernels, switches).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from edgescope.devices.cpu.limits import Memory
from edgescope.isolate import placement
from edgescope.isolate.fresh import TIMEOUT, floor_of
from edgescope.isolate.placement import worker_launch
from edgescope.isolate.worker import GRACE_S, PATIENCE_S, Placement, WorkerError, WorkerProcess, WorkerRun
from edgescope.process import Launch, scratch_folder
from edgescope.records import Role, Status, Trial
from edgescope.tracing import FOLDER

#: The leader gives up a little before its parent ends it, so that it can report which worker was late.
_EARLIER = 0.9


@dataclass(frozen=True)
class Prestart:
    """Workers to start before a later trial needs them, as long as `floor_bytes` of memory remain free."""

    workers: int = 0
    floor_bytes: int | None = None
    """None: the default floor."""

    def fits(self, more: int, each_bytes: float) -> bool:
        """Return whether `more` workers of `each_bytes` would leave the memory floor free."""
        with Memory() as memory:
            return more * each_bytes <= memory.available() - floor_of(self.floor_bytes, memory)


def available() -> int:
    """Return the bytes of memory available now."""
    with Memory() as memory:
        return memory.available()


class WorkerPool:
    """Worker processes that wait for trials; a context manager that ends them."""

    def __init__(self, *, grace_s: float = GRACE_S) -> None:
        self.grace_s = grace_s
        self._scratch = scratch_folder("workers")
        self.folder = Path(self._scratch.name)
        self.workers: list[WorkerProcess] = []
        self.took = 0.0
        """Bytes that one worker took while it loaded; 0 if none was watched."""

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self, patience_s: float = 0.0) -> None:
        """End every worker; under a profiler, each needs `patience_s` to write its trace."""
        if patience_s:
            until = time.monotonic() + patience_s
            for worker in self.workers:
                worker.pipe.hang_up()
            for worker in self.workers:
                worker.wait(max(0.0, until - time.monotonic()))
        self.dismiss()
        self._scratch.cleanup()

    def dismiss(self) -> None:
        """End all workers; the next run starts new ones."""
        for worker in self.workers:
            worker.kill()
        for worker in self.workers:
            worker.end()
        self.workers = []

    def _placed(self, placements: Sequence[Placement]) -> list[WorkerProcess]:
        """Return one worker for each placement; start those that are missing."""
        moved = any(w.placement != there for w, there in zip(self.workers, placements, strict=False))
        if moved or any(worker.code is not None for worker in self.workers):
            self.dismiss()
        for number in range(len(self.workers), len(placements)):
            self.workers.append(WorkerProcess(number, placements[number]))
        return self.workers[: len(placements)]

    @contextmanager
    def run(
        self,
        trials: Sequence[Trial],
        placements: Sequence[Placement],
        limit_s: float = PATIENCE_S,
        *,
        prestart: Prestart = Prestart(),
    ) -> Iterator[WorkerRun]:
        """Open each trial in its own worker; yield the run once all are open.

        Raises WorkerError if a worker fails, dies or hangs. The whole run may take `limit_s`. If `prestart` requests
        more workers than the trial needs and memory has room, they are started at once and load its model before
        anything is measured.

        Afterwards no worker holds a session. Workers are ended after any failure except `unsupported`.
        """
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        free = available()
        workers = self._placed(placements)
        try:
            run = WorkerRun(workers, folder, limit_s, self.grace_s)
            if prestart.workers > len(self.workers) and len({*map(repr, placements)}) == 1:
                self._prestart(run, trials[0], prestart, free)
            run.open(trials)
            yield run
            run.order("close")
            run.gather("closed", "closed")
        except WorkerError as error:
            if error.status is not Status.UNSUPPORTED or not run.abandon():
                self.dismiss()
            raise
        except BaseException:
            self.dismiss()
            raise
        finally:
            for worker in workers:
                worker.used = worker.loaded = True
            shutil.rmtree(folder, ignore_errors=True)

    def _prestart(self, run: WorkerRun, trial: Trial, prestart: Prestart, free: int) -> None:
        """Start the workers that later trials need, if this trial's own workers leave memory for them.

        `free` bytes were available before this trial's workers started. The new ones load the model now, so that none
        does while others measure. Their failures do not affect this trial.
        """
        if new := [worker for worker in run.workers if not worker.loaded]:
            peaks = self._load(run, new, trial)
            self.took = max(*peaks, (free - available()) / len(new))
        more = range(len(self.workers), prestart.workers)
        if not self.took or not prestart.fits(len(more), self.took):
            return
        self.workers += [WorkerProcess(number, run.workers[0].placement) for number in more]
        try:
            self._load(run, self.workers[more.start :], trial)
        except WorkerError:
            for worker in self.workers[more.start :]:
                worker.end()
            del self.workers[more.start :]

    @staticmethod
    def _load(run: WorkerRun, new: Sequence[WorkerProcess], trial: Trial) -> list[float]:
        """Have new workers load the trial's model; return the largest resident set of each in bytes."""
        events = run.ask("load", "loaded", new, trial=trial.to_json())
        for worker in new:
            worker.loaded = True
        return [float(event["peak_bytes"]) for event in events]


class WorkerPools:
    """One pool for each way of sharing; a context manager that ends them all. `launch` starts every worker."""

    def __init__(self, launch: Launch = Launch(), *, grace_s: float = GRACE_S) -> None:
        self.launch, self.grace_s = launch, grace_s
        self.prestart = Prestart()
        """Workers of the present trial's pool that later trials will need."""
        self.free = available()
        """Bytes of memory that were available before any worker was started."""
        self._pools: dict[str, tuple[str, WorkerPool]] = {}
        self._begun = time.monotonic()

    def __enter__(self) -> WorkerPools:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every worker of every pool."""
        for _, pool in self._pools.values():
            pool.close(self.limit_s if FOLDER in os.environ else 0.0)
        self._pools.clear()

    def begin(self, env: Mapping[str, str], prestart: Prestart = Prestart()) -> None:
        """Begin a trial: use `env` and `prestart` from now on, and start its time limit."""
        self.launch, self.prestart, self._begun = Launch(env=dict(env)), prestart, time.monotonic()

    @property
    def limit_s(self) -> float:
        """Return the seconds that the present trial may still take."""
        whole = float(os.environ.get(TIMEOUT, PATIENCE_S))
        return max(1.0, whole * _EARLIER - (time.monotonic() - self._begun))

    def of(self, trial: Trial) -> WorkerPool:
        """Return the pool for the trial's way of sharing; its workers are replaced if they cannot run `trial`."""
        same = alike(trial)
        key, pool = self._pools.get(trial.sharing, ("", None))
        if pool is None:
            pool = WorkerPool(grace_s=self.grace_s)
        elif key != same:
            pool.dismiss()
        self._pools[trial.sharing] = same, pool
        return pool

    @property
    def pids(self) -> set[int]:
        """Return the process ids of all workers that are kept."""
        return {worker.pid for _, pool in self._pools.values() for worker in pool.workers}

    def idle(self, trial: Trial) -> int:
        """Return how many kept workers are idle in the trial; on a GPU each still holds its engine's memory."""
        everybody = sum(len(pool.workers) for _, pool in self._pools.values())
        return max(0, everybody - len(placement.placements(trial)))

    def placements(self, trial: Trial) -> list[Placement]:
        """Return where each worker of the trial runs: the common launch, then its own CPUs, then its tracer."""
        found = enumerate(placement.placements(trial))
        return [replace(one, launch=self.launch + one.launch + worker_launch(trial, n)) for n, one in found]


def alike(trial: Trial) -> str:
    """Return a key; one worker process may run two trials one after the other if their keys are equal."""
    return trial.key(Role.ARTIFACT | Role.SHARING | Role.MODE, but=("shapes", "io"))
