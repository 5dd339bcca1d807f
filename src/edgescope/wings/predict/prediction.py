"""Predict time, power and energy of every mode of a grid from the modes that were profiled, and answer
questions about them; and the document that says it.

Time is predicted as seconds of one sample. Power is predicted given the time, because most of it is energy of
a sample times samples a second: profiled modes bring their measured time, the others their predicted one.
Energy is their product; its interval knows how the errors of the two went together in left-out modes. A mode
without a meter has no power: the reason stands in its place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from edgescope import units
from edgescope.analysis.cells.objective import Wanted, pareto
from edgescope.errors import UsageError
from edgescope.metrics import METRICS
from edgescope.records import Absent, Field, Measured
from edgescope.records.codec import to_plain
from edgescope.report import document as doc
from edgescope.units import counted
from edgescope.wings.predict import roofline_modes
from edgescope.wings.predict.modes import Floats, ModeGrid, Profile
from edgescope.wings.predict.roofline_modes import Parts
from edgescope.wings.predict.surfaces import (
    OWN_WEIGHT,
    Chosen,
    Curve,
    Fitter,
    Guess,
    Linear,
    Roofline,
    Seen,
    Shape,
    Surface,
    Transfer,
    choose,
)

if TYPE_CHECKING:
    from edgescope.wings.predict.profiling import Confirmed


NO_EPOCH = Absent("the samples of an epoch are not given: --epoch-samples")
NO_METER = Absent("unsupported: no profiled mode has a power reading")


@dataclass(frozen=True)
class ModeRow:
    """One mode: its predicted figures with 90 % prediction intervals of a fresh run."""

    mode: int
    name: str
    figures: Mapping[str, Field]
    profiled: bool
    broken: tuple[str, ...] = ()
    """The constraints that it breaks, judged on the worse end of the interval."""

    def __getitem__(self, metric: str) -> Field:
        return self.figures.get(metric, Absent("not predicted"))


@dataclass(frozen=True)
class Prediction:
    """The prediction of a whole grid."""

    grid: ModeGrid
    profile: Profile
    time: Chosen
    power: Chosen | Absent
    wanted: Wanted
    epoch_samples: int | None = None

    @cached_property
    def rows(self) -> tuple[ModeRow, ...]:
        """Return one row for each mode, in the order of the grid."""
        columns = {
            k: v if isinstance(v, Absent) else _fields(v, METRICS[k].unit) for k, v in self.guesses.items()
        }
        found = []
        for mode, name in enumerate(self.grid.names):
            figures = {k: v if isinstance(v, Absent) else v[mode] for k, v in columns.items()}
            broken = self.wanted.broken(figures)
            found.append(ModeRow(mode, name, figures, mode in self.profile.seconds, broken))
        return tuple(found)

    @cached_property
    def ranked(self) -> tuple[ModeRow, ...]:
        """Return the modes that have the objective's figure, best first; those that break a constraint last."""
        able = [r for r in self.rows if isinstance(r[self.wanted.goal.name], Measured)]
        return tuple(sorted(able, key=lambda r: (bool(r.broken), self.cost(r))))

    @property
    def pick(self) -> ModeRow | None:
        """Return the best mode whose whole interval keeps every constraint, or None."""
        return next((r for r in self.ranked if not r.broken), None)

    @cached_property
    def front(self) -> tuple[ModeRow, ...]:
        """Return the modes that no other beats on time and power at once, fastest first; without power, the
        fastest.
        """
        axes = [n for n in ("throughput_sps", "power_w") if isinstance(self.rows[0][n], Measured)]

        def costs(row: ModeRow) -> list[float]:
            found = [(METRICS[n].higher, row[n]) for n in axes]
            return [-f.value if higher else f.value for higher, f in found if isinstance(f, Measured)]

        return tuple(pareto(self.rows, *(lambda row, i=i: costs(row)[i] for i in (0, -1))))

    def cost(self, row: ModeRow) -> float:
        """Return the objective's figure, negated if higher is better."""
        found = row[self.wanted.goal.name]
        if isinstance(found, Absent):
            return math.inf
        return -found.value if self.wanted.goal.higher else found.value

    @cached_property
    def guesses(self) -> dict[str, Guess | Absent]:
        """Return the guess of each predicted metric, each with the logarithms of its values in SI."""
        time, power = self.time.guess, self.power if isinstance(self.power, Absent) else self.power.guess
        lanes = np.log(roofline_modes.under_way(self.grid))
        out: dict[str, Guess | Absent] = {
            "throughput_sps": replace(time, mean=-time.mean),
            "latency_mean_s": replace(time, mean=time.mean + lanes),
            "power_w": power,
            "energy_per_sample_j": power if isinstance(self.power, Absent) else joined(self.time, self.power),
        }
        for whole, part in (("epoch_s", time), ("epoch_j", out["energy_per_sample_j"])):
            if isinstance(part, Absent) or not self.epoch_samples:
                out[whole] = part if isinstance(part, Absent) else NO_EPOCH
            else:
                out[whole] = replace(part, mean=part.mean + math.log(self.epoch_samples))
        return out


