"""Read a table of modes, measured on any device by any tool: CSV, or JSON as a list of objects.

    cpu_cores,gpu_hz,batch,seconds,power_w
    4,624750000,16,0.213,14.2
    12,1300500000,16,,                      a mode without figures is to be predicted

`seconds` are those of one query or minibatch; `throughput_sps` may stand in their place. Every other column is
a knob.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgescope.command import option_value
from edgescope.errors import UsageError
from edgescope.records import Scalar
from edgescope.wings.predict import modes
from edgescope.wings.predict.modes import ModeGrid
from edgescope.wings.predict.prediction import Profile

SECONDS, SPEED, WATTS = "seconds", "throughput_sps", "power_w"
FIGURES = (SECONDS, SPEED, WATTS)
LANES = ("batch", "processes", "in_flight")


def read(path: Path) -> tuple[ModeGrid, Profile]:
    """Return the grid and the measured figures of a file; UsageError if it is no such table.

    Rows with the same knobs are runs of one mode.
    """
    try:
        text = path.read_text(encoding="utf-8")
        rows = json.loads(text) if path.suffix == ".json" else list(csv.DictReader(text.splitlines()))
        return of_rows([_row(row) for row in rows])
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
    return modes.grid(knobs), Profile(seconds, watts)


def _number(row: Mapping[str, Scalar | None], name: str) -> float | None:
    found = row.get(name)
    if found is None:
        return None
    if isinstance(found, bool | str):
        raise ValueError(f"{name} is {found!r}, which is no number")
    return float(found)


def _row(row: Mapping[str, Any]) -> dict[str, Scalar | None]:
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
