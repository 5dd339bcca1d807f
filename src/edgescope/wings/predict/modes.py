"""A grid of modes as numbers: the value of each knob in each mode, from Trials, stored results or a table of figures.

A knob is anything that a mode or a Trial sets: CPU cores, clocks in Hz, CPU time, the share of a GPU, batch,
processes, workers of a loader. The physical models know the knobs of KNOWN by name and use each where it acts;
any other knob, numeric or a word (a precision), is an axis of the statistical models all the same.

A table was measured on any device by any tool: CSV, or JSON as a list of objects.

    cpu_cores,gpu_hz,batch,seconds,power_w
    4,624750000,16,0.213,14.2
    12,1300500000,16,,                      a mode without figures is to be predicted

`seconds` are those of one query or minibatch; `throughput_sps` may stand in their place. Every other column is a knob.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from edgescope.command import option_value
from edgescope.errors import UsageError
from edgescope.records import Json, Scalar, Trial
from edgescope.search.gp import Axis, coordinates, product

if TYPE_CHECKING:
    from edgescope.wings.predict.roofline_modes import Parts


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Knobs = Mapping[str, Scalar | None]
#: The knobs that a mode sets, as devices.base.FEATURES names them.
FEATURES = ("cpu_cores", "cpu_quota", "cpu_hz", "gpu_hz", "memory_hz", "gpu_sm_share", "gpu_power_w")
AS_IS = "as_is"
#: The knobs whose effect the physical models know, with what each is.
KNOWN: Mapping[str, str] = {
    "cpu_cores": "CPU cores that may be used",
    "cpu_quota": "CPU time, in CPUs",
    "cpu_hz": "highest clock of the CPU",
    "gpu_hz": "highest clock of the GPU",
    "memory_hz": "highest clock of the memory",
    "gpu_sm_share": "share of the GPU's multiprocessors",
    "gpu_power_w": "power limit of the GPU",
    "batch": "samples of one query or minibatch",
    "processes": "processes at once",
    "in_flight": "queries in flight in each process",
    "workers": "worker processes of the data loader; 0 loads in the training process",
    "threads": "threads of the engine",
}
#: Fields of a Trial whose stored values combine to a grid; what else differs is not combined.
COMBINED = ("batch", "processes", "in_flight", "sharing", "mode", "options", "workload_options", "precision")
#: Names under which a Trial holds a knob of KNOWN.
ALIASES = {"options.threads": "threads", "workload_options.num_workers": "workers"}


@dataclass(frozen=True)
class ModeGrid:
    """The modes to predict: their names, and each knob's value in each mode."""

    names: tuple[str, ...]
    knobs: Mapping[str, tuple[Scalar | None, ...]]
    """Only the knobs that differ between modes."""
    fixed: Mapping[str, Scalar | None]
    """The knobs that are the same in every mode."""

    def __len__(self) -> int:
        return len(self.names)

    def numbers(self, knob: str) -> Floats | None:
        """Return a knob's values, shape (modes,); None if it does not differ between modes or is no number."""
        values = self.knobs.get(knob)
        return None if values is None or not _numeric(values) else np.array(values, dtype=np.float64)

    def axes(self) -> tuple[Axis, ...]:
        """Return the axes on which modes resemble each other, then processes x batch if both differ."""
        out = [_axis(name, values) for name, values in self.knobs.items()]
        lanes = [self.numbers(n) for n in ("processes", "in_flight", "batch")]
        if sum(n is not None for n in lanes) > 1:
            out.append(
                product("samples under way", np.prod([n for n in lanes if n is not None], axis=0).tolist())
            )
        return tuple(out)

    def unit(self) -> Floats:
        """Return every mode as a point, each knob from 0 to 1; a word has one coordinate for each of its values."""
        columns = []
        for name, values in self.knobs.items():
            axis = _axis(name, values)
            if axis.ordinal:
                columns.append((axis.at - axis.at.min()) / (axis.at.max() - axis.at.min()))
            else:
                columns += [(axis.at == level) / math.sqrt(2) for level in range(len(axis.levels))]
        return np.stack(columns, axis=1) if columns else np.zeros((len(self), 0))

    def row(self, mode: int) -> dict[str, Json]:
        """Return the knobs of one mode, those that are the same everywhere too."""
        return dict(self.fixed) | {name: values[mode] for name, values in self.knobs.items()}


