"""Compare candidates in rounds: short rounds screen them, final rounds measure the rest.

Successive halving: in the first short round every candidate runs once, in a fresh process. The better third goes on,
together with every candidate that the intervals, and a margin for the spread between processes, cannot distinguish from
the best. The final rounds then run the rest over the full window, interleaved in random order with the baseline; a
finalist that is clearly behind (racing.py) leaves them early. The speed-up is computed within final rounds only, so a
machine that gets slower half-way slows both sides of each ratio, and a lucky screening is not in the figures.

A lucky final round is: the pick is the finalist with the best figure in the final rounds, and its speed-up comes from
the same runs. Among close finalists it is the one that the rounds favoured, so its figures err to the good side.
That is not corrected, nor are the intervals widened for the number of finalists. The pick therefore names every
finalist that it is not decided against; its figures in a later run (--no-cache) are free of this bias.

A candidate with wrong outputs, or that cannot run here, leaves at once. An int8 candidate with wrong outputs is
replaced by the mixture, with its worst layers in fp32, if its engine supports that. If the baseline fails, the run
stops. The store is the only memory: a run that was killed reads it, takes the same decisions again, and goes on.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from edgescope.analysis.cells import variants
from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.cells.row import Row
from edgescope.errors import EdgescopeError
from edgescope.records import Measured, Result, Status, Trial, Trust
from edgescope.search import racing
from edgescope.search.candidates import starts_slowly
from edgescope.search.loop import Step, Strategy

#: Seconds of warm-up and of measuring in a short round: enough to tell 10 %, little beside starting a process.
SHORT_WARMUP_S, SHORT_S = 0.3, 0.4
#: By how much fresh processes of one program may differ: with one short run of a candidate, with two.
MARGINS = (0.10, 0.05)
#: The margin of a disturbed run is this many times larger.
DISTURBED = 3.0
#: Up to this number of candidates all go to the final rounds without screening.
FEW = 2


@dataclass(frozen=True)
class Rounds:
    """How many final and short rounds, the share that goes on, and the seed of the random orders."""

    count: int = 5
    seed: int = 0
    short: int = 2
    """0: every candidate runs in every final round."""
    keep: float = 1 / 3


Instead = Callable[[Trial], Trial | None]
"""Returns the trial that replaces one with wrong outputs; None if there is no replacement."""


def halving(
    trials: Sequence[Trial],
    *,
    wanted: Wanted = FASTEST,
    rounds: Rounds = Rounds(),
    instead: Instead = lambda trial: None,
) -> Strategy:
    """Return the strategy that runs the candidates round by round; the first trial is the baseline.

    The strategy raises EdgescopeError if the baseline fails.
    """
    return _Race(wanted, rounds, instead).run(list(trials))


def short(trial: Trial, replicate: int) -> Trial:
    """Return the short run of a candidate: a window at most a third of its full one, without idling."""
    warmup = SHORT_WARMUP_S if trial.warmup is None else min(SHORT_WARMUP_S, trial.warmup)
    seconds = min(SHORT_S, trial.max_s / 3)
    window = {"warmup": warmup, "idle_s": 0.0, "min_s": seconds, "max_s": seconds, "max_queries": None}
    return replace(trial, **window, replicate=replicate)  # type: ignore[arg-type]


def _in_round(stage: str, trial: Trial, number: int) -> Trial:
    """Return the run of a candidate in round `number` of a stage."""
    return short(trial, number) if stage == "short" else replace(trial, replicate=number)


class _Race:
    """One optimisation: the results so far, the failed variants and the choice of the next round."""

    def __init__(self, wanted: Wanted, rounds: Rounds, instead: Instead) -> None:
        self.wanted, self.rounds, self.instead = wanted, rounds, instead
        self.failed: set[str] = set()
        """Variants that failed and run no more."""
        self.screened: list[Result] = []
        self.finals: list[Result] = []

    def run(self, trials: list[Trial]) -> Strategy:
        self.trials, alive = trials, trials
        number = 0
        while number < self.rounds.short and len(alive) > FEW:
            running = [t for t in alive if number == 0 or not starts_slowly(t)]
            yield from self._round("short", running, number)
            alive = self._survivors(self._standing(self.trials if number == 0 else alive))
            number += 1
        if number and not alive:
            return  # no candidate has a figure for the objective
        finalists = {t.id for t in (self.trials[0], *alive)} if number else set()
        for final in range(self.rounds.count):
            running = [t for t in self.trials if not finalists or t.id in finalists]
            if finalists:
                slow = racing.trailing(self.finals, self.wanted) if self.finals else set()
                running = [t for t in running if t is self.trials[0] or variants.variant(t) not in slow]
            yield from self._round("final", self._standing(running), final)

    def _standing(self, trials: Sequence[Trial]) -> list[Trial]:
        return [t for t in trials if variants.variant(t) not in self.failed]

    def _round(self, stage: str, trials: list[Trial], number: int) -> Strategy:
        """Run every trial once and note the failed ones; their replacements run last."""
        order = sorted(trials, key=lambda t: t.id)
        random.Random(f"{self.rounds.seed} {stage} {number}").shuffle(order)
        if stage == "short":
            order.sort(key=starts_slowly)
        rounds = self.rounds.short if stage == "short" else self.rounds.count
        done = self.screened if stage == "short" else self.finals
        for position, trial in enumerate(order, start=1):  # grows while it runs
            result = yield Step(
                stage=stage,
                trial=_in_round(stage, trial, number),
                what=trial.label,
                round=number + 1,
                rounds=rounds,
                position=position,
                total=len(order),
                ahead=self._ahead(stage, number, order, position),
            )
            done.append(result)
            if result.status not in MEASURED:
                self.failed.add(variants.variant(trial))
                if variants.variant(trial) == variants.variant(self.trials[0]):
                    raise _baseless(result)
            first = number == 0 and (stage == "short" or not self.screened)
            if first and result.status is Status.WRONG_OUTPUT:
                order += self._replaced(trial)

    def _replaced(self, trial: Trial) -> list[Trial]:
        """Add the replacement of `trial` to the trials; return it in a list, [] if there is none or it is known."""
        other = self.instead(trial)
        added = [other] if other is not None and other not in self.trials else []
        self.trials = [*self.trials, *added]
        return added

    def _ahead(self, stage: str, number: int, order: Sequence[Trial], position: int) -> list[Trial]:
        """Return the rest of this round and, if the usual share goes on, the runs of later rounds."""
        ahead = [_in_round(stage, t, number) for t in order[position:]]
        if stage == "final":
            rest = range(number + 1, self.rounds.count)
            return ahead + [_in_round("final", t, later) for later in rest for t in self._standing(order)]
        alive = self._standing(order)
        for later in range(number + 1, self.rounds.short):
            alive = alive[: math.ceil(len(alive) * self.rounds.keep)]
            ahead += [_in_round("short", t, later) for t in alive if len(alive) > FEW]
        finalists = [self.trials[0], *alive[: math.ceil(len(alive) * self.rounds.keep)]]
        return ahead + [_in_round("final", t, n) for n in range(self.rounds.count) for t in finalists]

    def _survivors(self, alive: list[Trial]) -> list[Trial]:
        """Return the candidates that go on after a short round, best first."""
        rows = {variants.variant(r.trial): r for r in variants.table(self.screened).rows}
        found = [(rows[variants.variant(t)], t) for t in alive]
        cells = survivors([row for row, _ in found], self.wanted, self.rounds.keep)
        return [t for cell in cells for row, t in found if row.cell == cell]


def _baseless(result: Result) -> EdgescopeError:
    status = result.status.value
    return EdgescopeError(
        "E-OPTIM-1",
        f"the baseline failed: {result.trial.label}, {status}",
        evidence=str(
            result.reason or (result.verification.detail if result.verification else "no reason given")
        ),
        effect="The candidates have no baseline to be compared with",
        fix=(result.reason.fix if result.reason else "")
        or f"run the same command with --retry {status} once the cause is gone",
    )


def survivors(rows: Sequence[Row], wanted: Wanted, keep: float) -> list[str]:
    """Return the cells that go on: the best share `keep`, and all that cannot be distinguished from the best.

    A cell that clearly breaks a constraint leaves. If all cells do, those nearest to the constraint go on.
    """
    goal = wanted.goal
    ranked = [r for r in rows if isinstance(r[goal.name], Measured)]
    able = [r for r in ranked if not wanted.hopeless(r.metrics, _margin(r))]
    ranked = able or sorted(ranked, key=lambda r: wanted.binding(r.metrics)[0])
    if not ranked:
        return []
    if able:
        ranked = sorted(ranked, key=lambda r: _ends(r, wanted)[1])
    count = math.ceil(len(ranked) * keep)
    best = next((r for r in ranked if not wanted.broken(r.metrics)), None)
    reach = _ends(best, wanted)[2] if best is not None else -math.inf
    near = [r for r in ranked[count:] if _ends(r, wanted)[0] <= reach * (1 + _margin(r))]
    return [r.cell for r in (*ranked[:count], *near)]


def _margin(row: Row) -> float:
    """Return by what share another process of this variant may differ, given the number of its short runs."""
    runs = max(1, min(len(row.replicates), len(MARGINS)))
    patience = DISTURBED if row.verdict.trust in (Trust.DISTURBED, Trust.THROTTLED) else 1.0
    return MARGINS[runs - 1] * patience


def _ends(row: Row, wanted: Wanted) -> tuple[float, float, float]:
    """Return (lo, value, hi) of the objective as a cost: lower is better."""
    found = row.measured(wanted.goal.name)
    ends = (found.lo or found.value, found.value, found.hi or found.value)
    if not wanted.goal.higher:
        return ends
    return tuple(1 / e if e > 0 else math.inf for e in reversed(ends))  # type: ignore[return-value]
