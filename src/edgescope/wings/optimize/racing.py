"""What runs in an optimisation, and when it ends: candidates are screened, then compared in turns, then confirmed.

Screening: every candidate runs once, shortly, in a fresh process, the baseline first; the better third goes on, and
with it everything that the intervals and a margin for what differs between processes cannot tell from the best. Where
building took long, a first look at the baseline will do, and the first candidate whose outputs are right. The baseline
and the best of them run with other numbers of threads, too, because a baseline that is slow for its threads alone would
flatter every candidate. Of a small network the baseline does so at once, and what does not slow it down is tried with
each candidate that is near the best so far, while there is time.

Selecting: what is left runs in rounds of pairs, each candidate in turns with the baseline (bench/alternation.py).
After each round those that are clearly behind the best leave, until one is left or its share of the budget is spent.
The best of a small network then runs a pair with its other numbers of threads, too.

Confirming: the pick alone runs in further pairs, spread over the time that is left, until its interval is narrow
enough, and in ENOUGH of them at least. Its speed-up is taken from these pairs alone, so the luck that helped it
through the selection is not in its figure. If they show that a rival was clearly better, the rival is confirmed, too.

The budget is wall time from the first step; what it leaves no time to try is named. The same command with a longer one
goes on: what earlier sessions left is shared anew, so what they did not try comes before further pairs. A candidate
whose outputs are wrong, or that cannot run here, leaves at once; of an int8 one the mixture, its worst layers in fp32,
runs in its stead where its engine has one. If the baseline fails the run stops; a run that was killed reads its pairs
from the store.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from edgescope.analysis.cells import alternation, variants
from edgescope.analysis.cells.objective import FASTEST, Wanted
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.cells.row import Row
from edgescope.errors import EdgescopeError
from edgescope.records import Measured, Result, Status, Trial, Trust
from edgescope.search.candidates import starts_slowly
from edgescope.search.loop import Step, Strategy

#: Seconds of warm-up and of measuring in a short run: enough to tell 10 %, little beside starting a process, and longer
#: than a neighbour usually stays.
SHORT_WARMUP_S, SHORT_S = 0.3, variants.SCREEN_S
#: By how much fresh processes of one program may differ: of a candidate with one short run, with two.
MARGINS = (0.10, 0.05)
#: A run that the machine disturbed may be this many times further away.
DISTURBED = 3.0
#: So few candidates are not worth screening.
FEW = 2
#: Shares of the budget by which screening ends, and by which selecting does.
SCREENED_BY, SELECTED_BY = 0.40, 0.55
#: Where more of the budget than this is gone between the look and the first run, building took long: the look will do
#: of the baseline, and no further candidate is tried once one stands. Its pairs need the time.
BUILT_BY = 0.25
#: By how much a candidate must be behind the best of its rounds to leave them, after one, two and more rounds.
BEHIND = (0.20, 0.10, 0.05)
#: Most rounds of selecting; least and usual number of confirming pairs, and most.
ROUNDS, LEAST, ENOUGH, MOST = 5, 3, 5, 30
#: Without LEAST pairs, or a first candidate that stands, there is no good answer: so many times the budget may pass
#: for them, and so many seconds at least. What takes longer is stopped.
GRACE, GRACE_S = 2.0, 60.0
#: Seconds over which the confirming pairs are spread at least, within the budget: a machine may keep a speed so long.
SPREAD_S = 40.0
#: Seconds that a pair needs at least beside its window; of a stored one nobody sees how long it took.
STARTS_S = 2.0
#: Seconds of the budget that are kept for telling the answer.
ANSWERS_S = 1.5
#: So many times as long as the longer of the LAST before it a pair may take: a neighbour on the machine slows all of
#: it. The first pairs take longer than all others: what the processes import is imported then.
LONGER, LAST = 1.15, 2
#: A network whose baseline answers within so many seconds may lose more to waking threads than it gains by them.
SMALL_S = 0.005
#: The share of the screened candidates that goes on.
KEEP = 1 / 3
#: Precisions, the usually fastest first: where time is short, the likely picks have been tried.
NARROW = ("int8", "fp16", "bf16", "tf32", "fp32")
#: A speed-up is decided once its interval reaches no further than this share to either side.
DECIDED = 0.04


@dataclass(frozen=True)
class Budget:
    """Seconds that an optimisation may take (None: as long as ROUNDS of selecting and ENOUGH pairs), and its seed."""

    seconds: float | None = None
    seed: int = 0
    exhaustive: bool = False
    """No screening: every candidate runs in every round of selecting."""
    begun: float | None = None
    """When this session began, on its clock; None: with the first step."""
    before: float = 0.0
    """Seconds that earlier sessions took. This one has the rest, and shares it as if it were the first."""
    known: Callable[[Step], bool] = lambda step: False
    """Whether the store answers a step: that takes no time, so it is done whatever is left."""
    clock: Callable[[], float] = time.monotonic


Instead = Callable[[Trial], Trial | None]
"""What to try in the place of a trial whose outputs are wrong; None: nothing."""


ByHand = Callable[[Trial], Sequence[Trial]]
"""The same trial with the settings that an expert would try by hand."""


def short(trial: Trial, replicate: int) -> Trial:
    """Return the short run of a candidate, alone and without idling.

    Its window is no longer than the turns of one process, and at most a third of the window of one that takes none.
    """
    warmup = SHORT_WARMUP_S if trial.warmup is None else min(SHORT_WARMUP_S, trial.warmup)
    seconds = min(SHORT_S, trial.max_s if trial.turn_s is not None else trial.max_s / 3)
    window = {"warmup": warmup, "idle_s": 0.0, "min_s": seconds, "max_s": seconds, "max_queries": None}
    return replace(trial, **window, turn_s=None, replicate=replicate)  # type: ignore[arg-type]


def in_order(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """Return the trials in the order of their short runs: the baseline, then what is usually the fastest.

    Other engines come before the baseline's own with other settings: in a short time one of them must be met. What
    takes a compiler's time comes last.
    """
    first, *rest = trials
    rest.sort(key=lambda t: t.id)
    random.Random(f"{seed} short").shuffle(rest)
    rest.sort(key=lambda t: (starts_slowly(t), t.backend == first.backend, NARROW.index(t.precision)))
    return [first, *rest]


class Race:
    """One optimisation: what ran, what failed, who is left."""

    def __init__(
        self,
        wanted: Wanted = FASTEST,
        budget: Budget = Budget(),
        instead: Instead = lambda trial: None,
        by_hand: ByHand = lambda trial: (),
        look: Result | None = None,
    ) -> None:
        self.wanted, self.budget, self.instead, self.by_hand = wanted, budget, instead, by_hand
        self.look = look
        """A run of the baseline whose outputs nobody judged yet: every pair judges them."""
        self.begun = budget.clock() if budget.begun is None else budget.begun
        self.failed: set[str] = set()
        """Variants that may not be used."""
        self.screened: list[Result] = []
        self.finals: list[Result] = []
        self.pairs: dict[str, list[tuple[Result, Result]]] = defaultdict(list)
        """Variant -> (baseline's, its own) Result of each of its pairs."""
        self.added: list[Trial] = []
        self.rounds = 0
        self.took: dict[str, list[float]] = defaultdict(list)
        """Variant -> the seconds of each of its pairs."""
        self._short_s = 0.0
        """The longest seconds of a candidate's short run; twice those after which one was stopped."""
        self._table: tuple[list[int], Sequence[Row]] = ([], ())
        """Which results the last table was made of, and its rows."""

    @property
    def unreached(self) -> list[Trial]:
        """Return the candidates that the budget left no time for, or that were stopped."""
        tried = {r.trial.variant for r in (*self.screened, *self.finals)}
        return [t for t in self.trials[1:] if t.variant not in tried]

    @property
    def enough_s(self) -> float:
        """Return the seconds of a budget that has room for what was not reached, beside what is gone already."""
        more = len(self.unreached) * self._short_s / SCREENED_BY
        return self._gone_s + max(self.budget.seconds or 0.0, more)

    @property
    def _here_s(self) -> float:
        """Return the seconds since this session began."""
        return self.budget.clock() - self.begun

    @property
    def _gone_s(self) -> float:
        """Return the seconds that it took so far, in all sessions."""
        return self.budget.before + self._here_s

    @property
    def _mine_s(self) -> float:
        """Return the seconds of the budget that earlier sessions left to this one."""
        return max(0.0, (self.budget.seconds or 0.0) - self.budget.before)

    @property
    def spent(self) -> float:
        """Return the share of this session's seconds that is gone; 0 without a budget."""
        if not self.budget.seconds:
            return 0.0
        return self._here_s / self._mine_s if self._mine_s else math.inf

    @property
    def left_s(self) -> float:
        """Return the seconds of the budget that are left."""
        return math.inf if self.budget.seconds is None else self.budget.seconds - self._gone_s

    @property
    def _grace_s(self) -> float:
        """Return the seconds that are left for what there is no answer without."""
        if self.budget.seconds is None:
            return math.inf
        return max(GRACE * self.budget.seconds, GRACE_S) - self._gone_s

    def run(self, trials: Sequence[Trial]) -> Strategy:
        """Screen, select, confirm, the first of the trials being the baseline; EdgescopeError once it fails."""
        self.trials = alive = list(trials)
        if not self.budget.exhaustive and len(trials) > FEW:
            yield from self._screen(trials)
            alive = self._survivors(self._standing(self.trials))
        elif self.look is not None:  # its pairs may be forked, which does not show what a process takes
            yield Step(stage="short", trial=short(trials[0], 0), what=trials[0].label, look=self.look)
        rivals = [t for t in alive if t is not self.trials[0]]
        pick = yield from self._select(rivals)
        while pick is not None:
            pick = yield from self._confirm(pick)
        if trials[0] in alive and not any(p for v, p in self.pairs.items() if v not in self.failed):
            yield from self._alone(trials[0])

    def _alone(self, base: Trial) -> Strategy:
        """Run the baseline alone: nothing is left to compare it with."""
        for number in range(LEAST):
            if number and self._grace_s <= 0:
                return
            (result,) = yield Step(
                stage="confirming",
                trial=replace(base, replicate=number),
                what=base.label,
                position=number + 1,
                total=LEAST,
            )
            self._noted(base, result)

    def _standing(self, trials: Sequence[Trial]) -> list[Trial]:
        return [t for t in trials if t.variant not in self.failed]

    def _screen(self, trials: Sequence[Trial]) -> Strategy:
        """Run every candidate once while there is time, in their order.

        What takes a compiler's time comes after the settings by hand of the best before it.
        """
        first, *rest = in_order(trials, self.budget.seed)
        order, late = [first, *(t for t in rest if not starts_slowly(t))], list(filter(starts_slowly, rest))
        position, whole, looked = 0, False, self.look if self.spent > BUILT_BY else None
        while position < len(order) or not whole:  # grows while it runs
            if position == len(order):
                best = self._survivors(self._standing(self.trials))[:1]
                order, whole, late = [*order, *self._by_hand(best), *late], True, []
                continue
            trial, position = order[position], position + 1
            known = order + late
            step = Step(
                stage="short",
                trial=short(trial, 0),
                what=trial.label,
                position=position,
                total=len(known) if whole else 0,  # what the best of these calls for is not known yet
                ahead=[short(t, 0) for t in known[position:]] + self._pairs_ahead(known),
                look=looked if trial is first else None,
                limit_s=math.inf if trial is first else self._limit_s(last=position == len(known)),
                eta_s=self._eta(),
            )
            ended = looked is not None or self.spent > SCREENED_BY
            ended = ended and self._rivalled() and not self._beaten()
            if (step.limit_s <= 0 or ended) and not self.budget.known(step):
                continue
            begun = self.budget.clock()
            (result,) = yield step
            if trial is not first:
                took = (self.budget.clock() - begun) * (2 if result.status is Status.CANCELLED else 1)
                self._short_s = max(self._short_s, took)
            if result.status is Status.CANCELLED:  # it took longer than its limit
                continue
            self.screened.append(result)
            self._noted(trial, result)
            order[position:position] = self._settings_next(trial, result)
            order += self._replaced(trial, result)

    def _by_hand(self, best: Sequence[Trial]) -> list[Trial]:
        """Return the best so far and the baseline with other settings, added to the trials."""
        return self._new(each for t in (*best, self.trials[0]) for each in self.by_hand(t))

    def _new(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return those that are not among the trials yet, added to them."""
        new = [each for each in dict.fromkeys(trials) if each not in self.trials]
        self.trials = [*self.trials, *new]
        return new

    def _settings_next(self, trial: Trial, result: Result) -> list[Trial]:
        """Return the settings of a small network to try next, added to the trials: all with the baseline.

        Then, with each candidate that is near the best so far, those that the baseline was not slower with.
        """
        base, *others = self.screened
        near = (1 + BEHIND[0]) * min(map(_latency_s, self.screened))
        if _latency_s(base) > SMALL_S or _latency_s(result) > near:
            return []
        if not others:
            return self._new(self.by_hand(trial))
        of_base = {t.variant for t in self.by_hand(self.trials[0])}
        able = [r for r in others if _latency_s(r) <= (1 + MARGINS[0]) * _latency_s(base)]
        fit = {r.trial.options.get("threads") for r in able if r.trial.variant in of_base}
        return self._new(each for each in self.by_hand(trial) if each.options.get("threads") in fit)

    def _rivalled(self) -> bool:
        """Return whether a candidate beside the baseline's own settings stands: without one there is no answer."""
        own = {t.variant for t in (self.trials[0], *self.by_hand(self.trials[0]))}
        return any(r.status in MEASURED and r.trial.variant not in own for r in self.screened)

    def _beaten(self) -> bool:
        """Return whether every candidate that stands is clearly slower than the baseline: no pairs need the time."""
        return self._survivors(self._standing(self.trials)) == self.trials[:1]

    def _limit_s(self, *, last: bool) -> float:
        """Return the seconds that a candidate's short run and the check of its outputs may take.

        Once a rival stands it must end before the pairs need the time; if all of them are beaten, while there is time
        to confirm it. Before, all but the last take half of the grace.
        """
        if self.budget.seconds is None or not self._rivalled():
            return self._grace_s if last else self._grace_s / 2
        share = SELECTED_BY * self._mine_s - self._here_s
        kept = (LEAST + 1) * (STARTS_S + self.trials[0].max_s) + ANSWERS_S
        return max(share, self.left_s - kept) if self._beaten() else share

    def _eta(self) -> float | None:
        return None if self.budget.seconds is None else max(0.0, self.left_s)

    def _pairs_ahead(self, order: Sequence[Trial]) -> list[Trial]:
        """Return the pairs that usually follow: of a third of the candidates once, of the best ENOUGH times."""
        likely = order[1 : 1 + math.ceil(len(order) / 3)]
        found = [replace(t, replicate=0) for t in likely if len(likely) > 1]
        return found + [replace(t, replicate=n + 1) for t in likely[:1] for n in range(ENOUGH)]

    def _noted(self, trial: Trial, result: Result) -> None:
        if result.status in MEASURED or result.status is Status.CANCELLED:
            return
        self.failed.add(trial.variant)
        if trial.variant == self.trials[0].variant:
            raise _baseless(result)

    def _replaced(self, trial: Trial, result: Result) -> list[Trial]:
        """Return what is tried where outputs are wrong or the quantiser failed, added to the trials."""
        quantiser = result.reason is not None and result.reason.code == "E-INT8-3"
        other = self.instead(trial) if quantiser or result.status is Status.WRONG_OUTPUT else None
        added = [other] if other is not None and other not in self.trials else []
        self.trials = [*self.trials, *added]
        return added

    # -- pairs ----------------------------------------------------------------------------------------------

    def _step(self, trial: Trial, number: int, purpose: str, place: tuple[int, int, int]) -> Step:
        """Return the step of one candidate in turns with the baseline; `place`: round, position, total."""
        return Step(
            stage=purpose,
            trial=replace(trial, replicate=number),
            beside=replace(self.trials[0], replicate=number),
            purpose=purpose,
            what=f"{trial.label} in turns with {self.trials[0].label}",
            round=place[0],
            position=place[1],
            total=place[2],
            limit_s=self._grace_s,
            eta_s=self._eta(),
        )

    def _pair(self, step: Step, ahead: Sequence[Trial]) -> Strategy:
        """Run one pair and take note of it; nothing once the grace is gone."""
        if step.limit_s <= 0 and not self.budget.known(step):
            return
        begun, trial = self.budget.clock(), step.trial
        results = yield replace(step, ahead=ahead)
        took = max(self.budget.clock() - begun, STARTS_S + _window_s(results[1]))
        self.took[trial.variant].append(took)
        self.finals += [r for r in results if r.status is not Status.CANCELLED]
        if _stopped(*results):
            return
        self.pairs[trial.variant].append((results[0], results[1]))
        self._noted(self.trials[0], results[0])
        self._noted(trial, results[1])
        if not self.screened and trial.replicate == 0:
            self.added += self._replaced(trial, results[1])

    def _select(self, rivals: list[Trial]) -> Generator[Step, tuple[Result, ...], Trial | None]:
        """Run rounds of pairs until one candidate is left, or its share of the budget is spent; return the best."""
        rounds = 0
        while (len(rivals) > 1 or (rounds == 0 and self.budget.exhaustive)) and rounds < ROUNDS:
            order = sorted(rivals, key=lambda t: t.id)
            random.Random(f"{self.budget.seed} selecting {rounds}").shuffle(order)
            if rounds == 0 and self.screened:  # the most promising first, in case there is no time for all
                order = rivals
            ran = 0
            for position, trial in enumerate(order, start=1):
                place = rounds + 1, position, len(order)
                step = self._step(trial, rounds, alternation.SELECTING, place)
                late = self.spent > SELECTED_BY and (rounds or position > 1)
                if late and not self.budget.known(step):
                    break
                rest = [replace(t, replicate=rounds) for t in order[position:]]
                rest += [replace(order[0], replicate=rounds + 1 + n) for n in range(ENOUGH)]
                yield from self._pair(step, rest)
                ran += 1
            if not ran:
                break
            if rounds == 0 and not self.screened:
                self.added += self._by_hand(self._ahead_of(self._standing(rivals))[:1])
            rivals = self._ahead_of(self._standing([*rivals, *self.added]))
            self.added, rounds = [], rounds + 1
        standing = self._standing(rivals)
        pick = standing[0] if standing else None
        if pick is not None and (others := self._settings_unpaired(pick)):
            fresh = [t for t in (pick, *others) if not self.pairs.get(t.variant)]
            for position, trial in enumerate(fresh, start=1):
                step = self._step(trial, rounds, alternation.SELECTING, (rounds + 1, position, len(fresh)))
                if self.left_s < (LEAST + 1) * self._pair_s + ANSWERS_S and not self.budget.known(step):
                    break  # the confirming pairs need the rest
                yield from self._pair(step, fresh[position:])
            standing, rounds = self._ahead_of(self._standing([pick, *others])), rounds + 1
            pick = standing[0] if standing else None
        self.rounds = rounds
        return pick

    @property
    def _pair_s(self) -> float:
        """Return the seconds that the longest of each variant's last pairs took."""
        return max((s for taken in self.took.values() for s in taken[-LAST:]), default=0.0)

    def _settings_unpaired(self, pick: Trial) -> list[Trial]:
        """Return the pick of a small network with the settings by hand that took no turns.

        Some tenths of a second of so small a network say little: the machine may have been slowed meanwhile.
        """
        if not self.screened or _latency_s(self.screened[0]) > SMALL_S:
            return []
        return [t for t in self._standing(self.by_hand(pick)) if not self.pairs.get(t.variant)]

    def _ahead_of(self, rivals: Sequence[Trial]) -> list[Trial]:
        """Return the rivals that are not clearly behind the best that keeps the constraints, best first."""
        speed = {t.id: self._speed(t) for t in rivals}
        broken = {r.trial.variant for r in self._rows() if r.rejected}
        ranked = sorted(rivals, key=lambda t: (t.variant in broken, -speed[t.id][0]))
        if not ranked:
            return []
        best = speed[ranked[0].id][0]

        def near(trial: Trial) -> bool:
            mean, rounds = speed[trial.id]
            return not rounds or best - mean < math.log1p(BEHIND[min(max(rounds, 1), len(BEHIND)) - 1])

        able = [t for t in ranked if t.variant not in broken]
        return [t for t in able or ranked if t is ranked[0] or near(t)]

    def _rows(self) -> Sequence[Row]:
        """Return the table of what ran so far; several questions are asked of it between two pairs."""
        found = [*self.screened, *self.finals]
        if (of := [id(result) for result in found]) != self._table[0]:
            self._table = (of, variants.table(found, wanted=self.wanted).rows)
        return self._table[1]

    def _speed(self, trial: Trial) -> tuple[float, int]:
        """Return the mean log of how much better a candidate was than the baseline, and the number of its pairs.

        The pairs that chose it do not count once others have confirmed it.
        """
        found = alternation.decisive([(mine, theirs) for theirs, mine in self.pairs[trial.variant]])
        return alternation.better(found, self.wanted.goal)

    def _confirm(self, pick: Trial) -> Generator[Step, tuple[Result, ...], Trial | None]:
        """Run the pick in further pairs until its speed-up is decided or the budget is spent.

        Return a rival that turns out to be clearly ahead meanwhile, or what is tried in the pick's stead if it fails.
        """
        for number in range(MOST if self.budget.seconds else ENOUGH):
            step = self._step(pick, self.rounds + number, alternation.CONFIRMING, (0, number + 1, 0))
            if not self.budget.known(step):
                each = LONGER * max(self.took[pick.variant][-LAST:], default=0.0)
                if (self.left_s if number >= LEAST else self._grace_s) <= each + ANSWERS_S:
                    return None
                if number >= ENOUGH and self._decided(pick):
                    return None
                if rival := self._ahead_since(pick):
                    return rival
            ahead = [replace(pick, replicate=self.rounds + n) for n in range(number + 1, ENOUGH)]
            yield from self._pair(step, ahead)
            if pick.variant in self.failed:
                return self.added.pop() if self.added else None
        return None

    def _ahead_since(self, pick: Trial) -> Trial | None:
        """Return the best rival if its pairs are clearly ahead of the confirming ones: one pair may be a fluke.

        None while the pick has fewer than LEAST of those, and where there is no time to confirm the rival.
        """
        confirmed = {v: sum(alternation.confirms(mine) for _, mine in p) for v, p in self.pairs.items()}
        number = confirmed.get(pick.variant, 0)
        if number < LEAST or self.left_s < (LEAST + 1) * self._pair_s + ANSWERS_S:
            return None
        rivals = [t for t in self._standing(self.trials) if confirmed.get(t.variant) == 0]
        best, *_ = self._ahead_of([pick, *rivals])
        ahead = self._speed(best)[0] - self._speed(pick)[0]
        return best if best is not pick and ahead >= math.log1p(BEHIND[0]) else None

    def _decided(self, pick: Trial) -> bool:
        """Return whether the pick's interval is narrow enough, by pairs that are spread over SPREAD_S."""
        row = next((r for r in self._rows() if r.trial.variant == pick.variant), None)
        found = row["speedup"] if row is not None else None
        if row is None or not isinstance(found, Measured) or not found.lo or not found.hi:
            return False
        narrow = math.log(found.hi / found.lo) / 2 <= math.log1p(DECIDED)
        begun = [datetime.fromisoformat(mine.started_at) for mine, _ in row.turns]
        return narrow and bool(begun) and (max(begun) - min(begun)).total_seconds() >= SPREAD_S

    def _survivors(self, alive: list[Trial]) -> list[Trial]:
        """Return the candidates that go on after the short runs, best first."""
        rows = {r.trial.variant: r for r in variants.table(self.screened).rows}
        found = [(rows[t.variant], t) for t in alive if t.variant in rows]
        cells = survivors([row for row, _ in found], self.wanted, KEEP)
        return [t for cell in cells for row, t in found if row.cell == cell]


def _latency_s(result: Result) -> float:
    """Return the median latency of a run; infinity where it has none."""
    timed = result.metrics.get("latency_p50_s")
    return timed.value if result.status in MEASURED and isinstance(timed, Measured) else math.inf


def _stopped(baseline: Result, candidate: Result) -> bool:
    """Return whether a pair was stopped at its limit: a side was cancelled though neither failed."""
    ends = {baseline.status, candidate.status}
    return Status.CANCELLED in ends and ends <= {*MEASURED, Status.CANCELLED}


def _window_s(result: Result) -> float:
    return (result.window.stop_ns - result.window.start_ns) * 1e-9 if result.window else 0.0


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
    ranked = sorted(able or ranked, key=lambda r: _ends(r, wanted)[1])
    if not ranked:
        return []
    if not able:
        ranked.sort(key=lambda r: wanted.binding(r.metrics)[0])
    count = math.ceil(len(ranked) * keep)
    best = next((r for r in ranked if not wanted.broken(r.metrics)), ranked[0] if able else None)
    reach = _ends(best, wanted)[2] if best is not None else -math.inf
    near = [r for r in ranked[count:] if _ends(r, wanted)[0] <= reach * (1 + _margin(r))]
    return [r.cell for r in (*ranked[:count], *near)]


def _margin(row: Row) -> float:
    """Return by what share another process of this variant may differ, given the number of its short runs."""
    runs = max(1, min(len(row.replicates), len(MARGINS)))
    patience = DISTURBED if row.verdict.trust in (Trust.DISTURBED, Trust.THROTTLED) else 1.0
    return MARGINS[runs - 1] * patience


def margin(runs: Sequence[Result]) -> float:
    """Return the factor by which the ratio of single short runs may be off, either way."""
    disturbed = any(r.verdict.trust in (Trust.DISTURBED, Trust.THROTTLED) for r in runs)
    return 1 + MARGINS[0] * (DISTURBED if disturbed else 1.0)


def _ends(row: Row, wanted: Wanted) -> tuple[float, float, float]:
    """Return (lo, value, hi) of the objective as a cost: lower is better."""
    found = row.measured(wanted.goal.name)
    ends = (found.lo or found.value, found.value, found.hi or found.value)
    if not wanted.goal.higher:
        return ends
    return tuple(1 / e if e > 0 else math.inf for e in reversed(ends))  # type: ignore[return-value]