def grid(rows: Sequence[Knobs], names: Sequence[str] = ()) -> ModeGrid:
    """Return the grid of these modes; UsageError for none, for two that are equal, or for a number that is none."""
    if not rows:
        raise UsageError(
            "E-PRED-1", "there is no mode to predict", fix="edgescope predict MODEL --study study.toml"
        )
    every = dict.fromkeys(name for row in rows for name in row)
    columns = {name: tuple(row.get(name) for row in rows) for name in every}
    for name, values in columns.items():
        wrong = [v for v in values if isinstance(v, float) and not math.isfinite(v)]
        if wrong:
            raise UsageError(
                "E-PRED-2",
                f"a mode's {name} is {wrong[0]}, which is no number",
                effect="Nothing was predicted",
            )
    differ = {name: values for name, values in columns.items() if len(set(values)) > 1}
    fixed = {name: values[0] for name, values in columns.items() if name not in differ}
    seen = set(zip(*differ.values(), strict=True)) if differ else {()}
    if len(seen) < len(rows):
        raise UsageError(
            "E-PRED-3",
            f"{len(rows) - len(seen)} of {len(rows)} modes are named twice",
            evidence="all their knobs are equal",
            effect="It is not known which figures belong to which mode",
        )
    return ModeGrid(tuple(names) or tuple(label(row, differ) for row in rows), differ, fixed)


def label(knobs: Knobs, differ: Mapping[str, object]) -> str:
    """Return a mode's name from the knobs that differ: `cpu_cores=4 gpu_hz=1.3e+09`."""
    return " ".join(f"{name}={_text(knobs.get(name))}" for name in differ) or "the only mode"


def _text(value: Scalar | None) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def of_trials(
    trials: Sequence[Trial], features: Mapping[str, Mapping[str, float]], cores: int
) -> list[dict[str, Scalar | None]]:
    """Return the knobs of each trial: the numbers that its mode sets, and its other coordinates.

    `features` holds, by the name of a mode, what it sets (devices.base.FEATURES); a mode that sets nothing
    known stays a word. What only other modes limit is unlimited: `cores` CPUs, the whole GPU, the highest of
    the other modes' clocks.
    """
    rows = [_knobs(t, dict(features.get(t.mode, {}))) for t in trials]
    limited = sorted({name for row in rows for name in row} & {*FEATURES})
    whole: dict[str, float] = {"cpu_cores": float(cores), "gpu_sm_share": 1.0}
    for name in limited:
        given = [v for row in rows if isinstance(v := row.get(name), int | float)]
        most = max([cores, *given]) if name == "cpu_quota" else whole.get(name, max(given))
        for row in rows:
            row.setdefault(name, most)
    for row in rows:
        if row.get("mode") == AS_IS and limited:
            del row["mode"]
    return rows


def _knobs(trial: Trial, features: dict[str, float]) -> dict[str, Scalar | None]:
    plain = {ALIASES.get(k, k): v for k, v in coordinates(trial).items()}
    word = str(plain.pop("mode"))
    share = str(plain.get("sharing", "")).partition("=")[2]
    if share:
        plain["sharing"], features["gpu_sm_share"] = "mps", float(share) / 100
    return {**plain, **features} if features else {**plain, "mode": word}


def _numeric(values: Sequence[Scalar | None]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and v >= 0 for v in values)


def _axis(name: str, values: Sequence[Scalar | None]) -> Axis:
    """Return a knob's axis: a number on a log2 scale (of 1 + n where n may be 0), else a word."""
    if _numeric(values):
        numbers = np.array(values, dtype=np.float64)
        at = np.log2(numbers + (numbers.min() == 0))
        return Axis(name, tuple(sorted(set(values))), at, True)  # type: ignore[type-var]
    levels = tuple(dict.fromkeys(values))
    return Axis(name, levels, np.array([levels.index(v) for v in values], dtype=np.float64), False)


