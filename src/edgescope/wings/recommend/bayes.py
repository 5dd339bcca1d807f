"""Choose the next cell of a grid to measure, within a budget: the search behind `edgescope recommend`.

The search first sees every category (a model, a precision, an engine) once, in a cell that differs from the
best one so far in nothing else, and it varies every ordered axis (batch, processes) before the budget ends.
Otherwise it takes the cell with the largest expected gain: by how much the cell may beat the best one seen,
times how likely it is to keep the constraints and to run at all (expected constrained improvement; Jones et
al. 1998, Gardner et al. 2014). The guesses come from search/gp.py; latency, energy and the rest are
computed from guesses of throughput, tail, power and memory, which have priors.

A failed cell is evidence, too: out of memory rules out all cells that need at least as much of everything,
wrong outputs rule out the variant in every cell, and an engine that cannot run one cell probably cannot run
its neighbours.

A suggestion is never a pick: only a measured cell is, and the verb first confirms it in fresh processes.

The priors are expected slopes of a grid from physics, before any cell is measured, each with its uncertainty. They are
rough, general knowledge and are fitted to no grid: a larger batch and more workers fill a device up to its limit, fewer
bits are faster if the hardware has them, the time of a network grows with its multiply-accumulates, memory with
P x (model + 2 x batch) (the rule of arXiv 2508.08430). The standard deviations are as large as the slopes themselves:
two or three measured cells outweigh any of it.

Latency is not guessed on its own. In a closed loop of N queries in flight, N = throughput in queries x mean latency
(Little's law), so only the ratio of a percentile to that mean is left to guess, and it hardly varies over a grid.
Energy is power over throughput, in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from edgescope import metrics, registry
from edgescope.analysis.cells.objective import Constraint, Wanted, judged_end
from edgescope.metrics import METRICS
from edgescope.records import Field, Measured, Status, Trial
from edgescope.search.gp import Axis, Floats, Slope, Spread, Surrogate, axes, product

#: Precision -> log of the expected speed-up over fp32, before any hardware is known.
SPEED = {"fp32": 0.0, "tf32": 0.2, "fp16": 0.4, "bf16": 0.3, "int8": 0.6}
BYTES = {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "int8": 1.0}


def throughput(trials: Sequence[Trial], macs: Mapping[str, float], cores: int) -> list[Slope]:
    """Return the expected slopes of log samples/s; `macs` is per sample of a model, if known."""
    known = all(t.model in macs for t in trials)
    here = [t.place.is_host for t in trials]
    apart = _feature(trials, lambda t: float(t.sharing.startswith("mps") and t.processes > 1))
    out = [
        Slope(_feature(trials, lambda t: np.log2(t.batch)), 0.05 if all(here) else 0.12, 0.12),
        Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.05 if all(here) else 0.12, 0.18),
        Slope(_feature(trials, lambda t: SPEED[t.precision]), 1.0, 0.8),
        Slope(apart, 0.3, 0.3),
        Slope(_feature(trials, lambda t: np.log(macs[t.model]) if known else 0.0), -0.7, 0.4),
    ]
    if any(here):  # work spreads over cores until all are in use; beyond that, workers hinder each other
        used = [np.log2(threads_in_use(t, cores) / cores) for t in trials]
        out.append(Slope(_less_mean(np.minimum(0.0, used) * here), 0.65, 0.3))
        out.append(Slope(_less_mean(np.maximum(0.0, used) * here), -0.08, 0.12))
    return out


def tail(trials: Sequence[Trial]) -> list[Slope]:
    """Return the expected slopes of log (a latency percentile / the mean from Little's law)."""
    return [Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.05, 0.08)]


def power(trials: Sequence[Trial]) -> list[Slope]:
    """Return the expected slopes of log watts."""
    return [
        Slope(_feature(trials, lambda t: np.log2(t.batch)), 0.03, 0.06),
        Slope(_feature(trials, lambda t: np.log2(_workers(t))), 0.04, 0.08),
    ]


def memory(trials: Sequence[Trial]) -> list[Slope]:
    """Return the expected slopes of log bytes."""
    return [
        Slope(_feature(trials, lambda t: np.log2(t.processes)), 0.5, 0.25),
        Slope(_feature(trials, lambda t: np.log2(t.batch)), 0.12, 0.12),
        Slope(_feature(trials, lambda t: np.log(BYTES[t.precision])), 0.2, 0.3),
    ]


