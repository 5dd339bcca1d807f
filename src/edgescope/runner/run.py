"""Runs a list of Trials so that no finished result is lost or measured twice.

Each cell is a fresh process (isolate). Cells run in a shuffled order, so that a machine that warms up or gets busy
does not favour one end of the grid. Results go to the store one by one. A sweep that was killed skips the stored
results when it runs again; at most the interrupted cell is repeated. A cell that cannot fit (memory.py) is not tried;
it becomes a Result with the reason.
"""

from __future__ import annotations

import contextlib
import math
import random
import shlex
import socket
import statistics
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

from edgescope import units
from edgescope.analysis.cells import machines
from edgescope.errors import Message, StoreError, is_wrong_request
from edgescope.isolate.fresh import Limits
from edgescope.process import said
from edgescope.records import Machine, Result, Status, Trial
from edgescope.runner.builds import RECENT, Ahead, Builds, Pace, Prepares, Waiting
from edgescope.store import cell_lock
from edgescope.store.cell_lock import CellLock, Holder
from edgescope.store.results import FINAL, Store, read

#: Seconds between two checks of a cell that another process measures.
WAIT_S = 0.2


UNJUDGED = Message(
    "I-LOOK-1",
    "this run had the model's own inputs, and nobody judged its outputs",
    effect="It tells how long loading takes, how much memory, and roughly the speed",
)


class Runner(Prepares, Protocol):
    """Runs one trial; tests pass their own."""

    def run(self, trial: Trial, limits: Limits) -> Result:
        """Run the trial."""


@runtime_checkable
class Expects(Protocol):
    """Optional for a Runner: it can start processes earlier, or more at once, if it knows the coming trials."""

    def expect(self, trials: Iterable[Trial]) -> None:
        """Remember the coming trials."""


@runtime_checkable
class Alternates(Protocol):
    """Optional, of a Runner: it measures two trials in turns, both alive at once."""

    def pair(self, trials: tuple[Trial, Trial], purpose: str, limits: Limits) -> tuple[Result, Result]:
        """Run baseline and candidate in turns."""


@runtime_checkable
class Previews(Protocol):
    """Optional, of a Runner: it measures a trial without judging its outputs."""

    def look(self, trial: Trial, limits: Limits, meanwhile: Callable[[], object]) -> Result:
        """Run the trial, and `meanwhile` while it loads; the Result is nothing to keep."""


@dataclass(frozen=True)
class Progress:
    """The progress of a sweep, reported before each cell."""

    done: int
    total: int
    trial: Trial
    eta_s: float | None
    """Estimated seconds left, from the medians of each kind of cell so far; None while too few were timed."""
    spent_s: float = 0.0
    """Seconds since the first cell; told where there is no estimate."""

    def __str__(self) -> str:
        """Return `[3/12] resnet50 onnxruntime int8 b1 replicate 2, about 40 s left`."""
        t, left = self.trial, units.remaining(self.eta_s, self.spent_s)
        again = f" replicate {t.replicate}" if t.replicate else ""
        return f"[{self.done + 1}/{self.total}] {t.model} {t.label}{again}{left}"


Tell = Callable[[Progress], None]


class Pruner(Protocol):
    """Keeps cells from being tried; it gets every result, the stored ones first."""

    def add(self, result: Result) -> None:
        """Add a result."""

    def reason(self, trial: Trial) -> Message | None:
        """Return why the trial is not tried, or None if it is."""


def pending(
    trials: Sequence[Trial], store: Store, where: Machine, retry: Collection[Status] = ()
) -> list[Trial]:
    """Return the trials without a final result from this machine and software in the store."""
    finished = store.finished(where, retry)
    return [t for t in trials if t.id not in finished]


def order(trials: Sequence[Trial], seed: int, *, reuse: bool = False) -> list[Trial]:
    """Return the trials replicate by replicate, each round shuffled: neighbours in time are comparable.

    With `reuse`, cells of the first round that the same workers can serve are neighbours; pools and cells are shuffled.
    """
    rng = random.Random(seed)
    rounds: dict[int, list[Trial]] = {}
    for trial in trials:
        rounds.setdefault(trial.replicate, []).append(trial)
    for cells in rounds.values():
        rng.shuffle(cells)
    if reuse and 0 in rounds:
        from edgescope.runner.memory import family

        pools: dict[str, list[Trial]] = {}
        for trial in rounds[0]:
            pools.setdefault(family(trial), []).append(trial)
        rounds[0] = [trial for pool in pools.values() for trial in pool]
    return [trial for replicate in sorted(rounds) for trial in rounds[replicate]]


