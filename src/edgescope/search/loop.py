"""Run a search: take the next step from a strategy, get its result from the store or by running, send it back.

A strategy is a generator of Steps; each `yield` returns the Result of the step (ask and tell, as in Optuna). A strategy
learns and decides. The loop looks into the store, estimates the time left and reports each step.

What a search knew when it began is kept in the store: an interrupted search goes on with the rest of its budget.

    ROOT/<machine id>/search-<question>.json       {"known": [variants in the store]}
    ROOT/<machine id>/budget-<question>.json       {"seconds": how long the sessions of an optimisation took}
    ROOT/<machine id>/again-<question>.json        {"since": start of the run without cache, "whole": did it end}

Without these files a resumed search could not distinguish its own results from older ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from edgescope import cache, units
from edgescope.analysis.cells.objective import Wanted
from edgescope.records import Json, Result, Trial, digest
from edgescope.runner.run import ExperimentRunner


def known(
    cells: ExperimentRunner, grid: Sequence[str], wanted: Wanted, seed: int, held: Collection[str]
) -> set[str]:
    """Return the variants of `grid` that were stored when this search began: `held` if it begins now.

    The same grid, question, seed, machine and packages make the same search whatever its budget, so a run with a larger
    budget continues it.
    """
    question = {
        "grid": sorted(grid),
        "objective": wanted.objective,
        "constraints": sorted(c.text for c in wanted.constraints),
        "seed": seed,
        "packages": cells.where.state.get("packages"),
    }
    path = cells.store.root / cells.where.id / f"search-{digest(question)}.json"
    page = cache.read_json(path)
    found = page.get("known") if isinstance(page, dict) else None
    if not isinstance(found, list):
        found = sorted(held)
        cache.write_json(path, {"known": found})
    return set(found)


class Spent:
    """Seconds that earlier sessions of one optimisation took, kept beside the results: its budget is that of all."""

    def __init__(self, cells: ExperimentRunner, question: Json, *, anew: bool) -> None:
        self.path = cells.store.root / cells.where.id / f"budget-{digest(question)}.json"
        page = None if anew else cache.read_json(self.path)
        found = page.get("seconds") if isinstance(page, dict) else None
        self.seconds = float(found) if isinstance(found, int | float) else 0.0

    def keep(self, seconds: float) -> None:
        """Note how long this session has taken so far."""
        cache.write_json(self.path, {"seconds": self.seconds + seconds})


@contextmanager
def counting(cells: ExperimentRunner, question: Json, *, cached: bool) -> Iterator[ExperimentRunner]:
    """Yield the cells; they then use stored results, except those older than the last search without the cache.

    `cached=False` begins such a search. One that was interrupted is continued, with or without the cache.
    """
    path = cells.store.root / cells.where.id / f"again-{digest(question)}.json"
    page = cache.read_json(path)
    page = page if isinstance(page, dict) else {}
    if not cached and page.get("whole", True):
        page = {"since": datetime.now(timezone.utc).isoformat(timespec="milliseconds"), "whole": False}
        cache.write_json(path, page)
    cells.since = str(page.get("since", ""))
    yield cells
    if not page.get("whole", True):
        cache.write_json(path, page | {"whole": True})


@dataclass(frozen=True, kw_only=True)
class Step:
    """The next run, reported before it starts."""

    stage: str
    """`short`, `selecting`, `confirming`, `search`, `confirm` or `closed loop`."""
    trial: Trial
    beside: Trial | None = None
    """The baseline with which it takes turns; None where it runs alone."""
    purpose: str = ""
    """Of a pair: selecting or confirming (records.Alternation)."""
    what: str
    """The run in a few words: a variant's label, `12 clients, 5 s`."""
    round: int = 0
    rounds: int = 0
    position: int = 0
    """Number of this run in its round or stage, from 1; after a failed run the number may repeat."""
    total: int = 0
    """Number of runs in this round or stage; 0 if unknown."""
    anew: bool = False
    """Whether to run it even if a result is stored."""
    ahead: Sequence[Trial] = field(default=(), repr=False)
    """The trials that probably run after it."""
    look: Result | None = field(default=None, repr=False)
    """The look at the same program that stands for this run, unless the store has one."""
    limit_s: float = math.inf
    """Seconds after which the run, or the pair, is cancelled, and not stored."""
    eta_s: float | None = None
    """Seconds left, estimated from the runs so far and the usual course; None while too few were timed."""
    spent_s: float = 0.0
    """Seconds since the first step; told where there is no estimate."""
    then: str = ""
    """What the estimate leaves out because its length is not known yet, or its condition: `if it confirms`."""

    def __str__(self) -> str:
        """Return `[short round 1/2, 3/14] onnxruntime int8 b1, about 40 s left`."""
        rounds = f" round {self.round}/{self.rounds}," if self.rounds else ""
        number = f" {self.position}" if self.position else ""
        place = f" {self.position}/{self.total}" if self.total else number
        left = units.remaining(self.eta_s, self.spent_s)
        return f"[{self.stage}{rounds}{place}] {self.what}{left}{self.then}"