def in_flight(trial: Trial) -> float:
    """Return the samples that are under way at once in a closed loop: Little's N in samples."""
    return float(trial.processes * trial.in_flight * trial.batch)


def _workers(trial: Trial) -> float:
    return float(trial.processes * trial.in_flight)


def threads_in_use(trial: Trial, cores: int) -> float:
    """Return the engine's threads in all workers together; an engine without a thread option takes every core."""
    found = trial.options.get("threads", cores)
    each = float(found) if isinstance(found, int | float) and found >= 1 else float(cores)
    return each * _workers(trial)


def _feature(trials: Sequence[Trial], read: Callable[[Trial], float]) -> Floats:
    """Return one number per cell, minus their mean."""
    return _less_mean(np.array([float(read(t)) for t in trials]))


def _less_mean(found: Floats) -> Floats:
    return np.asarray(found - found.mean())


# -- the search ----------------------------------------------------------------------------------------------


Figures = Mapping[str, Field]
#: Draws per cell from which the expected gain is computed.
DRAWS = 256
#: Probability that an artifact keeps a constraint on one of its properties before that property was measured.
UNSEEN_KEEPS = 0.8
#: Fields that name an artifact, with its options: all its cells have the same outputs and accuracy.
ARTIFACT = ("model", "backend", "device", "precision")
LATENCIES = frozenset(metrics.quantiles())


@dataclass(frozen=True)
class _Known:
    """The surrogate of one guessed quantity and its values in the measured cells."""

    guess: Surrogate
    seen: dict[int, float] = field(default_factory=dict)