def joined(time: Chosen, power: Chosen) -> Guess:
    """Return the guess of the energy: time multiplied by power."""
    a, b = time.guess, power.guess
    one, other = a.factor * a.sd, b.factor * b.sd
    half = np.sqrt(one**2 + other**2 + 2 * _together(time, power) * one * other)
    return Guess(a.mean + b.mean, np.maximum(half, 1e-6), 1.0)


def _together(time: Chosen, power: Chosen) -> float:
    """Return the correlation of the errors of left-out modes, -1 to 1; nearer to 0 the fewer the modes."""
    both = [mode for mode in time.gaps if mode in power.gaps]
    a, b = (np.array([chosen.gaps[mode] for mode in both]) for chosen in (time, power))
    size = float(np.sqrt((a**2).sum() * (b**2).sum())) + 1e-12
    return float((a * b).sum()) / size * len(both) / (len(both) + OWN_WEIGHT)


def _fields(guess: Guess, unit: str) -> list[Measured]:
    columns = (guess.value, *guess.ends())
    return [Measured(float(v), unit, float(a), float(b), 1) for v, a, b in zip(*columns, strict=True)]


def predict(
    grid: ModeGrid,
    profile: Profile,
    wanted: Wanted,
    *,
    like: tuple[Floats, Floats | None] | None = None,
    epoch_samples: int | None = None,
    models: Sequence[str] = (),
    check: bool = True,
) -> Prediction:
    """Return the prediction of every mode; UsageError if nothing was profiled.

    `like`: log seconds and log watts of every mode under another workload or on another device; `models`: the
    models to choose among, by default all but `linear`; without `check` the first of them is taken, which
    takes a tenth of the time.
    """
    if not profile.seconds:
        raise UsageError(
            "E-PRED-5",
            "no mode was profiled, so there is nothing to predict from",
            fix="edgescope predict MODEL --run, or a store that holds results of the model",
        )
    seen = _logs(profile.seconds)
    other_time, other_power = like or (None, None)
    time = choose(surfaces(grid, _seconds(grid, profile.parts), other_time, models), seen, check=check)
    watts = _logs({m: w for m, w in profile.watts.items() if m in profile.seconds})
    if not watts:
        return Prediction(grid, profile, time, NO_METER, wanted, epoch_samples)
    power = choose(surfaces(grid, _watts(grid, time, seen), other_power, models), watts, check=check)
    return Prediction(grid, profile, time, power, wanted, epoch_samples)


def _logs(runs: Mapping[int, Sequence[float]]) -> dict[int, float]:
    return {mode: float(np.mean(np.log(found))) for mode, found in runs.items() if len(found)}