def apart_after(result: Result) -> bool:
    """Return whether a side of a pair failed because the other was alive: memory, an exclusive device, its own loop."""
    code = result.reason.code if result.reason else ""
    busy = "busy or unavailable" in str(result.reason)  # CUDA's words for a GPU in exclusive mode
    return result.status is Status.OOM or code == "E-WORKER-1" or busy


def _say(text: str) -> None:
    said.say(text)


class ExperimentRunner:
    """Runs cells one at a time and stores each; an artifact is prepared when a cell first needs it.

    If another process measures a cell into the same store, this waits for it and takes its result.
    """

    def __init__(
        self,
        store: Store,
        limits: Limits,
        runner: Runner,
        where: Machine,
        retry: Collection[Status] = (),
        *,
        say: Callable[[str], None] = _say,
        since: str = "",
        clock: Callable[[], float] = time.monotonic,
        waiting: Waiting = lambda what: contextlib.nullcontext(),
    ) -> None:
        store.check()
        store.clean()
        self.store, self.limits, self.runner = store, limits, runner
        self.where, self.retry = where, frozenset(retry)
        """This machine, and the statuses of stored results that are measured again."""
        self.since, self.pace, self.clock = since, Pace(), clock
        """Stored results that began before `since` (UTC, ISO 8601) are ignored; '' ignores none."""
        self.builds = Builds(runner, limits, self.pace, waiting=waiting, clock=clock)
        self._finished: dict[str, Result] | None = None
        self._say, self._reported, self._apart = say, set[tuple[int, str, str]](), set[str]()
        self._alone: dict[str, Result] = {}
        self.kept: dict[str, None] = {}
        """The id of each result of this machine that this stored or found; a sweep holds no more of them."""
        self._known = store.names(where)
        """Names of the results stored before this began; others that are not kept come from other processes."""
        for holder in cell_lock.holders(store.root):
            if holder.host == socket.gethostname():
                self._tell(holder, "start", "measures into this store")

    def finished(self) -> dict[str, Result]:
        """Return trial id -> result of the trials that need not run again, as the store was at the first call."""
        if self._finished is None:
            stored = self.store.finished(self.where, self.retry)
            self._finished = {id_: r for id_, r in stored.items() if r.started_at >= self.since}
        return self._finished

    def stored(self, trial: Trial) -> Result | None:
        """Return the trial's stored result with its raw rows, or None if it is missing or its rows are damaged."""
        found = self.finished().get(trial.id)
        with contextlib.suppress(StoreError):
            return self.store.full(found) if found is not None else None
        return None

    def left(self, trials: Iterable[Trial], between_s: float = 0.0) -> float | None:
        """Return the estimated seconds of the trials that are not stored; None while too few were timed."""
        return self.pace.left((t for t in trials if t.id not in self.finished()), between_s)

    def ahead(self, trials: Iterable[Trial]) -> None:
        """Prepare the artifacts of all trials: a runner that keeps processes then needs one process for all of them."""
        trials = list(trials)
        self.expect(trials)
        for i in range(len(trials)):
            self.builds.build(trials[i:])

    def run(self, trial: Trial, limit_s: float = math.inf) -> Result:
        """Prepare, run and store one trial; StoreError names the place of the result if the store failed.

        What is stopped after `limit_s` is cancelled and not stored: that says nothing of the trial.
        """
        lock = self._lock(trial)
        with lock.released():
            while holder := lock.take(self._command()):
                self._tell(
                    holder, trial.cell, f"measures {trial.model} {trial.label}, which this run waits for"
                )
                time.sleep(WAIT_S)
            if (theirs := self._theirs(trial)) is not None:
                return theirs
            if (failed := self.builds.failure(trial)) is not None:
                return self.put(failed.inherited(trial))
            start, limits = self.clock(), self._within(limit_s)
            result = self.runner.run(trial, limits)
            if self._stopped(result, limits):
                return result.ended(Status.CANCELLED)
            self.pace.add(trial, self.clock() - start)
            return self.put(result)

    def _within(self, limit_s: float) -> Limits:
        """Return the limits with a time-out of at most `limit_s`."""
        return replace(self.limits, timeout_s=min(limit_s, self.limits.timeout_s))

    def _stopped(self, result: Result, limits: Limits) -> bool:
        """Return whether limits that are tighter than those of all trials stopped it."""
        return result.status is Status.TIMEOUT and limits.timeout_s < self.limits.timeout_s

    def expect(self, trials: Iterable[Trial]) -> None:
        """Tell the runner which trials will probably come."""
        if isinstance(self.runner, Expects):
            self.runner.expect(trials)

    def look(self, trial: Trial, meanwhile: Callable[[], object] = lambda: None) -> Result | None:
        """Return what a run whose outputs nobody judges came to, not stored; None if the runner makes none.

        `meanwhile` runs while it loads.
        """
        return self.runner.look(trial, self.limits, meanwhile) if isinstance(self.runner, Previews) else None

    def adopt(self, look: Result, trial: Trial) -> Result:
        """Store a look as the result of the trial, with a warning that says so, and return that."""
        return self.put(look.inherited(trial).warned(UNJUDGED))

    def stored_pair(self, baseline: Trial, candidate: Trial, purpose: str) -> tuple[Result, Result] | None:
        """Return the stored Results of two trials that ran in turns, or one after the other where they cannot."""
        mine = self.stored(candidate)
        if mine is None or (mine.alternation is not None and mine.alternation.purpose != purpose):
            return None
        if mine.status not in (Status.OK, Status.UNSTABLE):
            return mine.inherited(baseline).ended(Status.CANCELLED), mine
        theirs = self.stored(baseline) if mine.alternation is None else self._partner(mine)
        if (
            theirs is None
            or theirs.trial.id != baseline.id
            or (theirs.alternation is None) != (mine.alternation is None)
        ):
            return None
        return theirs, mine

    def _partner(self, result: Result) -> Result | None:
        assert result.alternation is not None
        name = result.alternation.partner
        if name not in self.store.names(result.machine, name):
            return None
        with contextlib.suppress(StoreError):
            return read(self.store.root / result.machine.id / name)
        return None

    def run_pair(
        self, baseline: Trial, candidate: Trial, purpose: str, limit_s: float = math.inf
    ) -> tuple[Result, Result]:
        """Run two trials in turns and store both; where they cannot be alive together, one after the other.

        If they are stopped after `limit_s`, both are cancelled and nothing is stored.
        """
        trials = baseline, candidate
        why = self.apart(*trials)
        for trial in trials:
            if (failed := self.builds.failure(trial)) is not None:
                lone = self.put(failed.inherited(trial))
                if trial is baseline:
                    return lone, lone
                return lone.inherited(baseline).ended(Status.CANCELLED), lone
        if not why and isinstance(self.runner, Alternates):
            begun, limits = self.clock(), self._within(limit_s)
            ends = self.runner.pair(trials, purpose, limits)
            if any(self._stopped(end, limits) for end in ends):
                first, second = (end.ended(Status.CANCELLED) for end in ends)
                return first, second
            self.pace.add(candidate, self.clock() - begun)
            why = next((str(r.reason) for r in ends if apart_after(r)), "")
            if not why:
                return self._put_pair(ends)
        if isinstance(self.runner, Alternates):
            self._one_by_one(candidate, why)
        first, second = (self._once(t, limit_s) for t in random.Random(candidate.id).sample(trials, 2))
        return (first, second) if first.trial.id == baseline.id else (second, first)

    def apart(self, a: Trial, b: Trial) -> str:
        """Return why two trials cannot be alive together and take turns; '' if nothing is known against it."""
        if not isinstance(self.runner, Alternates):
            return "the runner takes no turns"
        from edgescope.bench import apart

        return apart(a, b)

    def _once(self, trial: Trial, limit_s: float) -> Result:
        """Return a run of a side alone; the baseline's serves every candidate of its round."""
        if trial.id not in self._alone:
            known = self.stored(trial)
            self._alone[trial.id] = known if known and known.alternation is None else self.run(trial, limit_s)
        return self._alone[trial.id]

    def _put_pair(self, ends: tuple[Result, Result]) -> tuple[Result, Result]:
        """Store both sides; one that was cancelled because the other failed is nothing to keep."""
        first, second = (r if r.status is Status.CANCELLED else self.put(r) for r in ends)
        return first, second

    def _one_by_one(self, candidate: Trial, why: str) -> None:
        text = f"{candidate.label} is not measured in turns with the baseline: {why}"
        if text not in self._apart:
            self._apart.add(text)
            self._say(str(Message("I-PAIR-2", text, effect="Each runs alone, one after the other")))

    def free_first(self, trials: Iterable[Trial]) -> Iterator[Trial]:
        """Yield the trials; those whose cell another process measures come last."""
        later = []
        for trial in trials:
            if holder := self._held(trial):
                self._tell(
                    holder, "later", f"measures {trial.model} {trial.label}, so other cells come first"
                )
                later.append(trial)
            else:
                yield trial
        yield from later

    def _lock(self, trial: Trial) -> CellLock:
        return CellLock(self.store.root, self.where.id, trial.cell)

    def _held(self, trial: Trial) -> Holder | None:
        lock = self._lock(trial)
        with lock.released():
            return lock.take()

    def _theirs(self, trial: Trial) -> Result | None:
        """Return the result of this trial that another process stored meanwhile, or None if there is none."""
        others = self.store.names(self.where, f"{trial.id}-") - self._known - self.kept.keys()
        for name in sorted(others, reverse=True):
            with contextlib.suppress(StoreError):
                result = read(self.store.root / self.where.id / name)
                if result.status in FINAL and result.machine.state.get("packages") == self._packages():
                    text = f"another process has measured {trial.model} {trial.label} meanwhile"
                    self._say(str(Message("I-STORE-2", text, effect="Its result is taken", evidence=name)))
                    self.kept[name] = None
                    return result
        return None

    def _packages(self) -> object:
        return self.where.state.get("packages")

    def _command(self) -> str:
        words = self.where.state.get("command")
        return shlex.join(map(str, words))[:300] if isinstance(words, list | tuple) else ""

    def _tell(self, holder: Holder, about: str, what: str) -> None:
        """Report that another process measures, once per process and `about`."""
        key = holder.pid, holder.host, about
        if key in self._reported:
            return
        self._reported.add(key)
        wait = f"wait for it: tail --pid={holder.pid} -f /dev/null" if holder.pid else ""
        effect = "Two runs at once disturb each other: the figures of both are worse than the machine's"
        self._say(str(Message("W-STORE-1", f"{holder} {what}", effect=effect, fix=wait)))

    def put(self, result: Result) -> Result:
        """Store the result and return it; if its process ended before it described the machine, add this machine.

        A usage error is not stored: it says nothing about the machine.
        """
        if is_wrong_request(result.reason):
            return result
        if not machines.known(result):
            result = replace(result, machine=self.where)
        self.store.save(result)
        if result.machine.id == self.where.id:
            self.kept[result.id] = None
        return result

    def holds(self, result: Result) -> bool:
        """Return whether `again` reads this result."""
        return result.machine.id == self.where.id and (result.id in self._known or result.id in self.kept)

    def again(self) -> Iterator[Result]:
        """Yield from the store what this has stored and nobody removed meanwhile, without raw rows."""
        for name in self.kept:
            with contextlib.suppress(StoreError):
                yield self.store.listed(self.store.root / self.where.id / name)