Tell = Callable[[Step], None]
Strategy = Generator[Step, tuple[Result, ...], None]
"""Yields Steps; is sent what each came to: one Result, or of a pair the baseline's and the candidate's."""


class Loop:
    """Runs strategies; `runs` counts their steps, `stored` those answered by the store."""

    def __init__(
        self,
        cells: ExperimentRunner,
        tell: Tell = lambda step: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cells, self.tell, self.clock, self.begun = cells, tell, clock, clock()
        self.runs = self.stored = 0

    def run(self, strategy: Strategy) -> Iterator[Result]:
        """Yield the Result of each step with its raw rows; the strategy gets it when the next step is requested."""
        try:
            step = next(strategy)
            while True:
                results = self.answer(step)
                yield from results
                step = strategy.send(results)
        except StopIteration:
            return

    def answer(self, step: Step) -> tuple[Result, ...]:
        """Tell the step, and return its Result, of a pair both: from the store, or by running it."""
        found = self.known(step)
        left = self._left(step)
        if found is not None and not left:
            left = None  # what is stored takes no time, so none is passed
        self.tell(replace(step, eta_s=left, spent_s=self.clock() - self.begun))
        self.runs += 1
        self.stored += found is not None
        if found is not None:
            return found
        if step.look is not None:
            return (self.cells.adopt(step.look, step.trial),)
        self.cells.expect([*filter(None, (step.beside, step.trial)), *step.ahead])
        self.cells.builds.build([step.trial, *step.ahead])
        if step.beside is not None:
            return self.cells.run_pair(step.beside, step.trial, step.purpose, step.limit_s)
        return (self.cells.run(step.trial, step.limit_s),)

    def _left(self, step: Step) -> float | None:
        """Return the seconds left; None where nothing was timed yet, or where the store has all that is known of."""
        if step.eta_s is not None:
            return step.eta_s
        return self.cells.left([step.trial, *step.ahead]) or None

    def known(self, step: Step) -> tuple[Result, ...] | None:
        """Return the stored Results of a step; None if it has to run."""
        if step.anew:
            return None
        if step.beside is not None:
            return self.cells.stored_pair(step.beside, step.trial, step.purpose)
        found = self.cells.stored(step.trial)
        return None if found is None else (found,)

    @property
    def measured(self) -> bool:
        """Return whether a run was not from the store."""
        return self.runs > self.stored

    @property
    def note(self) -> str:
        """How many runs came from the store and how to measure them again; '' if none did."""
        if not self.stored:
            return ""
        return f"{self.stored} of {self.runs} runs are from the store; --no-cache measures them again"


class InOrder:
    """Runs trials that a verb names one after the other; later ones may depend on the results of the first.

    Before each it tells its place and how long the rest takes.
    """

    def __init__(self, cells: ExperimentRunner, tell: Tell) -> None:
        self.loop, self.done = Loop(cells, tell), 0

    def run(
        self, stage: str, trial: Trial, ahead: Sequence[Trial] | None = None, *, anew: bool = False
    ) -> Result:
        """Return the result of a trial, from the store unless `anew`.

        `ahead` are the trials that follow; None while the results so far do not tell them, so their number is unknown.
        """
        self.done += 1
        step = Step(
            stage=stage,
            trial=trial,
            what=trial.label,
            position=self.done,
            total=0 if ahead is None else self.done + len(ahead),
            ahead=ahead or (),
            anew=anew,
        )
        return self.loop.answer(step)[0]
