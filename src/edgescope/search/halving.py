"""The rounds in which candidates are compared: short ones to screen them, final ones to measure what is left.

Successive halving: in the first short round every candidate runs once, in a fresh process; the better third goes on,
and with it everything that the intervals and a margin for what differs between processes cannot tell from the best.
What is left then runs in the final rounds, interleaved in random order with the baseline, over the full window; a
finalist that these rounds put clearly behind (racing.py) runs in no more of them. The
speed-up is taken within final rounds only, so a machine that gets slower half-way slows both sides of each ratio,
and the luck that helped a candidate through the screening is not in its figures.

The luck of the final rounds is: the pick is the finalist with the best figure in them, and its speed-up is that of
the same runs. Among finalists that are close it is the one the rounds favoured, so its figures lean to the good side.
That is not corrected, nor are the intervals widened for the number of finalists. The pick therefore names every
finalist that it is not decided against; its own figures in a later run (--no-cache) are free of this.

A candidate whose outputs are wrong, or that cannot run here, leaves at once; of an int8 one with wrong outputs the
mixture, its worst layers in fp32, runs in its stead where its engine has one. Nothing is compared with a baseline that
failed: the run stops. The store is the only memory: a run that was killed reads what is there, takes the same
decisions again, and goes on.
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
from edgescope.search.candidates import dear
from edgescope.search.loop import Step, Strategy

#: Seconds of warm-up and of measuring in a short round: enough to tell 10 %, little beside starting a process.
SHORT_WARMUP_S, SHORT_S = 0.3, 0.4
#: By how much fresh processes of one program may differ: of a candidate with one short run, with two.
MARGINS = (0.10, 0.05)
#: A run that the machine disturbed may be this many times further away.
DISTURBED = 3.0
#: So few candidates are not worth screening: the final rounds take them all.
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
"""What to try in the place of a trial whose outputs are wrong; None: nothing."""


def halving(
    trials: Sequence[Trial],
    *,
    wanted: Wanted = FASTEST,
    rounds: Rounds = Rounds(),
    instead: Instead = lambda trial: None,
) -> Strategy:
    """Return the strategy that runs the candidates round by round, the first of them being the baseline.

    EdgescopeError once the baseline fails.
    """
    return _Race(wanted, rounds, instead).run(list(trials))


def short(trial: Trial, replicate: int) -> Trial:
    """Return the short run of a candidate: a window at most a third of its full one, without idling."""
    warmup = SHORT_WARMUP_S if trial.warmup is None else min(SHORT_WARMUP_S, trial.warmup)
    seconds = min(SHORT_S, trial.max_s / 3)
    window = {"warmup": warmup, "idle_s": 0.0, "min_s": seconds, "max_s": seconds, "max_queries": None}
    return replace(trial, **window, replicate=replicate)  # type: ignore[arg-type]


def _asked(stage: str, trial: Trial, number: int) -> Trial:
    """Return the run of a candidate in round `number` of a stage."""
    return short(trial, number) if stage == "short" else replace(trial, replicate=number)


class _Race:
    """One optimisation: what ran, what failed, and what the next round is to be."""

    def __init__(self, wanted: Wanted, rounds: Rounds, instead: Instead) -> None:
        self.wanted, self.rounds, self.instead = wanted, rounds, instead
        self.failed: set[str] = set()
        """Variants that may not be used."""
        self.screened: list[Result] = []
        self.finals: list[Result] = []

    def run(self, trials: list[Trial]) -> Strategy:
        self.trials, alive = trials, trials
        number = 0
        while number < self.rounds.short and len(alive) > FEW:
            heat = [t for t in alive if number == 0 or not dear(t)]
            yield from self._round("short", heat, number)
            alive = self._survivors(self._standing(self.trials if number == 0 else alive))
            number += 1
        if number and not alive:
            return  # nothing has the figure that is to be optimised
        finalists = {t.id for t in (self.trials[0], *alive)} if number else set()
        for final in range(self.rounds.count):
            heat = [t for t in self.trials if not finalists or t.id in finalists]
            if finalists:
                slow = racing.trailing(self.finals, self.wanted) if self.finals else set()
                heat = [t for t in heat if t is self.trials[0] or variants.variant(t) not in slow]
            yield from self._round("final", self._standing(heat), final)

    def _standing(self, trials: Sequence[Trial]) -> list[Trial]:
        return [t for t in trials if variants.variant(t) not in self.failed]

    def _round(self, stage: str, heat: list[Trial], number: int) -> Strategy:
        """Run every trial of the heat once and note what fails; what is tried in its stead runs last."""
        order = sorted(heat, key=lambda t: t.id)
        random.Random(f"{self.rounds.seed} {stage} {number}").shuffle(order)
        if stage == "short":
            order.sort(key=dear)
        rounds = self.rounds.short if stage == "short" else self.rounds.count
        done = self.screened if stage == "short" else self.finals
        for position, trial in enumerate(order, start=1):  # grows while it runs
            result = yield Step(
                stage=stage,
                trial=_asked(stage, trial, number),
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
        """Return what is tried for the first time in the place of `trial`, added to the trials."""
        other = self.instead(trial)
        added = [other] if other is not None and other not in self.trials else []
        self.trials = [*self.trials, *added]
        return added

    def _ahead(self, stage: str, number: int, order: Sequence[Trial], position: int) -> list[Trial]:
        """Return what follows in this round and, if as many go on as usually do, in the rounds to come."""
        ahead = [_asked(stage, t, number) for t in order[position:]]
        if stage == "final":
            rest = range(number + 1, self.rounds.count)
            return ahead + [_asked("final", t, later) for later in rest for t in self._standing(order)]
        alive = self._standing(order)
        for later in range(number + 1, self.rounds.short):
            alive = alive[: math.ceil(len(alive) * self.rounds.keep)]
            ahead += [_asked("short", t, later) for t in alive if len(alive) > FEW]
        finalists = [self.trials[0], *alive[: math.ceil(len(alive) * self.rounds.keep)]]
        return ahead + [_asked("final", t, n) for n in range(self.rounds.count) for t in finalists]

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
        effect="There is nothing to compare the candidates with",
        fix=(result.reason.fix if result.reason else "")
        or f"the same command with --retry {status}, once the cause is gone",
    )


def survivors(rows: Sequence[Row], wanted: Wanted, keep: float) -> list[str]:
    """Return the cells that go on: the best share `keep`, and all that cannot be told from the best of them.

    One that clearly breaks a constraint stays behind, unless none keeps them: then those nearest to it go on.
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
    """Return by how much another process of this variant may differ, by the short runs it had."""
    runs = max(1, min(len(row.replicates), len(MARGINS)))
    patience = DISTURBED if row.verdict.trust in (Trust.DISTURBED, Trust.THROTTLED) else 1.0
    return MARGINS[runs - 1] * patience


def _ends(row: Row, wanted: Wanted) -> tuple[float, float, float]:
    """Return (lo, value, hi) of the objective as something to be made small."""
    found = row.measured(wanted.goal.name)
    ends = (found.lo or found.value, found.value, found.hi or found.value)
    if not wanted.goal.higher:
        return ends
    return tuple(1 / e if e > 0 else math.inf for e in reversed(ends))  # type: ignore[return-value]