class Search:
    """One search: it suggests a cell; the caller measures it and passes what came of it to `tell` or `fail`."""

    def __init__(
        self,
        trials: Sequence[Trial],
        wanted: Wanted,
        *,
        seed: int = 0,
        cores: int = 1,
        macs: Mapping[str, float] | None = None,
    ) -> None:
        """`trials`: one per cell; `cores`: of the machine; `macs`: model -> MACs per sample, if known."""
        self.trials, self.wanted = tuple(trials), wanted
        self.grid = axes(self.trials)
        self.rng = np.random.default_rng(seed)
        self.rows: dict[int, Figures | None] = {}
        """Cell -> its figures; None if the cell failed."""
        self.likely = np.ones(len(self.trials))
        """The probability of each cell to run with the right outputs."""
        self.artifacts = [artifact(t) for t in self.trials]
        slopes = {
            "throughput_sps": throughput(self.trials, macs or {}, cores),
            "power_w": power(self.trials),
            "peak_rss_bytes": memory(self.trials),
            "gpu_memory_bytes": memory(self.trials),
        }
        self.closed = all(registry.scenario(t.scenario).keeps_in_flight for t in self.trials)
        self.flight = np.log([in_flight(t) for t in self.trials])
        scales = {"throughput_sps": 1.0, "power_w": 0.3, "gpu_memory_bytes": 0.7, "peak_rss_bytes": 0.7}
        self.known: dict[str, _Known] = {}
        near = (*self.grid, *self._products(cores))
        for name in sorted(self._guessed()):
            found = slopes.get(name, tail(self.trials))
            scale = scales.get(name, 0.4 if self.closed else 1.0)
            self.known[name] = _Known(Surrogate(near, found, len(self.trials), Spread((scale, 0.0))))

    def _products(self, cores: int) -> list[Axis]:
        """Return the products of axes that measure how full the device is, if the cells differ in them."""
        taken = product("threads in use", [threads_in_use(t, cores) for t in self.trials])
        found = [product("samples under way", [in_flight(t) for t in self.trials])]
        found += [taken] if any(a.name == "options.threads" for a in self.grid) else []
        return [a for a in found if len(a.levels) > 1]

    def _guessed(self) -> set[str]:
        """Return the columns that the search must guess for this objective and these constraints."""
        requested = {self.wanted.goal.name}
        requested |= {c.metric.name for c in self.wanted.constraints if not c.metric.artifact}
        out = {"throughput_sps"}
        for column in requested:
            out.add("power_w" if column == "energy_per_sample_j" else column)
        return out

    # -- what was measured ----------------------------------------------------------------------------------

    def tell(self, cell: int, row: Figures) -> None:
        """Learn the figures of a measured cell."""
        self.rows[cell] = row
        for column, known in self.known.items():
            value = self._primitive(cell, row, column)
            if value is not None:
                known.seen[cell] = value

    def _primitive(self, cell: int, row: Figures, column: str) -> float | None:
        """Return the log of the guessed quantity of a column: for a latency, its ratio to Little's mean."""
        goal = self.wanted.goal.name
        speed = _log(row.get("throughput_sps"), None)
        if column in LATENCIES and self.closed:
            lead = _log(row.get(column), None if column == goal else True)
            return None if lead is None or speed is None else lead - (self.flight[cell] - speed)
        if column == "power_w":
            watts = _log(row.get("power_w"), None if goal == column else True)
            energy = _log(row.get("energy_per_sample_j"), None)
            whole = None if energy is None or speed is None else energy + speed
            return whole if watts is None or goal == "energy_per_sample_j" else watts
        return _log(row.get(column), None if column == goal else not METRICS[column].higher)

    def fail(self, cell: int, status: Status, *, alone: bool = False) -> None:
        """Learn that a cell failed or gave wrong outputs; `alone`: that says nothing about other cells."""
        self.rows[cell] = None
        for other in range(len(self.trials)):
            self.likely[other] *= float(cell != other) if alone else self._survives(cell, other, status)

    def _survives(self, failed: int, other: int, status: Status) -> float:
        """Return the factor by which a failure lowers the probability of another cell to run."""
        if failed == other:
            return 0.0
        if status is Status.WRONG_OUTPUT:
            return float(self.artifacts[failed] != self.artifacts[other])
        level = [float(a.at[other] - a.at[failed]) for a in self.grid]
        same_categories = all(a.at[other] == a.at[failed] for a in self.grid if not a.ordinal)
        if status is Status.OOM and same_categories:
            return float(not all(d >= 0 for d in level))
        apart = sum(d != 0 for d in level)
        return float(1.0 - 0.9 * 0.5**apart)

    # -- what to measure next -------------------------------------------------------------------------------

    def suggest(self, budget: int | None = None, spent: int | None = None) -> int | None:
        """Return the cell to measure next, or None if no cell is left.

        `budget`: cells in all; `spent`: how many of them are measured (None: the number of cells learned).
        """
        left = [i for i in range(len(self.trials)) if i not in self.rows and self.likely[i] > 0]
        if not left:
            return None
        if not self.known["throughput_sps"].seen:
            return self._promising(left)
        spent = len(self.rows) if spent is None else spent
        new = None
        if budget is None or spent < budget // 2:
            new = self._unseen_category(left)
        if new is None and budget is not None:
            new = self._unvaried(left, budget - spent)
        if new is not None:
            return new
        gain = self.gains()
        best = max(left, key=lambda i: gain[i])
        return best if gain[best] > 0 else self._promising(left)

    def _unvaried(self, left: Sequence[int], remaining: int) -> int | None:
        """Return a cell on an axis that was never varied, once unseen levels need the whole rest; else None."""
        about = [(axis, self._levels(axis), not self._varied(axis)) for axis in self.grid]
        new = np.array([[a.at[i] not in seen for i in left] for a, seen, _ in about])
        fixed = np.array([one for *_, one in about])
        unseen = [
            1 if one and a.ordinal else len({a.at[i] for i in left} - seen) * (not a.ordinal)
            for a, seen, one in about
        ]
        varies = new[fixed].any(axis=0) if fixed.any() else np.zeros(len(left), dtype=bool)
        if not varies.any() or sum(unseen) < remaining:
            return None
        shown = new[np.array(unseen) > 0].sum(axis=0) * varies
        enough = shown.max() if sum(unseen) > remaining else 1  # one cell has to show several levels
        return self._beside_best(np.array(left)[shown >= enough].tolist())

    def _levels(self, axis: Axis) -> set[float]:
        """Return the levels of an axis that have a measured cell."""
        return {float(axis.at[i]) for i, row in self.rows.items() if row is not None}

    def _varied(self, axis: Axis) -> bool:
        """Return whether an axis was measured at two levels, or two cells at its other levels failed."""
        seen = self._levels(axis)
        failed = [i for i, row in self.rows.items() if row is None and axis.at[i] not in seen]
        return len(seen) > 1 or len(failed) > 1

    def _promising(self, left: Sequence[int]) -> int:
        """Return the most promising cell by the guesses so far; among about equal cells, a random one."""
        expected = self._expected()
        return max(left, key=lambda i: float(expected[i] + 0.1 * self.rng.random()))

    def _unseen_category(self, left: Sequence[int]) -> int | None:
        """Return the cell nearest to the best one with an unseen category (model, precision); else None.

        A category has no neighbours to learn it from. Next to the best cell, nothing else differs.
        """
        seen = list(self.rows)
        categories = [a for a in self.grid if not a.ordinal]
        wanted = [i for i in left if any(all(a.at[i] != a.at[s] for s in seen) for a in categories)]
        return self._beside_best(wanted) if wanted else None

    def _beside_best(self, wanted: Sequence[int]) -> int:
        """Return the cell of `wanted` nearest to the best cell seen; among equals, the most promising."""
        seen, expected, best = list(self.rows), self._expected(), self.pick()
        if best is None:  # nothing seen keeps the constraints
            best = max(
                [i for i in seen if self.rows[i] is not None] or seen, key=lambda i: float(expected[i])
            )

        def near(i: int) -> tuple[int, float]:
            changed = sum(a.at[i] != a.at[best] for a in self.grid)
            return -changed, float(expected[i] + 0.1 * self.rng.random())

        return max(wanted, key=near)

    def _expected(self) -> Floats:
        """Return how promising each cell is by the guesses so far (higher is better)."""
        return -np.asarray(self._cost({name: k.guess.mean(k.seen) for name, k in self.known.items()}))

    def _cost(self, guesses: Mapping[str, Floats], column: str = "") -> Floats:
        """Return the log of a column; without `column`, of the objective, negated if higher is better."""
        name = column or self.wanted.goal.name
        speed = guesses["throughput_sps"]
        if name in LATENCIES and self.closed:
            found = self.flight - speed + guesses[name]
        elif name == "energy_per_sample_j":
            found = guesses["power_w"] - speed
        else:
            found = guesses[name]
        return np.asarray(-found if not column and self.wanted.goal.higher else found)

    def gains(self) -> Floats:
        """Return the expected constrained improvement of every cell, in log units of the objective."""
        draws = {n: k.guess.sample(k.seen, self.rng, DRAWS) for n, k in self.known.items()}
        cost, keeps = self._cost(draws), self._keeps(draws)
        best = self.pick()
        if best is None:  # no cell keeps the constraints yet: take the likeliest to, then the best
            return np.asarray((keeps.mean(axis=0) + 1e-3 * _rank(-cost.mean(axis=0))) * self.likely)
        reached = self._cost({n: k.guess.mean(k.seen) for n, k in self.known.items()})[best]
        return np.asarray((np.maximum(0.0, reached - cost) * keeps).mean(axis=0) * self.likely)

    def _keeps(self, draws: Mapping[str, Floats]) -> Floats:
        """Return the probability of each draw of each cell to keep every constraint, shape (draws, cells)."""
        shape = draws["throughput_sps"].shape
        keeps = np.ones(shape)
        for constraint in self.wanted.constraints:
            known = constraint.metric
            if known.artifact:
                keeps *= self._steady(constraint)[None, :]
                continue
            found, limit = self._cost(draws, known.name), math.log(max(constraint.limit, 1e-300))
            keeps *= found <= limit if constraint.at_most else found >= limit
        return keeps

    def _steady(self, constraint: Constraint) -> Floats:
        """Return the probability of each cell to keep a constraint on a property of its artifact."""
        found = np.full(len(self.trials), UNSEEN_KEEPS)
        for cell, row in self.rows.items():
            if row is not None:
                same = [a == self.artifacts[cell] for a in self.artifacts]
                found[np.array(same)] = float(constraint.excess(row) <= 1)
        return found

    def pick(self) -> int | None:
        """Return the measured cell that keeps the constraints and has the best guess; None if none keeps them."""
        able = [i for i, row in self.rows.items() if row is not None and self._able(row)]
        if not able:
            return None
        cost = -self._expected()
        return min(able, key=lambda i: cost[i])

    def _able(self, row: Figures) -> bool:
        return isinstance(row.get(self.wanted.goal.name), Measured) and not self.wanted.broken(row)


def artifact(trial: Trial) -> tuple[str, ...]:
    """Return the values that identify the artifact of a trial."""
    running = registry.about(trial.backend).RUNNING
    options = sorted(f"{k}={v}" for k, v in trial.options.items() if k not in running)
    return (*(str(getattr(trial, name)) for name in ARTIFACT), *options)


def _log(found: object, at_most: bool | None) -> float | None:
    """Return the log of a field's value, or of its worse end for a bound; None if it was not measured."""
    if not isinstance(found, Measured):
        return None
    value = found.value if at_most is None else judged_end(found, at_most)
    return math.log(value) if value > 0 else None


def _rank(values: Floats) -> Floats:
    return np.asarray(values.argsort().argsort() / max(1, len(values) - 1))