@dataclass(frozen=True)
class Profile:
    """What was measured: mode -> its figure; a mode that was run several times has one for each run."""

    seconds: Mapping[int, Sequence[float]]
    """Of one sample."""
    watts: Mapping[int, Sequence[float]] = field(default_factory=dict)
    scope: str = ""
    """What the watts cover."""
    parts: Mapping[int, Parts] = field(default_factory=dict)
    """What the time of a training mode consists of, where it is known."""

    def __post_init__(self) -> None:
        """Raise UsageError for a figure that cannot be one."""
        every = [*self.seconds.items(), *self.watts.items()]
        wrong = [(mode, x) for mode, runs in every for x in runs if not (math.isfinite(x) and x > 0)]
        if wrong:
            raise UsageError(
                "E-PRED-4",
                f"a profiled mode has the figure {wrong[0][1]:g}",
                evidence="times and watts are positive numbers",
                effect="Nothing was predicted",
            )


SECONDS, SPEED, WATTS = "seconds", "throughput_sps", "power_w"
FIGURES = (SECONDS, SPEED, WATTS)
LANES = ("batch", "processes", "in_flight")


def read_table(path: Path) -> tuple[ModeGrid, Profile]:
    """Return the grid and the measured figures of a file; UsageError if it is no such table.

    Rows with the same knobs are runs of one mode.
    """
    try:
        text = path.read_text(encoding="utf-8")
        rows = json.loads(text) if path.suffix == ".json" else list(csv.DictReader(text.splitlines()))
        return of_rows([_with_numbers(row) for row in rows])
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(
            "E-PRED-7",
            f"{path} holds no table of modes",
            evidence=f"{type(error).__name__}: {error}",
            effect="Nothing was predicted",
            fix="a CSV file with the columns batch, cpu_cores, seconds, power_w: edgescope docs predict",
        ) from error


def of_rows(rows: Sequence[Mapping[str, Scalar | None]]) -> tuple[ModeGrid, Profile]:
    """Return the grid and the figures of rows that hold knobs and, where measured, FIGURES."""
    seconds: dict[int, list[float]] = {}
    watts: dict[int, list[float]] = {}
    place: dict[tuple[tuple[str, Any], ...], int] = {}
    knobs: list[dict[str, Scalar | None]] = []
    for row in rows:
        own = {k: v for k, v in row.items() if k not in FIGURES}
        key = tuple(sorted(own.items()))
        mode = place.setdefault(key, len(place))
        if mode == len(knobs):
            knobs.append(own)
        time = _number(row, SECONDS)
        speed = _number(row, SPEED)
        if time is not None:
            lanes = [float(v) for n in LANES if isinstance(v := own.get(n), int | float)]
            for count in lanes:
                time /= count
        elif speed is not None:
            time = 1 / speed if speed else 0.0
        if time is not None:
            seconds.setdefault(mode, []).append(time)
            if (power := _number(row, WATTS)) is not None:
                watts.setdefault(mode, []).append(power)
    return grid(knobs), Profile(seconds, watts)


def _number(row: Mapping[str, Scalar | None], name: str) -> float | None:
    found = row.get(name)
    if found is None:
        return None
    if isinstance(found, bool | str):
        raise ValueError(f"{name} is {found!r}, which is no number")
    return float(found)


def _with_numbers(row: Mapping[str, Any]) -> dict[str, Scalar | None]:
    """Return a row with its numbers as numbers; an empty cell is None."""
    plain = {str(k): v for k, v in row.items()}
    return {k: _value(v) if isinstance(v, str) else v for k, v in plain.items()}


def _value(text: str) -> Scalar | None:
    if not text.strip():
        return None
    try:
        return float(text)
    except ValueError:
        return option_value(text.strip())