def surfaces(grid: ModeGrid, shape: Shape, other: Floats | None, models: Sequence[str] = ()) -> list[Surface]:
    """Return the models to choose among, the first being the one for very few modes."""
    axes = grid.axes()
    every: list[Surface] = [Roofline(axes, Fitter(shape))]
    every += [Transfer(axes, other)] if other is not None else []
    if "linear" in models:
        every.append(Linear.over(grid))
    return [s for s in every if not models or s.name in models]


def _seconds(grid: ModeGrid, parts: Mapping[int, Parts]) -> Shape:
    """Return the shape of time; a profiled mode that is left out takes its parts with it."""
    return lambda seen: roofline_modes.seconds(
        grid, min(seen.values()), {m: part for m, part in parts.items() if m in seen}
    )


def _watts(grid: ModeGrid, time: Chosen, seen: Seen) -> Shape:
    """Return the shape of power: a mode whose power is known has its measured time, another its predicted one.

    A profiled mode that is left out has the time that the other modes predict for it, so that its error counts.
    """
    predicted = time.guess.mean.copy()
    for mode, value in time.left_out.items():
        predicted[mode] = value

    def shape(known: Seen) -> Curve:
        seconds = predicted.copy()
        for mode in known:
            seconds[mode] = seen[mode]
        return roofline_modes.watts(grid, seconds, float(np.median(list(known.values()))))

    return shape


COLUMNS = ("throughput_sps", "latency_mean_s", "power_w", "energy_per_sample_j", "epoch_s", "epoch_j")
#: Largest number of modes in the table.
MOST_ROWS = 14


def document(
    name: str,
    found: Prediction,
    confirmed: Confirmed | Absent,
    pick: ModeRow | None,
    *,
    everything: bool = False,
) -> doc.Document:
    """Return the document of one prediction; `everything` shows every mode, not only the Pareto front."""
    bounds = ", ".join(c.text for c in found.wanted.constraints)
    title = f"{name}: {found.wanted.goal.best}" + (f" with {bounds}" if bounds else "")
    known = len(found.profile.seconds)
    parts = (
        doc.Text(title, "strong"),
        _answer(found, confirmed, pick),
        _table(found, pick, everything),
        doc.Text(f"{counted(len(found.grid), 'mode')}, {known} of them profiled", "lead"),
        _models(found),
    )
    return doc.Document(title, parts, facts(name, found, confirmed, pick))


def _answer(found: Prediction, confirmed: Confirmed | Absent, pick: ModeRow | None) -> doc.Answer:
    if pick is None:
        best = next(iter(found.ranked), None)
        why = (
            "no mode has the objective's figure"
            if best is None
            else f"the nearest, {best.name}: {'; '.join(best.broken)}"
        )
        if best is None and isinstance(gap := found.rows[0][found.wanted.goal.name], Absent):
            why = gap.reason
        return doc.Answer("No pick", "", (why,), why, kind="none")
    shown = [n for n in COLUMNS if isinstance(pick[n], Measured)]
    lines = ["predicted: " + ", ".join(f"{METRICS[n].title.lower()} {units.show(pick[n])}" for n in shown)]
    if isinstance(confirmed, Absent):
        lines.append(f"not confirmed: {confirmed.reason}")
    else:
        runs = max(f.n for f in confirmed.figures.values())
        texts = (f"{METRICS[n].title.lower()} {units.show(f)}" for n, f in confirmed.figures.items())
        lines.append(f"measured in {counted(runs, 'process')}: {', '.join(texts)}")
    return doc.Answer("Use", pick.name, tuple(lines), "; ".join(lines))


