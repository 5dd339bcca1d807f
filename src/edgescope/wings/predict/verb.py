"""Predict time, power and energy of every mode from a few profiled ones: `edgescope.predict("resnet50", run=True)`.

Each model and each load is a separate question. The modes are those of a study, of the keys, of a table that
any tool measured, or every combination of what the store holds. With `run` the predictor measures the modes
that it asks for, and confirms its pick in fresh processes; without, it answers from what is stored.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgescope.analysis.cells import machines
from edgescope.analysis.cells.objective import Wanted, wanted
from edgescope.analysis.cells.replicates import MEASURED
from edgescope.analysis.run import energy
from edgescope.bench import here
from edgescope.errors import UsageError
from edgescope.models import zoo
from edgescope.records import Absent, Answer, Json, Result, Trial
from edgescope.records.answers import figure_text, plain
from edgescope.runner.setup import (
    Setup,
    Stored,
    check_modes,
    mode_features,
    own_results,
    store_of,
    usual_modes,
)
from edgescope.search.loop import Loop
from edgescope.store.results import Store
from edgescope.study import grid as grids
from edgescope.study.grid import Study
from edgescope.wings.predict import modes
from edgescope.wings.predict.modes import Floats, ModeGrid
from edgescope.wings.predict.prediction import ModeRow, Prediction
from edgescope.wings.predict.prediction import predict as predicted
from edgescope.wings.predict.profiling import Confirmed, Profiling, profiled
from edgescope.wings.recommend.verb import Question, Scope

#: Modes that are profiled, and runs in fresh processes that confirm a pick, unless the caller says otherwise.
PROFILED, CONFIRMED = 15, 3
#: Most modes of one grid.
MOST = 20_000
PREDICTED = ("throughput_sps", "latency_mean_s", "power_w", "energy_per_sample_j", "epoch_s", "epoch_j")
BATCHES = (1, 4, 16)


@dataclass(frozen=True, repr=False)
class Predicted:
    """The answer to one question."""

    name: str
    """The model, or the file of the table."""
    prediction: Prediction
    confirmed: Confirmed | Absent
    """The pick as it was measured, or why it was not."""

    @property
    def pick(self) -> ModeRow | None:
        """Return the mode to use: the confirmed one, else the predicted one; None if none keeps the constraints."""
        if isinstance(self.confirmed, Confirmed):
            return self.prediction.rows[self.confirmed.mode]
        return self.prediction.pick


class Predictions(Answer, tuple[Predicted, ...]):
    """One answer for each question."""

    __slots__ = ()

    def lines(self) -> Iterator[str]:
        """Yield each question's pick with its figures, and how well left-out modes were predicted."""
        for answer in self:
            found, pick = answer.prediction, answer.pick
            yield f"{answer.name}: {pick.name if pick else 'no mode keeps the constraints'}"
            yield from (f"  predicted {figure_text(n, pick[n])}" for n in PREDICTED if pick)
            yield from (f"  measured {figure_text(n, f)}" for n, f in _measured(answer.confirmed))
            yield from (
                f"  time by {m}: {100 * e:.2g} % off left-out modes" for m, e in found.time.errors.items()
            )

    def records(self) -> list[dict[str, Json]]:
        """Return one row for each mode."""
        return [
            {"of": answer.name, "mode": row.name, "profiled": row.profiled, "pick": row is answer.pick}
            | {name: plain(row[name]) for name in PREDICTED}
            for answer in self
            for row in answer.prediction.rows
        ]


def _measured(confirmed: Confirmed | Absent) -> list[tuple[str, Any]]:
    return [] if isinstance(confirmed, Absent) else list(confirmed.figures.items())


