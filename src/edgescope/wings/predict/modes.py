"""A grid of modes as numbers: the value of each knob in each mode, from Trials, stored results or a table of figures.

A knob is anything that a mode or a Trial sets: CPU cores, clocks in Hz, CPU time, the share of a GPU, batch,
processes, workers of a loader. The physical models know the knobs of KNOWN by name and use each where it acts;
any other knob, numeric or a word (a precision), is an axis of the statistical models all the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgescope.errors import UsageError
from edgescope.records import Json, Scalar, Trial
from edgescope.search.gp import Axis, coordinates, product

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