def _table(found: Prediction, pick: ModeRow | None, everything: bool) -> doc.Table:
    rows = list(found.rows if everything else spread(found.front, MOST_ROWS))
    rows += [pick] if pick is not None and pick not in rows else []
    rows.sort(key=found.cost)
    asked = {found.wanted.goal.name, *(c.metric.name for c in found.wanted.constraints)}
    names = [n for n in COLUMNS if n in asked or any(isinstance(r[n], Measured) for r in rows)]
    heads = [
        doc.Column.of(METRICS[n], 0 if n in asked else i, _scope(found, n))
        for i, n in enumerate(names, start=1)
    ]
    title = "every mode" if everything else "Pareto front, predicted: no other mode is faster and draws less"
    body = tuple(_row(r, names, found, pick) for r in rows)
    return doc.Table((doc.Column("mode"), *heads), body, title)


def _scope(found: Prediction, name: str) -> str:
    return found.profile.scope if METRICS[name].scope else ""


def spread(front: Sequence[ModeRow], most: int) -> list[ModeRow]:
    """Return at most `most` rows of a front, evenly spread, both ends included."""
    if len(front) <= most:
        return list(front)
    return [front[round(i * (len(front) - 1) / (most - 1))] for i in range(most)]


def _row(row: ModeRow, names: Sequence[str], found: Prediction, pick: ModeRow | None) -> doc.Row:
    picked = pick is not None and row.mode == pick.mode
    marks: list[doc.Value] = [row.name, *([doc.Mark("pick", "pick")] if picked else [])]
    marks += [doc.Mark("profiled", "chip")] if row.profiled else []
    marks += (
        [doc.Mark(f"breaks {', '.join(b.partition(' ')[0] for b in row.broken)}", "chip")]
        if row.broken
        else []
    )
    cells = (_cell(row[n]) for n in names)
    return doc.Row((tuple(marks), *cells), "picked" if picked else "dim" if row.broken else "")


def _cell(found: Field) -> doc.Value | doc.Cell:
    return found if isinstance(found, Absent) else doc.Cell(found, brief=units.show(found))


def _models(found: Prediction) -> doc.Section:
    """Return how far each model was off the modes that were left out of its fit."""
    rows = [*_errors("time", found.time)]
    rows += [] if isinstance(found.power, Absent) else _errors("power", found.power)
    heads = (
        doc.Column("quantity"),
        doc.Column("model"),
        doc.Column("mean error of a left-out mode", "share"),
    )
    if rows:
        parts: tuple[doc.Part, ...] = (doc.Table(heads, tuple(rows)),)
    else:
        parts = (doc.Text("too few modes were profiled to leave one out: 4 are needed"),)
    return doc.Section("How well the models predict", parts, level=doc.DETAIL)


def _errors(quantity: str, chosen: Chosen) -> list[doc.Row]:
    return [
        doc.Row((quantity, model, Measured(error, "share")), "picked" if model == chosen.model else "")
        for model, error in sorted(chosen.errors.items(), key=lambda item: item[1])
    ]


def facts(
    name: str, found: Prediction, confirmed: Confirmed | Absent, pick: ModeRow | None
) -> dict[str, Any]:
    """Return {name, objective, constraints, pick, measured, models, modes} as plain values."""
    models = {"time": found.time} | ({} if isinstance(found.power, Absent) else {"power": found.power})
    return {
        "name": name,
        "objective": found.wanted.objective,
        "constraints": [c.text for c in found.wanted.constraints],
        "pick": pick.name if pick else None,
        "measured": to_plain(confirmed if isinstance(confirmed, Absent) else dict(confirmed.figures)),
        "models": {k: {"chosen": c.model, "left_out_errors": dict(c.errors)} for k, c in models.items()},
        "front": [r.name for r in found.front],
        "modes": [_mode(found, r) for r in found.rows],
    }


def _mode(found: Prediction, row: ModeRow) -> dict[str, Any]:
    knobs, figures = found.grid.row(row.mode), to_plain({n: row[n] for n in COLUMNS})
    plain = {"name": row.name, "knobs": knobs, "profiled": row.profiled, "broken": list(row.broken)}
    return {**plain, **figures}