def predict(
    *models: str,
    objective: str = "",
    constraints: Sequence[str] = (),
    study: Study | Path | str | None = None,
    table: Path | str | None = None,
    run: bool = False,
    profiles: int = PROFILED,
    confirm_runs: int = CONFIRMED,
    epoch_samples: int | None = None,
    prior_model: str = "",
    other_store: Stored = None,
    machine: str = "",
    store: Stored = None,
    setup: Setup = Setup(),
    **keys: Any,
) -> Predictions:
    """Return, for each question, the predicted figures of every mode and the best that keeps every constraint.

    With `run` it profiles up to `profiles` modes on this machine, those in the store included, and measures the
    pick `confirm_runs` times, each in a fresh process. `prior_model` names a model whose stored results, of
    `other_store` if it is given, show how modes differ there.
    """
    if isinstance(study, Path | str):
        study = grids.read(Path(study), zoo.pin)
    written = (study.objective, study.constraints) if study else ("", ())
    goals = checked(wanted(objective or written[0] or "throughput", constraints or written[1]), epoch_samples)
    if table is not None:
        if models or run or study:
            raise UsageError(
                "E-PRED-8",
                "a table of modes stands alone",
                evidence="a model, --study or --run names modes of its own",
                fix=f"edgescope predict --table {table}",
            )
        grid, profile = modes.read_table(Path(table))
        found = predicted(grid, profile, goals, epoch_samples=epoch_samples)
        reason = "the modes of a table cannot be entered here: measure the pick on its device"
        return Predictions([Predicted(Path(table).name, found, Absent(reason))])
    place = store_of(study.store if study and store is None else store)
    scope = Scope(_axes(keys, study, run), study, run, machine, place, tell=setup.tell)
    other = store_of(other_store) if other_store is not None else place
    asked = PredictSettings(goals, profiles, confirm_runs, epoch_samples, int(keys.get("seed", 0)), run)
    return Predictions(
        _answer(question, scope, asked, _other(prior_model, other, scope), setup)
        for question in scope.questions(models)
    )


@dataclass(frozen=True)
class PredictSettings:
    """What is asked of every question alike."""

    wanted: Wanted
    cells: int
    confirm: int
    epoch_samples: int | None
    seed: int
    run: bool


def checked(goals: Wanted, epoch_samples: int | None) -> Wanted:
    """Return the objective and constraints; UsageError for a metric that is not predicted, or cannot be."""
    named = [goals.goal, *(c.metric for c in goals.constraints)]
    unknown = [m for m in named if m.name not in PREDICTED]
    if unknown:
        raise UsageError(
            "E-PRED-6",
            f"{unknown[0].title} is not predicted over modes",
            evidence="predicted: throughput, watts or power, energy, epoch, epoch_energy",
            fix='--objective energy --constraint "power<=20W"',
        )
    if any(m.name.startswith("epoch") for m in named) and not epoch_samples:
        raise UsageError(
            "E-PRED-9",
            "a constraint on an epoch needs the number of its samples",
            fix="--epoch-samples 60000",
        )
    return goals


def _axes(keys: Mapping[str, Any], study: Study | None, run: bool) -> dict[str, Any]:
    """Return the keys with the modes and batches that are profiled if the keys do not name any."""
    if not run or study is not None:
        return dict(keys)
    own = {"mode": usual_modes(), "batch": list(BATCHES), "processes": [1]}
    return own | {k: v for k, v in keys.items() if v is not None and v != []}


def _answer(question: Question, scope: Scope, asked: PredictSettings, like: Other, setup: Setup) -> Predicted:
    """Return the answer to one question."""
    trials = _trials(question, scope, asked.run)
    if not trials:
        raise UsageError(
            "E-PRED-5",
            "no mode was profiled, so there is nothing to predict from",
            evidence=f"the store holds no result of {', '.join(question.models) or 'any model'}",
            fix="edgescope predict MODEL --run",
        )
    place = {t.variant: i for i, t in enumerate(trials)}
    stored = [r for r in (scope.results if asked.run else question.stored) if r.trial.variant in place]
    rows = modes.of_trials(trials, _features(trials, stored), _cores(stored))
    labels = {t.label for t in trials}
    grid = modes.grid(rows, [t.label for t in trials] if len(labels) == len(trials) else ())
    scope_of_power, other = energy.usual(stored), like.over(rows, grid)
    state = Profiling(grid, asked.wanted, scope_of_power, asked.epoch_samples, other, asked.seed)
    for result in stored:
        state.learn(place[result.trial.variant], result)
    name = ", ".join(dict.fromkeys(t.model.partition("#")[0] for t in trials))
    if not asked.run:
        reason = "answered from the store: --run measures the pick in fresh processes"
        return Predicted(name, state.prediction(), Absent(reason))
    check_modes(trials, setup.tell)
    machines.measured_by(here(), scope.machine)
    strategy = profiled(state, trials, asked.cells, asked.confirm)
    for _ in Loop(setup.cells(scope.store), setup.tell).run(strategy):
        pass
    return Predicted(name, state.prediction(), state.confirmed(asked.confirm))