def run(
    trials: Sequence[Trial],
    cells: ExperimentRunner,
    *,
    seed: int = 0,
    cooldown_s: float = 0.0,
    rest: Callable[[], object] | None = None,
    sieves: Sequence[Pruner] = (),
    reuse: bool = False,
    tell: Tell = lambda progress: None,
) -> Iterator[Result]:
    """Run every trial that is not finished yet; yield each Result once it is stored.

    `rest` replaces the pause of `cooldown_s` between two cells. A trial is stored as skipped if one of the `sieves`
    gives a reason.
    """
    todo = order([t for t in trials if t.id not in cells.finished()], seed, reuse=reuse)
    pause = rest or (lambda: time.sleep(cooldown_s))
    rests = deque[float](maxlen=RECENT)
    ran, begun = 0, cells.clock()
    if reuse:
        cells.ahead(todo)  # so that building and measuring processes are never alive together
    for result in cells.finished().values() if sieves else ():
        _add(sieves, result)
    ahead = Ahead(todo)
    for done, trial in enumerate(cells.free_first(todo)):
        left = cells.pace.left(ahead, statistics.median(rests) if rests else cooldown_s)
        spent = cells.clock() - begun
        tell(Progress(len(trials) - len(todo) + done, len(trials), trial, left, spent))
        reason = next((why for sieve in sieves if (why := sieve.reason(trial))), None)
        if reason:
            result = cells.put(Result.begun(trial, cells.where, Status.SKIPPED, reason))
        else:
            if ran:
                start = cells.clock()
                pause()
                rests.append(cells.clock() - start)
            ran += 1
            result = cells.run(trial)
        ahead.drop(trial)
        _add(sieves, result)
        yield result


def _add(sieves: Sequence[Pruner], result: Result) -> None:
    for sieve in sieves:
        sieve.add(result.without_rows())
