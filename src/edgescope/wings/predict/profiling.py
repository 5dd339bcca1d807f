"""Choose which modes to profile, and confirm the pick by measuring it.

The first modes fill the space of the knobs: each is the one farthest from those before it. Then the mode comes
next whose prediction is the least sure, among those that matter: with constraints, a mode that would surely
break one, or that is surely worse than one already profiled, counts little. The last modes are the picks
themselves: the best mode that probably keeps every constraint is measured, learned, and the next one is
chosen, so that the answer rests on measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edgescope import registry
from edgescope.analysis.cells.objective import Constraint, Wanted
from edgescope.analysis.cells.replicates import MEASURED, value_of
from edgescope.records import Absent, Measured, Result, Status, Trial
from edgescope.search.loop import Step, Strategy
from edgescope.wings.predict.modes import Floats, ModeGrid, Profile
from edgescope.wings.predict.prediction import Prediction, predict
from edgescope.wings.predict.roofline_modes import Parts
from edgescope.wings.predict.surfaces import Guess
from edgescope.wings.training.lends import epochs

#: Modes that only fill the space.
START = 5
#: Share of the modes that is kept for the picks, where there is a question.
PICKS = 0.25
#: How many runs the search for a better pick may take beyond the profiled modes.
PICKED_AT_MOST = 15
#: Log units: an expected improvement below this is not worth a run.
WORTH = 0.001
#: A mode that keeps the constraints with a smaller probability is not tried.
HOPELESS = 0.02
#: Statuses that describe the machine's state and say nothing about the mode.
UNRELATED = frozenset({Status.CANCELLED, Status.SKIPPED})
#: Least weight of a mode that hardly matters.
LEAST_WEIGHT = 0.05


@dataclass(frozen=True)
class Confirmed:
    """The pick as it was measured."""

    mode: int
    figures: Mapping[str, Measured]
    """The means of its runs."""


@dataclass(frozen=True)
class Profiling:
    """The profile so far, and the mode to measure next."""

    grid: ModeGrid
    wanted: Wanted
    scope: str = ""
    epoch_samples: int | None = None
    like: tuple[Floats, Floats | None] | None = None
    seed: int = 0
    seconds: dict[int, list[float]] = field(default_factory=dict)
    watts: dict[int, list[float]] = field(default_factory=dict)
    parts: dict[int, Parts] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    tried: dict[int, int] = field(default_factory=dict)
    """Mode -> the number of its next run in a fresh process."""

    def tell(self, mode: int, seconds: float, watts: float | None) -> None:
        """Learn one run of a mode: seconds of one sample, and watts if there is a meter."""
        self.seconds.setdefault(mode, []).append(seconds)
        if watts is not None:
            self.watts.setdefault(mode, []).append(watts)

    def prediction(self, *, check: bool = True) -> Prediction:
        """Return the prediction from what was learned; `check` as in `predict`."""
        profile = Profile(self.seconds, self.watts, self.scope, self.parts)
        samples = self.epoch_samples
        return predict(self.grid, profile, self.wanted, like=self.like, epoch_samples=samples, check=check)

    def learn(self, mode: int, result: Result) -> None:
        """Learn the Result of a mode; one without a throughput counts as failed."""
        self.tried[mode] = max(self.tried.get(mode, 0), result.trial.replicate + 1)
        speed, watts = (value_of(result, name) for name in ("throughput_sps", "power_w"))
        if result.status in MEASURED and speed:
            self.tell(mode, 1 / speed, watts or None)
            if (parts := parts_of(result)) is not None:
                self.parts[mode] = parts
            self.failed.discard(mode)
        elif mode not in self.seconds and result.status not in UNRELATED:
            self.failed.add(mode)

    def confirmed(self, runs: int) -> Confirmed | Absent:
        """Return the best mode that was measured in `runs` processes and keeps the constraints, or why there
        is none.
        """
        best = self.best(runs)
        if best is None:
            return Absent(f"no mode kept every constraint in {runs} runs; the same command goes on from here")
        return Confirmed(best, self.measured(best))

    def suggest(self, left: int) -> int | None:
        """Return the mode to profile next, with `left` modes still to be profiled; None if none is left."""
        free = [i for i in range(len(self.grid)) if i not in self.seconds and i not in self.failed]
        if not free:
            return None
        away = self._distances()
        if len(self.seconds) < START:
            rng = np.random.default_rng(self.seed)
            order = away + 1e-3 * rng.random(len(self.grid))
            return max(free, key=lambda i: float(order[i]))
        found = self.prediction(check=False)
        total = len(self.seconds) + left
        picking = self.wanted.constraints and left <= round(PICKS * total)
        if picking and (mode := self.candidate(found)) is not None:
            return mode
        score = unsure(found) * np.sqrt(away) * relevance(found)
        return max(free, key=lambda i: float(score[i]))

    def candidate(self, found: Prediction, confirm: int = 1, left: int = PICKED_AT_MOST) -> int | None:
        """Return the mode to measure for the answer, or None if the answer is there.

        That is the unmeasured mode with the largest expected improvement over the best measured one (Schonlau et
        al. 1998), if that is worth a run, else the best measured one until it has `confirm` runs. While no measured
        mode keeps the constraints it is the one that most probably does. The last of the `left` runs are kept for the
        best one's own.
        """
        goal = found.guesses.get(self.wanted.goal.name, Absent(""))
        if isinstance(goal, Absent):
            return None
        free = np.array([i not in self.seconds and i not in self.failed for i in range(len(self.grid))])
        likely = keeps(found, self.wanted.constraints) * free
        best = self.best()
        if best is None:
            return int(np.argmax(likely)) if likely.max() >= HOPELESS else None
        ahead = goal.mean - math.log(self.measured(best)[self.wanted.goal.name].value)
        gain = likely * expected_gain(ahead if self.wanted.goal.higher else -ahead, goal.sd)
        missing = confirm - len(self.seconds[best])
        if gain.max() > WORTH and left > missing:
            return int(np.argmax(gain))
        return best if missing > 0 else None

    def best(self, runs: int = 1) -> int | None:
        """Return the best mode of those measured in `runs` processes that keep the constraints by their means."""
        goal = self.wanted.goal
        able = {
            m: self.measured(m)
            for m, found in self.seconds.items()
            if len(found) >= runs and not self.broken(m)
        }
        figures = {m: f[goal.name].value for m, f in able.items() if goal.name in f}
        costs = {m: -value if goal.higher else value for m, value in figures.items()}
        return min(costs, key=lambda m: (costs[m], -len(self.seconds[m]), m), default=None)

    def broken(self, mode: int) -> tuple[str, ...]:
        """Return the constraints that a measured mode breaks, by the means of its runs."""
        return self.wanted.broken(self.measured(mode))

    def measured(self, mode: int) -> dict[str, Measured]:
        """Return the figures of a measured mode: the means of its runs."""
        seconds = float(np.mean(self.seconds[mode]))
        runs = len(self.seconds[mode])
        out = {"throughput_sps": Measured(1 / seconds, "samples/s", n=runs)}
        if self.epoch_samples:
            out["epoch_s"] = Measured(seconds * self.epoch_samples, "s", n=runs)
        if mode in self.watts:
            watts = float(np.mean(self.watts[mode]))
            out |= {
                "power_w": Measured(watts, "W", n=runs),
                "energy_per_sample_j": Measured(watts * seconds, "J", n=runs),
            }
            if self.epoch_samples:
                out["epoch_j"] = Measured(watts * seconds * self.epoch_samples, "J", n=runs)
        return out

    def _distances(self) -> Floats:
        """Return each mode's distance from the nearest profiled or failed one; from the middle, where there is
        none.
        """
        points = self.grid.unit()
        known = sorted({*self.seconds, *self.failed})
        if not known:
            most = points.max(axis=0, initial=0.0)  # the mode with the most of everything comes first
            return np.asarray(-np.linalg.norm(points - most, axis=1))
        return np.asarray(np.linalg.norm(points[:, None] - points[known][None], axis=2).min(axis=1))


def parts_of(result: Result) -> Parts | None:
    """Return what a sample of a training step took by its parts; None if they were not measured."""
    batch = result.trial.batch
    loading = [value_of(result, f"{name}_s") for name in epochs.STAGES]
    device = [value_of(result, f"{name}_s") for name in (*epochs.PARTS[1:], "other")]
    load, step = sum(x for x in loading if x), sum(x for x in device if x)
    trains = registry.made_of(result.trial.workload) == "parts"
    if not trains or result.trial.processes > 1 or not (load and step):
        return None
    return Parts(load / batch, step / batch)


def unsure(found: Prediction) -> Floats:
    """Return how unsure each mode's prediction is: its standard deviations of time and power together."""
    power = 0.0 if isinstance(found.power, Absent) else found.power.guess.sd**2
    return np.asarray(np.sqrt(found.time.guess.sd**2 + power))