def _trials(question: Question, scope: Scope, run: bool) -> list[Trial]:
    """Return one trial for each mode: of the study, of the keys, or every combination of what is stored."""
    if run or scope.study is not None:
        found = scope.grid(question)
    else:
        found = _combined([replace(r.trial, replicate=0) for r in question.stored if r.status in MEASURED])
    return list({t.variant: replace(t, replicate=0) for t in found}.values())


def _combined(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials, and every combination of the values that they differ in; UsageError if those are too
    many.
    """
    if not trials:
        return ()
    plain = [t.to_json() for t in trials]
    differ = {k: list({repr(p[k]): p[k] for p in plain}.values()) for k in plain[0]}
    axes = {k: v for k, v in differ.items() if len(v) > 1 and k in modes.COMBINED}
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST:
        raise UsageError(
            "E-PRED-10",
            f"the store's values combine to {count:,} modes, more than {MOST:,}",
            evidence=", ".join(f"{k}: {len(v)} values" for k, v in axes.items()),
            fix="edgescope predict --study study.toml",
        )
    every = (
        Trial.from_json(plain[0] | dict(zip(axes, p, strict=True))) for p in itertools.product(*axes.values())
    )
    return (*trials, *every)


def _features(trials: Sequence[Trial], stored: Sequence[Result]) -> dict[str, Mapping[str, float]]:
    """Return what each mode sets: as the results recorded it, else as this machine knows it."""
    found: dict[str, Mapping[str, float]] = {}
    for result in stored:
        kept = result.machine.state.get("mode")
        if isinstance(kept, Mapping) and kept.get("features"):
            found[result.trial.mode] = kept["features"]
    return found | mode_features({t.mode for t in trials} - found.keys() - {modes.AS_IS})


def _cores(stored: Sequence[Result]) -> int:
    """Return the CPUs of the machine that measured, or of this one."""
    facts = stored[0].machine.stable.get("cpu", {}) if stored else {}
    found = facts.get("logical_cores") if isinstance(facts, Mapping) else None
    return found if isinstance(found, int) and found > 0 else len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Other:
    """The stored results of another workload or device, whose modes show how this one's may differ."""

    results: Sequence[Result] = ()

    def over(self, rows: Sequence[modes.Knobs], grid: ModeGrid) -> tuple[Floats, Floats | None] | None:
        """Return log seconds and log watts of every mode of `grid` as the others have them; None without others.

        `rows` are the knobs of the grid's modes. Only the knobs that both have are compared.
        """
        if not self.results:
            return None
        trials = list({r.trial.variant: replace(r.trial, replicate=0) for r in self.results}.values())
        theirs = modes.of_trials(trials, _features(trials, self.results), _cores(self.results))
        shared = [n for n in grid.knobs if all(n in row for row in theirs)]
        keys = [tuple((n, row.get(n)) for n in shared) for row in (*rows, *theirs)]
        place = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        union = modes.grid([dict(key) for key in place])
        at = {t.variant: place[k] for t, k in zip(trials, keys[len(rows) :], strict=True)}
        state = Profiling(union, wanted("throughput"))
        for result in self.results:
            state.learn(at[result.trial.variant], result)
        found, mine = state.prediction(), [place[key] for key in keys[: len(rows)]]
        power = None if isinstance(found.power, Absent) else found.power.guess.mean[mine]
        return found.time.guess.mean[mine], power


def _other(like: str, store: Store, scope: Scope) -> Other:
    """Return the stored results of the model `like`; UsageError if there are none."""
    if not like:
        return Other()
    model = zoo.pin(like)
    held = scope.results if store is scope.store else own_results(store, "", scope.tell)
    found = [r for r in held if r.trial.model == model and r.status in MEASURED]
    if not found:
        raise UsageError(
            "E-PRED-11",
            f"there is no result of {like} to transfer from",
            fix=f"edgescope predict {like} --run",
        )
    return Other(found)
