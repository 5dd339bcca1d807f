"""The loop of every search: ask a strategy what to run next, answer from the store or by running, tell it the result.

A strategy is a generator of Steps; each `yield` returns the Result of the step (ask and tell, as in Optuna). It keeps
what it learnt and decides; whether a result was stored, how long the rest takes and who is told stand here, once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from edgescope import units
from edgescope.records import Result, Trial


@dataclass(frozen=True, kw_only=True)
class Step:
    """What runs next, told before it."""

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
    """Number of this run in its round or stage, from 1; after one that failed the same number may come again."""
    total: int = 0
    """Runs in this round or stage; 0 where nobody can know."""
    anew: bool = False
    """Whether a stored result is no answer."""
    ahead: Sequence[Trial] = field(default=(), repr=False)
    """What will probably run after it."""
    eta_s: float | None = None
    """Seconds left by the runs so far, if the search goes as it usually does; None while too few ran to tell."""

    def __str__(self) -> str:
        """Return `[short round 1/2, 3/14] onnxruntime int8 b1, about 40 s left`."""
        rounds = f" round {self.round}/{self.rounds}," if self.rounds else ""
        place = f" {self.position}/{self.total}" if self.total else ""
        left = "" if self.eta_s is None else f", about {units.lasting(self.eta_s)} left"
        return f"[{self.stage}{rounds}{place}] {self.what}{left}"


Tell = Callable[[Step], None]
Strategy = Generator[Step, tuple[Result, ...], None]
"""Yields Steps; is sent what each came to: one Result, or of a pair the baseline's and the candidate's."""


class Runs(Protocol):
    """What a search needs of runner.run.Cells."""

    def stored(self, trial: Trial) -> Result | None:
        """Return the trial's stored result with its raw rows; None where there is none that can be read."""

    def run(self, trial: Trial) -> Result:
        """Run and store one trial."""

    def stored_pair(
        self, baseline: Trial, candidate: Trial, purpose: str
    ) -> tuple[Result, Result] | None:
        """Return the stored Results of a pair."""

    def run_pair(self, baseline: Trial, candidate: Trial, purpose: str) -> tuple[Result, Result]:
        """Run and store two trials in turns."""

    def left(self, trials: Iterable[Trial]) -> float | None:
        """Return about how many seconds these trials take; None while too little was timed."""


class Loop:
    """Runs strategies; afterwards `runs` and `stored` count their steps and those that the store answered."""

    def __init__(self, cells: Runs, tell: Tell = lambda step: None) -> None:
        self.cells, self.tell = cells, tell
        self.runs = self.stored = 0

    def run(self, strategy: Strategy) -> Iterator[Result]:
        """Yield the Result of each step with its raw rows; the strategy hears of it when the next one is asked for."""
        try:
            step = next(strategy)
            while True:
                results = self._answer(step)
                yield from results
                step = strategy.send(results)
        except StopIteration:
            return

    def _answer(self, step: Step) -> tuple[Result, ...]:
        known = step.eta_s is not None
        self.tell(step if known else replace(step, eta_s=self.cells.left([step.trial, *step.ahead])))
        self.runs += 1
        if step.beside is not None:
            pair = None if step.anew else self.cells.stored_pair(step.beside, step.trial, step.purpose)
            self.stored += pair is not None
            return pair or self.cells.run_pair(step.beside, step.trial, step.purpose)
        found = None if step.anew else self.cells.stored(step.trial)
        self.stored += found is not None
        return (self.cells.run(step.trial) if found is None else found,)

    @property
    def note(self) -> str:
        """How much came from the store and how it is measured again; '' where nothing did."""
        if not self.stored:
            return ""
        return f"{self.stored} of {self.runs} runs are from the store; --no-cache measures them again"