def relevance(found: Prediction) -> Floats:
    """Return how much each mode matters to the question, from LEAST_WEIGHT to 1; 1 for all if no constraint is
    given.
    """
    if not found.wanted.constraints:
        return np.ones(len(found.grid))
    doubtful = 1 - np.abs(2 * keeps(found, found.wanted.constraints) - 1)
    return np.asarray(np.sqrt(np.maximum(LEAST_WEIGHT, doubtful)))


def expected_gain(lead: Floats, sd: Floats) -> Floats:
    """Return the mean of max(0, x), x normal with these means and standard deviations."""
    z = lead / np.maximum(sd, 1e-9)
    below = np.array([0.5 * math.erfc(-x / math.sqrt(2)) for x in z])
    return np.asarray(lead * below + sd * np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi))


def keeps(found: Prediction, constraints: Sequence[Constraint]) -> Floats:
    """Return the probability of each mode to keep every constraint, as if their figures were independent."""
    out = np.ones(len(found.grid))
    for constraint in constraints:
        guess = found.guesses.get(constraint.metric.name)
        if not isinstance(guess, Guess) or constraint.limit <= 0:
            return np.zeros(len(found.grid))
        over = guess.mean - math.log(constraint.limit)
        sd = np.maximum(guess.sd, 1e-9)
        out *= [0.5 * math.erfc(x) for x in (over if constraint.at_most else -over) / (sd * math.sqrt(2))]
    return out


def profiled(state: Profiling, trials: Sequence[Trial], cells: int, confirm: int) -> Strategy:
    """Profile modes until `cells` of them are known, then measure the pick until it has `confirm` runs.

    A pick that breaks a constraint, or falls behind another mode, is followed by that one.
    """

    def run(mode: int, stage: str, position: int, total: int) -> Strategy:
        """Run one mode in a fresh process and learn its Result."""
        trial = replace(trials[mode], replicate=state.tried.get(mode, 0))
        what = f"{trial.model.partition('#')[0]} {trial.label}"
        anew = stage == "confirm"
        step = Step(stage=stage, trial=trial, what=what, position=position, total=total, anew=anew)
        (result,) = yield step
        state.learn(mode, result)

    while len(state.seconds) < cells and len(state.failed) < cells:
        mode = state.suggest(cells - len(state.seconds))
        if mode is None:
            break
        yield from run(mode, "search", len(state.seconds) + 1, cells)
    for left in range(PICKED_AT_MOST + confirm if state.seconds else 0, 0, -1):
        mode = state.candidate(state.prediction(check=False), confirm, left)
        if mode is None:
            return
        yield from run(mode, "confirm", len(state.seconds.get(mode, ())) + 1, confirm)
